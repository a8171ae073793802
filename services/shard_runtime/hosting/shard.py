"""What a pure shard is: it decides, replays and undoes; a host waits, appends and answers (SC-59, GC-2).

`decide` changes nothing. `replay` is the only writer, on the live path and at load alike. A host runs every command in
one order: decide, replay, append, answer. It answers, and runs the decision's effects, only once the append is durable.
Reads are commands too: they see uncommitted state, and their answer waits for every record appended before it (SC-14,
GC-3).
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
    """The outcome of a command: records to append as one atomic unit, the reply, and orders to run once durable."""

    records: Sequence[RecordT]
    reply: ReplyT
    effects: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Anchor:
    """A record is the newest self-contained copy of `key`; with `alive` false it is the key's tombstone (CM-18)."""

    key: Hashable
    alive: bool


class Shard(Protocol[CommandT, RecordT]):
    """One shard of a service: pure state, driven by a host that holds the log, the clock and the waiters.

    `now_ms` is the deadline clock; `wall_ms` (milliseconds since 1970) is only for what records carry.
    """

    def decide(self, command: CommandT, now_ms: int, wall_ms: int) -> Decision[RecordT, object]:
        """Decide a command. Changes nothing. Raises KafkaError to refuse it; then nothing is appended."""
        ...

    def replay(self, record: RecordT) -> object:
        """Apply one record. Returns a token with which `undo` restores what this record changed."""
        ...

    def undo(self, token: object) -> None:
        """Take one replayed record back. Called in reverse order of replay, when an append was definitely refused."""
        ...

    def loaded(self, now_ms: int) -> Sequence[CommandT]:
        """The log is replayed to its end and this node owns the shard: (re)start timers, return commands to run now."""
        ...

    def next_deadline(self) -> int | None:
        """When (`now_ms` clock) `due` next has something to say; None: never, as things stand."""
        ...

    def due(self, now_ms: int) -> Sequence[CommandT]:
        """Commands that time makes due at `now_ms`; each is run through `decide` like any other. Bounded per call."""
        ...

    def paused(self, now_ms: int) -> None:
        """The shard could not append, or its lease had lapsed, up to `now_ms`: restart every timer in full (GC-32a)."""
        ...

    def anchor(self, record: RecordT) -> Anchor | None:
        """Which key's newest self-contained copy this record is; None for a record that only adds to one (SC-70)."""
        ...

    def rewrite(self, keys: Iterable[Hashable], wall_ms: int) -> Sequence[Sequence[RecordT]]:
        """Cold copies of these keys' present state, each inner sequence one atomic append (CM-18, SC-73)."""
        ...


class Codec(Protocol[RecordT]):
    """Between a shard's records and what lies in its stream (CM-16): a type letter and the bytes of one message."""

    def encode(self, record: RecordT, wall_ms: int) -> tuple[str, bytes]:
        """(`t`, `r`) of one record; `wall_ms` is the append time it carries (PM-20 X1)."""
        ...

    def decode(self, kind: str, data: bytes) -> RecordT | None:
        """The record, or None for a type or version this build does not know (SC-51); ValueError for broken bytes."""
        ...
