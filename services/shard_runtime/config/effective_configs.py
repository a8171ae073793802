"""The values of configs in force: overrides in the metadata, then this process's settings, then defaults.

Stored group values are clamped into the broker's present bounds (PL-1002, GC-137). Changes are checked here before they
are stored (GC-145…GC-147).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar, cast

import structlog

from kip932.errors import InvalidConfigError
from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from kip932.nearest_name import did_you_mean
from kip932.setting import AnySetting, Setting, SettingTable
from shard_runtime.config.group_config import GroupConfig, group_config
from shard_runtime.config.kafka_configs import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    GROUP_HEARTBEAT_INTERVAL_MS,
    GROUP_LOCK_DURATION_MS,
    GROUP_SESSION_TIMEOUT_MS,
    SHARE_VERSION,
    TOPIC_CONFIGS,
)
from shard_runtime.config.process_settings import Settings

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: The effective configs of at most this many groups are cached; one more group clears the cache.
_GROUPS_MAX: Final = 10_000
_QUEUES_VERSION: Final = 2  # the first share.version with dead-letter queues (PL-901)

TABLES: Final[Mapping[int, SettingTable]] = {
    RESOURCE_TOPIC: TOPIC_CONFIGS,
    RESOURCE_BROKER: BROKER_CONFIGS,
    RESOURCE_GROUP: GROUP_CONFIGS,
}
_WARNED_MAX: Final = 1_000
#: Advice added to a refusal, where the alternative is not obvious.
_ADVICE: Final = {
    GROUP_LOCK_DURATION_MS.name: (
        " A job that takes longer renews the lock while it works: acknowledge the record with RENEW, in explicit mode."
    ),
}


class Image(Protocol):
    """The part of the metadata that configs are read from; `MetadataImage` is one. Each change makes a new one."""

    def config(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the configs set on a resource."""
        ...


class Metadata(Protocol):
    """What holds the newest image; `MetadataLog` is one."""

    @property
    def image(self) -> Image: ...  # noqa: D102 - the class explains it


class EffectiveConfigs:
    """The configs in force for topics, groups and this node. Reads are cheap enough for each decision (PL-1003): those
    of a group are computed once for each image of the metadata. (A version would not do: if the store lost its tail,
    the next change gets the number of the lost one, CM-20.)"""

    def __init__(self, settings: Settings, metadata: Metadata, node_id: Callable[[], int] = lambda: -1) -> None:
        self.settings = settings
        self._metadata = metadata
        self._node_id = node_id
        self._groups: dict[str, GroupConfig] = {}
        self._groups_image: Image | None = None
        self._warned: set[tuple[str, str, str]] = set()

    def set_on(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the configs set on a resource, even if outside their current bounds."""
        return self._metadata.image.config(resource_type, name)

    def share_enabled(self) -> bool:
        """Return whether share groups are served (GC-8)."""
        return self.broker(SHARE_VERSION) >= 1

    def broker(self, setting: Setting[T]) -> T:
        """Return a broker config: the value set for this node, else for all nodes, else in this process's settings,
        else the default."""
        if setting.dynamic:
            for name in (str(self._node_id()), ""):
                text = self.set_on(RESOURCE_BROKER, name).get(setting.name)
                if text is not None:
                    return self._bounded(setting, setting.value(text), f"broker {name}")
        return self.settings[setting]

    def topic(self, topic: str, setting: Setting[T]) -> T:
        """Return a topic config, by the topic's name."""
        text = self.set_on(RESOURCE_TOPIC, topic).get(setting.name)
        return setting.default if text is None else setting.value(text)

    def group(self, group_id: str, setting: Setting[T]) -> T:
        """Return a group config: the group's value clamped into the broker's bounds, else the broker's value, else the
        default."""
        text = self.set_on(RESOURCE_GROUP, group_id).get(setting.name)
        if text is not None:
            return self._bounded(setting, setting.value(text), group_id)
        if setting.synonym:
            return self.broker(cast(Setting[T], BROKER_CONFIGS[setting.synonym]))
        return setting.default

    def group_config(self, group_id: str) -> GroupConfig:
        """Return all effective configs of a group, under the current metadata (PL-1003, GC-138)."""
        image = self._metadata.image
        if image is not self._groups_image or len(self._groups) >= _GROUPS_MAX:
            self._groups, self._groups_image = {}, image
        found = self._groups.get(group_id)
        if found is None:
            has_queue = self.broker(SHARE_VERSION) >= _QUEUES_VERSION
            found = self._groups[group_id] = group_config(partial(self.group, group_id), has_queue)
        return found

    def bounds(self, setting: AnySetting | Setting[T]) -> tuple[int, int] | None:
        """Return the broker's bounds of a config; None when it has none."""
        if setting.bounds is None:
            return None
        low, high = (self.settings[cast(Setting[int], BROKER_CONFIGS[name])] for name in setting.bounds)
        return low, high

    def _bounded(self, setting: Setting[T], value: T, whose: str) -> T:
        bounds = self.bounds(setting)
        if bounds is None or not isinstance(value, int):
            return value
        clamped = min(max(value, bounds[0]), bounds[1])
        if clamped != value and len(self._warned) < _WARNED_MAX:
            warning = (whose, setting.name, str(value))
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning("config_out_of_bounds", config=setting.name, scope=whose, value=value, used=clamped)
        return cast(T, clamped)

    # ---- changes (GC-145)

    def check(self, resource_type: int, overrides: Mapping[str, str], changed: frozenset[str]) -> None:
        """Check all configs of a resource as they would be after a change (GC-147). Raises InvalidConfigError. Stores
        nothing.

        `changed`: the names that the change sets.
        """
        declared = TABLES[resource_type]
        kind = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker", RESOURCE_GROUP: "group"}[resource_type]
        for name in overrides:
            if name not in declared:
                hint = did_you_mean(name, declared)
                raise InvalidConfigError(f"Unknown {kind} config name: {name}" + (hint and f".{hint}"))
        try:
            # A value stored by a build that accepted it stays legal, and still has no effect (CM-120).
            values = {
                name: declared[name].given(text) if name in changed else declared[name].value(text)
                for name, text in overrides.items()
            }
        except ValueError as error:
            raise InvalidConfigError(str(error)) from None
        if resource_type == RESOURCE_GROUP:
            self._check_group(values, changed)

    def _check_group(self, values: Mapping[str, object], changed: frozenset[str]) -> None:
        for name, value in values.items():
            setting = GROUP_CONFIGS[name]
            bounds = self.bounds(setting)
            # A stored value stays valid when bounds are tightened later; only values set now must be within them
            # (GC-137).
            if name in changed and bounds is not None and not bounds[0] <= cast(int, value) <= bounds[1]:
                raise InvalidConfigError(
                    f"{name} must be in the range {bounds[0]} to {bounds[1]} inclusive. It was to be {value}; "
                    f"{' and '.join(setting.bounds or ())} of the services set the range.{_ADVICE.get(name, '')}"
                )
        pair = (GROUP_SESSION_TIMEOUT_MS, GROUP_HEARTBEAT_INTERVAL_MS)
        if changed & {setting.name for setting in pair}:
            session, heartbeat = (
                self._bounded(setting, cast(int, values[setting.name]), "a change")
                if setting.name in values
                else self.broker(cast(Setting[int], BROKER_CONFIGS[setting.synonym]))
                for setting in pair
            )
            if session <= heartbeat:
                raise InvalidConfigError(f"{pair[0].name} must be greater than {pair[1].name}")
