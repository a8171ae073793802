"""Runs one ShareFetch: checks its share-partitions, reads, acquires the records, and waits between attempts.

`core.fetch_policy` decides what an attempt does and how much it may acquire (PL-201 … PL-215). An attempt whose reads
are all in the tail cache runs without an await. A fetch releases its fetch locks on every path, and each release lets
the next waiter try (PL-214).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from kip932.errors import KafkaError, UnknownServerError
from kip932.ids import SharePartitionKey
from partition_leader.fetch.core.fetch_policy import RECORDS_MAX, FetchBudget, FetchSizes, Step, even_part, read_failed
from partition_leader.fetch.readable import BY_ALL, Readable, readable_part, refusal
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.bad_record_isolation import holds_throttled
from partition_leader.share_partition.core.effects import AcquiredRange, ReadLog
from partition_leader.share_partition.host import SharePartitionHost
from partition_leader.share_partition.partitions import SharePartitions
from partition_leader.topic_log.topic_log import LogBatch, ReadResult
from shard_runtime.record_log.protocol import LogError
from shard_runtime.rpc.budget import UNBOUNDED, Share
from shard_runtime.rpc.quotas import CallerQuota

log = structlog.get_logger(__name__)

#: How long a fetch with records to read waits before it checks again whether its connection has room for the response,
#: in seconds (CM-92).
_ROOM_CHECK_S: Final = 0.05


class FetchParameters(NamedTuple):
    """The parameters of one fetch. `share` is its connection's share of the bytes in flight at this node (CM-92);
    `readable` says which batches its member can read (PL-257, CM-222); `quota` limits its caller's bytes a second
    (PL-532)."""

    fetch_id: int
    member_id: str
    max_wait_ms: int
    sizes: FetchSizes
    batch_size: int
    mode: int
    share: Share = UNBOUNDED
    readable: Readable = BY_ALL
    quota: CallerQuota | None = None


@dataclass(slots=True)
class FetchedPartition:
    """The result of one share-partition: an error, or ranges with the batches that cover them (PL-250)."""

    key: SharePartitionKey
    error: KafkaError | None = None
    ranges: tuple[AcquiredRange, ...] = ()
    batches: Sequence[LogBatch] = ()
    host: SharePartitionHost | None = None
    #: How long the ranges are locked.
    lock_ms: int = 0

    def give_back(self, member_id: str) -> None:
        """Release what was acquired, because it cannot be delivered (PL-411, PL-505)."""
        if self.host is not None and self.ranges:
            self.host.release(member_id, self.ranges)
            self.drop()

    def drop(self) -> None:
        """Deliver nothing, because what was acquired has been released."""
        self.ranges, self.batches = (), ()


@dataclass(slots=True)
class Reading:
    """One locked share-partition in an attempt: what to read, and the result (None until it is known)."""

    host: SharePartitionHost
    order: ReadLog
    committed: bool = False
    """Whether the group reads only committed records, as of the lock: a read has one isolation level throughout
    (PL-801, PL-806)."""
    result: ReadResult | KafkaError | None = None


class ShareFetchOperation:
    """One fetch over the partitions of a session, in the session's order.

    It calls `on_done` once, with the results of the share-partitions that it reached, but not after `cancel`.
    """

    def __init__(
        self,
        parameters: FetchParameters,
        keys: Sequence[SharePartitionKey],
        partitions: SharePartitions,
        on_done: Callable[[list[FetchedPartition]], None],
        *,
        acknowledging: bool = False,
    ) -> None:
        """`acknowledging`: whether its request has acknowledgements whose outcome is still unknown; call `acknowledged`
        when it is known."""
        self._acknowledging = acknowledging
        self._parameters = parameters
        self._keys = keys
        self._partitions = partitions
        self._on_done = on_done
        self._budget = FetchBudget(parameters.sizes, len(keys))
        self._results: dict[SharePartitionKey, FetchedPartition] = {}
        self._done = False
        #: Whether it has acquired records; whether these have failed often, so that no others may join them (PL-243).
        self._has_records = self._comes_alone = False
        self._reading: asyncio.Task[None] | None = None
        self._expired = False
        self._parked = False
        self._timer: asyncio.TimerHandle | None = None
        self._room_timer: asyncio.TimerHandle | None = None

    @property
    def done(self) -> bool:
        """Return whether `on_done` has been called, or the fetch was cancelled."""
        return self._done

    @property
    def needs_bytes(self) -> bool:
        """Return whether it waits for records rather than for a share-partition that it can lock (PL-212)."""
        return self._budget.needs_bytes

    def start(self) -> None:
        """Try at once; if that does not complete the fetch, park it until its deadline (PL-210)."""
        if self._budget.asks_for_nothing:
            self._complete()
            return
        self.attempt()
        if not self._done:
            self._parked = True
            self._partitions.wait(self, self._keys)
            self._arm()

    def acknowledged(self) -> None:
        """Stop waiting for its request's acknowledgements, because their outcome is known (PL-216)."""
        if self._acknowledging:
            self._acknowledging = False
            if not self._done:  # later, since no fetch lock can be taken within the event that brought the outcome
                asyncio.get_running_loop().call_soon(self.attempt)

    def expire(self) -> None:
        """Make the last attempt now, as if max_wait_ms were over."""
        if not self._done and not self._expired:
            if self._timer is not None:
                self._timer.cancel()
            self._deadline()

    def conclude(self) -> None:
        """Answer now and acquire nothing more: the caller cannot use further records."""
        self._complete()

    def cancel(self) -> None:
        """Forget the fetch, whose caller is no longer waiting, and never call `on_done`. Acquired records stay acquired
        (PL-215)."""
        if not self._done:
            self._finish()

    def attempt(self) -> None:
        """Try once to complete. Does nothing if the fetch is done or is reading (PL-206 … PL-212)."""
        if self._done or self._reading is not None or self._waits_for_quota():
            return
        hosts = self._lockable(self._keys)
        if self._acknowledging and not self._expired and not self._budget.is_filled_by(map(self._acquirable, hosts)):
            return  # the response waits for the acknowledgements anyway; by then more may be acquired (PL-216)
        room = self._parameters.share.room_bytes
        available = map(SharePartitionHost.bytes_available, hosts)
        step = self._budget.next_step(len(self._results), len(hosts), available, room, self._expired)
        if step is Step.READ:
            self._read(hosts, self._budget.bytes_each(len(hosts), room))
        elif step is Step.ANSWER:
            self._complete()
        elif hosts and not room and self._room_timer is None:
            self._room_timer = asyncio.get_running_loop().call_later(_ROOM_CHECK_S, self._check_room)

    def partition_failed(self, key: SharePartitionKey, error: KafkaError) -> None:
        """Add the error of a share-partition that could not be initialised (PL-604)."""
        if self._done or key in self._results:
            return
        self._results[key] = FetchedPartition(key, error)
        if self._reading is None and self._budget.all_erroneous(len(self._results)):
            self._complete()

    # --- steps of an attempt

    def _arm(self) -> None:
        delay_s = self._parameters.max_wait_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._deadline)

    def _waits_for_quota(self) -> bool:
        """Return whether its caller's quota is used up (PL-532). Then it acquires nothing: it retries as soon as the
        quota allows, and when its wait is over, the response has no records."""
        quota = self._parameters.quota
        delay_ms = 0 if quota is None else quota.delay_ms()
        if not delay_ms:
            return False
        if self._expired:
            self._complete()
        elif self._room_timer is None:
            self._room_timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._check_room)
        return True

    def _check_room(self) -> None:
        """Check again whether the connection has room for the response (CM-92), and the quota; no event reports it."""
        self._room_timer = None
        self.attempt()

    def _obtain(self, key: SharePartitionKey) -> SharePartitionHost | None:
        """Return the share-partition's host; None if it is not served now. Errors go into the results (PL-205)."""
        try:
            return self._partitions.obtain(key)
        except KafkaError as error:
            self._results[key] = FetchedPartition(key, error)
            return None

    def _lockable(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionHost]:
        """Return which of these share-partitions could be locked now, in order."""
        lockable: list[SharePartitionHost] = []
        for key in keys:
            if key not in self._results:
                host = self._obtain(key)
                if host is not None and host.lockable():
                    lockable.append(host)
        return lockable

    def _lock(self, hosts: Sequence[SharePartitionHost]) -> list[Reading]:
        """Lock as many of these as may be read (PL-206, PL-207)."""
        fetch_id, max_records = self._parameters.fetch_id, self._parameters.sizes.max_records
        reads: list[Reading] = []
        for host in hosts[: self._budget.partitions_left]:
            order = host.lock(fetch_id, max_records)
            if order is not None:
                reads.append(Reading(host, order, host.config.read_committed))
        self._budget.will_read(len(reads))
        return reads

    def _unlock(self, reads: Sequence[Reading]) -> None:
        for read in reads:
            read.host.unlock(self._parameters.fetch_id)

    def _read(self, hosts: Sequence[SharePartitionHost], max_bytes: int) -> None:
        reads = self._lock(hosts)
        if self._read_cached(reads, max_bytes):
            self._take(reads)
        else:
            self._reading = asyncio.get_running_loop().create_task(self._read_cold(reads, max_bytes))

    def _read_cached(self, reads: Sequence[Reading], max_bytes: int) -> bool:
        """Read up to `max_bytes` from each, in memory only; return whether nothing is left to read from the store."""
        found = True
        for read in reads:
            order = read.order
            try:
                read.result = read.host.log.read_cached(
                    order.first_offset, max_bytes, order.offsets_max, committed=read.committed
                )
            except KafkaError as error:
                read.result = error
            if read.result is None:
                found = False
        return found

    async def _read_missing(self, reads: Sequence[Reading], max_bytes: int) -> None:
        await asyncio.gather(*(self._read_from_store(read, max_bytes) for read in reads if read.result is None))

    async def _read_cold(self, reads: Sequence[Reading], max_bytes: int) -> None:
        try:
            await self._read_missing(reads, max_bytes)
        finally:
            self._reading = None
            if self._done:
                # The fetch was answered during the read (PL-213, PL-214), so it acquires nothing. The batches stay in
                # the tail cache: the next fetch finds them there, however short its wait is.
                self._unlock(reads)
            else:
                self._take(reads)

    async def _read_from_store(self, read: Reading, max_bytes: int) -> None:
        order = read.order
        try:
            read.result = await read.host.log.read(
                order.first_offset, max_bytes, order.offsets_max, committed=read.committed
            )
        except KafkaError as error:
            read.result = error
        except LogError as error:
            read.result = UnknownServerError(f"the topic log could not be read: {error}")
        except Exception:
            log.exception("share_fetch_read_failed", share_partition=read.host.key.text)
            read.result = UnknownServerError()

    def _take(self, reads: Sequence[Reading]) -> None:
        """Acquire, answer, unlock. Waiters try at the end of this turn of the event loop, that is, after the answer."""
        try:
            self._acquire_from(reads)
        finally:
            self._complete()
            self._unlock(reads)

    def _acquire_from(self, reads: Sequence[Reading]) -> None:
        """Acquire from the reads, in order, as many records as the budget allows for each (PL-204, PL-207). Records
        that have failed often are delivered without records of other share-partitions (PL-243)."""
        budget, room = self._budget, self._parameters.share.room_bytes
        for read in reads:
            result = read.result
            if isinstance(result, KafkaError):
                self._read_failed(read.host, result)
            elif result is not None:
                size = sum([batch.size for batch in result.batches])
                most = min(budget.records_from(size, room), self._even_part(read.host))
                acquired = 0 if self._comes_alone else self._acquire(read, result, most)
                budget.acquired(acquired, size)
                self._has_records = self._has_records or acquired > 0

    def _acquirable(self, host: SharePartitionHost) -> int:
        """Return the maximum number of new records that it could acquire now, given its share of the room and the log's
        end."""
        room = host.core.room(host.config)
        return max(0, min(room, self._even_part(host), host.log.high_watermark - host.core.speo))

    def _even_part(self, host: SharePartitionHost) -> int:
        """Return this fetch's even share, among the waiting fetches, of the room for new records (PL-217)."""
        waiting = self._partitions.waiting(host.key) + (not self._parked)
        return RECORDS_MAX if waiting <= 1 else even_part(host.core.room(host.config), waiting)

    def _acquire(self, reading: Reading, read: ReadResult, max_records: int) -> int:
        """Acquire up to `max_records` from a read, or more to finish a batch; return how many."""
        host, offset = reading.host, reading.order.first_offset
        result = self._results[host.key] = FetchedPartition(host.key, host=host)
        batches = read.batches
        if not batches:
            if read.data_offset > offset:
                host.skip_hole(offset)
            return 0
        if not max_records:
            return 0
        batches = readable_part(batches, self._parameters.readable)
        if not batches:
            result.error = refusal(read.batches[0], offset, self._parameters.readable)
            return 0
        settings = host.config
        result.lock_ms = settings.lock_ms
        ranges = result.ranges = host.acquire(
            ev.Acquire(
                fetch_id=self._parameters.fetch_id,
                member_id=self._parameters.member_id,
                mode=self._parameters.mode,
                batch_size=self._parameters.batch_size,
                max_records=max_records,
                fetch_offset=offset,
                batches=batches,
                last_read_offset=batches[-1].last_offset,
                read_committed=reading.committed,
                aborted=tuple([ev.AbortedTransaction(*one[:3]) for one in read.aborted]) if read.aborted else (),
                settings=settings,
                beside=self._has_records,
            )
        )
        if not ranges:
            return 0
        self._comes_alone = holds_throttled(ranges, settings.delivery_count_limit)
        result.batches = read.covering(ranges[0].first_offset, ranges[-1].last_offset)
        if self._parameters.quota is not None:
            self._parameters.quota.charge(sum([batch.size for batch in result.batches]))
        return sum([last - first + 1 for first, last, _ in ranges])

    def _read_failed(self, host: SharePartitionHost, error: KafkaError) -> None:
        failure = read_failed(error, host.log.log_start_offset, host.lease_valid())
        self._results[host.key] = FetchedPartition(host.key, failure.error, host=host)
        if failure.event is not None:
            host.feed(failure.event)

    # --- ends

    def _deadline(self) -> None:
        """When max_wait_ms is over, make the last attempt with the share-partitions that can be locked; if a read is
        running, answer without it (PL-213)."""
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
        for timer in (self._timer, self._room_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._room_timer = None
        if self._parked:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        self._partitions.stop_waiting(self, self._keys)
