"""Finds groups whose dead letters come back to them, directly or through other groups' dead-letter topics (PL-903).

A node knows the subscriptions only of the groups that it coordinates, and members may subscribe at any time. So a
config that closes a cycle is refused if the node where it is set knows the whole cycle. Other cycles are found by
sweeps: soon after topics or configs change, and every 30 s. PL-917 and PL-923 end cycles that no node finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

import structlog

from group_coordinator.core.letter_circles import Reachable, Step, reached, return_path
from group_coordinator.ports import Shards
from shard_runtime.config.kafka_configs import GROUP_DLQ_TOPIC
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many groups are inspected in one turn of the event loop.
SLICE: Final = 200
#: How many cycles are logged by name while they last; one more line reports that there are others.
LOGGED_MAX: Final = 100


class DeadLetterCycles:
    """Logs each cycle once while it lasts. `queue_of`: returns a group's dead-letter topic, "" for none."""

    def __init__(self, shards: Shards, queue_of: Callable[[str], str]) -> None:
        self._shards = shards
        self._queue_of = queue_of
        self._logged: frozenset[tuple[str, ...]] = frozenset()
        self._logged_more = False

    def closed_by(self, group_id: str, queue: str) -> str:
        """Explain, as the end of a sentence, why the group's dead letters would come back to it if `queue` were its
        dead-letter topic; "" when, as far as this node knows, they would not."""
        names = next((names for group, names in self._reads() if group == group_id), ())
        back = return_path(names, reached(queue, self._steps_from)) if names else None
        if back is None:
            return ""
        _, steps = back
        if not steps:
            return f"group {group_id!r} reads that topic, so a rejected record would be delivered to it again and again"
        way = ", ".join(f"group {step.group!r} reads {step.topic!r} and has {step.queue!r}" for step in steps)
        return (
            f"dead-letter topics would lead in a circle: {way}, which group {group_id!r} reads; a record that each of "
            "them rejects would be delivered to them again and again"
        )

    async def check(self) -> None:
        """Inspect every group that has members here."""
        turns = Turns(SLICE)
        edges: dict[str, dict[str, Step]] = {}
        readers: list[tuple[str, str, frozenset[str]]] = []
        for group_id, names in self._reads():
            await turns.step()
            queue = self._queue_of(group_id)
            if queue:
                readers.append((group_id, queue, frozenset(names)))
        queues = {queue for _, queue, _ in readers}
        for group_id, queue, names in readers:
            await turns.step()
            for topic in sorted(names & queues):
                edges.setdefault(topic, {}).setdefault(queue, Step(topic, group_id, queue))

        def steps_from(topics: Collection[str]) -> Iterator[Step]:
            return (step for topic in topics for step in edges.get(topic, {}).values())

        found: dict[str, Reachable] = {}
        circles: dict[tuple[str, ...], tuple[Step, ...]] = {}
        more = 0
        for group_id, queue, names in readers:
            await turns.step()
            if queue not in found:
                found[queue] = reached(queue, steps_from)
            back = return_path(names, found[queue])
            if back is None:
                continue
            circle = (Step(back[0], group_id, queue), *back[1])
            # Every group in a cycle finds it, so the topics are the key; each group that reads its own queue has a
            # cycle of its own.
            key = (group_id, queue) if len(circle) == 1 else tuple(sorted({step.topic for step in circle}))
            if key in circles or len(circles) < LOGGED_MAX:
                circles.setdefault(key, circle)
            else:
                more += 1
        for key, circle in circles.items():
            if key not in self._logged:
                _log_circle(circle)
        if more and not self._logged_more:
            log.warning(
                "further_dead_letter_circles_found",
                groups=more,
                effect=f"only the first {LOGGED_MAX} circles are logged by name",
            )
        self._logged, self._logged_more = frozenset(circles), bool(more)

    def _reads(self) -> Iterator[tuple[str, Collection[str]]]:
        """Yield the groups that have subscriptions on this node, with the topics that their members subscribe to."""
        for _, shard in self._shards.serving():
            for group_id, group in list(shard.groups.items()):
                if group.subscription.names:
                    yield group_id, group.subscription.names

    def _steps_from(self, topics: Collection[str]) -> Iterator[Step]:
        for group_id, names in self._reads():
            topic = next((topic for topic in topics if topic in names), None)
            if topic is not None and (queue := self._queue_of(group_id)):
                yield Step(topic, group_id, queue)


def _log_circle(circle: tuple[Step, ...]) -> None:
    if len(circle) == 1:
        log.warning(
            "own_dead_letter_topic_read",
            group=circle[0].group,
            dead_letter_topic=circle[0].queue,
            effect="a dead letter that the group rejects or releases too often is archived there without another one",
            try_next=f"set {GROUP_DLQ_TOPIC.name} of the group to a topic that it does not read, or have its members "
            "not subscribe to this one",
        )
        return
    log.warning(
        "dead_letter_circle_found",
        circle=[f"{step.group} reads {step.topic}, its dead letters go to {step.queue}" for step in circle],
        effect="a record that each of these groups rejects comes back to the first one as a dead letter; after some "
        "dead letters in a row it is archived without another",
        try_next=f"set {GROUP_DLQ_TOPIC.name} of one of them to a topic that none of them reads",
    )
