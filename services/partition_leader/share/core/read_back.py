"""Resolves a write with unknown outcome, record by record, from what the coordinator has stored (PL-707)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share.core.archived import Mark
from partition_leader.share.core.batch import InFlightBatch
from partition_leader.share.core.effects import DLQ_CLIENT_REJECT, DLQ_DELIVERY_COUNT_EXCEEDED, AcquiredRange
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.operations import Operation, commit, force, state_of
from partition_leader.share.core.spans import Span
from partition_leader.share.core.transitions import PENDING


class Stored:
    """The stored state: its start offset, and state and delivery count of any offset from there on."""

    __slots__ = ("_batches", "_firsts", "start_offset")

    def __init__(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        self.start_offset = start_offset
        self._batches = sorted(batches)
        self._firsts = [batch.first_offset for batch in self._batches]

    def pieces(self, first: int, last: int) -> list[tuple[Span, tuple[int, int], int]]:
        """Return what is stored of `first`…`last`: each span with its (count, state) and the end of its delay."""
        result: list[tuple[Span, tuple[int, int], int]] = []
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self._batches[at].last_offset < first:
            at += 1
        while first <= last:
            batch = self._batches[at] if at < len(self._batches) else None
            if batch is None or batch.first_offset > last:
                break
            end = min(last, batch.last_offset)
            rank = batch.delivery_count, batch.delivery_state
            result.append(((max(first, batch.first_offset), end), rank, batch.not_before_ms))
            first = end + 1
            at += 1
        return result

    def archived(self, marks: Iterable[Mark]) -> list[Mark]:
        """Return the parts of `marks` that are stored as archived or are below the stored start offset; the rest was
        not archived.

        The window's own start offset does not show which were: the log may have lost the records below it meanwhile.
        """
        found: list[Mark] = []
        for (first, last, count), cause in marks:
            passed = min(last, self.start_offset - 1)
            spans = [(first, passed)] if first <= passed else []
            spans += [
                span for span, (_, state), _ in self.pieces(max(first, passed + 1), last) if state == STATE_ARCHIVED
            ]
            found += [(AcquiredRange(*span, count), cause) for span in spans]
        return found


def settle(window: Window, operation: Operation, stored: Stored, now_ms: int = 0) -> None:
    """Commit records that are stored as written or are below the stored start offset; take over a higher stored rank.
    Records that stay pending were not applied, and never will be, because their generation is fenced: the caller rolls
    them back."""
    for first, last in operation.spans:
        for batch in window.overlapping(first, last):
            low, high = max(first, batch.first), min(last, batch.last)
            for start, end, code, count in list(batch.runs(low, high)):
                if code & PENDING:
                    _settle_run(window, operation, stored, batch, ((start, end), code, count), now_ms)


def _settle_run(  # noqa: PLR0917 - one run of the loop above
    window: Window, operation: Operation, stored: Stored, batch: InFlightBatch, run: tuple[Span, int, int], now_ms: int
) -> None:
    (first, last), code, count = run
    if first < stored.start_offset:
        done = min(last, stored.start_offset - 1)
        commit(window, [(first, done)])
        first = done + 1
    written = (count, state_of(code))
    for span, found, until_ms in stored.pieces(first, last) if first <= last else ():
        if found == written:
            commit(window, [span])
        elif found > written:
            _take_stored(window, operation, batch, span, found, until_ms if until_ms > now_ms else 0)


def _take_stored(  # noqa: PLR0917 - what is stored of one run
    window: Window, operation: Operation, batch: InFlightBatch, span: Span, found: tuple[int, int], until_ms: int
) -> None:
    count, state = found
    for first, last in ((span[0], min(span[1], window.start_offset - 1)), (max(span[0], window.start_offset), span[1])):
        if first > last:
            continue
        is_passed = last < window.start_offset and state == STATE_AVAILABLE  # it is never delivered again
        if is_passed:
            force(window, batch, (first, last), STATE_ARCHIVED, count)
        else:
            force(window, batch, (first, last), state, count, until_ms)
        known = any(low <= first <= high for (low, high), _ in operation.dead_letters)
        if state == STATE_ARCHIVING and not known:  # PL-910
            cause = DLQ_DELIVERY_COUNT_EXCEEDED if count >= operation.limit else DLQ_CLIENT_REJECT
            operation.dead_letters.append(((first, last), cause))
