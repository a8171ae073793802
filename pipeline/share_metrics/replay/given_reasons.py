"""Counts how often members of one share-partition gave each reason for giving a record up, by window (PM-94). Pure.

An update has the reasons of its write, but a snapshot those of all records from the start offset on. So the reasons so
far are combined as the share coordinator does it, and only what a record adds to them counts: each failed delivery
once, even if its write is stored twice, or became a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kip932.failures import SHORT_BYTES_MAX, Failure, clip_failures, cut, merge_failures
from share_metrics.replay.write_columns import AT, SNAPSHOT, TOMBSTONE, UPDATE, Writes

#: The maximum number of kinds of reasons that are counted separately for a share-partition in a window.
KINDS_MAX: Final = 20
#: The kind of all others.
OTHERS: Final = ""
#: The name of an exception at the beginning of a line.
_CLASS: Final = re.compile(r"[A-Za-z_][\w.]{0,99}(?=:|$)")
_KIND_CHARS_MAX: Final = 60
#: What a column of whole numbers can hold, whatever offsets a record names.
_MOST: Final = 1 << 62


def first_line(reason: str) -> str:
    """The first line of a reason that has text, at most 200 bytes of it; "" if none has."""
    return cut(reason.strip().partition("\n")[0].strip(), SHORT_BYTES_MAX)


def kind_of(line: str) -> str:
    """What reasons are grouped by: the name of the exception with which the first line begins, or else the beginning of
    the line."""
    found = _CLASS.match(line)
    return found[0] if found else line[:_KIND_CHARS_MAX]


@dataclass(slots=True)
class Said:
    """How many records had a reason of a kind, and the newest one's first line with its event time (µs)."""

    records: int
    example: str
    at_us: int


class GivenReasons:
    """The reasons of one share-partition. Call `take` for its records in id order.

    `windows`: by the start of a window (µs) and by kind. Reasons in the first snapshot, and in the first one after a
    gap, may be old: they are not counted (PM-11).
    """

    def __init__(self, window_us: int) -> None:
        self.windows: dict[int, dict[str, Said]] = {}
        self._window_us = window_us
        self._kept: tuple[Failure, ...] = ()
        self._known = False
        self._losses: int | None = None
        self._state_epoch: int | None = None

    def take(self, writes: Writes) -> None:
        """Take the next records. Updates without reasons change nothing here."""
        says = np.isin(writes.place, np.fromiter(writes.failures, np.int64)) if writes.failures else False
        for number in np.flatnonzero((writes.kind != UPDATE) | says).tolist():
            self._record(writes, number)

    def _record(self, writes: Writes, number: int) -> None:
        losses = int(writes.losses[number])
        if losses != self._losses:
            self._known, self._losses = False, losses
        if writes.kind[number] == TOMBSTONE:
            self._kept, self._known, self._state_epoch = (), False, None
            return
        said = writes.failures.get(int(writes.place[number]), ())
        is_snapshot = bool(writes.kind[number] == SNAPSHOT)
        if is_snapshot:
            self._begin(int(writes.values[AT["state_epoch"], number]))
        if self._known or not is_snapshot:
            self._count(_added(self._kept, said), int(writes.time_us[number]))
        start = int(writes.values[AT["start_offset"], number]) if writes.known[AT["start_offset"], number] else -1
        self._kept = merge_failures(() if is_snapshot else self._kept, said, start)
        self._known |= is_snapshot

    def _begin(self, state_epoch: int) -> None:
        """Forget the reasons of another state epoch: the records are delivered again."""
        if self._state_epoch not in {None, state_epoch}:
            self._kept = ()
        self._state_epoch = state_epoch

    def _count(self, added: Iterator[tuple[int, str]], at_us: int) -> None:
        for records, reason in added:
            line = first_line(reason)
            if not line:
                continue
            window = self.windows.setdefault(at_us // self._window_us * self._window_us, {})
            kind = kind_of(line)
            if kind not in window and len(window) >= KINDS_MAX:
                kind = OTHERS
            said = window.setdefault(kind, Said(0, line, at_us))
            said.records = min(said.records + records, _MOST)
            said.example, said.at_us = line, at_us


def _added(kept: Sequence[Failure], said: Sequence[Failure]) -> Iterator[tuple[int, str]]:
    """How many records have a reason in `said` of a later delivery than in `kept`, with that reason."""
    for first, last, count, reason in said:
        at = first
        for low, high, known, _ in clip_failures(kept, first, last):
            if known >= count:
                if at < low:
                    yield low - at, reason
                at = high + 1
        if at <= last:
            yield last - at + 1, reason
