"""The owners of topic-partition shards: each loads its log after a claim and closes it when the lease ends (CM-10,
CM-12).

Each owner adds its partition to `LedPartitions` and removes it. When leadership ends, every share-partition of the
topic-partition is dropped at once (PL-632).
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from kip932.errors import KafkaError, NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kip932.ids import TopicIdPartition, parse_topic_id, topic_id_text
from partition_leader.led_partitions import LedPartitions, TopicFacts
from partition_leader.meter import LeaderMeter
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.leader_parts import LedPartition
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.core.recovery import TailMemory
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import AppendRefusedError, Claimed, RecordLog, ShardId, ShardKind
from shard_runtime.record_log.store_room import StoreRoom

log = structlog.get_logger(__name__)

#: How long a hand-over waits for state writes, and then again for flushes; the sum is less than ownership allows for a
#: hand-over.
HAND_OVER_S: Final = 2.0
DRAIN_S: Final = 5.0
_LOAD_ATTEMPTS: Final = 3


def topic_shard(partition: TopicIdPartition) -> ShardId:
    """Return the shard of a topic-partition."""
    return ShardId(ShardKind.TOPIC, partition.text)


def partition_of(shard: ShardId) -> TopicIdPartition:
    """Return the topic-partition of a shard."""
    text, _, number = shard.name.partition(":")
    return TopicIdPartition(parse_topic_id(text), int(number))


class PartitionOwners:
    """Creates the shard owners for ownership, and holds what they share."""

    def __init__(
        self,
        record_log: RecordLog,
        clock: Clock,
        facts: TopicFacts,
        led: LedPartitions,
        share_partitions: SharePartitions,
        *,
        settings: TopicLogSettings,
        meter: LeaderMeter,
        room: StoreRoom | None = None,
    ) -> None:
        """`room`: the space that the store has left for records; None if nothing watches it."""
        self.room = room
        self.record_log = record_log
        self.clock = clock
        self.facts = facts
        self.led = led
        self.settings = settings
        self.meter = meter
        self.refusals = RateLimitedLog(log)
        self._share_partitions = share_partitions
        self._owners: dict[ShardId, PartitionOwner] = {}

    def owner(self, shard: ShardId) -> PartitionOwner:
        """Return the owner of a topic-partition's shard, the same one each time."""
        owner = self._owners.get(shard)
        if owner is None:
            partition = partition_of(shard)
            owner = self._owners[shard] = PartitionOwner(self, partition)
            self.led.count_demand(partition)
        return owner

    def topic_deleted(self, partition: TopicIdPartition) -> None:
        """Stop leading the partition at once (PL-632); its log closes when ownership takes the shard away."""
        led = self.led.led().get(partition)
        if led is not None:
            error = UnknownTopicOrPartitionError(f"topic {topic_id_text(partition.topic_id)} was deleted")
            self.uninstall(partition, led.log, error)

    def close(self) -> None:
        """Log the lines about refused writes that are still held back."""
        self.refusals.close()

    # --- called by owners

    def install(self, partition: TopicIdPartition, led: LedPartition) -> None:
        """Start leading the partition."""
        self.led.count_demand(partition)
        self.led.add(partition, led)
        led.log.add_listener(_Listener(self, self._share_partitions, partition, led.log))

    def uninstall(self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError) -> None:
        """Stop leading the partition, and drop its share-partitions."""
        self.led.remove(partition, topic_log)
        self._share_partitions.leadership_lost(partition, topic_log, error)

    async def hand_over(
        self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError, timeout_s: float
    ) -> None:
        """Take no new requests, let share-partitions finish their writes, then drop them (CM-4)."""
        self.led.remove(partition, topic_log)
        await self._share_partitions.hand_over(partition, topic_log, error, timeout_s)

    def ended(self, partition: TopicIdPartition) -> None:
        """Forget the shard, which is lost or released, if its topic was deleted."""
        if self.facts.partitions(partition.topic_id) is None:
            self._owners.pop(topic_shard(partition), None)
            self.led.forget_demand(partition)


