"""The acknowledgements of one delivery: the type that the user gave each record, grouped into batches for a request.

Rules CL-23, CL-27, CL-35, CL-113 and CL-165. A delivery whose records were not acknowledged one by one (implicit
mode) keeps no state per record: its acquired ranges are accepted whole (P-1, P-14). This module never sends and never
reads a clock.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple, TypeVar

from kip932.failures import REASON_BYTES_MAX, REASONS_BYTES_MAX, Failure, merge_failures
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, ACK_RENEW, POLICY_DELAY

_UNSET: Final = 0xFF
_SENT: Final = 0xFE
#: Like _SENT, but the acknowledgement was a renewal: a later poll returns the record again.
_RENEWED: Final = 0xFD
_CLOSED: Final = (_RENEWED, _SENT, ACK_GAP)
#: The state that each type changes to when `take` returns it.
_TAKEN: Final = bytes([kind if kind >= _RENEWED else _RENEWED if kind == ACK_RENEW else _SENT for kind in range(256)])
#: A run of one type that is at least this long becomes a batch of its own, so that a long gap takes up one type, not
#: many.
_LONG_RUN: Final = 64
_LONG_RUNS: Final = re.compile(rb"(.)\1{%d,}" % (_LONG_RUN - 1), re.DOTALL)
#: Adjacent offsets whose types `take` has not returned yet.
_OPEN: Final = re.compile(rb"[\x00-\xfc]+")
#: The types of acknowledgement that may have a reason.
_GIVEN_UP: Final = (ACK_RELEASE, ACK_REJECT)
#: The maximum number of reasons that one delivery's acknowledgements contain. Each makes a batch of its own, and a
#: request contains a limited number of batches (CM-62).
REASONS_MAX: Final = 1_000
_Value = TypeVar("_Value")


class AckBatch(NamedTuple):
    """Offsets `first`…`last` with one type for all of them or one type each (CL-35).

    `delays`: the delay of each released record, in ms, one for all or one each; empty: the group's back-off applies
    (CL-113). `undelivered`: whether the delivery of each released record does not count, one for all or one each;
    empty: every delivery counts (CL-145). `reason`: why its released and rejected records were given up; empty: not
    known (CL-165).
    """

    first: int
    last: int
    types: tuple[int, ...]
    delays: tuple[int, ...] = ()
    undelivered: tuple[bool, ...] = ()
    reason: str = ""


class _Run(NamedTuple):
    first: int
    last: int
    type: int


class Delivery:
    """Records of one partition and one fetch, and their acknowledgements so far.

    `ranges` are the acquired offsets; `gaps` are those without a record. Both are ascending, with inclusive ends, and
    adjacent ranges are joined.
    """

    __slots__ = (
        "_delays",
        "_firsts",
        "_gap_count",
        "_gaps",
        "_positions",
        "_ranges",
        "_reasons",
        "_size",
        "_taken",
        "_types",
        "_unacknowledged",
        "_undelivered",
    )

    def __init__(self, ranges: Sequence[tuple[int, int]], gaps: Sequence[tuple[int, int]] = ()) -> None:
        self._ranges = list(ranges)
        self._gaps = list(gaps)
        self._firsts = [first for first, _ in ranges]
        self._positions: list[int] = []
        size = 0
        for first, last in self._ranges:
            self._positions.append(size)
            size += last - first + 1
        self._size = size
        self._gap_count = sum(last - first + 1 for first, last in self._gaps)
        self._unacknowledged = size - self._gap_count
        self._types: bytearray | None = None
        self._delays: dict[int, int] = {}  # by offset, for records to be released with their own delay
        self._undelivered: set[int] = set()  # offsets to be released as not delivered
        self._reasons: dict[int, str] = {}  # by offset, for records to be released or rejected with a reason
        self._taken = False

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The acquired offsets."""
        return self._ranges

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The acquired offsets without a record."""
        return self._gaps

    @property
    def unacknowledged(self) -> int:
        """The number of records that the user has not acknowledged yet."""
        return self._unacknowledged

    @property
    def finished(self) -> bool:
        """True when `take` has returned every offset."""
        if self._types is None:
            return self._taken
        return self._types.count(_SENT) + self._types.count(_RENEWED) == self._size

    def held(self) -> tuple[int, int] | None:
        """Return the first offset whose acknowledgement `take` has not yet returned, and the number of such offsets;
        None if there are none.

        Changes nothing, so another thread may acknowledge meanwhile.
        """
        types = self._types
        if self._taken:
            return None
        if types is None:
            runs = _overlay(self._ranges, self._gaps)
            first = next((run.first for run in runs if run.type != ACK_GAP), None)
            return None if first is None else (first, self._size - self._gap_count)
        count = self._size - sum(map(types.count, _CLOSED))
        position = next((index for index, kind in enumerate(types) if kind not in _CLOSED), None)
        if position is None or count <= 0:
            return None
        index = bisect_right(self._positions, position) - 1
        return self._ranges[index][0] + position - self._positions[index], count

    def is_renewed(self, offset: int) -> bool:
        """Return whether `take` has returned a renewal of this record, so that a later poll returns it again."""
        position = self._position(offset)
        return position is not None and self._types is not None and self._types[position] == _RENEWED

    def is_unacknowledged(self, offset: int) -> bool:
        """Return whether this delivery contains a record at `offset` that the user has not yet given a type."""
        position = self._position(offset)
        return position is not None and not self._taken and self._state()[position] == _UNSET

    def in_flight(self, offset: int) -> bool:
        """Return whether this delivery contains a record at `offset` whose acknowledgement `take` has not yet
        returned."""
        position = self._position(offset)
        if position is None or self._taken:
            return False
        return self._state()[position] not in _CLOSED

    def acknowledge(
        self, offset: int, ack_type: int, delay_ms: int | None = None, undelivered: bool = False, reason: str = ""
    ) -> bool:
        """Set the type of one record, replacing an earlier one. Returns False when the record is not in flight (CL-23).

        `delay_ms`: how long a released record is not delivered again; None: the group's back-off applies (CL-113).
        `undelivered`: the delivery of the released record does not count (CL-145). `reason`: why the record is released
        or rejected, at most REASON_BYTES_MAX bytes (CL-165).
        """
        position = self._position(offset)
        if position is None or self._taken:
            return False
        types = self._state()
        present = types[position]
        if present in _CLOSED:
            return False
        if present == _UNSET:
            self._unacknowledged -= 1
        types[position] = ack_type
        if delay_ms is not None:
            self._delays[offset] = delay_ms
        elif self._delays:
            self._delays.pop(offset, None)
        if undelivered:
            self._undelivered.add(offset)
        elif self._undelivered:
            self._undelivered.discard(offset)
        if reason:
            self._reasons[offset] = reason
        elif self._reasons:
            self._reasons.pop(offset, None)
        return True

    def drop(self, offset: int) -> None:
        """Treat a record as no longer in flight without sending anything for it, because it was delivered again."""
        position = self._position(offset)
        if position is None or not self.in_flight(offset):
            return
        types = self._state()
        self._unacknowledged -= types[position] == _UNSET
        types[position] = _SENT
        self._delays.pop(offset, None)
        self._undelivered.discard(offset)
        self._reasons.pop(offset, None)

    def accept_rest(self) -> None:
        """Accept all unacknowledged records (CL-21)."""
        if self._types is not None:
            self._types = self._types.replace(bytes((_UNSET,)), bytes((ACK_ACCEPT,)))
        self._unacknowledged = 0

    def give_back(self, counts: bool = False) -> list[AckBatch]:
        """Release all records, which the application never received, and return the batches as `take` does. The records
        can be delivered again immediately, despite the group's back-off (CL-113). Their deliveries do not count
        (CL-145) unless `counts` is set."""
        self._types = self._state().replace(bytes((_UNSET,)), bytes((ACK_RELEASE,)))
        self._unacknowledged = 0
        batches = [_with_delays(batch, {}, 0) for batch in self.take()]
        return batches if counts else [_undelivered(batch, None) for batch in batches]

    def take(self) -> list[AckBatch]:
        """Return the acknowledgements that have not been sent yet, ascending. Their offsets are then no longer in
        flight.

        The caller must send them: no later call returns them again.
        """
        if self._taken:
            return []
        if self._types is None and self._unacknowledged == 0:
            self._taken = True
            if not self._gaps:
                return [AckBatch(first, last, (ACK_ACCEPT,)) for first, last in self._ranges]
            return _batches(_overlay(self._ranges, self._gaps))
        batches: list[AckBatch] = []
        types = self._state()
        for (first, last), position in zip(self._ranges, self._positions, strict=True):
            for found in _OPEN.finditer(types, position, position + last - first + 1):
                start = found.start()
                batches += _typed_batches(first - position + start, bytes(types[start : found.end()]))
        types[:] = types.translate(_TAKEN)
        if self._delays:
            delays, self._delays = self._delays, {}
            batches = [_with_delays(batch, delays, POLICY_DELAY) for batch in batches]
        if self._undelivered:
            undelivered, self._undelivered = self._undelivered, set()
            batches = [_undelivered(batch, undelivered) for batch in batches]
        if self._reasons:
            reasons, self._reasons = _limited(self._reasons), {}
            batches = [piece for batch in batches for piece in _with_reasons(batch, reasons)]
        return batches

    def _state(self) -> bytearray:
        """Return one byte per offset: a type, unset or sent. Created when a caller first refers to a single record."""
        if self._types is None:
            self._types = bytearray((_UNSET,)) * self._size
            for first, last in self._gaps:
                position = self._position(first) or 0
                size = last - first + 1
                self._types[position : position + size] = bytes(size)
        return self._types

    def _position(self, offset: int) -> int | None:
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or offset > self._ranges[index][1]:
            return None
        return self._positions[index] + offset - self._firsts[index]


def offsets_with(batches: Iterable[AckBatch], ack_type: int) -> list[tuple[int, int]]:
    """Return the offsets to which `batches` give this type, as joined ranges; for RENEW see CL-27."""
    found: list[tuple[int, int]] = []
    for first, last, types, *_ in batches:
        if len(types) == 1:
            spans = [(first, last)] if types[0] == ack_type else []
        else:
            spans = [(first + index, first + index) for index, kind in enumerate(types) if kind == ack_type]
        for low, high in spans:
            if found and found[-1][1] + 1 == low:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
    return found


def record_ranges(batches: Iterable[AckBatch]) -> list[tuple[int, int]]:
    """Return the offsets in `batches` that have a record, as ranges: all but the gaps (CL-26)."""
    found: list[tuple[int, int]] = []
    for first, last, types, *_ in batches:
        if ACK_GAP not in types:
            found.append((first, last))
            continue
        offset = first
        for is_gap, run in groupby(types, key=ACK_GAP.__eq__):
            end = offset + sum(1 for _ in run)
            if not is_gap:
                found.append((offset, end - 1))
            offset = end
    return found


def has_renewal(batches: Iterable[AckBatch]) -> bool:
    """Return whether a request with these batches must carry `is_renew_ack` (CL-27)."""
    for _, _, types, *_ in batches:  # noqa: SIM110 - nearly always one batch: no generator for it
        if ACK_RENEW in types:
            return True
    return False


def has_delay(batches: Iterable[AckBatch]) -> bool:
    """Return whether a released record has its own delay (CL-113)."""
    return any(delay > 0 for batch in batches for delay in batch.delays)


def reason_bytes(batches: Iterable[AckBatch]) -> int:
    """Return how many bytes the reasons in `batches` take up."""
    return sum(len(batch.reason.encode()) for batch in batches if batch.reason)


def without_delays(batches: Sequence[AckBatch]) -> list[AckBatch]:
    """Return the batches with the group's back-off instead of their own delays, which the leader refused."""
    kept = [tuple(POLICY_DELAY if delay > 0 else delay for delay in batch.delays) for batch in batches]
    return [
        batch._replace(delays=delays if any(delay != POLICY_DELAY for delay in delays) else ())
        for batch, delays in zip(batches, kept, strict=True)
    ]


