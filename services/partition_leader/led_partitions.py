"""The topic-partitions this process leads: their logs come with a claim and go with the lease (CM-10, CM-12).

The shard owner of every topic-partition, and the directory that the handlers ask. Who else leads what is only a hint
(CM-14). When leadership goes, every share-partition of the topic-partition goes with it, at once (PL-632).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from kip932.errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicIdPartition, parse_topic_id, topic_id_text
from partition_leader.share.core import events as ev
from partition_leader.share.partition_host import LedPartition
from partition_leader.share.partitions import SharePartitions
from partition_leader.topic_log.meter import TopicLogMeter
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TailMemory, TopicLog
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.clock import Clock
from shard_runtime.ownership.lease import Lease
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.record_log.protocol import AppendRefusedError, Claimed, LogError, RecordLog, ShardId, ShardKind
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How long a hand-over waits for state writes, and then for flushes; both together less than ownership allows for it.
HAND_OVER_S: Final = 2.0
DRAIN_S: Final = 5.0
_LOAD_ATTEMPTS: Final = 3
#: Partitions that a sweep looks at before others have their turn: some 3 ms.
SWEEP_SLICE: Final = 200


@dataclass(frozen=True, slots=True)
class TailCaches:
    """Memory, in bytes, for the tail caches of all led partitions, and the least that each gets (CM-46, P-8)."""

    total_bytes: int = 256 * 1024 * 1024
    least_bytes: int = 8 * 1024


class TopicFacts(Protocol):
    """What the cluster's metadata says about topics, as last seen."""

    def partitions(self, topic_id: bytes) -> int | None:
        """Number of partitions; None when the topic is not known."""
        ...

    def name(self, topic_id: bytes) -> str:
        """The topic's name; "" when it is not known."""
        ...

    def max_message_bytes(self, topic_id: bytes) -> int:
        """`max.message.bytes` of the topic."""
        ...

    def retention(self, topic_id: bytes) -> tuple[int, int]:
        """(`retention.ms`, `retention.bytes`) of the topic; −1: no limit."""
        ...

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """The live node that last claimed the partition, None when nobody is known."""
        ...

    def created_under(self, topic_id: bytes) -> str:
        """The store's history when the topic was created, "" when unknown (CM-47)."""
        ...


def topic_shard(partition: TopicIdPartition) -> ShardId:
    """The shard of a topic-partition."""
    return ShardId(ShardKind.TOPIC, partition.text)


def partition_of(shard: ShardId) -> TopicIdPartition:
    """The topic-partition of a shard."""
    text, _, number = shard.name.partition(":")
    return TopicIdPartition(parse_topic_id(text), int(number))


