"""The built-in assignors, and the choice of a group's assignor (GC-57, GC-58)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from group_coordinator.core.assignor import Assignor, SimpleAssignor
from group_coordinator.core.shared_assignor import SharedAssignor
from group_coordinator.core.views import GroupConfigs

BUILT_IN: Final[Mapping[str, Assignor]] = {each.name: each for each in (SimpleAssignor(), SharedAssignor())}


def assignor_of(configs: GroupConfigs, brokers: Assignor) -> Assignor:
    """Return the group's own choice, else the broker's assignor."""
    return BUILT_IN.get(configs.assignor, brokers)


def computed_by(configs: GroupConfigs, assignor: Assignor) -> str:
    """The text in TARGET_META that says how a target was computed; when it changes, compute a new target (GC-24c)."""
    per_partition = configs.members_per_partition
    return f"{assignor.name}:{per_partition}" if per_partition else assignor.name