def merge(parts: Iterable[Sequence[AckBatch]]) -> tuple[list[AckBatch], list[int]]:
    """Join several deliveries' batches of one partition into one ascending list without overlap (CL-35).

    Returns the list, and the indexes of the parts that must wait for the next request. Such a part overlaps an earlier
    one because a record was delivered again after its lock had expired.
    """
    merged: list[AckBatch] = []
    deferred: list[int] = []
    for number, part in enumerate(parts):
        if not merged:
            merged = list(part)
            continue
        candidate = sorted((*merged, *part))
        if all(left.last < right.first for left, right in pairwise(candidate)):
            merged = candidate
        else:
            deferred.append(number)
    return merged, deferred


def _overlay(ranges: Sequence[tuple[int, int]], gaps: Sequence[tuple[int, int]]) -> list[_Run]:
    """Return runs of ACCEPT for `ranges` and of GAP for `gaps`, without visiting each record."""
    runs: list[_Run] = []
    index = 0
    for first, last in ranges:
        cursor = first
        while index < len(gaps) and gaps[index][0] <= last:
            low, high = gaps[index]
            if low > cursor:
                runs.append(_Run(cursor, low - 1, ACK_ACCEPT))
            runs.append(_Run(low, high, ACK_GAP))
            cursor = high + 1
            index += 1
        if cursor <= last:
            runs.append(_Run(cursor, last, ACK_ACCEPT))
    return runs


