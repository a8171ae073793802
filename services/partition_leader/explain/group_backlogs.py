"""A share group's progress in a led partition, for ListOffsets, from loaded share-partitions only; it loads none
(PL-827)."""

from __future__ import annotations

from functools import partial
from typing import Final

from kip932.ids import SharePartitionKey, TopicIdPartition
from partition_leader.explain.core.backlog import backlog
from partition_leader.share_partition.dead_letter_port import DeadLetterPost
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.log_directory import GroupBacklog, ReadAllowance
from shard_runtime.clock import Clock

_UNSET: Final = -1


class GroupBacklogs:
    """The `GroupProgress` of a process's share-partitions."""

    def __init__(self, partitions: SharePartitions, letters: DeadLetterPost, clock: Clock) -> None:
        self._partitions = partitions
        self._letters = letters
        self._clock = clock

    async def of(
        self,
        group_id: str,
        partition: TopicIdPartition,
        topic_log: TopicLog,
        *,
        stored_start: int,
        allowance: ReadAllowance,
    ) -> GroupBacklog:
        """Return how many records a group holds, how many wait, and since when. If the share-partition is not loaded,
        no member holds any, and the caller computes how many wait from the stored state that it has. Raises KafkaError
        if the log cannot be read."""
        host = self._partitions.peek(SharePartitionKey(group_id, *partition))
        empty_from = partial(topic_log.empty_from, committed=self._partitions.config(group_id).read_committed)
        holes_from = topic_log.holes_from
        found = None if host is None else backlog(host.core, topic_log.high_watermark, holes_from, empty_from)
        empty = None if stored_start <= _UNSET else empty_from(stored_start)
        start = stored_start if found is None else found.start_offset
        held, waiting, delayed = (0, None, None) if found is None else (found.held, found.waiting, found.delayed)
        letters = self._letters.waiting(SharePartitionKey(group_id, *partition))
        count = letters.letters if letters is not None else None if found is None else 0
        age_ms = None if letters is None else letters.oldest_ms
        oldest_ms = await self._age_ms(topic_log, start, allowance)
        return GroupBacklog(held, waiting, oldest_ms, count, age_ms, delayed, empty)

    async def _age_ms(self, topic_log: TopicLog, start: int, allowance: ReadAllowance) -> int | None:
        """Return the age of the first record from `start` on; None if there is none, or if no more reads are
        allowed."""
        if start <= _UNSET or start >= topic_log.high_watermark:
            return None
        offset = max(start, topic_log.log_start_offset)
        appended_ms = await topic_log.append_time(offset, cold=False)
        if appended_ms is None and allowance.take():
            appended_ms = await topic_log.append_time(offset, cold=True)
        return None if appended_ms is None else max(0, self._clock.wall_ms() - appended_ms)
