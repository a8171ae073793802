"""Finds circles of dead-letter topics: ways by which a letter comes back to the group that it is of (PL-903, PL-923).

A group that reads T and has the dead-letter topic Q makes an edge from T to Q. Pure; the caller says who reads what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

#: How many topics one search comes to. A longer way is ended by the count of hops alone (PL-923).
TOPICS_MAX: Final = 100


class Step(NamedTuple):
    """One edge: `group` reads `topic`, and what it gives up goes to `queue`."""

    topic: str
    group: str
    queue: str


#: The edges that begin at one of these topics; one group of several that make the same edge is enough.
StepsFrom = Callable[[Collection[str]], Iterable[Step]]
#: From a dead-letter topic: each topic that its letters come to, with the step that leads there; None for itself.
Reached = Mapping[str, Step | None]


def reached(queue: str, steps_from: StepsFrom) -> Reached:
    """The topics that letters in `queue` come to, nearest first."""
    found: dict[str, Step | None] = {queue: None}
    newest = [queue]
    while newest:
        beyond: list[str] = []
        for step in steps_from(newest):
            if step.queue not in found:
                if len(found) == TOPICS_MAX:
                    return found
                found[step.queue] = step
                beyond.append(step.queue)
        newest = beyond
    return found


def way_back(reads: Collection[str], found: Reached) -> tuple[str, tuple[Step, ...]] | None:
    """The nearest of the topics that a group reads and its letters come to, and the steps that lead there from its
    dead-letter topic; None when there is none."""
    topic = next((topic for topic in found if topic in reads), None)
    if topic is None:
        return None
    steps: list[Step] = []
    at = topic
    while (step := found[at]) is not None:
        steps.append(step)
        at = step.topic
    return topic, tuple(reversed(steps))
