"""The directory of the topic-partitions that this process leads now, for the handlers.

`partition_owners` adds and removes partitions. Leaders of other partitions are known only from hints (CM-14).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from kip932.errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicIdPartition, topic_id_text
from partition_leader.share_partition.leader_parts import LedPartition
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc.log_directory import Leader
from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns

log = structlog.get_logger(__name__)

#: How many partitions a sweep checks before other tasks run: about 3 ms.
SWEEP_SLICE: Final = 200


@dataclass(frozen=True, slots=True)
class TailCaches:
    """The memory, in bytes, for the tail caches of all led partitions together, and the minimum for each (CM-46,
    P-8)."""

    total_bytes: int = 256 * 1024 * 1024  # `log.tail.caches.bytes`
    least_bytes: int = 8 * 1024


class TopicFacts(Protocol):
    """The cluster's metadata about topics, as last seen."""

    def partitions(self, topic_id: bytes) -> int | None:
        """Return the number of partitions; None when the topic is not known."""
        ...

    def name(self, topic_id: bytes) -> str:
        """Return the topic's name; "" when it is not known."""
        ...

    def max_message_bytes(self, topic_id: bytes) -> int:
        """Return `max.message.bytes` of the topic."""
        ...

    def retention(self, topic_id: bytes) -> tuple[int, int]:
        """Return (`retention.ms`, `retention.bytes`) of the topic; −1: no limit."""
        ...

    def consumed(self, topic_id: bytes) -> bool:
        """Return whether records that every group has finished are deleted as well: `sharegroups.retention`
        (CM-160)."""
        ...

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """Return the live node that last claimed the partition; None when none is known."""
        ...

    def created_under(self, topic_id: bytes) -> str:
        """Return the history that the store had when the topic was created; "" if unknown (CM-47)."""
        ...


class LedPartitions:
    """Logs by topic-partition; a LogDirectory for the handlers."""

    def __init__(
        self,
        clock: Clock,
        facts: TopicFacts,
        settings: TopicLogSettings | None = None,
        caches: TailCaches | None = None,
        clock_doubt: Callable[[], str] = str,
    ) -> None:
        self._clock = clock
        self._clock_doubt = clock_doubt
        self._facts = facts
        self._cache_max = self._cache_share = (settings or TopicLogSettings()).tail_cache_bytes
        self._caches = caches or TailCaches()
        self._led: dict[TopicIdPartition, LedPartition] = {}
        self._demand: dict[TopicIdPartition, int] = {}

    def led(self) -> dict[TopicIdPartition, LedPartition]:
        """Return every partition led now."""
        return self._led

    def cached_bytes(self) -> int:
        """Return the memory that the tail caches use now."""
        return sum(led.log.cached_bytes() for led in self._led.values())

    # --- LogDirectory

    def log(self, partition: TopicIdPartition) -> TopicLog:
        """Return the log, if this node leads it now. Raises the errors of `lead`."""
        return self.lead(partition).log

    def lead(self, partition: TopicIdPartition) -> LedPartition:
        """Return the log and lease of a partition led here. Raises UnknownTopicIdError, UnknownTopicOrPartitionError,
        NotLeaderOrFollowerError (led elsewhere, still loading, or the lease has lapsed)."""
        led = self._led.get(partition)
        if led is not None and led.lease.valid():
            return led
        count = self._facts.partitions(partition.topic_id)
        if count is None:
            raise UnknownTopicIdError(f"topic id {topic_id_text(partition.topic_id)} is not known to this node")
        if not 0 <= partition.partition < count:
            raise UnknownTopicOrPartitionError(
                f"topic {topic_id_text(partition.topic_id)} has partitions 0…{count - 1}, not {partition.partition}"
            )
        if partition in self._demand:
            self._demand[partition] += 1
        name = self._facts.name(partition.topic_id)
        where = f"{name}-{partition.partition}" if name else partition.text
        raise NotLeaderOrFollowerError(f"this node does not lead {where}; clients look up its leader by themselves")

    def leader(self, partition: TopicIdPartition) -> Leader | None:
        """Return the leader according to the hints."""
        return self._facts.leader(partition)

    def max_message_bytes(self, topic_id: bytes) -> int:
        """Return `max.message.bytes` of the topic."""
        return self._facts.max_message_bytes(topic_id)

    def name(self, topic_id: bytes) -> str:
        """Return the topic's name; "" when it is not known."""
        return self._facts.name(topic_id)

    def refusal(self, caller: CallContext, topic_id: bytes) -> KafkaError | None:
        """Return the error for a caller that is not authorized to do what its RPC does to the topic. Permissions are
        for names, so with access control an id without a name is unknown, even while a partition of it is led: its
        topic was deleted while the log was being loaded."""
        if caller.rights is None:
            return None
        name = self._facts.name(topic_id)
        if not name:
            return UnknownTopicIdError(f"topic id {topic_id_text(topic_id)} is not known to this node")
        return caller.refusal_by_id(topic_id, name)

    # --- called by owners

    def add(self, partition: TopicIdPartition, led: LedPartition) -> None:
        """Start leading the partition; its log gets its share of the caches."""
        self._led[partition] = led
        self._divide_caches()
        led.log.set_cache_bytes(self._cache_share)

    def remove(self, partition: TopicIdPartition, topic_log: TopicLog) -> None:
        """Stop leading the partition if this is its current log."""
        led = self._led.get(partition)
        if led is not None and led.log is topic_log:
            del self._led[partition]
            self._divide_caches()

    def demand(self, partition: TopicIdPartition) -> int:
        """Return how many requests were turned away since `count_demand` because the partition is not led here."""
        return self._demand.get(partition, 0)

    def count_demand(self, partition: TopicIdPartition) -> None:
        """Restart the count of requests that are turned away."""
        self._demand[partition] = 0

    def forget_demand(self, partition: TopicIdPartition) -> None:
        """Stop counting."""
        self._demand.pop(partition, None)

    def _divide_caches(self) -> None:
        """Give every led partition an equal share of the caches (CM-46). The number of partitions is rounded up to a
        power of two, so that a node that takes over a thousand partitions resizes the caches ten times, not a thousand
        times."""
        parts = 1 << max(len(self._led) - 1, 0).bit_length()
        share = min(self._cache_max, max(self._caches.least_bytes, self._caches.total_bytes // parts))
        if share != self._cache_share:
            self._cache_share = share
            for led in self._led.values():
                led.log.set_cache_bytes(share)

    async def retain(self) -> None:
        """Run one sweep of retention over every led partition (CM-45); failures are logged and left to the next sweep.
        Other tasks run in between (CM-96), so a partition may be lost, or led again with another log, during the sweep.
        Nothing is deleted by age while the clocks are in doubt (CM-170); retention by size continues."""
        turns = Turns(SWEEP_SLICE)
        for partition, led in list(self._led.items()):
            await turns.step()
            if self._led.get(partition) is not led:
                continue
            retention_ms, retention_bytes = self._facts.retention(partition.topic_id)
            if self._clock_doubt():
                retention_ms = -1
            try:
                name = self._facts.name(partition.topic_id)
                await led.log.retain(self._clock.wall_ms(), retention_ms, retention_bytes, topic=name)
            except (KafkaError, LogError) as error:
                log.info(
                    "retention_deferred",
                    partition=partition.text,
                    cause=str(error),
                    effect="the next sweep retries",
                )
