"""Decides how much one ShareFetch may acquire, and when that is enough (PL-201, PL-204, PL-205, PL-207, PL-211 …
PL-213).

Owns the budgets of one fetch: records, bytes, and share-partitions to read. Never reads a log, waits, or touches a
share-partition. The host of the fetch passes in its observations, carries out the steps, and reports what it acquired.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from kip932.errors import KafkaError, NotLeaderOrFollowerError, OffsetOutOfRangeError
from partition_leader.share_partition.core.events import Drop, LogStartMoved

#: Stands for no limit on a fetch's records: more than any fetch may have.
RECORDS_MAX: Final = 2**31 - 1


class FetchLimits(NamedTuple):
    """The numbers in a ShareFetch, as the client sent them."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int


class FetchSizes(NamedTuple):
    """The effective sizes of one ShareFetch (PL-201). `room_bytes`: the maximum bytes of its whole response (CM-62)."""

    min_bytes: int
    max_bytes: int
    max_records: int
    room_bytes: int


def effective_sizes(limits: FetchLimits, room_bytes: int, service_max_bytes: int) -> FetchSizes:
    """Return the requested sizes, limited by the room in the response and by the service's `fetch.max.bytes`
    (PL-201)."""
    room_bytes = min(room_bytes, service_max_bytes)
    max_bytes = min(limits.max_bytes, room_bytes)
    return FetchSizes(min(limits.min_bytes, max_bytes), max_bytes, limits.max_records, room_bytes)


class Step(Enum):
    """The next step of an attempt."""

    WAIT = "wait"
    """Stay parked: a wake-up or the deadline brings the next attempt (PL-210)."""
    READ = "read"
    """Lock share-partitions, in the session's order, then read and acquire from them (PL-206)."""
    ANSWER = "answer"
    """Answer with the records acquired so far, and acquire no more."""


class FetchBudget:
    """The remaining budget of one ShareFetch over `partitions` share-partitions, spent by the one attempt that
    reads."""

    __slots__ = ("_bytes_held", "_partitions", "_sizes", "partitions_left", "records_left")

    def __init__(self, sizes: FetchSizes, partitions: int) -> None:
        self._sizes = sizes
        self._partitions = partitions
        self._bytes_held = 0
        self.records_left = sizes.max_records
        """How many records may still be acquired; below 0 if whole batches exceeded the limit (PL-204)."""
        self.partitions_left = sizes.max_bytes
        """How many share-partitions may still be read: no more than there are bytes (PL-207). The session's order
        brings each of them to the front in turn, so none is left out for ever (PL-204)."""

    @property
    def asks_for_nothing(self) -> bool:
        """True if the response is sent at once, without records (PL-201)."""
        return not self._partitions or self._sizes.max_records == 0 or self._sizes.max_bytes == 0

    @property
    def needs_bytes(self) -> bool:
        """True if it waits for records rather than for a share-partition that it can lock (PL-212)."""
        return self._sizes.min_bytes > 0

    @property
    def is_spent(self) -> bool:
        """True if no further share-partition may be read."""
        return self.records_left <= 0 or self.partitions_left <= 0

    def all_erroneous(self, erroneous: int) -> bool:
        """Return whether all share-partitions, `erroneous` in number, have errors: then the response is sent (PL-205,
        PL-212)."""
        return erroneous == self._partitions

    def is_filled_by(self, acquirable: Iterable[int]) -> bool:
        """Return whether these counts of acquirable records, one per share-partition, fill the fetch (PL-216)."""
        wanted = self.records_left
        for count in acquirable:
            wanted -= count
            if wanted <= 0:
                return True
        return False

    def next_step(
        self, erroneous: int, lockable: int, available: Iterable[int], connection_room: int, expired: bool
    ) -> Step:
        """Return the next step of an attempt that found `lockable` share-partitions that it could lock, and `erroneous`
        ones with errors.

        `available`: the bytes that can be read in each lockable one; iterated only as far as the decision needs.
        `connection_room`: the bytes that may be sent over its connection now (CM-92). `expired`: the deadline has
        passed, so this is the last attempt (PL-213).
        """
        if self.all_erroneous(erroneous):
            return Step.ANSWER
        if not lockable or not connection_room:
            return Step.ANSWER if expired else Step.WAIT
        if expired or self._enough(available, self.bytes_each(lockable, connection_room)):
            return Step.READ
        return Step.WAIT

    def _enough(self, available: Iterable[int], bytes_each: int) -> bool:
        """Return whether the readable bytes, at most `bytes_each` of each share-partition, reach min_bytes (PL-211)."""
        needed = self._sizes.min_bytes
        if needed <= 0:
            return True
        for found in available:
            needed -= min(found, bytes_each)
            if needed <= 0:
                return True
        return False

    def bytes_each(self, lockable: int, connection_room: int) -> int:
        """Return how many bytes to read from each: equal shares of at least one byte, so that every read yields a batch
        (PL-207)."""
        return max(1, min(self._sizes.max_bytes, connection_room) // lockable)

    def will_read(self, partitions: int) -> None:
        """Note that `partitions` share-partitions have been locked and will be read now."""
        self.partitions_left -= partitions

    def records_from(self, read_bytes: int, connection_room: int) -> int:
        """Return how many records to acquire from a read of `read_bytes`: those left, or 0 if its batches would exceed
        the room in the response. The room does not limit the first share-partition that yields any records (PL-207,
        CM-62)."""
        room = min(self._sizes.room_bytes, connection_room)
        if self._bytes_held and self._bytes_held + read_bytes > room:
            return 0
        return max(0, self.records_left)

    def acquired(self, records: int, read_bytes: int) -> None:
        """Deduct `records` acquired from a read of `read_bytes`."""
        if records:
            self.records_left -= records
            self._bytes_held += read_bytes


def even_part(room: int, waiting: int) -> int:
    """Return how many records one of `waiting` fetches may acquire, so that each gets an even share of the `room` for
    new ones (PL-217). If there is no room, there is no limit, because redelivering released records needs none
    (PL-222)."""
    return -(-room // waiting) if room > 0 else RECORDS_MAX


class ReadFailure(NamedTuple):
    """The consequence of a failed read: the event for its share-partition and the error for the request; None means
    none."""

    event: LogStartMoved | Drop | None
    error: KafkaError | None


def read_failed(error: KafkaError, log_start_offset: int, lease_valid: bool) -> ReadFailure:
    """Return the consequence of a log error for the share-partition that was read (PL-252, PL-630)."""
    if isinstance(error, OffsetOutOfRangeError):
        # The log start passed the share-partition: move it, and let the client poll again (PL-252).
        return ReadFailure(LogStartMoved(log_start_offset), None)
    if isinstance(error, NotLeaderOrFollowerError) and lease_valid:
        return ReadFailure(Drop(error), error)
    # A lease that has merely lapsed may be renewed under the same epoch. Then no other process has led in between
    # (CM-3), so the share-partition must not forget who holds what.
    return ReadFailure(None, error)
