"""One in-flight batch: a range of offsets with one state for all, or, once they differ, one compact array per field.

Owns states, delivery counts, owners and lock deadlines of its offsets and the counts that make it cheap to pass over
(P-3). Never looks at the clock, at other batches or at the start offset. Carries out PL-001.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from operator import ne
from typing import Final

from kip932.ids import STATE_ACQUIRED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.core.spans import Span, is_dense
from partition_leader.core.transitions import CLOSING_CODES, MARK_UNTOUCHED, PENDING_CODES, STATE_OF, UNTOUCHED

NOBODY: Final = ""
Run = tuple[int, int, int, int]  # first and last offset, code, delivery count


class InFlightBatch:
    """Offsets `first`…`last`. While `codes` is None one code, count, member and deadline stand for all of them.

    A deadline is the instant (ms) at which the lock ends. It stays beside a pending record, so a roll-back gets its
    running lock back, or sees that it has expired meanwhile (PL-307).
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
        self, first: int, last: int, code: int, count: int, *, member: str = NOBODY, deadline: int = 0
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

    def track(self) -> bytearray:
        """Give every offset its own state, one-way (PL-001): count, owner, lock and pending mark are copied."""
        if self.codes is None:
            size = len(self)
            self.codes = bytearray([self.code]) * size
            self.counts = array("i", [self.count]) * size
            self.members = [self.member] * size
            self.deadlines = [self.deadline] * size
        return self.codes

    def recode(self, first: int, last: int, table: bytes) -> bool:
        """Send the codes of `first`…`last` (inside the batch) through a transition table; whether any changed."""
        if self.codes is not None:
            if first == last:  # single records are many: no slices
                return self._recode_one(first - self.first, table)
        else:
            code = table[self.code]
            if code == self.code:
                return False
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
        self._replace(low, high, old, new)
        return True

    def _recode_one(self, at: int, table: bytes) -> bool:
        codes = self.codes
        assert codes is not None
        old = codes[at]
        new = table[old]
        if new == old:
            return False
        codes[at] = new
        self.available += (new == STATE_AVAILABLE) - (old == STATE_AVAILABLE)
        self.closing += _CLOSES[new] - _CLOSES[old]
        self.pending += _PENDS[new] - _PENDS[old]
        return True

    def assign(self, first: int, new: bytes | bytearray) -> None:
        """Set the codes of an offset-tracked stretch that starts at `first`."""
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
        """The codes of `first`…`last`, each marked as one of which an acknowledgement says nothing."""
        if self.codes is None:
            return bytearray([UNTOUCHED | self.code]) * (last - first + 1)
        return self.codes[first - self.first : last - self.first + 1].translate(MARK_UNTOUCHED)

    def hold(self, first: int, last: int, member: str, deadline: int) -> None:
        """Set owner and lock end of `first`…`last`; NOBODY and 0 forget them."""
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

    def lock_at(self, offset: int) -> tuple[int, int, str, int]:
        """Code, delivery count, member and deadline of one offset."""
        if self.codes is None:
            return self.code, self.count, self.member, self.deadline
        at = offset - self.first
        return self.codes[at], self.counts[at], self.members[at], self.deadlines[at]

    def runs(self, first: int, last: int) -> Iterable[Run]:
        """(first, last, code, count) of each stretch in `first`…`last` with equal code and delivery count, as they are
        now, whatever is changed while they are walked."""
        if self.codes is None:
            return ((first, last, self.code, self.count),)
        low, high = first - self.first, last - self.first + 1
        if first == last:
            return ((first, last, self.codes[low], self.counts[low]),)
        return runs_of(first, self.codes[low:high], self.counts[low:high])

    def states_to_write(self, spans: Sequence[Span]) -> list[StateBatch]:
        """What a write says of ascending spans that do not touch each other: states without pending marks, Acquired
        left out, equal ones joined."""
        codes, start = self.codes, self.first
        if codes is None:
            state = STATE_OF[self.code]
            return [StateBatch(*span, state, self.count) for span in spans] if state != STATE_ACQUIRED else []
        firsts, lasts = zip(*spans, strict=True)
        states: bytes | bytearray
        if firsts == lasts:  # single records: each stands for itself
            places = [offset - start for offset in firsts]
            states = bytes(map(codes.__getitem__, places)).translate(STATE_OF)
            runs: Iterable[Run] = zip(firsts, firsts, states, map(self.counts.__getitem__, places), strict=True)
        elif len(spans) == 1 or is_dense(spans):
            states = self._states_in(spans)
            runs = runs_of(firsts[0], states, self.counts[firsts[0] - start : lasts[-1] - start + 1])
        else:
            return [run for span in spans for run in self.states_to_write((span,))]
        if STATE_ACQUIRED in states:
            runs = (run for run in runs if run[2] != STATE_ACQUIRED)
        return list(map(_new_state_batch, repeat(StateBatch), runs))

    def _states_in(self, spans: Sequence[Span]) -> bytearray:
        """The states from the first of the spans to the last; Acquired, which is never written, between them."""
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
        if low < len(deadlines) and deadlines[low] == deadline:  # asked again and again while it stays so
            return self.first + low
        try:
            return self.first + deadlines.index(deadline, low, high)
        except ValueError:
            return None

    def settle(self, spans: Sequence[Span], table: bytes) -> int:
        """Send many short ascending spans of an offset-tracked batch through a transition table, and forget owner and
        lock of what changed. By how many `closing` grew."""
        codes, members, deadlines = self.track(), self.members, self.deadlines
        closing = self.closing
        start, low = self.first, spans[0][0]
        base, high = low - start, spans[-1][1] - start + 1
        old = codes[base:high]
        changed, new = old.translate(table), old[:]
        for first, last in spans:
            for offset in range(first, last + 1):
                at = offset - low
                if changed[at] != old[at]:
                    new[at] = changed[at]
                    at = offset - start
                    members[at] = NOBODY
                    deadlines[at] = 0
        self._replace(base, high, old, new)
        return self.closing - closing

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
        """How many offsets before `offset` are terminal, or will be once the pending write commits."""
        size = min(offset, self.last + 1) - self.first
        if size <= 0:
            return 0
        if self.codes is None:
            return size if self.closing else 0
        return size - len(self.codes[:size].translate(None, CLOSING_CODES))