class LedPartitions:
    """Logs by topic-partition; a LogDirectory for the handlers, and the maker of shard owners for ownership."""

    def __init__(
        self,
        record_log: RecordLog,
        clock: Clock,
        facts: TopicFacts,
        *,
        settings: TopicLogSettings | None = None,
        meter: TopicLogMeter | None = None,
        caches: TailCaches | None = None,
    ) -> None:
        self.record_log = record_log
        self.clock = clock
        self.facts = facts
        self.settings = settings or TopicLogSettings()
        self.meter = meter
        self.share_partitions: SharePartitions | None = None
        self.refusals = RateLimitedLog(log)
        self._caches = caches or TailCaches()
        self._cache_share = self.settings.tail_cache_bytes
        self._led: dict[TopicIdPartition, LedPartition] = {}
        self._owners: dict[ShardId, PartitionOwner] = {}

    def owner(self, shard: ShardId) -> PartitionOwner:
        """The owner of a topic-partition's shard, the same one for the life of the process."""
        owner = self._owners.get(shard)
        if owner is None:
            owner = self._owners[shard] = PartitionOwner(self, partition_of(shard))
        return owner

    def topic_deleted(self, partition: TopicIdPartition) -> None:
        """Lead it no more, at once (PL-632); its log closes when ownership takes the shard away."""
        led = self._led.get(partition)
        if led is not None:
            error = UnknownTopicOrPartitionError(f"topic {topic_id_text(partition.topic_id)} was deleted")
            self.uninstall(partition, led.log, error)

    def ended(self, partition: TopicIdPartition) -> None:
        """The shard's log is closed: of a deleted topic nothing is kept."""
        if self.facts.partitions(partition.topic_id) is None:
            self._owners.pop(topic_shard(partition), None)

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Every partition led now."""
        return self._led

    # --- LogDirectory

    def log(self, partition: TopicIdPartition) -> TopicLog:
        """The log, if this node leads it now. Raises as `lead`."""
        return self.lead(partition).log

    def lead(self, partition: TopicIdPartition) -> LedPartition:
        """The log and lease of a partition led here. Raises UnknownTopicIdError, UnknownTopicOrPartitionError,
        NotLeaderOrFollowerError (led elsewhere, still loading, or the lease has lapsed)."""
        led = self._led.get(partition)
        if led is not None and led.lease.valid():
            return led
        count = self.facts.partitions(partition.topic_id)
        if count is None:
            raise UnknownTopicIdError(f"topic id {topic_id_text(partition.topic_id)} is not known to this node")
        if not 0 <= partition.partition < count:
            raise UnknownTopicOrPartitionError(
                f"topic {topic_id_text(partition.topic_id)} has partitions 0…{count - 1}, not {partition.partition}"
            )
        owner = self._owners.get(topic_shard(partition))
        if owner is not None:
            owner.demand += 1
        raise NotLeaderOrFollowerError(f"this node does not lead {partition.text}; look up the leader")

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """The leader by hints."""
        return self.facts.leader(partition)

    def max_message_bytes(self, topic_id: bytes) -> int:
        """`max.message.bytes` of the topic."""
        return self.facts.max_message_bytes(topic_id)

    def check_access(self, context: object, operation: str, topic_id: bytes) -> None:
        """No authorizer is configured: everything is allowed (GC-148)."""

    # --- what owners tell

    def install(self, partition: TopicIdPartition, led: LedPartition) -> None:
        """The partition is led from now on."""
        self._led[partition] = led
        self._divide_caches()
        led.log.set_cache_bytes(self._cache_share)
        led.log.add_listener(_Listener(self, partition, led.log))

    def uninstall(self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError) -> None:
        """The partition is led no more: drop its share-partitions."""
        self._take_out(partition, topic_log)
        if self.share_partitions is not None:
            self.share_partitions.leadership_lost(partition, topic_log, error)

    async def hand_over(
        self, partition: TopicIdPartition, topic_log: TopicLog, error: KafkaError, timeout_s: float
    ) -> None:
        """Take no new requests, let share-partitions finish their writes, then drop them (CM-4)."""
        self._take_out(partition, topic_log)
        if self.share_partitions is not None:
            await self.share_partitions.hand_over(partition, topic_log, error, timeout_s)

    def _take_out(self, partition: TopicIdPartition, topic_log: TopicLog) -> None:
        led = self._led.get(partition)
        if led is not None and led.log is topic_log:
            del self._led[partition]
            self._divide_caches()

    def _divide_caches(self) -> None:
        """Give every led partition an equal part (CM-46). The number is rounded up to a power of two, so that a node
        that takes over a thousand partitions divides ten times and not a thousand."""
        parts = 1 << max(len(self._led) - 1, 0).bit_length()
        share = min(self.settings.tail_cache_bytes, max(self._caches.least_bytes, self._caches.total_bytes // parts))
        if share != self._cache_share:
            self._cache_share = share
            for led in self._led.values():
                led.log.set_cache_bytes(share)

    async def retain(self) -> None:
        """One sweep of retention over every led partition (CM-45); failures are logged and left to the next sweep.
        Others have their turn in between (CM-96), so a partition may go, or come back with another log, meanwhile."""
        turns = Turns(SWEEP_SLICE)
        for partition, led in list(self._led.items()):
            await turns.step()
            if self._led.get(partition) is not led:
                continue
            retention_ms, retention_bytes = self.facts.retention(partition.topic_id)
            try:
                await led.log.retain(self.clock.wall_ms(), retention_ms, retention_bytes)
            except (KafkaError, LogError) as error:
                log.info("retention left to the next sweep", partition=partition.text, reason=str(error))


class _Listener:
    """Passes what a log tells on to the share-partitions of its topic-partition (PL-008)."""

    def __init__(self, leader: LedPartitions, partition: TopicIdPartition, topic_log: TopicLog) -> None:
        self._leader = leader
        self._partition = partition
        self._log = topic_log

    def high_watermark_advanced(self, high_watermark: int) -> None:
        """New records may be acquired."""
        del high_watermark
        if self._leader.share_partitions is not None:
            self._leader.share_partitions.wake_partition(self._partition)

    def log_start_advanced(self, log_start: int) -> None:
        """Records below are gone (PL-620)."""
        if self._leader.share_partitions is not None:
            for host in self._leader.share_partitions.of_partition(self._partition):
                host.feed(ev.LogStartMoved(log_start))

    def log_closed(self, error: KafkaError) -> None:
        """Leadership is lost."""
        self._leader.uninstall(self._partition, self._log, error)


class PartitionOwner:
    """Owns one topic-partition's shard: loads its log after a claim, closes it when the lease ends."""

    def __init__(self, leader: LedPartitions, partition: TopicIdPartition) -> None:
        self.demand = 0
        self._leader = leader
        self._partition = partition
        self._log: TopicLog | None = None
        self._memory: TailMemory | None = None
        self._closing: asyncio.Task[None] | None = None

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """Load the log and lead. Raises LogError: ownership drops the shard and claims it anew."""
        await self._closed()
        leader = self._leader
        self._log = await self._load(claimed, lease)
        self._memory = None
        self.demand = 0
        leader.install(self._partition, LedPartition(self._log, lease))
        log.info("leading partition", partition=self._partition.text, epoch=lease.epoch, log_end=self._log.log_end)

    def lost(self, reason: str) -> None:
        """Lead no longer, at once."""
        topic_log, self._log = self._log, None
        if topic_log is None:
            self._leader.ended(self._partition)
            return
        self._memory = topic_log.memory()
        error = NotLeaderOrFollowerError(f"this node no longer leads {self._partition.text}: {reason}")
        self._leader.uninstall(self._partition, topic_log, error)
        self._closing = asyncio.get_running_loop().create_task(topic_log.close(error=error))
        self._leader.ended(self._partition)

    async def releasing(self) -> None:
        """Hand over: take nothing new, finish the writes and flushes under way, drop the share-partitions."""
        topic_log, self._log = self._log, None
        if topic_log is None:
            return
        partition, leader = self._partition, self._leader
        error = NotLeaderOrFollowerError(f"{partition.text} is being handed over; look up the leader")
        try:
            await leader.hand_over(partition, topic_log, error, HAND_OVER_S)
            await topic_log.close(drain_s=DRAIN_S, error=error)
        finally:
            # Cut short, the log still ends, and nothing loads it anew before it has (`gained`).
            self._closing = asyncio.get_running_loop().create_task(topic_log.close(error=error))
            leader.ended(partition)

    async def _load(self, claimed: Claimed, lease: Lease) -> TopicLog:
        leader = self._leader
        created_under = leader.facts.created_under(self._partition.topic_id)
        suspect = claimed.previous is None and created_under not in {"", claimed.history}
        for attempt in range(1, _LOAD_ATTEMPTS + 1):
            try:
                return await TopicLog.load(
                    leader.record_log,
                    lease,
                    claimed,
                    leader.clock,
                    leader.settings,
                    memory=self._memory,
                    suspect=suspect,
                    meter=leader.meter,
                    refusals=leader.refusals,
                )
            except AppendRefusedError:
                if attempt == _LOAD_ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _closed(self) -> None:
        """Wait until the former log runs no flush any more."""
        if self._closing is not None:
            await asyncio.shield(self._closing)
            self._closing = None
