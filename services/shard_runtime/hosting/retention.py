"""How far back a stream is kept although no claim replays it: its history, and what live readers have not read. Pure.

Readers say where they are in a hash beside the stream (PM-12, SR-29). What stands there is advice of strangers: it only
ever keeps more, never less, and never more than what was appended within the lag that is allowed.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from shard_runtime.record_log.protocol import STREAM_START, ReaderNotes, StreamId

#: `<entry id> <when it was written, in ms, by the store's clock>`
_NOTE: Final = re.compile(rb"(\d{1,20})-(\d{1,20}) (\d{1,16})")


class History:
    """How far back a stream must be kept for readers, though no claim replays it (SR-29, PM).

    Holds a few pairs (time, last id then): everything up to that id was appended by that time. What a load found counts
    as appended at the load, which keeps it longer rather than shorter.
    """

    _MARKS = 10

    def __init__(self, history_ms: int) -> None:
        self._history_ms = history_ms
        self._marks: deque[tuple[int, StreamId]] = deque()

    def note(self, now_ms: int, last: StreamId) -> None:
        """Entries up to `last` are there by now."""
        if self._history_ms and (not self._marks or now_ms - self._marks[-1][0] >= self._history_ms // self._MARKS):
            self._marks.append((now_ms, last))

    def keep_from(self, now_ms: int) -> StreamId | None:
        """The id below which nothing is younger than the history asked for; None when none is asked for."""
        if not self._history_ms:
            return None
        marks = self._marks
        while len(marks) > 1 and now_ms - marks[1][0] >= self._history_ms:
            marks.popleft()
        return marks[0][1] if marks and now_ms - marks[0][0] >= self._history_ms else STREAM_START


class Kept(NamedTuple):
    """Where the trim must stop; None: nowhere. `malformed`: names whose notes cannot be read and count for nothing."""

    keep_from: StreamId | None
    malformed: tuple[str, ...] = ()


class Retention:
    """What a trim must leave: the history, and beyond it what live readers have not read yet (SR-29).

    A reader is live while its note is younger than the lag allowed and what it has not read was appended within that
    lag. A dead reader keeps nothing, and one that is further behind has lost entries already.
    """

    def __init__(self, history_ms: int, readers_max_lag_ms: int) -> None:
        self._history = History(history_ms)
        #: Whether notes of readers can make a difference: only where they may lag by more than the history kept.
        self.asks_readers = readers_max_lag_ms > history_ms
        self._lag = History(readers_max_lag_ms if self.asks_readers else 0)
        self._max_lag_ms = readers_max_lag_ms

    def note(self, now_ms: int, last: StreamId) -> None:
        """Entries up to `last` are there by now."""
        self._history.note(now_ms, last)
        self._lag.note(now_ms, last)

    def keep_from(self, now_ms: int, notes: ReaderNotes | None) -> Kept:
        """The least id that must stay: that of the history, or what the live reader that is furthest behind has read.

        `now_ms` is this owner's clock; a note's age is by the store's, which wrote it.
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
                if abs(age_ms) <= self._max_lag_ms and read >= oldest:  # a clock may have been set back since
                    points.append(read)
        return Kept(min(points, default=None), tuple(sorted(malformed)))
