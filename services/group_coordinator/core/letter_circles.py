"""Finds cycles of dead-letter topics, through which a group's dead letters come back to it (PL-903, PL-923).

A group that reads T and has the dead-letter topic Q is an edge from T to Q. Pure; the caller supplies the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

#: The maximum number of topics that one search visits. Longer cycles are ended only by the hop count (PL-923).
TOPICS_MAX: Final = 100


class Step(NamedTuple):
    """One edge: `group` reads `topic`, and its dead letters go to `queue`."""

    topic: str
    group: str
    queue: str


#: Returns the edges that start at one of these topics; if several groups are the same edge, one of them is enough.
StepsFrom = Callable[[Collection[str]], Iterable[Step]]
#: Each topic that dead letters in one topic can reach, with the step that leads there; None for that topic itself.
Reachable = Mapping[str, Step | None]


def reached(queue: str, steps_from: StepsFrom) -> Reachable:
    """Find the topics that dead letters in `queue` can reach, nearest first."""
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


def return_path(reads: Collection[str], found: Reachable) -> tuple[str, tuple[Step, ...]] | None:
    """Return the nearest topic that the group reads and its dead letters can reach, with the steps that lead there from
    its dead-letter topic; None when there is no such topic."""
    topic = next((topic for topic in found if topic in reads), None)
    if topic is None:
        return None
    steps: list[Step] = []
    at = topic
    while (step := found[at]) is not None:
        steps.append(step)
        at = step.topic
    return topic, tuple(reversed(steps))
