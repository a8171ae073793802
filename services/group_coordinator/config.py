"""Settings of the group coordinator with Kafka's names, checked at start-up, and the assignor they name (GC-139a)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, cast

from group_coordinator.core.assignor import Assignor, SimpleAssignor
from group_coordinator.core.views import Settings

ASSIGNORS: Final = "group.share.assignors"
SIMPLE: Final = SimpleAssignor.name


class ConfigError(Exception):
    """A setting cannot be; the text names it, what was found, and what was expected."""


def _setting(name: str, default: Any, low: int | None, high: int | None, doc: str) -> Any:
    return field(default=default, metadata={"name": name, "low": low, "high": high, "doc": doc})


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Checked values; each field's metadata holds its Kafka name, range and meaning. Times are milliseconds.

    Group-level settings and their broker defaults and bounds are the cluster's (`GroupConfigs`), not repeated here.
    """

    offsets_topic_num_partitions: int = _setting(
        "offsets.topic.num.partitions", 50, 1, None, "Shards of the group log; fixed for the life of the deployment."
    )
    max_size: int = _setting("group.share.max.size", 200, 1, 1_000, "Members that one share group may have.")
    assignors: tuple[str, ...] = _setting(
        ASSIGNORS, (SIMPLE,), None, None, "Exactly one: `simple`, or `module:Class` of a custom assignor."
    )
    initialize_retry_interval_ms: int = _setting(
        "group.share.initialize.retry.interval.ms",
        30_000,
        1,
        None,
        "After how long an unanswered initialisation is asked for again; at least offsets.commit.timeout.ms.",
    )
    offsets_commit_timeout_ms: int = _setting(
        "offsets.commit.timeout.ms", 5_000, 1, None, "How long a caller waits for the store; the write may still land."
    )
    fast_first_assignment: bool = _setting(
        "group.share.fast.first.assignment",
        True,
        None,
        None,
        "While a group has nothing assigned, skip the assignment interval and ask for early heartbeats. False: Kafka.",
    )
    sweep_interval_ms: int = _setting(
        "group.share.sweep.interval.ms", 30_000, 1_000, None, "How often deleted topics are looked for."
    )

    def __post_init__(self) -> None:
        for spec in fields(self):
            value, low, high = getattr(self, spec.name), spec.metadata["low"], spec.metadata["high"]
            if low is not None and (value < low or (high is not None and value > high)):
                expected = f"at least {low}" if high is None else f"{low} to {high}"
                raise ConfigError(f"{spec.metadata['name']} is {value}; expected {expected}")

    def settings(self) -> Settings:
        """What the core needs (GC-72)."""
        return Settings(
            max_size=self.max_size,
            initialize_retry_ms=max(self.initialize_retry_interval_ms, self.offsets_commit_timeout_ms),
            fast_first_assignment=self.fast_first_assignment,
        )


def load_assignor(names: Sequence[str], configs: Mapping[str, object]) -> Assignor:
    """The one assignor that `group.share.assignors` names (GC-57, GC-142). Raises ConfigError naming the setting.

    A custom one with a method `configure(configs)` is given the broker's configs.
    """
    if len(names) != 1:
        raise ConfigError(f"{ASSIGNORS} has {len(names)} entries ({', '.join(names) or 'none'}); expected exactly one")
    if names[0] == SIMPLE:
        return SimpleAssignor()
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
        raise ConfigError(f"{ASSIGNORS} is {path!r}; expected `{SIMPLE}` or `module:Class`")
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
