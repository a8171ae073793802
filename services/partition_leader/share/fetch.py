"""One ShareFetch at work: lock, estimate, read, acquire; parked until one of its share-partitions can serve it.

The order of PL-201 … PL-215. An attempt that finds its reads in the tail cache runs without an await. Fetch locks are
given back on every path, and each giving back lets the next waiter look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from kip932.errors import KafkaError, NotLeaderOrFollowerError, OffsetOutOfRangeError, UnknownServerError
from kip932.ids import SharePartitionKey
from partition_leader.share.core import events as ev
from partition_leader.share.core.effects import AcquiredRange
from partition_leader.share.partition_host import SharePartitionHost
from partition_leader.share.partitions import SharePartitions
from partition_leader.topic_log.topic_log import LogBatch, ReadResult
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.budget import UNBOUNDED, Share

log = structlog.get_logger(__name__)


class FetchParameters(NamedTuple):
    """What one fetch asks for, already bounded by the service (PL-201).

    Each partition read gives a batch at least, however small its part of `max_bytes` is (PL-207). `room_bytes` is what
    the answer may have altogether: a partition that would pass it acquires nothing, unless it is the first (CM-62).
    """

    fetch_id: int
    member_id: str
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    mode: int
    room_bytes: int
    share: Share = UNBOUNDED


@dataclass(slots=True)
class FetchedPartition:
    """What one share-partition gave: an error, or ranges with the batches that cover them (PL-250)."""

    key: SharePartitionKey
    error: KafkaError | None = None
    ranges: tuple[AcquiredRange, ...] = ()
    batches: Sequence[LogBatch] = ()
    host: SharePartitionHost | None = None

    def give_back(self, member_id: str) -> None:
        """Release what was acquired: it cannot be delivered (PL-411, PL-505)."""
        if self.host is not None and self.ranges:
            self.host.release(member_id, self.ranges)
            self.ranges, self.batches = (), ()


@dataclass(slots=True)
class _Read:
    """One share-partition's part of an attempt; `result` None: the store must be asked."""

    host: SharePartitionHost
    offset: int
    result: ReadResult | KafkaError | None = None


@dataclass(slots=True)
class Budget:
    """What is left to acquire of a request's records, and the bytes that its answer has so far."""

    left: int
    held_bytes: int = 0


