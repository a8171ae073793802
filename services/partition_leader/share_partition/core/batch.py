"""One in-flight batch: a range of offsets with one state for all or, once they differ, with one compact array per
field.

Owns the states, delivery counts, owners and lock deadlines of its offsets, and counters that let other code skip the
batch without reading its records (P-3). Never reads the clock, other batches or the start offset. Implements PL-001.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import ne, or_
from typing import Final, NamedTuple

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core.spans import ALL, Span, borders, differing, is_dense, mask_of, masked
from partition_leader.share_partition.core.transitions import (
    CLOSING_CODES,
    DELAYED,
    ILLEGAL,
    MARK_UNTOUCHED,
    PENDING_CODES,
    SETTLED_CODES,
    STATE_OF,
    TERMINAL_CODES,
    UNTOUCHED,
    TransitionTable,
)

NO_MEMBER: Final = ""
Run = tuple[int, int, int, int]  # first and last offset, code, delivery count
StateFields = tuple[int, int, int, int, int]  # the fields of a state batch


class Written(NamedTuple):
    """One batch's part of a write: its states, and the maximum and the sum of the delivery counts of the records that
    the write finishes."""

    states: list[StateBatch]
    max_count: int
    sum_counts: int


class InFlightBatch:
    """Offsets `first`…`last`. While `codes` is None, one code, count, member and deadline hold for all of them.

    A deadline is the instant (ms) at which the lock or the delay (PL-932) ends. A pending record keeps its lock's
    deadline, so that a roll-back can restore the running lock, or see that it has expired meanwhile (PL-307).
    """

    __slots__ = (
        "available",
        "closing",
        "code",
        "codes",
        "count",
        "counts",
        "deadline",
        "deadlines",
        "first",
        "hinted",
        "last",
        "max_count",
        "member",
        "members",
        "pending",
    )

    def __init__(
        self, first: int, last: int, code: int, count: int, *, member: str = NO_MEMBER, deadline: int = 0
    ) -> None:
        self.first = first
        self.last = last
        self.code = code
        self.count = count
        self.member = member
        self.deadline = deadline
        self.codes: bytearray | None = None
        self.counts: array[int] = _NO_COUNTS
        self.members: list[str] = _NO_MEMBERS
        self.deadlines: list[int] = _NO_DEADLINES
        self.max_count = count  # an upper bound, never lowered
        self.hinted = False
        self.available = 0  # Available and not pending
        self.closing = 0  # terminal, or terminal once a pending write commits
        self.pending = 0
        self._count_uniform()

    def __len__(self) -> int:
        return self.last - self.first + 1

    def _count_uniform(self) -> None:
        size = self.last - self.first + 1
        self.available = size if self.code == STATE_AVAILABLE else 0
        self.closing = size if self.code in CLOSING_CODES else 0
        self.pending = size if self.code in PENDING_CODES else 0

    # Counted on demand: not needed while no record of the share-partition is delayed.

    @property
    def counting(self) -> int:
        """The number of records that count towards the limit: those neither finished, Archiving nor delayed
        (PL-935)."""
        if self.codes is None:
            return 0 if self.code in SETTLED_CODES else len(self)
        return len(self.codes.translate(None, SETTLED_CODES))

    @property
    def delayed(self) -> int:
        """The number of delayed records (PL-932)."""
        if self.codes is None:
            return len(self) if self.code == DELAYED else 0
        return self.codes.count(DELAYED)

    def track(self) -> bytearray:
        """Give every offset its own state, permanently (PL-001): count, owner, lock and pending mark are copied."""
        if self.codes is None:
            size = len(self)
            self.codes = bytearray([self.code]) * size
            self.counts = array("i", [self.count]) * size
            self.members = [self.member] * size
            self.deadlines = [self.deadline] * size
        return self.codes

    def recode(self, first: int, last: int, table: TransitionTable) -> bool:
        """Map the codes of `first`…`last` (inside the batch) through a transition table; return whether any changed.
        Raises IllegalTransitionError, with nothing changed, for a code that the table does not name."""
        if self.codes is not None:
            if first == last:  # single records are common: no slices
                return self._recode_one(first - self.first, table)
        else:
            code = table[self.code]
            if code == self.code:
                return False
            if code == ILLEGAL:
                raise table.refusal(first, bytes([self.code]))
            if first == self.first and last == self.last:
                self.code = code
                self._count_uniform()
                return True
        codes = self.track()
        low, high = first - self.first, last - self.first + 1
        old = codes[low:high]
        new = old.translate(table)
        if new == old:
            return False
        if ILLEGAL in new:
            raise table.refusal(first, old)
        self._replace(low, high, old, new)
        return True

    def _recode_one(self, at: int, table: TransitionTable) -> bool:
        codes = self.codes
        assert codes is not None
        old = codes[at]
        new = table[old]
        if new == old:
            return False
        if new == ILLEGAL:
            raise table.refusal(self.first + at, bytes([old]))
        codes[at] = new
        self.available += (new == STATE_AVAILABLE) - (old == STATE_AVAILABLE)
        self.closing += _CLOSES[new] - _CLOSES[old]
        self.pending += _PENDS[new] - _PENDS[old]
        return True

    def assign(self, first: int, new: bytes | bytearray) -> None:
        """Set the codes of an offset-tracked stretch that starts at `first`. The caller has checked that each may
        follow the code that it replaces."""
        codes = self.track()
        low = first - self.first
        high = low + len(new)
        self._replace(low, high, codes[low:high], new)

    def _replace(self, low: int, high: int, old: bytearray, new: bytes | bytearray) -> None:
        assert self.codes is not None
        self.codes[low:high] = new
        self.available += new.count(STATE_AVAILABLE) - old.count(STATE_AVAILABLE)
        self.closing += len(old.translate(None, CLOSING_CODES)) - len(new.translate(None, CLOSING_CODES))
        self.pending += len(old.translate(None, PENDING_CODES)) - len(new.translate(None, PENDING_CODES))

    def marked_codes(self, first: int, last: int) -> bytearray:
        """Return the codes of `first`…`last`, each marked UNTOUCHED: no acknowledgement names it."""
        if self.codes is None:
            return bytearray([UNTOUCHED | self.code]) * (last - first + 1)
        return self.codes[first - self.first : last - self.first + 1].translate(MARK_UNTOUCHED)

    def hold(self, first: int, last: int, member: str, deadline: int) -> None:
        """Set owner and lock end (ms) of `first`…`last`; NO_MEMBER and 0 remove them."""
        if self.codes is None and first == self.first and last == self.last:
            self.member, self.deadline = member, deadline
            return
        self.track()
        low, size = first - self.first, last - first + 1
        if size == 1:
            self.members[low], self.deadlines[low] = member, deadline
            return
        self.members[low : low + size] = [member] * size
        self.deadlines[low : low + size] = [deadline] * size

    def set_counts(self, first: int, last: int, count: int) -> None:
        """Set the delivery count of `first`…`last`."""
        self.max_count = max(self.max_count, count)
        if self.codes is None and first == self.first and last == self.last:
            self.count = count
            return
        self.track()
        low, size = first - self.first, last - first + 1
        self.counts[low : low + size] = array("i", [count]) * size

    def first_other(self, first: int, codes: bytes) -> int | None:
        """The first offset at or above `first` whose code is not one of `codes`; None if there is none."""
        if self.codes is None:
            return None if self.code in codes else first
        at = first - self.first
        left = self.codes[at:].lstrip(codes)
        return self.last + 1 - len(left) if left else None

    def lock_at(self, offset: int) -> tuple[int, int, str, int]:
        """Code, delivery count, member and deadline of one offset."""
        if self.codes is None:
            return self.code, self.count, self.member, self.deadline
        at = offset - self.first
        return self.codes[at], self.counts[at], self.members[at], self.deadlines[at]

    def runs(self, first: int, last: int) -> Iterable[Run]:
        """(first, last, code, count) of each stretch in `first`…`last` with equal code and delivery count: a snapshot,
        even if the caller changes records while iterating."""
        if self.codes is None:
            return ((first, last, self.code, self.count),)
        low, high = first - self.first, last - self.first + 1
        if first == last:
            return ((first, last, self.codes[low], self.counts[low]),)
        return runs_of(first, self.codes[low:high], self.counts[low:high])

    def available_runs(self, first: int, last: int) -> Iterable[Run]:
        """Like `runs`, for Available records only. Makes the batch offset-tracked."""
        low, high = first - self.first, last - self.first + 1
        return runs_of(first, self.track()[low:high], self.counts[low:high], _AVAILABLE)

    def states_to_write(self, spans: Sequence[Span]) -> Written:
        """Return what a write contains for ascending, non-adjacent spans: states without pending marks, Acquired left
        out, neighbours with equal state and count joined."""
        if self.codes is None:
            return self._state_to_write(spans)
        codes, start = self.codes, self.first
        firsts, lasts = zip(*spans, strict=True)
        states: bytes | bytearray
        counts: Sequence[int]
        if firsts == lasts:  # single records: no two are joined
            places = [offset - start for offset in firsts]
            states = bytes([codes[at] for at in places]).translate(STATE_OF)
            counts = [self.counts[at] for at in places]
            runs: Iterable[StateFields] = zip(firsts, firsts, states, counts, repeat(0))
            if STATE_ACQUIRED in states:
                runs = [run for run in runs if run[2] != STATE_ACQUIRED]
        elif len(spans) == 1 or is_dense(spans):
            states = self._states_in(spans)
            tracked = counts = self.counts[firsts[0] - start : lasts[-1] - start + 1]
            runs = zip(*_run_columns(firsts[0], states, tracked, _NOT_ACQUIRED), repeat(0))
        else:
            parts = [self.states_to_write((span,)) for span in spans]
            found = [state for part in parts for state in part.states]
            return Written(found, max(part.max_count for part in parts), sum(part.sum_counts for part in parts))
        finished = list(compress(counts, states.translate(_IS_TERMINAL)))
        found = list(map(_new_state_batch, repeat(StateBatch), runs))
        return Written(found, max(finished, default=0), sum(finished))

    def _state_to_write(self, spans: Sequence[Span]) -> Written:
        """Like `states_to_write`, for a batch whose offsets all have one state."""
        state, count = STATE_OF[self.code], self.count
        if state == STATE_ACQUIRED:
            return Written([], 0, 0)
        found = [StateBatch(first, last, state, count) for first, last in spans]
        if state not in TERMINAL_CODES:
            return Written(found, 0, 0)
        return Written(found, count, count * sum([last - first + 1 for first, last in spans]))

    def _states_in(self, spans: Sequence[Span]) -> bytearray:
        """Return the states from the first span to the last, filled between the spans with Acquired, which is never
        written."""
        low, codes = spans[0][0] - self.first, self.track()
        states = bytearray([STATE_ACQUIRED]) * (spans[-1][1] - spans[0][0] + 1)
        for first, last in spans:
            at, end = first - self.first, last - self.first + 1
            states[at - low : end - low] = codes[at:end]
        return states.translate(STATE_OF)

    def first_held_until(self, deadline: int, first: int, last: int) -> int | None:
        """The first offset of the batch in `first`…`last` whose lock ends at `deadline`."""
        low = max(first - self.first, 0)
        if self.codes is None:
            return self.first + low if self.deadline == deadline else None
        deadlines, high = self.deadlines, last - self.first + 1
        if low < len(deadlines) and deadlines[low] == deadline:  # the usual case if the query is repeated
            return self.first + low
        try:
            return self.first + deadlines.index(deadline, low, high)
        except ValueError:
            return None

    def settle(self, spans: Sequence[Span], table: TransitionTable) -> None:
        """Map many short ascending spans of an offset-tracked batch through a transition table, and clear owner and
        lock of the changed records. Raises IllegalTransitionError as `recode` does."""
        codes, members, deadlines = self.track(), self.members, self.deadlines
        first, last = spans[0][0], spans[-1][1]
        low, high = first - self.first, last - self.first + 1
        old = codes[low:high]
        changes = masked(differing(old, old.translate(table)), mask_of(spans, first, last))
        new = differing(old, changes)  # the table applies only inside the spans
        if ILLEGAL in new:
            at = new.index(ILLEGAL)
            raise table.refusal(first + at, old[at : at + 1])
        for at in compress(range(low, high), changes):
            members[at] = NO_MEMBER
            deadlines[at] = 0
        self._replace(low, high, old, new)

    def lock_runs(self, first: int, last: int) -> Iterator[tuple[int, int, int, int, str, int]]:
        """(first, last, code, count, member, deadline) of each stretch in `first`…`last` where all four are equal."""
        if self.codes is None:
            yield first, last, self.code, self.count, self.member, self.deadline
            return
        low, high = first - self.first, last - self.first + 1
        fields = zip(
            self.codes[low:high], self.counts[low:high], self.members[low:high], self.deadlines[low:high], strict=True
        )
        start, current = first, next(fields)
        for offset, value in enumerate(fields, first + 1):
            if value != current:
                yield start, offset - 1, *current
                start, current = offset, value
        yield start, last, *current

    def closed_below(self, offset: int) -> int:
        """Count the offsets before `offset` that are terminal, or will be once the pending write commits."""
        size = min(offset, self.last + 1) - self.first
        if size <= 0:
            return 0
        if self.codes is None:
            return size if self.closing else 0
        return size - len(self.codes[:size].translate(None, CLOSING_CODES))


def runs_of(first: int, codes: bytes | bytearray, counts: array[int], only: bytes | None = None) -> Iterable[Run]:
    """(first, last, code, count) of each stretch of offset-tracked records from `first` on with equal code and delivery
    count. `only`: a table that maps the wanted codes to ALL and others to 0; None wants all."""
    return zip(*_run_columns(first, codes, counts, only), strict=True)


def _run_columns(
    first: int, codes: bytes | bytearray, counts: array[int], only: bytes | None
) -> tuple[Iterable[int], Iterable[int], Iterable[int], Iterable[int]]:
    """Return the columns of `runs_of`: firsts, lasts, codes and counts. If all counts are equal, this takes no Python
    step per record."""
    size, cuts = len(codes), borders(codes)
    if counts != counts[:1] * size:
        cuts = bytes(map(or_, cuts, map(ne, counts, counts[1:])))
    begins, ends = b"\1" + cuts, cuts + b"\1"
    if only is not None:
        wanted = codes.translate(only)
        begins, ends = masked(begins, wanted), masked(ends, wanted)
    offsets = range(first, first + size)
    firsts = list(compress(offsets, begins))
    lasts = firsts if begins == ends else compress(offsets, ends)  # single records: one list for both
    return firsts, lasts, compress(codes, begins), compress(counts, begins)


_new_state_batch = tuple.__new__  # builds a StateBatch from a tuple of its fields, the fast way
_AVAILABLE: Final = bytes(ALL if code == STATE_AVAILABLE else 0 for code in range(256))
_NOT_ACQUIRED: Final = bytes(0 if code == STATE_ACQUIRED else ALL for code in range(256))
_IS_TERMINAL: Final = bytes(code in TERMINAL_CODES for code in range(256))
_CLOSES: Final = bytes(code in CLOSING_CODES for code in range(256))
_PENDS: Final = bytes(code in PENDING_CODES for code in range(256))
_NO_COUNTS: Final = array("i")
_NO_MEMBERS: Final[list[str]] = []
_NO_DEADLINES: Final[list[int]] = []
