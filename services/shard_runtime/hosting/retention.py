"""Decides which entries a stream keeps although no claim replays them: recent ones, and unread ones. Pure.

Readers note in a hash beside the stream how far they have read (PM-12, SR-29). Other processes write these notes, so
they are not trusted: a note can only keep more, and never more than what was appended within the allowed lag.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from shard_runtime.record_log.protocol import STREAM_START, ReaderNotes, StreamId

#: `<id of the last entry read> <when the note was written, in ms, by the store's clock>`
_NOTE: Final = re.compile(rb"(\d{1,20})-(\d{1,20}) (\d{1,16})")


class History:
    """Finds the id below which all entries are older than a time span (SR-29, PM).

    It holds a few pairs (time, last id at that time): everything up to that id was appended by then. Entries found by a
    load count as appended at the load, so they are kept too long rather than not long enough.
    """

    _MARKS = 10

    def __init__(self, history_ms: int) -> None:
        self._history_ms = history_ms
        self._marks: deque[tuple[int, StreamId]] = deque()

    def note(self, now_ms: int, last: StreamId) -> None:
        """Note that entries up to `last` are in the stream at `now_ms`."""
        if self._history_ms and (not self._marks or now_ms - self._marks[-1][0] >= self._history_ms // self._MARKS):
            self._marks.append((now_ms, last))

    def keep_from(self, now_ms: int) -> StreamId | None:
        """The id below which every entry is older than `history_ms`; None when no history needs to be kept."""
        if not self._history_ms:
            return None
        marks = self._marks
        while len(marks) > 1 and now_ms - marks[1][0] >= self._history_ms:
            marks.popleft()
        return marks[0][1] if marks and now_ms - marks[0][0] >= self._history_ms else STREAM_START


class Kept(NamedTuple):
    """Where a trim must stop; `keep_from` is None when it need not. `malformed`: readers whose notes cannot be parsed
    and are ignored."""

    keep_from: StreamId | None
    malformed: tuple[str, ...] = ()


class Retention:
    """Decides what a trim must keep: the history, and the entries that live readers have not read yet (SR-29).

    A reader is live while its note is younger than the allowed lag and all entries it has not read were appended within
    that lag. Any other reader is ignored: it is dead, or has lost entries already.
    """

    def __init__(self, history_ms: int, readers_max_lag_ms: int) -> None:
        self._history = History(history_ms)
        #: True when readers may lag by more than the history that is kept anyway: only then do their notes matter.
        self.asks_readers = readers_max_lag_ms > history_ms
        self._lag = History(readers_max_lag_ms if self.asks_readers else 0)
        self._max_lag_ms = readers_max_lag_ms

    def note(self, now_ms: int, last: StreamId) -> None:
        """Note that entries up to `last` are in the stream at `now_ms`."""
        self._history.note(now_ms, last)
        self._lag.note(now_ms, last)

    def keep_from(self, now_ms: int, notes: ReaderNotes | None) -> Kept:
        """The smallest id that must be kept: by the history, or by the live reader that has read least.

        `now_ms` is this owner's clock; a note's age is by the store's clock.
        """
        points = [] if (history := self._history.keep_from(now_ms)) is None else [history]
        malformed: list[str] = []
        oldest = self._lag.keep_from(now_ms)
        if notes is not None and oldest is not None:
            for name, value in notes.values.items():
                match = _NOTE.fullmatch(value)
                if match is None:
                    malformed.append(name)
                    continue
                read, age_ms = StreamId(int(match[1]), int(match[2])), notes.now_ms - int(match[3])
                if abs(age_ms) <= self._max_lag_ms and read >= oldest:  # abs: the store's clock may have been set back
                    points.append(read)
        return Kept(min(points, default=None), tuple(sorted(malformed)))
