"""The transactions in the log of one partition: which are open, and which were aborted (CM-44, PL-006, PL-008).

Owns the last stable offset and the index of aborted transactions. It learns of transactions only from batches in the
log, so a replay gives the same result. It never decides how a transaction ends: markers do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from partition_leader.topic_log.core.batch import LogBatch

#: The maximum numbers of open transactions in one partition, and of aborted ones that its log still holds. Beyond
#: either, no new transaction can start in the partition; markers are always accepted.
OPEN_MAX: Final = 10_000
ABORTED_MAX: Final = 100_000
#: How many aborted transactions and how many other markers, the newest of each, are considered when offsets that hold
#: no work are counted.
COUNTED_MAX: Final = 1_000
#: How long a transaction must be open to be reported to operators, in ms.
LATE_MS: Final = 30_000
_last_offset = attrgetter("last_offset")


class OpenTransaction(NamedTuple):
    """A transaction without a marker yet. `first_append_ms`, `last_append_ms`: when its first and its newest batch were
    appended (ms since 1970); the first is 0 if it comes from a snapshot by a build without this field."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    transactional_id: str
    last_append_ms: int
    first_append_ms: int = 0
    records: int = 0
    """How many offsets its batches have; too low if a snapshot from before this field left some out."""

    def open_ms(self, wall_ms: int) -> int:
        """Return the minimum time that it has been open here."""
        return max(wall_ms - (self.first_append_ms or self.last_append_ms), 0)


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, its first offset, the offset of its ABORT marker, and the number of offsets
    in its batches, as in `OpenTransaction`."""

    producer_id: int
    first_offset: int
    last_offset: int
    records: int = 0


@dataclass(slots=True)
class LogTransactions:
    """The transactions of one log. `open` is keyed by producer id, in the order of first offsets: a producer has at
    most one, and appends are in offset order. `aborted` is in the order of the markers. `markers`: the offsets of other
    markers, at least the newest COUNTED_MAX that this leader has seen."""

    open: dict[int, OpenTransaction]
    aborted: list[AbortedTransaction]
    longest: int
    """No aborted transaction spans more offsets than this."""
    markers: list[int]

    @classmethod
    def none(cls) -> LogTransactions:
        """Return the transactions of a log that has none."""
        return cls({}, [], 0, [])

    def copy(self) -> LogTransactions:
        """Return an independent copy."""
        return LogTransactions(dict(self.open), list(self.aborted), self.longest, list(self.markers))

    @property
    def any(self) -> bool:
        """Return whether there is any transaction to remember."""
        return bool(self.open or self.aborted)

    @property
    def full(self) -> bool:
        """Return whether no further transaction may start here."""
        return len(self.open) >= OPEN_MAX or len(self.aborted) >= ABORTED_MAX

    def note(self, batch: LogBatch) -> None:
        """Note a batch that was appended or replayed."""
        if batch.is_control:
            self._ended(batch)
        elif batch.is_transactional:
            known = self.open.get(batch.producer_id)
            if known is None:
                self.open[batch.producer_id] = OpenTransaction(
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_offset,
                    batch.transactional_id,
                    batch.append_time_ms,
                    batch.append_time_ms,
                    batch.record_count,
                )
            else:  # `known` has an earlier epoch only if its marker was lost; the later epoch's marker then ends both
                self.open[batch.producer_id] = known._replace(
                    producer_epoch=batch.producer_epoch,
                    last_append_ms=batch.append_time_ms,
                    records=known.records + batch.record_count,
                )

    @property
    def earliest(self) -> OpenTransaction | None:
        """The open transaction that holds the last stable offset back; None when none is open."""
        return next(iter(self.open.values()), None)

    def last_stable(self, log_start: int, high_watermark: int) -> int:
        """Return LAST_STABLE: the first offset of the earliest open transaction, or the high watermark if none is open
        (PL-008)."""
        if not self.open:
            return high_watermark
        earliest = next(iter(self.open.values())).first_offset
        return min(max(earliest, log_start), high_watermark)

    def aborted_in(self, first: int, last: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions with offsets in `first`…`last`, in the order of their markers."""
        aborted = self.aborted
        if not aborted or aborted[-1].last_offset < first:
            return ()
        begin = bisect_left(aborted, first, key=_last_offset)
        end = bisect_left(aborted, last + self.longest + 1, lo=begin, key=_last_offset)
        return tuple(one for one in aborted[begin:end] if one.first_offset <= last)

    def empty_in(self, first: int, last: int, *, committed: bool) -> int:
        """Return how many offsets in `first`…`last` are known to be markers or, with `committed`, records of aborted
        transactions. The number is too low if a transaction starts before `first`, or if COUNTED_MAX leaves some
        out."""
        begin = bisect_left(self.aborted, first, key=_last_offset)
        end = bisect_left(self.aborted, last + 1, lo=begin, key=_last_offset)
        found = end - begin + bisect_left(self.markers, last + 1) - bisect_left(self.markers, first)
        if committed:
            newest = self.aborted[max(begin, end - COUNTED_MAX) : end]
            found += sum(one.records for one in newest if one.first_offset >= first)
        return found

    def trim(self, log_start: int) -> None:
        """Forget the aborted transactions that end below the log's start."""
        if self.aborted and self.aborted[0].last_offset < log_start:
            del self.aborted[: bisect_left(self.aborted, log_start, key=_last_offset)]

    def restore(self, opened: Iterable[OpenTransaction], aborted: Iterable[AbortedTransaction], below: int) -> None:
        """Start with the transactions of a snapshot; `below`: the surviving end of the log (CM-47)."""
        kept = sorted((one for one in opened if one.first_offset < below), key=attrgetter("first_offset"))
        self.open = {one.producer_id: one for one in kept}
        self.aborted = sorted(aborted, key=_last_offset)
        self.longest = max((one.last_offset - one.first_offset for one in self.aborted), default=0)

    def _ended(self, marker: LogBatch) -> None:
        ended = self.open.get(marker.producer_id)
        if ended is None or ended.producer_epoch > marker.producer_epoch:
            self._note_marker(marker.base_offset)  # it has no batch here, or its transaction was forgotten
            return
        del self.open[marker.producer_id]
        if marker.is_abort:
            self.aborted.append(
                AbortedTransaction(marker.producer_id, ended.first_offset, marker.base_offset, ended.records)
            )
            self.longest = max(self.longest, marker.base_offset - ended.first_offset)
        else:
            self._note_marker(marker.base_offset)

    def _note_marker(self, offset: int) -> None:
        self.markers.append(offset)
        if len(self.markers) >= 2 * COUNTED_MAX:
            del self.markers[:-COUNTED_MAX]
