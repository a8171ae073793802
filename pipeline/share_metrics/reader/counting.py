"""Checks that a range yields the entries that were planned for it, and finds the gaps if not (PM-11). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .offsets import EntryId, Gap, Range


class HasId(Protocol):
    """The part of an entry that counting needs."""

    @property
    def id(self) -> EntryId:
        """The entry's id."""
        ...


class Count:
    """Counts the entries of one range as its pages arrive.

    Call `take` for each page, then `end`. With `consecutive` ids, a gap ends at the first entry after the missing ones,
    so that its row comes before the rows that follow it. Otherwise the place of a loss is unknown, and the gap ends
    where the range ends.
    """

    def __init__(self, piece: Range, *, consecutive: bool) -> None:
        self._piece = piece
        self._consecutive = consecutive
        self._left = piece.entries
        self._last = piece.after
        self._next = EntryId(piece.through.epoch, piece.through.seq - piece.entries + 1)

    def take(self, page: Sequence[HasId]) -> list[Gap]:
        """The gaps before and within a page, which has at least one entry."""
        self._left -= len(page)
        if not self._consecutive:
            return []
        whole = page[0].id == self._next and page[-1].id == _plus(self._next, len(page) - 1)
        gaps = [] if whole else self._holes(page)
        self._last = page[-1].id
        self._next = _plus(self._last, 1)
        return gaps

    def end(self) -> list[Gap]:
        """The gap of the entries that are missing at the end, if any. More entries than planned mean a lost tail."""
        if not self._left:
            return []
        reason = "missing" if self._left > 0 else "tail"
        return [Gap(self._piece.stream, self._last, self._piece.through, abs(self._left), reason)]

    def _holes(self, page: Sequence[HasId]) -> list[Gap]:
        gaps = []
        last, expected = self._last, self._next
        for one in page:
            if one.id.epoch == expected.epoch and one.id.seq > expected.seq:
                lost = one.id.seq - expected.seq
                gaps.append(Gap(self._piece.stream, last, one.id, lost, "missing"))
                self._left -= lost
            last, expected = one.id, _plus(one.id, 1)
        return gaps


def _plus(at: EntryId, count: int) -> EntryId:
    return EntryId(at.epoch, at.seq + count)
