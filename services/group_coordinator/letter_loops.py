"""Warns of groups that read their own dead-letter topic (PL-903, PL-917).

A node that sets a config knows the subscriptions only of the groups that it coordinates, and members may subscribe
later. So the coordinator looks at its groups at each sweep: soon after topics or configs changed, and every 30 s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from group_coordinator.ports import Shards
from shard_runtime.config.kafka_configs import GROUP_DLQ_TOPIC
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many groups are looked at in one turn of the event loop.
SLICE: Final = 200
#: How many groups are told of by name while they loop; one line says that there are more.
TOLD_MAX: Final = 100


class LetterLoops:
    """Looks, and tells of each group once for as long as it reads that topic. `queue_of`: a group's dead-letter topic,
    "" for none."""

    def __init__(self, shards: Shards, queue_of: Callable[[str], str]) -> None:
        self._shards = shards
        self._queue_of = queue_of
        self._told: dict[str, str] = {}
        self._told_of_more = False

    async def look(self) -> None:
        """Look at every group that has members here."""
        turns = Turns(SLICE)
        looping: dict[str, str] = {}
        more = 0
        for _, shard in self._shards.serving():
            for group_id, group in list(shard.groups.items()):
                await turns.step()
                topic = self._queue_of(group_id) if group.subscription.names else ""
                if topic and topic in group.subscription.names:
                    if len(looping) < TOLD_MAX:
                        looping[group_id] = topic
                    else:
                        more += 1
        for group_id, topic in looping.items():
            if self._told.get(group_id) != topic:
                self._tell(group_id, topic)
        if more and not self._told_of_more:
            log.warning("more groups read their own dead-letter topics", groups=more)
        self._told, self._told_of_more = looping, bool(more)

    def _tell(self, group_id: str, topic: str) -> None:
        log.warning(
            "a group reads its own dead-letter topic",
            group=group_id,
            dead_letter_topic=topic,
            meaning="a letter that it rejects or releases too often is archived there without another letter",
            what_to_do=f"set {GROUP_DLQ_TOPIC.name} of the group to a topic that it does not read, or have its members "
            "not subscribe to this one",
        )