def _typed_batches(first: int, types: bytes) -> list[AckBatch]:
    """Return the batches of adjacent offsets with these types, as `_batches` does, but without visiting each run."""
    batches: list[AckBatch] = []
    cursor, end = 0, len(types)
    for found in _LONG_RUNS.finditer(types):
        start, stop = found.span()
        if cursor < start:
            batches.append(_typed_batch(first + cursor, types[cursor:start]))
        batches.append(AckBatch(first + start, first + stop - 1, (types[start],)))
        cursor = stop
    if cursor < end:
        batches.append(_typed_batch(first + cursor, types[cursor:end]))
    return batches


def _typed_batch(first: int, types: bytes) -> AckBatch:
    is_one = types.count(types[0]) == len(types)
    return AckBatch(first, first + len(types) - 1, (types[0],) if is_one else tuple(types))


def _batches(runs: Sequence[_Run]) -> list[AckBatch]:
    """Group adjacent short runs into a batch with a type per offset; each long run gets its own batch with a single
    type."""
    batches: list[AckBatch] = []
    mixed: list[_Run] = []
    for run in runs:
        long = run.last - run.first + 1 >= _LONG_RUN
        if mixed and (long or mixed[-1].last + 1 != run.first):
            batches.append(_batch(mixed))
            mixed = []
        if long:
            batches.append(AckBatch(run.first, run.last, (run.type,)))
        else:
            mixed.append(run)
    if mixed:
        batches.append(_batch(mixed))
    return batches