class ShareFetchOperation:
    """One fetch over the partitions of a session, in the session's order. `on_done` gets the results once."""

    def __init__(
        self,
        parameters: FetchParameters,
        keys: Sequence[SharePartitionKey],
        partitions: SharePartitions,
        on_done: Callable[[list[FetchedPartition]], None],
    ) -> None:
        self._parameters = parameters
        self._keys = keys
        self._partitions = partitions
        self._on_done = on_done
        self._results: dict[SharePartitionKey, FetchedPartition] = {}
        self._done = False
        self._reading: asyncio.Task[None] | None = None
        self._expired = False
        self._parked = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def done(self) -> bool:
        """Whether `on_done` has been called, or the fetch was cancelled."""
        return self._done

    @property
    def needs_bytes(self) -> bool:
        """Whether it waits for records, rather than for a share-partition that it can lock (PL-212)."""
        return self._parameters.min_bytes > 0

    def start(self) -> None:
        """Try at once; park until the deadline when that does not complete it (PL-210)."""
        if self._asks_for_nothing():
            self._complete()
            return
        self.attempt()
        if not self._done:
            self._parked = True
            self._partitions.wait(self, self._keys)
            self._arm()

    def expire(self) -> None:
        """End the wait now, as if max_wait_ms were over."""
        if not self._done and not self._expired:
            if self._timer is not None:
                self._timer.cancel()
            self._deadline()

    def conclude(self) -> None:
        """End the wait now and acquire nothing: nobody could use it any more."""
        self._complete()

    def cancel(self) -> None:
        """The caller is gone: forget the fetch; what was acquired stays acquired (PL-215)."""
        if not self._done:
            self._finish()

    def attempt(self) -> None:
        """One attempt to complete (PL-206 … PL-212)."""
        if self._done or self._reading is not None:
            return
        locked = self._lock(self._keys)
        if len(self._results) == len(self._keys):
            self._complete()
        elif not locked:
            if self._expired:
                self._complete()
        elif not self._parameters.share.room_bytes:
            self._no_room(locked)
        elif self._expired or self._enough(locked):
            self._read(self._affordable(locked))
        else:
            for host in locked:
                host.core.release_fetch_lock(self._parameters.fetch_id)

    def partition_failed(self, key: SharePartitionKey, error: KafkaError) -> None:
        """A share-partition could not be initialised (PL-604)."""
        if self._done or key in self._results:
            return
        self._results[key] = FetchedPartition(key, error)
        if self._reading is None and len(self._results) == len(self._keys):
            self._complete()

    # --- steps of an attempt

    def _asks_for_nothing(self) -> bool:
        return not self._keys or self._parameters.max_records == 0 or self._parameters.max_bytes == 0

    def _arm(self) -> None:
        delay_s = self._parameters.max_wait_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._deadline)

    def _obtain(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """The share-partition, if it is there; why it is not served goes into the results."""
        try:
            return self._partitions.obtain(key)
        except KafkaError as error:
            self._results[key] = FetchedPartition(key, error)
            return None

    def _lock(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionHost]:
        locked: list[SharePartitionHost] = []
        for key in keys:
            if key in self._results:
                continue
            host = self._obtain(key)
            if host is not None and host.core.take_fetch_lock(self._parameters.fetch_id, host.group.settings):
                locked.append(host)
        return locked

    def _no_room(self, locked: Sequence[SharePartitionHost]) -> None:
        """Nothing more can be answered at present (CM-92): wait for the deadline, and then acquire nothing."""
        self._unlock(locked)
        if self._expired:
            self._complete()

    def _unlock(self, locked: Sequence[SharePartitionHost]) -> None:
        for host in locked:
            host.unlock(self._parameters.fetch_id)

    def _byte_budget(self, count: int) -> int:
        """Equal shares, and at least one byte each, so that every partition read yields a batch (PL-207)."""
        return max(1, min(self._parameters.max_bytes, self._parameters.share.room_bytes) // count)

    def _affordable(self, locked: list[SharePartitionHost]) -> list[SharePartitionHost]:
        """No more partitions than bytes; the order of the session turns with each fetch, so none is left out for ever
        (PL-204, PL-207)."""
        count = self._parameters.max_bytes
        self._unlock(locked[count:])
        return locked[:count]

    def _enough(self, locked: Sequence[SharePartitionHost]) -> bool:
        needed = self._parameters.min_bytes
        if needed <= 0:
            return True
        budget = self._byte_budget(len(locked))
        found = 0
        for host in locked:
            found += min(host.log.bytes_available(host.core.next_fetch_offset()), budget)
            if found >= needed:
                return True
        return False

    def _read(self, locked: Sequence[SharePartitionHost]) -> None:
        budget = self._byte_budget(len(locked))
        reads = self._cached_reads(locked, budget)
        if all(read.result is not None for read in reads):
            self._take(reads)
        else:
            self._reading = asyncio.get_running_loop().create_task(self._read_cold(reads, budget))

    def _cached_reads(self, locked: Sequence[SharePartitionHost], budget: int) -> list[_Read]:
        reads = [_Read(host, host.core.next_fetch_offset()) for host in locked]
        for read in reads:
            self._read_cached(read, budget)
        return reads

    async def _read_missing(self, reads: Sequence[_Read], budget: int) -> None:
        await asyncio.gather(*(self._read_from_store(read, budget) for read in reads if read.result is None))

    async def _read_cold(self, reads: Sequence[_Read], budget: int) -> None:
        try:
            await self._read_missing(reads, budget)
        finally:
            self._reading = None
            if self._done:
                # Answered meanwhile (PL-213, PL-214): a late read acquires nothing. What it read stays in memory, so
                # that the next fetch finds it there however short its wait is.
                self._unlock([read.host for read in reads])
            else:
                self._take(reads)

    def _offsets_wanted(self, read: _Read) -> int:
        """Through the window in flight and as many new offsets as may be acquired: no read is longer than of use."""
        return max(0, read.host.core.speo - read.offset) + self._parameters.max_records

    def _read_cached(self, read: _Read, budget: int) -> None:
        try:
            read.result = read.host.log.read_cached(read.offset, budget, self._offsets_wanted(read))
        except KafkaError as error:
            read.result = error

    async def _read_from_store(self, read: _Read, budget: int) -> None:
        try:
            read.result = await read.host.log.read(read.offset, budget, self._offsets_wanted(read))
        except KafkaError as error:
            read.result = error
        except LogError as error:
            read.result = UnknownServerError(f"the topic log could not be read: {error}")
        except Exception:
            log.exception("a read for a share fetch failed in an unforeseen way", share_partition=read.host.key.text)
            read.result = UnknownServerError()

    def _take(self, reads: Sequence[_Read]) -> None:
        """Acquire and answer. The results are in place before others may acquire; waiters are woken at the end of this
        turn."""
        try:
            self._acquire_from(reads, Budget(self._parameters.max_records))
        finally:
            self._complete()
            self._unlock([read.host for read in reads])

    def _acquire_from(self, reads: Sequence[_Read], budget: Budget) -> None:
        """Acquire from the reads, in order, within the budgets of records (PL-204) and bytes."""
        room = min(self._parameters.room_bytes, self._parameters.share.room_bytes)
        for read in reads:
            if isinstance(read.result, KafkaError):
                self._read_failed(read.host, read.result)
            elif read.result is not None:
                size = sum([batch.size for batch in read.result.batches])
                fits = not budget.held_bytes or budget.held_bytes + size <= room
                taken = self._acquire(read.host, read.offset, read.result, budget.left if fits else 0)
                budget.left -= taken
                budget.held_bytes += size if taken else 0

    def _acquire(self, host: SharePartitionHost, offset: int, read: ReadResult, budget: int) -> int:
        result = self._results[host.key] = FetchedPartition(host.key, host=host)
        batches = read.batches
        if not batches:
            if read.data_offset > offset:
                host.skip_hole(offset)
            return 0
        if budget <= 0:
            return 0
        settings = host.group.settings
        ranges = result.ranges = host.acquire(
            ev.Acquire(
                fetch_id=self._parameters.fetch_id,
                member_id=self._parameters.member_id,
                mode=self._parameters.mode,
                batch_size=self._parameters.batch_size,
                max_records=budget,
                fetch_offset=offset,
                batches=batches,
                last_read_offset=batches[-1].last_offset,
                read_committed=host.group.read_committed,
                aborted=(),
                settings=settings,
            )
        )
        if not ranges:
            return 0
        result.batches = read.covering(ranges[0].first_offset, ranges[-1].last_offset)
        return sum(last - first + 1 for first, last, _ in ranges)

    def _read_failed(self, host: SharePartitionHost, error: KafkaError) -> None:
        if isinstance(error, OffsetOutOfRangeError):
            # The log start passed the share-partition: move it, and let the client poll again (PL-252).
            host.feed(ev.LogStartMoved(host.log.log_start_offset))
            self._results[host.key] = FetchedPartition(host.key, host=host)
            return
        self._results[host.key] = FetchedPartition(host.key, error, host=host)
        if isinstance(error, NotLeaderOrFollowerError) and host.lease_valid():
            # PL-630. A lease that has merely lapsed may come back under the same epoch, and then nobody else has led
            # in between (CM-3): who holds what must not be forgotten for that.
            host.drop(error)

    # --- ends

    def _deadline(self) -> None:
        """max_wait_ms is over: one last attempt with whatever can be locked (PL-213)."""
        self._expired = True
        self._timer = None
        if self._reading is not None:
            self._complete()
        else:
            self.attempt()

    def _complete(self) -> None:
        if self._done:
            return
        self._finish()
        self._on_done([self._results[key] for key in self._keys if key in self._results])

    def _finish(self) -> None:
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parked:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._partitions.stop_waiting(self, self._keys)
