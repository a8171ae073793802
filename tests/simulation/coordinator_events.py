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
