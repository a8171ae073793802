"""Defines a pure shard: it decides, replays and undoes; its host waits, appends and replies (SC-59, GC-2).

`decide` changes nothing. Only `replay` changes the shard, for live commands as at load. A host runs every command in
one order: decide, replay, append, reply. It replies, and runs the decision's effects, only after the append is durable.
Reads are commands too: they see uncommitted state, so their reply waits until every record appended before them is
durable (SC-14, GC-3).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

RecordT = TypeVar("RecordT")
CommandT = TypeVar("CommandT")
ReplyT = TypeVar("ReplyT")


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, ReplyT]):
    """A command's outcome: records to append as one atomic unit; then, once they are durable, the reply and effects."""

    records: Sequence[RecordT]
    reply: ReplyT
    effects: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Anchor:
    """Marks a record as a self-contained copy of `key`; with `alive` false, as the key's tombstone (CM-18)."""

    key: Hashable
    alive: bool


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """An entry of the log that is missing, differs from what was written, or cannot be applied (CM-107).

    `at`: its id as text; for a missing entry, the id of the next one. `found`: a description of the damage. `key`: the
    key whose change is lost; None when unknown.
    """

    stream: str
    at: str
    found: str
    key: Hashable | None

    @property
    def text(self) -> str:
        """The key as human-readable text."""
        return "not known" if self.key is None else str(getattr(self.key, "text", self.key))


class Shard(Protocol[CommandT, RecordT]):
    """One shard of a service: pure state, driven by a host that has the log, the clock and the waiting callers.

    `now_ms` is the deadline clock; `wall_ms` (milliseconds since 1970) is only written into records.
    """

    def decide(self, command: CommandT, now_ms: int, wall_ms: int) -> Decision[RecordT, object]:
        """Decide a command; change nothing. The host then calls `replay` for each record, in order, and appends them.

        Raises KafkaError to refuse the command: the host passes the error to the caller and appends nothing.
        """
        ...

    def replay(self, record: RecordT) -> object:
        """Apply one record. Returns a token; the host keeps it until the append is confirmed, for `undo`."""
        ...

    def quarantine(self, found: DamagedEntry) -> bool:
        """Called instead of `replay` for an entry that cannot be replayed: note it, and from now on refuse commands
        that depend on it (CM-107). Returns False when the shard cannot separate those, so it must not be served."""
        ...

    def drop(self, key: Hashable) -> bool:
        """Note that an operator chose to delete this key, which has an entry in quarantine (CM-114); `loaded` then
        returns the command that deletes it. Returns False when this shard's keys cannot be deleted; the entry then
        stays in quarantine."""
        ...

    def quarantined(self) -> Sequence[DamagedEntry]:
        """The entries in quarantine that still matter: no later record replaces what they changed."""
        ...

    def undo(self, token: object) -> None:
        """Undo one replayed record. The host calls this in reverse order of replay, and only after the store refused
        the append, never when the outcome is unknown."""
        ...

    def loaded(self, now_ms: int) -> Sequence[CommandT]:
        """Start all timers and return the commands to run now. Called once the log is replayed to its end."""
        ...

    def next_deadline(self) -> int | None:
        """When (`now_ms` clock) the host must call `due` next; None when not before the next change."""
        ...

    def due(self, now_ms: int) -> Sequence[CommandT]:
        """The commands due at `now_ms`, a bounded number per call; the host runs each through `decide` like any
        other."""
        ...

    def paused(self, now_ms: int) -> None:
        """Restart every timer in full: until `now_ms` the shard could not append, or its lease had lapsed (GC-32a)."""
        ...

    def anchor(self, record: RecordT) -> Anchor | None:
        """The key of which this record is a self-contained copy or tombstone; None for a record that only adds to one
        (SC-70)."""
        ...

    def rewrite(self, keys: Iterable[Hashable], wall_ms: int) -> Sequence[Sequence[RecordT]]:
        """Cold copies of these keys' current state; the host appends each inner sequence atomically (CM-18, SC-73)."""
        ...


class Codec(Protocol[RecordT]):
    """Translates a shard's records to stream entries (CM-16): a type letter and the bytes of one message."""

    def encode(self, record: RecordT, wall_ms: int) -> tuple[str, bytes]:
        """(`t`, `r`) of one record; `wall_ms` is written into it as its append time (PM-20 X1)."""
        ...

    def decode(self, kind: str, data: bytes) -> RecordT | None:
        """The record; None for a type or version that this build does not know, which the host counts and skips
        (SC-51). Raises ValueError for bytes that cannot be decoded; the host then puts the entry in quarantine."""
        ...

    def key(self, data: bytes) -> Hashable:
        """Decode the key under which `Shard.quarantine` notes a damaged entry (CM-106). Raises ValueError for bytes
        that are not a key."""
        ...
