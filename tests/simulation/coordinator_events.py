"""What happened inside group coordinators, whether an answer tells of it or not: events of a run's history."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Event


@dataclass(frozen=True, slots=True)
class TargetComputed(Event):
    """A group coordinator computed a target assignment; the store may have refused it. `target`: by member, sorted."""

    incarnation: int
    group_id: str
    epoch: int
    target: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class GroupDecided(Event):
    """A group coordinator decided to make a group that was not there, or to delete one (`made` False); the store may
    have refused it. `epoch`: the group's, as it is made or kept; `members`: how many it has as it is deleted."""

    incarnation: int
    group_id: str
    made: bool
    epoch: int
    members: int = 0
