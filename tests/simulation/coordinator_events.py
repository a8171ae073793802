"""Events inside group coordinators, including those that no response shows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class TargetComputed(Event):
    """A group coordinator computed a target assignment; the store may have refused it. `target`: the assignment by
    member, sorted."""

    incarnation: int
    group_id: str
    epoch: int
    target: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class GroupDecided(Event):
    """A group coordinator decided to create a group, or to delete one (`made` False); the store may have refused it.
    `epoch`: the epoch of the created group, or the one kept after the deletion; `members`: how many the deleted group
    has."""

    incarnation: int
    group_id: str
    made: bool
    epoch: int
    members: int = 0
