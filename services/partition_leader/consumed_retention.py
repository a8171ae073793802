"""Deletes records that every share group has finished, in topics with `sharegroups.retention=consumed` (CM-160).

For up to 100 topics at a time, a round asks all share coordinators once and then moves log starts. It uses their
responses for at most ten seconds. If any coordinator does not respond, nothing is deleted from these topics in this
round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from kip932.errors import KafkaError
from kip932.ids import STARTS_TOPICS_MAX, TopicIdPartition
from kip932.state_values import StoredStart
from partition_leader.consumed_metrics import ConsumedMetrics
from partition_leader.group_starts import StartOffsets
from partition_leader.led_partitions import LedPartitions, TopicFacts
from partition_leader.share_partition.core.share_partition import SharePartition
from partition_leader.share_partition.core.status import Status
from partition_leader.share_partition.leader_parts import LedPartition
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.core.consumed import Kept, Needed, needed_from
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.clock import Clock
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How long a round may use the coordinators' responses, measured from before the request.
ANSWERS_VALID_MS: Final = 10_000
#: How many log starts are moved at the same time.
MOVES_AT_ONCE: Final = 32
#: The interval at which each topic's log line repeats that a group without a start offset keeps its records.
KEPT_EVERY_S: Final = 600.0
#: How many partitions are checked before other tasks run (CM-96).
_SLICE: Final = 200


class ConsumedRetention:
    """Runs the rounds of one process."""

    def __init__(
        self,
        led: LedPartitions,
        facts: TopicFacts,
        share_partitions: SharePartitions,
        starts: StartOffsets,
        *,
        clock: Clock,
        metrics: ConsumedMetrics,
    ) -> None:
        self._led = led
        self._facts = facts
        self._share_partitions = share_partitions
        self._starts = starts
        self._clock = clock
        self._metrics = metrics
        self._lines = RateLimitedLog(log)
        self._kept_lines = RateLimitedLog(log, every_s=KEPT_EVERY_S)

    async def round(self) -> None:
        """Trim every led partition of topics with consumed retention; failures are logged and left to the next
        round."""
        topics = await self._topics()
        for first in range(0, len(topics), STARTS_TOPICS_MAX):
            await self._retain(topics[first : first + STARTS_TOPICS_MAX])

    def close(self) -> None:
        """Log the lines that the rate limit still holds back."""
        self._lines.close()
        self._kept_lines.close()

    async def _topics(self) -> list[bytes]:
        turns, found = Turns(_SLICE), dict[bytes, bool]()
        for partition, led in list(self._led.led().items()):
            await turns.step()
            topic_id = partition.topic_id
            if topic_id not in found and led.log.log_start_offset < led.log.high_watermark:
                found[topic_id] = self._facts.consumed(topic_id)
        return [topic_id for topic_id, consumed in found.items() if consumed]

    async def _retain(self, topic_ids: list[bytes]) -> None:
        until_ms = self._clock.now_ms() + ANSWERS_VALID_MS
        wanted = frozenset(topic_ids)
        # The partitions are listed before the coordinators are asked. One that is lost and led again meanwhile is
        # skipped, since the leader in between may know more.
        partitions = [each for each in self._led.led().items() if each[0].topic_id in wanted]
        try:
            groups = await self._starts.ask(topic_ids)
        except KafkaError as error:
            self._metrics.unknown()
            self._lines.warning(
                "group_progress_unknown",
                key="unknown",
                topics=len(topic_ids),
                first=self._facts.name(topic_ids[0]),
                cause=f"{error.name}: {error.message}",
                effect="finished records stay until the next round (sharegroups.retention=consumed)",
            )
            return
        left, turns = iter(partitions), Turns(_SLICE // MOVES_AT_ONCE)

        async def some() -> None:
            for partition, led in left:
                await turns.step()
                if self._clock.now_ms() < until_ms:
                    await self._trim(partition, led, groups.get(partition.topic_id, {}))

        await asyncio.gather(*(some() for _ in range(min(MOVES_AT_ONCE, len(partitions)))))

    async def _trim(
        self, partition: TopicIdPartition, led: LedPartition, groups: Mapping[str, Mapping[int, StoredStart]]
    ) -> None:
        if self._led.led().get(partition) is not led or not self._facts.consumed(partition.topic_id):
            return
        topic_log, log_start = led.log, led.log.log_start_offset
        if log_start >= topic_log.high_watermark:
            return
        needed = needed_from(
            partition.partition,
            groups,
            {host.key.group_id: _start(host.core) for host in self._share_partitions.of_partition(partition)},
            log_start=log_start,
            last_stable=topic_log.last_stable,
        )
        self._log_kept(partition, needed)
        if needed.start <= log_start:
            return
        await self._move(partition, topic_log, needed.start, len(groups))

    async def _move(self, partition: TopicIdPartition, topic_log: TopicLog, start: int, groups: int) -> None:
        log_start = topic_log.log_start_offset
        try:
            start = await topic_log.move_log_start(start)
        except (KafkaError, LogError) as error:
            log.info(
                "consumed_retention_deferred",
                partition=partition.text,
                cause=str(error),
                effect="finished records stay until the next round",
            )
            return
        self._metrics.deleted(max(start - log_start, 0))
        self._lines.info(
            "consumed_records_deleted",
            cause="every group has finished them (sharegroups.retention=consumed)",
            key=partition,
            sums={"offsets": start - log_start},
            topic=self._facts.name(partition.topic_id),
            partition=partition.partition,
            log_start=start,
            groups=groups,
        )

    def _log_kept(self, partition: TopicIdPartition, needed: Needed) -> None:
        if needed.why not in {Kept.NO_STATE, Kept.NOT_BEGUN}:
            return
        self._kept_lines.info(
            "consumed_records_kept",
            effect="finished records stay in spite of sharegroups.retention=consumed",
            key=partition.topic_id,
            topic=self._facts.name(partition.topic_id),
            partition=partition.partition,
            cause=needed.why.value,
            group=needed.group_id,
            try_next="let the group's members fetch from the partition, or delete its offsets or the group",
        )


def _start(core: SharePartition) -> int | None:
    return core.start_offset if core.status is Status.ACTIVE else None
