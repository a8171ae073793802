"""Tracks where each key's newest self-contained copy is, and so which part of a stream is needed. Pure (CM-18, SR-13).

It holds positions of *confirmed* entries only, because only those justify a trim (SR-15). It plans; the host appends
the cold copies and calls the log to trim.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shard_runtime.hosting.shard import Anchor
from shard_runtime.record_log.protocol import StreamId


class Position(NamedTuple):
    """An entry's place: how many entries this host counted before it, and its id."""

    ordinal: int
    id: StreamId


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When a stream is compacted (CM-18), in which slices (SR-17), and what is kept for readers (SR-29)."""

    entries_min: int = 5_000
    entries_per_key: int = 4
    slice_keys: int = 500
    retry_ms: int = 1_000
    history_ms: int = 600_000
    readers_max_lag_ms: int = 1_800_000


class Positions:
    """Positions of the newest copies of all live keys of one stream, oldest first."""

    def __init__(self, limits: CompactionLimits) -> None:
        self._limits = limits
        self._newest: dict[Hashable, Position] = {}  # insertion order is position order
        self._entries = 0
        self._start = 0
        self._last = StreamId(0, 0)
        self._unknown = False

    @property
    def entries(self) -> int:
        """Entries since `replay_from`, as counted by this host: as many as a take-over would replay."""
        return self._entries - self._start

    def note(self, entry: StreamId, anchor: Anchor | None) -> None:
        """Count one confirmed entry."""
        if anchor is not None:
            self._newest.pop(anchor.key, None)
            if anchor.alive:
                self._newest[anchor.key] = Position(self._entries, entry)
        self._entries += 1
        self._last = entry

    def note_unknown(self, entry: StreamId) -> None:
        """Count an entry of a later build. This build cannot write a copy of it, so it compacts nothing."""
        self.note(entry, None)
        self._unknown = True

    def due(self) -> bool:
        """Return whether the stream has more than max(entries_min, entries_per_key × live keys) entries, all of known
        types."""
        limits = self._limits
        return not self._unknown and self.entries > max(limits.entries_min, limits.entries_per_key * len(self._newest))

    def stale(self) -> list[Sequence[Hashable]]:
        """The keys to rewrite, oldest first, in slices: those whose newest copy is in the older half of the stream.

        A busy key already has a newer copy, so another one would save nothing.
        """
        half = self._entries - self.entries // 2
        keys = []
        for key, position in self._newest.items():
            if position.ordinal >= half:
                break
            keys.append(key)
        size = self._limits.slice_keys
        return [keys[first : first + size] for first in range(0, len(keys), size)]

    def alive(self, keys: Sequence[Hashable]) -> list[Hashable]:
        """Those of `keys` that still have a confirmed copy."""
        return [key for key in keys if key in self._newest]

    def needed_from(self) -> Position:
        """The smallest position that is the newest of some key; without keys, the last entry's."""
        return next(iter(self._newest.values()), Position(max(self._entries - 1, 0), self._last))

    def trimmed(self, to: Position) -> None:
        """Note that `replay_from` is now `to` in the store."""
        self._start = max(self._start, to.ordinal)
