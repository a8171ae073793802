"""Phase 2 of the dead-letter flow: which Archiving records are out to the dead-letter queue (PL-904, PL-911, T15)."""

from __future__ import annotations

from collections.abc import Iterable

from kip932.ids import STATE_ARCHIVING
from partition_leader.share.core.effects import AcquiredRange, DeadLetter
from partition_leader.share.core.in_flight import Window
from partition_leader.share.core.spans import Span
from partition_leader.share.core.transitions import DLQ_DONE


class DeadLetters:
    """Numbers what goes out and archives what came back, whatever came of it (PL-907)."""

    __slots__ = ("_next_id", "_out")

    def __init__(self) -> None:
        self._next_id = 1
        self._out: dict[int, tuple[AcquiredRange, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._out)

    def send(self, window: Window, causes: Iterable[tuple[Span, str]]) -> list[DeadLetter]:
        """One effect for each cause, with the records of the spans that are Archiving for certain."""
        by_cause: dict[str, list[AcquiredRange]] = {}
        for (first, last), cause in causes:
            for batch in window.overlapping(first, last):
                for low, high, code, count in batch.runs(max(first, batch.first), min(last, batch.last)):
                    if code == STATE_ARCHIVING:
                        by_cause.setdefault(cause, []).append(AcquiredRange(low, high, count))
        result: list[DeadLetter] = []
        for cause, ranges in by_cause.items():
            effect = DeadLetter(self._next_id, tuple(sorted(ranges)), cause)
            self._out[self._next_id] = effect.ranges
            self._next_id += 1
            result.append(effect)
        return result

    def finish(self, window: Window, dead_letter_id: int) -> list[Span]:
        """T15 for what was sent under this number; the spans, none for an unknown number."""
        spans: list[Span] = []
        for first, last, _ in self._out.pop(dead_letter_id, ()):
            spans.append((first, last))
            for batch in window.overlapping(first, last):
                window.recode(batch, max(first, batch.first), min(last, batch.last), DLQ_DONE)
        return spans

    def forget(self) -> None:
        """The share-partition stopped: answers still out are no longer waited for."""
        self._out.clear()