class _Listener:
    """Passes changes of a log on to the share-partitions of its topic-partition (PL-008)."""

    def __init__(
        self,
        owners: PartitionOwners,
        share_partitions: SharePartitions,
        partition: TopicIdPartition,
        topic_log: TopicLog,
    ) -> None:
        self._owners = owners
        self._share_partitions = share_partitions
        self._partition = partition
        self._log = topic_log

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """Let waiting fetches acquire the new records."""
        del high_watermark
        self._share_partitions.wake_partition(self._partition)

    def log_start_advanced(self, log_start: int) -> None:
        """Pass on that records below `log_start` are deleted (PL-620)."""
        for host in self._share_partitions.of_partition(self._partition):
            host.feed(ev.LogStartMoved(log_start))

    def log_closed(self, error: KafkaError) -> None:
        """Stop leading the partition."""
        self._owners.uninstall(self._partition, self._log, error)


class PartitionOwner:
    """Owns one topic-partition's shard: loads its log after a claim, closes it when the lease ends."""

    def __init__(self, owners: PartitionOwners, partition: TopicIdPartition) -> None:
        self._owners = owners
        self._partition = partition
        self._log: TopicLog | None = None
        self._memory: TailMemory | None = None
        self._closing: asyncio.Task[None] | None = None

    @property
    def demand(self) -> int:
        """The number of requests that were turned away because this partition is not led here."""
        return self._owners.led.demand(self._partition)

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """Load the log and lead. Raises LogError: ownership drops the shard and claims it again."""
        await self._closed()
        owners = self._owners
        self._log = await self._load(claimed, lease)
        self._memory = None
        owners.install(self._partition, LedPartition(self._log, lease))
        log.info("partition_led", partition=self._partition.text, epoch=lease.epoch, log_end=self._log.log_end)

    def lost(self, reason: str) -> None:
        """Stop leading at once."""
        topic_log, self._log = self._log, None
        if topic_log is None:
            self._owners.ended(self._partition)
            return
        self._memory = topic_log.memory()
        error = NotLeaderOrFollowerError(f"this node no longer leads {self._partition.text}: {reason}")
        self._owners.uninstall(self._partition, topic_log, error)
        self._closing = asyncio.get_running_loop().create_task(topic_log.close(error=error))
        self._owners.ended(self._partition)

    async def releasing(self) -> None:
        """Hand over: take no new requests, finish the writes and flushes in flight, drop the share-partitions."""
        topic_log, self._log = self._log, None
        if topic_log is None:
            return
        partition, owners = self._partition, self._owners
        error = NotLeaderOrFollowerError(f"{partition.text} is being handed over; clients look up its leader")
        try:
            await owners.hand_over(partition, topic_log, error, HAND_OVER_S)
            await topic_log.close(drain_s=DRAIN_S, error=error)
        finally:
            # If this is cancelled, the log still closes, and `gained` waits for that before it loads the log again.
            self._closing = asyncio.get_running_loop().create_task(topic_log.close(error=error))
            owners.ended(partition)

    async def _load(self, claimed: Claimed, lease: Lease) -> TopicLog:
        owners = self._owners
        created_under = owners.facts.created_under(self._partition.topic_id)
        suspect = claimed.previous is None and created_under not in {"", claimed.history}
        for attempt in range(1, _LOAD_ATTEMPTS + 1):
            try:
                return await TopicLog.load(
                    owners.record_log,
                    lease,
                    claimed,
                    owners.clock,
                    owners.settings,
                    memory=self._memory,
                    suspect=suspect,
                    meter=owners.meter,
                    refusals=owners.refusals,
                    room=owners.room,
                )
            except AppendRefusedError:
                if attempt == _LOAD_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _closed(self) -> None:
        """Wait until the previous log has no flush running."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            self._closing = None