def runs_of(first: int, codes: bytes | bytearray, counts: array[int]) -> Iterable[Run]:
    """(first, last, code, count) of each stretch of offset-tracked records from `first` on with equal code and delivery
    count. Both in one number, so that the cuts are found without a step of Python per record."""
    keys, size = counts[:], len(codes)
    memoryview(keys).cast("B")[_TOP_BYTE :: keys.itemsize] = codes
    if keys == keys[:1] * size:
        return ((first, first + size - 1, codes[0], counts[0]),)
    cuts = bytes(map(ne, keys, keys[1:]))
    begins, ends, offsets = b"\1" + cuts, cuts + b"\1", range(first, first + size)
    spans = compress(offsets, begins), compress(offsets, ends)
    return zip(*spans, compress(codes, begins), compress(counts, begins), strict=True)


# A delivery count is at most an int16 (PL-104), so the top byte of its array element is free for the code.
_TOP_BYTE: Final = 3 if array("i", [1]).tobytes()[0] else 0
_new_state_batch = tuple.__new__  # StateBatch(…) of a tuple of its fields; this many deserve the short way
_CLOSES: Final = bytes(code in CLOSING_CODES for code in range(256))
_PENDS: Final = bytes(code in PENDING_CODES for code in range(256))
_NO_COUNTS: Final = array("i")
_NO_MEMBERS: Final[list[str]] = []
_NO_DEADLINES: Final[list[int]] = []
