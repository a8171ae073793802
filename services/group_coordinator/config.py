"""Settings of the group coordinator, and the assignor that they name (GC-57, GC-139a, GC-142).

`shard_runtime.config.kafka_configs` declares names, defaults and ranges; this module reads the role's values.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from group_coordinator.core.assignor import Assignor
from group_coordinator.core.assignors import BUILT_IN
from group_coordinator.core.views import CoordinatorSettings
from shard_runtime.config import kafka_configs
from shard_runtime.config.process_settings import Settings as NodeSettings

ASSIGNORS: Final = kafka_configs.ASSIGNORS.name
_BUILT_IN: Final = ", ".join(f"`{name}`" for name in BUILT_IN)
SWEEP_INTERVAL_MS: Final = 30_000


class ConfigError(Exception):
    """A setting cannot be used; the text names it, what was found, and what was expected."""


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """The role's settings. Times are in milliseconds. `fast_first_assignment` False: behave as Kafka does (OP-19)."""

    shards: int = kafka_configs.GROUP_SHARDS.default
    max_size: int = kafka_configs.GROUP_MAX_SIZE.default
    assignors: tuple[str, ...] = kafka_configs.ASSIGNORS.default
    initialize_retry_interval_ms: int = kafka_configs.INITIALIZE_RETRY_INTERVAL_MS.default
    commit_timeout_ms: int = kafka_configs.COMMIT_TIMEOUT_MS.default
    fast_first_assignment: bool = kafka_configs.FAST_FIRST_ASSIGNMENT.default
    empty_retention_ms: int = kafka_configs.EMPTY_RETENTION_MS.default
    lost_connection_grace_ms: int = kafka_configs.LOST_CONNECTION_GRACE_MS.default
    sweep_interval_ms: int = SWEEP_INTERVAL_MS

    def settings(self) -> CoordinatorSettings:
        """The core's part of the settings (GC-72)."""
        return CoordinatorSettings(
            max_size=self.max_size,
            initialize_retry_ms=max(self.initialize_retry_interval_ms, self.commit_timeout_ms),
            fast_first_assignment=self.fast_first_assignment,
            empty_retention_ms=self.empty_retention_ms,
            lost_connection_grace_ms=self.lost_connection_grace_ms,
        )


def config_of(settings: NodeSettings) -> GroupCoordinatorConfig:
    """Select the role's part of a process's settings."""
    return GroupCoordinatorConfig(
        shards=settings[kafka_configs.GROUP_SHARDS],
        max_size=settings[kafka_configs.GROUP_MAX_SIZE],
        assignors=settings[kafka_configs.ASSIGNORS],
        initialize_retry_interval_ms=settings[kafka_configs.INITIALIZE_RETRY_INTERVAL_MS],
        commit_timeout_ms=settings[kafka_configs.COMMIT_TIMEOUT_MS],
        fast_first_assignment=settings[kafka_configs.FAST_FIRST_ASSIGNMENT],
        empty_retention_ms=settings[kafka_configs.EMPTY_RETENTION_MS],
        lost_connection_grace_ms=settings[kafka_configs.LOST_CONNECTION_GRACE_MS],
    )


def load_assignor(names: Sequence[str], configs: Mapping[str, object]) -> Assignor:
    """Load the one assignor that `group.share.assignors` names (GC-57, GC-142). Raises ConfigError.

    If a custom assignor has a method `configure(configs)`, it is called with the broker's configs.
    """
    if len(names) != 1:
        raise ConfigError(f"{ASSIGNORS} has {len(names)} entries ({', '.join(names) or 'none'}); expected exactly one")
    if names[0] in BUILT_IN:
        return BUILT_IN[names[0]]
    made = _instance(names[0])
    if not callable(getattr(made, "assign", None)):
        raise ConfigError(
            f"{ASSIGNORS}: {names[0]} has no method `assign`; expected an assignor with `name` and `assign`"
        )
    if not isinstance(getattr(made, "name", None), str) or not made.name:
        raise ConfigError(f"{ASSIGNORS}: {names[0]} has no `name`; expected a text that descriptions can show")
    if callable(configure := getattr(made, "configure", None)):
        try:
            configure(configs)
        except Exception as error:
            raise ConfigError(f"{ASSIGNORS}: configuring {names[0]} failed: {error}") from error
    return cast(Assignor, made)


def _instance(path: str) -> Any:
    module_name, colon, class_name = path.partition(":")
    if not (module_name and colon and class_name):
        raise ConfigError(f"{ASSIGNORS} is {path!r}; expected {_BUILT_IN} or `module:Class`")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{ASSIGNORS}: {path} cannot be loaded: {error}") from error
    if not isinstance(found, type):
        raise ConfigError(f"{ASSIGNORS}: {path} is a {type(found).__name__}; expected a class")
    try:
        return found()
    except Exception as error:
        raise ConfigError(f"{ASSIGNORS}: {path} cannot be made: {error}") from error