def _batch(runs: Sequence[_Run]) -> AckBatch:
    first, last = runs[0].first, runs[-1].last
    if len({run.type for run in runs}) == 1:
        return AckBatch(first, last, (runs[0].type,))
    return AckBatch(first, last, tuple(b"".join([bytes((kind,)) * (high - low + 1) for low, high, kind in runs])))


def _with_delays(batch: AckBatch, delays: Mapping[int, int], otherwise: int) -> AckBatch:
    """Return the batch with the delays of its released records; those without their own delay get `otherwise`."""
    types = batch.types
    if ACK_RELEASE not in types:
        return batch
    if len(types) == 1 and not delays:
        return batch._replace(delays=(otherwise,))
    offsets = range(batch.first, batch.last + 1)
    kinds = types if len(types) > 1 else types * len(offsets)
    found = tuple(
        delays.get(offset, otherwise) if kind == ACK_RELEASE else POLICY_DELAY
        for offset, kind in zip(offsets, kinds, strict=True)
    )
    if found.count(found[0]) < len(found):
        return batch._replace(delays=found)
    return batch if found[0] == POLICY_DELAY else batch._replace(delays=found[:1])


def _undelivered(batch: AckBatch, offsets: Container[int] | None) -> AckBatch:
    """Return the batch with its releases of these offsets marked as not delivered; None marks all of them."""
    types = batch.types
    if ACK_RELEASE not in types:
        return batch
    if len(types) == 1 and offsets is None:
        return batch._replace(undelivered=(True,))
    at = range(batch.first, batch.last + 1)
    kinds = types if len(types) > 1 else types * len(at)
    said = tuple(
        kind == ACK_RELEASE and (offsets is None or offset in offsets) for offset, kind in zip(at, kinds, strict=True)
    )
    if all(said):
        return batch._replace(undelivered=(True,))
    return batch._replace(undelivered=said) if any(said) else batch


def _limited(reasons: Mapping[int, str]) -> Mapping[int, str]:
    """Return the reasons by offset, shortened as the leader would do it (PL-942 (d)), and at most REASONS_MAX."""
    if len(reasons) <= REASONS_MAX and len(reasons) * REASON_BYTES_MAX <= REASONS_BYTES_MAX:
        return reasons
    kept = merge_failures((), [Failure(offset, offset, 1, reason) for offset, reason in reasons.items()])
    return {
        offset: failure.reason
        for failure in kept[:REASONS_MAX]
        for offset in range(failure.first_offset, failure.last_offset + 1)
    }


def _with_reasons(batch: AckBatch, reasons: Mapping[int, str]) -> list[AckBatch]:
    """Split the batch wherever its next released or rejected record has another reason, since a batch has one."""
    size = batch.last - batch.first + 1
    kinds = batch.types if len(batch.types) > 1 else batch.types * size
    given_up = [(index, reasons.get(batch.first + index, "")) for index, kind in enumerate(kinds) if kind in _GIVEN_UP]
    if not given_up:
        return [batch]
    starts = [0, *(right[0] for left, right in pairwise(given_up) if left[1] != right[1])]
    texts = [given_up[0][1], *(right[1] for left, right in pairwise(given_up) if left[1] != right[1])]
    return [
        AckBatch(
            batch.first + start,
            batch.first + stop - 1,
            _part(batch.types, start, stop),
            _part(batch.delays, start, stop),
            _part(batch.undelivered, start, stop),
            text,
        )
        for start, stop, text in zip(starts, [*starts[1:], size], texts, strict=True)
    ]


def _part(values: tuple[_Value, ...], start: int, stop: int) -> tuple[_Value, ...]:
    """Return the values of some offsets of a batch: one if it is the same for all of them."""
    part = values if len(values) <= 1 else values[start:stop]
    return part[:1] if part and part.count(part[0]) == len(part) else part
