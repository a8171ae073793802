"""Applies acknowledgements, all or nothing for one share-partition (PL-404 … PL-410, RENEW PL-323 … PL-326).

Owns the checks and the pending transitions of one request. Never writes, answers or commits: it returns an operation,
which waits for its write. It changes whole batches and whole arrays at once, and single records only where types or
counts differ; many short acknowledgements of one cached batch are combined into one array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, islice
from operator import and_, gt
from typing import Final, NamedTuple

from kip932.errors import InvalidRecordStateError, InvalidRequestError
from kip932.failures import Failure
from kip932.ids import (
    ACK_ACCEPT,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    ACK_TYPE_MAX,
    POLICY_DELAY,
    STATE_ACQUIRED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
)
from partition_leader.share_partition.core.archived import DELIVERY_LIMIT, REJECTED
from partition_leader.share_partition.core.backoff import Retries
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.delays import delay_of, given_runs, released_runs
from partition_leader.share_partition.core.effects import (
    CAUSE_ACK,
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
    Counters,
)
from partition_leader.share_partition.core.events import AckBatch, Acknowledge
from partition_leader.share_partition.core.given_up import GivenUp
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.operations import Operation, refusal_of, revert
from partition_leader.share_partition.core.spans import Span, stretches
from partition_leader.share_partition.core.transitions import (
    ACKNOWLEDGE,
    DELAYED,
    ILLEGAL,
    IS_TOUCHED,
    PENDING,
    PENDING_AVAILABLE,
    PENDING_DELAYED,
    RELEASE,
    TYPE_CODES,
    UNTOUCHED,
    released_state,
)

_TYPES: Final = ACK_TYPE_MAX + 1
#: The most offsets per ack batch of a stretch: with wider gaps, walking those between costs more than it saves.
_WIDTH_PER_ACK: Final = 16


class AckStretch(NamedTuple):
    """Many short ack batches of one cached batch, combined into one array of types, so that each costs one entry.

    `acks`: how many ack batches. `types`: one byte for each offset from `first` on, an acknowledge type for each of the
    `records` acknowledged offsets and a marked code for those between them.
    """

    batch: InFlightBatch
    first: int
    types: bytearray
    acks: int
    records: int


def _is_extended(ack: AckBatch) -> bool:
    """Return whether the ack batch has delays, `undelivered` or a reason: it is then applied on its own."""
    return bool(ack.delays or ack.undelivered or ack.reason)


def gather_stretch(window: Window, acks: Sequence[AckBatch], at: int) -> AckStretch | None:
    """Return the ack batches from `at` on that ascend on one cached batch, up to the first with delays, `undelivered`
    or a reason; None when there are fewer than two, or when they are too sparse.

    Never changes a record or reports an error: ack batches that do not fit are applied one by one, which finds the
    reason (PL-406, PL-407).
    """
    if at + 1 >= len(acks) or _is_extended(acks[at]) or _is_extended(acks[at + 1]):
        return None
    first = acks[at].first_offset
    batch = window.floor(first)
    if batch is None or first < window.start_offset or acks[at + 1].last_offset > batch.last:
        return None
    end = min(acks[-1].last_offset, batch.last)
    if end - first >= _WIDTH_PER_ACK * (len(acks) - at):
        return None
    types = batch.marked_codes(first, end)
    taken, previous = 0, first - 1
    for low, last, given, delays, undelivered, reason in islice(acks, at, None):
        if not previous < low <= last <= end or delays or undelivered or reason:
            break
        if low == last:
            types[low - first] = given[0]
        elif len(given) == 1:
            types[low - first : last - first + 1] = bytes(given) * (last - low + 1)
        elif len(given) == last - low + 1:
            types[low - first : last - first + 1] = given
        else:
            break
        previous = last
        taken += 1
    if taken < 2:
        return None
    del types[previous - first + 1 :]
    return AckStretch(batch, first, types, taken, types.translate(IS_TOUCHED).count(True))


def _is_stretch_held(stretch: AckStretch, member: str) -> bool:
    """Return whether the member holds every acknowledged record: Acquired, not pending, its own (PL-406, PL-407)."""
    batch, types = stretch.batch, stretch.types
    if batch.codes is None:
        return batch.code == STATE_ACQUIRED and batch.member == member
    low = stretch.first - batch.first
    high = low + len(types)
    acquired = batch.codes.count(STATE_ACQUIRED, low, high) - types.count(UNTOUCHED | STATE_ACQUIRED)
    if acquired != stretch.records:
        return False
    holders = batch.members[low:high]
    if stretch.records < len(holders):
        holders = list(compress(holders, types.translate(IS_TOUCHED)))
    return holders.count(member) == stretch.records


class Acknowledgement:
    """Applies one request's acknowledgements of one share-partition."""

    __slots__ = ("_chance", "_event", "_given_up", "_limited", "_now_ms", "_types", "_window", "operation")

    def __init__(
        self,
        window: Window,
        given_up: GivenUp,
        event: Acknowledge,
        now_ms: int,
        chance: Callable[[], float] = float,
    ) -> None:
        self._window = window
        self._given_up = given_up
        self._event = event
        self._now_ms = now_ms
        settings = event.settings
        self._chance = chance
        self._types = [0] * _TYPES  # records per acknowledge type
        self._limited = 0  # released records that had reached the delivery limit
        self.operation = Operation(event.op_id, CAUSE_ACK, settings.delivery_count_limit, settings.dlq_enabled)
        self.operation.member_id = event.member_id

    def run(self) -> Operation:
        """Apply every ack batch. Raises InvalidRequestError or InvalidRecordStateError with nothing changed but
        renewals (PL-326); an operation without spans needs no write (PL-411)."""
        try:
            if len(self._event.batches) == 1:
                self._apply(self._event.batches[0])
            else:
                self._apply_all(self._event.batches)
        except (InvalidRequestError, InvalidRecordStateError):
            revert(self._window, self.operation)
            raise
        types = self.operation.acknowledged = self._types
        self.operation.counters = Counters(
            types[ACK_ACCEPT], types[ACK_RELEASE], types[ACK_REJECT], n_limit=self._limited
        )
        return self.operation

    def _apply_all(self, acks: Sequence[AckBatch]) -> None:
        at = one_by_one = 0
        while at < len(acks):
            stretch = gather_stretch(self._window, acks, at) if at >= one_by_one else None
            if stretch is None:
                self._apply(acks[at])
                at += 1
            elif self._apply_stretch(stretch):
                at += stretch.acks
            else:
                one_by_one = at + stretch.acks

    def _apply_stretch(self, stretch: AckStretch) -> bool:
        """Apply many ack batches of one cached batch. Returns False, with nothing changed, when one must be refused."""
        if ACK_RENEW in stretch.types and not self._event.settings.renew_enabled:
            return False
        if not _is_stretch_held(stretch, self._event.member_id):
            return False
        self._many_types(stretch.types, stretch.batch, stretch.first)
        return True

    def _apply(self, ack: AckBatch) -> None:
        if ACK_RENEW in ack.types and not self._event.settings.renew_enabled:
            raise InvalidRecordStateError(
                f"renewal of offsets {ack.first_offset}-{ack.last_offset} refused: the group's "
                "share.renew.acknowledge.enable is false; let the lock run out, or enable it"
            )
        window = self._window
        start = window.start_offset
        if ack.first_offset < start:
            self._given_up.check(ack.first_offset, min(ack.last_offset, start - 1), self._event.member_id)
            if ack.last_offset < start:
                return  # PL-404
        else:
            batch = window.floor(ack.first_offset)
            if batch is not None and ack.last_offset <= batch.last:  # the usual case
                self._apply_to(ack, batch, ack.first_offset, ack.last_offset)
                return
        self._check_located(ack)
        lowest = max(ack.first_offset, window.start_offset)
        for batch in window.overlapping(lowest, ack.last_offset):
            self._apply_to(ack, batch, max(lowest, batch.first), min(ack.last_offset, batch.last))

    def _check_located(self, ack: AckBatch) -> None:
        """Check that the ack batch is on cached batches (PL-405); those below the start offset may already be removed.
        Raises InvalidRecordStateError or InvalidRequestError."""
        window = self._window
        last = window.floor(ack.last_offset)
        begins_below = ack.first_offset < window.start_offset
        if last is None or (not begins_below and window.floor(ack.first_offset) is None):
            raise InvalidRecordStateError(
                f"offsets {ack.first_offset}-{ack.last_offset} are not acquired: nothing at or below them is in "
                f"flight (start offset {window.start_offset}); their lock may have run out before"
            )
        if last.last < ack.first_offset or ack.last_offset > last.last:
            raise InvalidRequestError(
                f"offsets {ack.first_offset}-{ack.last_offset} reach past what is in flight, which ends at "
                f"{last.last} there; acknowledge only offsets of acquired_records"
            )

    def _apply_to(self, ack: AckBatch, batch: InFlightBatch, first: int, last: int) -> None:
        """Apply one ack batch to one cached batch (PL-406 … PL-409)."""
        self._check_held(batch, first, last)
        types, delays = ack.types, ack.delays
        if delays and len(delays) > 1:
            delays = delays[first - ack.first_offset : last - ack.first_offset + 1]
        if ack.undelivered:
            delays = self._take_back(ack, batch, first, last, delays)
        if ack.reason:
            self._note_reason(ack, batch, first, last)
        if len(types) == 1:
            self._one_type(types[0], batch, first, last, delays)
        else:
            low = first - ack.first_offset
            self._many_types(bytes(types[low : low + last - first + 1]), batch, first, delays)

    def _take_back(
        self, ack: AckBatch, batch: InFlightBatch, first: int, last: int, delays: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Restore the previous delivery count of the undelivered records of `first`…`last`, within the bounds of
        PL-941. Returns the delays: an undelivered record without a delay of its own does not wait."""
        size, low = last - first + 1, first - ack.first_offset
        said, types = ack.undelivered, ack.types
        back = bytes(said[low : low + size] if len(said) > 1 else [said[0]] * size)
        renewed = bytes(types[low : low + size] if len(types) > 1 else types * size).translate(_IS_RENEW)
        for span in stretches(bytes(map(and_, back, renewed)), first):
            self._lower(batch, *span, least=1)  # like the renewal itself, this is never undone
        waits = list(delays if len(delays) > 1 else [delays[0] if delays else POLICY_DELAY] * size)
        for begin, end in stretches(bytes(map(gt, back, renewed)), first):
            self.operation.taken_back += self._lower(batch, begin, end, least=0)
            for at in range(begin - first, end - first + 1):
                waits[at] = max(waits[at], 0)
        return tuple(waits)

    def _lower(self, batch: InFlightBatch, first: int, last: int, *, least: int) -> list[Span]:
        """Restore the previous delivery count of the records that PL-941 permits, to `least` or more. Returns them."""
        window, lowered = self._window, list[Span]()
        for low, high, _, count in list(batch.runs(first, last)):
            if count > least:
                for span in window.undelivered.take_back(low, high, count, window.start_offset):
                    batch.set_counts(*span, count - 1)
                    lowered.append(span)
        return lowered

    def _note_reason(self, ack: AckBatch, batch: InFlightBatch, first: int, last: int) -> None:
        """Note why the member gives up those of `first`…`last` that it releases or rejects (PL-942)."""
        low = first - ack.first_offset
        types = ack.types if len(ack.types) == 1 else ack.types[low : low + last - first + 1]
        given_up = bytes(types).translate(_IS_GIVEN_UP)
        spans = stretches(given_up, first) if len(given_up) > 1 else [(first, last)] if given_up[0] else []
        if self.operation.failures is None:
            self.operation.failures = []
        for span in spans:
            runs = batch.runs(*span)
            self.operation.failures += [Failure(low, high, count, ack.reason) for low, high, _, count in runs]

    def _check_held(self, batch: InFlightBatch, first: int, last: int) -> None:
        caller = self._event.member_id
        if batch.codes is None:
            if batch.code == STATE_ACQUIRED and batch.member == caller:
                return
        else:
            low, high = first - batch.first, last - batch.first + 1
            size = high - low
            if size == 1 and batch.codes[low] == STATE_ACQUIRED and batch.members[low] == caller:
                return
            if batch.codes.count(STATE_ACQUIRED, low, high) == size and (batch.members[low:high].count(caller) == size):
                return
        for offset in range(first, last + 1):
            code, count, member, _ = batch.lock_at(offset)
            reason = refusal_of(code, member, caller)
            if reason:
                raise InvalidRecordStateError(
                    f"offset {offset} (delivery count {count}) cannot be acknowledged by member {caller}: {reason}"
                )

    def _one_type(self, ack_type: int, batch: InFlightBatch, first: int, last: int, delays: Sequence[int]) -> None:
        self._types[ack_type] += last - first + 1
        if ack_type == ACK_RENEW:
            self._renew(batch, first, last)
            return
        operation = self.operation
        self._span(first, last)
        if ack_type == ACK_RELEASE and (delays or self._has_backoff or batch.max_count >= operation.limit):
            for low, high, _, count in list(batch.runs(first, last)):
                state = released_state(count, operation.limit, operation.dlq_enabled)
                if state == STATE_AVAILABLE:
                    for begin, end, given in given_runs(low, high, delays, first):
                        code = self._delay(begin, end, count, given)
                        self._window.recode(batch, begin, end, RELEASE[code])
                    continue
                self._window.recode(batch, low, high, RELEASE[state])
                self._note_limit(state, low, high, count)
            return
        if ack_type == ACK_REJECT:
            self._note_rejected(batch, first, last)
        self._window.recode(batch, first, last, ACKNOWLEDGE[operation.dlq_enabled][ack_type])

    @property
    def _has_backoff(self) -> bool:
        return bool(self._event.settings.backoff.initial_ms)

    def _delay(self, first: int, last: int, count: int, given: int) -> int:
        """Return the code of released records below the limit: DELAYED, with the end of the delay noted, or
        Available."""
        delay_ms = delay_of(given, count, Retries(self._event.settings.backoff, self._chance))
        if not delay_ms:
            return STATE_AVAILABLE
        if self.operation.delays is None:
            self.operation.delays = []
        self.operation.delays.append(((first, last), self._now_ms + delay_ms))
        return DELAYED

    def _many_types(
        self, types: bytes | bytearray, batch: InFlightBatch, first: int, delays: Sequence[int] = ()
    ) -> None:
        """Apply `types`: an acknowledge type, or a marked code that stays, for each offset from `first` on. The caller
        has checked that offsets with a type are Acquired. Raises InvalidRequestError for an unknown type, with nothing
        changed."""
        operation = self.operation
        codes = bytearray(types.translate(TYPE_CODES[operation.dlq_enabled]))
        if ILLEGAL in codes:
            at = codes.index(ILLEGAL)
            raise InvalidRequestError(f"offset {first + at}: acknowledge type {types[at]} does not exist")  # PL-409
        for ack_type in range(len(self._types)):
            self._types[ack_type] += types.count(ack_type)
        batch.track()
        if ACK_RELEASE in types:
            if batch.max_count >= operation.limit:
                self._limit_releases(types, codes, batch, first)
            if delays or self._has_backoff:
                self._delay_releases(types, codes, batch, first, delays)
        if ACK_REJECT in types:
            for span in stretches(types.translate(_IS_REJECT), first):
                self._note_rejected(batch, *span)
        self._window.assign(batch, first, codes)
        if ACK_RENEW in types:
            for span in stretches(types.translate(_IS_RENEW), first):
                self._renew(batch, *span)
        written = stretches(types.translate(_IS_WRITTEN), first)
        if written:
            self._span(*written[0])
            operation.spans += written[1:]

    def _delay_releases(
        self, types: bytes | bytearray, codes: bytearray, batch: InFlightBatch, first: int, delays: Sequence[int]
    ) -> None:
        """Delay the releases below the delivery limit; the limit takes precedence (PL-932)."""
        counts = batch.counts[first - batch.first :]
        for low, high, count, given in released_runs(types, counts, first, delays):
            if codes[low - first] == PENDING_AVAILABLE and self._delay(low, high, count, given) == DELAYED:
                codes[low - first : high - first + 1] = bytes([PENDING_DELAYED]) * (high - low + 1)

    def _limit_releases(self, types: bytes | bytearray, codes: bytearray, batch: InFlightBatch, first: int) -> None:
        operation = self.operation
        at = types.find(ACK_RELEASE)
        while at >= 0:
            count = batch.counts[first + at - batch.first]
            state = released_state(count, operation.limit, operation.dlq_enabled)
            codes[at] = PENDING | state
            self._note_limit(state, first + at, first + at, count)
            at = types.find(ACK_RELEASE, at + 1)

    def _note_limit(self, state: int, first: int, last: int, count: int) -> None:
        if state in (STATE_ARCHIVED, STATE_ARCHIVING):
            self._limited += last - first + 1
        if state == STATE_ARCHIVING:
            self.operation.dead_letters.append(((first, last), DLQ_DELIVERY_COUNT_EXCEEDED))
        elif state == STATE_ARCHIVED:
            self.operation.archived.append((AcquiredRange(first, last, count), DELIVERY_LIMIT))

    def _note_rejected(self, batch: InFlightBatch, first: int, last: int) -> None:
        operation = self.operation
        if operation.dlq_enabled:
            operation.dead_letters.append(((first, last), DLQ_CLIENT_REJECT))
        else:
            runs = batch.runs(first, last)
            operation.archived += [(AcquiredRange(low, high, count), REJECTED) for low, high, _, count in runs]

    def _renew(self, batch: InFlightBatch, first: int, last: int) -> None:
        """Give the records a full new lock from now (T11); it is never persisted and never undone (PL-324 … PL-326)."""
        deadline = self._now_ms + self._event.settings.lock_ms
        batch.hold(first, last, self._event.member_id, deadline)
        self._window.renew(first, last, deadline)

    def _span(self, first: int, last: int) -> None:
        spans = self.operation.spans
        if spans and spans[-1][1] + 1 == first:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))


def _is_in(*types: int) -> bytes:
    """Return a table that maps these acknowledge types to 1 and all other bytes to 0."""
    return bytes(byte in types for byte in range(256))


_IS_REJECT: Final = _is_in(ACK_REJECT)
_IS_GIVEN_UP: Final = _is_in(ACK_RELEASE, ACK_REJECT)
_IS_RENEW: Final = _is_in(ACK_RENEW)
#: The acknowledge types that make a held record pending: the resulting write must be durable before the response is
#: sent.
_IS_WRITTEN: Final = _is_in(*(kind for kind, table in ACKNOWLEDGE[False].items() if table[STATE_ACQUIRED] & PENDING))
