"""Positions, ranges and gaps of a reader in streams: frozen values and their JSON (PM-8). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_SEQ_MAX: Final = 2**64 - 1


class EntryId(NamedTuple):
    """An entry's id `<epoch>-<seq>`: an order, never a clock (PM-7)."""

    epoch: int
    seq: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.seq}"

    @property
    def before(self) -> EntryId:
        """The largest id less than this one; 0-0 for 0-0."""
        if self.seq:
            return EntryId(self.epoch, self.seq - 1)
        return EntryId(self.epoch - 1, _SEQ_MAX) if self.epoch else self


def entry_id(text: str | bytes) -> EntryId:
    """Parse `<epoch>-<seq>`. Raises ValueError for anything else."""
    if isinstance(text, bytes):
        text = text.decode()
    epoch, dash, seq = text.partition("-")
    if not (dash and epoch.isdecimal() and seq.isdecimal()):
        raise ValueError(f"entry id {text!r} is not <epoch>-<seq>, as in 12345-0")
    return EntryId(int(epoch), int(seq))


START: Final = EntryId(0, 0)


class Position(NamedTuple):
    """A position in a stream: everything up to `id` was read. `n`: entries ever added up to there (PM-8)."""

    id: EntryId
    n: int


class Tip(NamedTuple):
    """A stream at one moment: the last id assigned, entries ever added, entries stored, the first id stored."""

    last: EntryId
    added: int
    length: int
    first: EntryId

    @property
    def trimmed(self) -> int:
        """How many entries were added and are no longer stored; only the oldest are ever removed (CM-18)."""
        return self.added - self.length

    @property
    def earliest(self) -> Position:
        """The position before the first stored entry. Its count is that of the trimmed entries, not 0 (PM-8)."""
        return Position(START, self.trimmed)

    @property
    def latest(self) -> Position:
        """The position after the last entry."""
        return Position(self.last, self.added)


NO_STREAM: Final = Tip(START, 0, 0, START)


class Range(NamedTuple):
    """Entries of one stream with `after` < id ≤ `through`. `entries`: their number when the range was planned."""

    stream: str
    after: EntryId
    through: EntryId
    entries: int


class Gap(NamedTuple):
    """Entries between two ids that a reader should have read and could not (PM-11).

    `reason`: `trimmed` if they were trimmed before they were read; `tail` if the store lost its newest entries, which
    may have been read before; `missing` if they are missing between others.
    """

    stream: str
    from_id: EntryId
    to_id: EntryId
    lost: int
    reason: str

    @property
    def text(self) -> str:
        """The gap as JSON, for its row's `error` column."""
        values = {"from_id": str(self.from_id), "to_id": str(self.to_id), "lost": self.lost, "reason": self.reason}
        return json.dumps(values)


def to_offsets(positions: Mapping[str, Position]) -> dict[str, dict[str, str | int]]:
    """Positions as plain values for a checkpoint (PM-8)."""
    return {stream: {"id": str(at.id), "n": at.n} for stream, at in sorted(positions.items())}


def from_offsets(offsets: Mapping[str, Any]) -> dict[str, Position]:
    """Positions from a checkpoint. Raises ValueError for anything else."""
    try:
        return {stream: Position(entry_id(at["id"]), int(at["n"])) for stream, at in offsets.items()}
    except (KeyError, TypeError) as error:
        raise ValueError(f'offsets {offsets!r} are not {{"<stream>": {{"id": "<id>", "n": <count>}}}}') from error


def read_ids(text: str) -> dict[str, EntryId]:
    """Parse the option `startingIds` or `endingIds`: JSON {stream: id}. Raises ValueError."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"ids {text!r} are not JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f'ids {text!r} are not {{"<stream>": "<id>"}}')
    return {stream: entry_id(value) for stream, value in found.items()}
