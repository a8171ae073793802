"""A toy shard, a log controlled by the test, and leases on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kip932.errors import InvalidRequestError
from shard_runtime.hosting.shard import Anchor, DamagedEntry, Decision
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import (
    STREAM_START,
    Appended,
    AppendRefusedError,
    Claimed,
    Entry,
    ReaderNotes,
    ShardId,
    ShardKind,
    ShardLostError,
    StreamAppend,
    StreamId,
)
from shard_runtime.record_log.settlements import Settlement
from tests.support.clocks import HandClock

SHARD = ShardId(ShardKind.SHARE_STATE, "7")
STREAM = SHARD.streams[0]


class Put(NamedTuple):
    key: str
    value: int | None
    effects: tuple[object, ...] = ()


class Get(NamedTuple):
    key: str


class Bad(NamedTuple):
    pass


class Bug(NamedTuple):
    pass


class Record(NamedTuple):
    key: str
    value: int | None


class ToyShard:
    """Values by key. `Put` writes one record and returns the new value; `Get` writes none."""

    def __init__(self) -> None:
        self.hurt: list[DamagedEntry] = []
        self.values: dict[str, int] = {}
        self.deadline: int | None = None
        self.pauses: list[int] = []
        self.loads: list[int] = []

    def decide(self, command: object, now_ms: int, wall_ms: int) -> Decision[Record, object]:
        match command:
            case Put(key, value, effects):
                return Decision((Record(key, value),), value, effects)
            case Get(key):
                return Decision((), self.values.get(key))
            case Bad():
                raise InvalidRequestError("bad")
        raise RuntimeError("a bug")

    def replay(self, record: Record) -> object:
        before = self.values.get(record.key)
        self._set(record.key, record.value)
        return (record.key, before)

    def quarantine(self, found: DamagedEntry) -> bool:
        if found.key is None:
            return False
        self.hurt.append(found)
        return True

    def drop(self, key: Hashable) -> bool:
        return False

    def quarantined(self) -> Sequence[DamagedEntry]:
        return self.hurt

    def undo(self, token: object) -> None:
        assert isinstance(token, tuple)
        self._set(*token)

    def _set(self, key: str, value: int | None) -> None:
        if value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value

    def loaded(self, now_ms: int) -> Sequence[object]:
        self.loads.append(now_ms)
        return ()

    def next_deadline(self) -> int | None:
        return self.deadline

    def due(self, now_ms: int) -> Sequence[object]:
        if self.deadline is None or self.deadline > now_ms:
            return ()
        self.deadline = None
        return (Put("expired", now_ms),)

    def paused(self, now_ms: int) -> None:
        self.pauses.append(now_ms)
        if self.deadline is not None:
            self.deadline = now_ms + 1_000

    def anchor(self, record: Record) -> Anchor | None:
        return Anchor(record.key, record.value is not None)

    def rewrite(self, keys: Iterable[Hashable], wall_ms: int) -> Sequence[Sequence[Record]]:
        return [(Record(str(key), self.values[str(key)]),) for key in keys if key in self.values]


class ToyCodec:
    def encode(self, record: Record, wall_ms: int) -> tuple[str, bytes]:
        return "R", f"{record.key}={'' if record.value is None else record.value}".encode()

    def decode(self, kind: str, data: bytes) -> Record | None:
        if kind != "R":
            return None
        key, _, value = data.decode().partition("=")
        return Record(key, int(value) if value else None)

    def key(self, data: bytes) -> str:
        return data.decode()


@dataclass
class ObedientLog:
    """One stream in memory. `gate` holds appends; the next appends raise `failures`, in order."""

    entries: list[Entry] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    up: bool = True
    noops: int = 0
    compacted: list[StreamId] = field(default_factory=list)
    compact_answer: bool = True
    reads: int = 0
    notes: dict[str, bytes] = field(default_factory=dict)
    now_ms: int = 0
    notes_failures: list[Exception] = field(default_factory=list)
    skips: frozenset[StreamId] = frozenset()
    skip_failures: list[Exception] = field(default_factory=list)
    notes_read: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    @property
    def available(self) -> bool:
        return self.up

    def available_for(self, shard: ShardId) -> bool:
        return self.up

    async def append(self, shard: ShardId, epoch: int, appends: Sequence[StreamAppend]) -> Appended:
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        (append,) = appends
        for entry in append.entries:
            if self.entries and entry.id <= self.entries[-1].id:
                raise ShardLostError(f"{entry.id} is not above {self.entries[-1].id}")
            self.entries.append(entry)
        self.flushes.append(len(append.entries))
        noops, self.noops = self.noops, 0
        for _ in range(noops):
            last = self.entries[-1].id
            self.entries.append(Entry(StreamId(last.epoch, last.seq + 1), "N", b""))
        return Appended(self.entries[-1].id, noops)

    async def read(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        self.reads += 1
        await asyncio.sleep(0)
        found = [entry for entry in self.entries if entry.id > after and (through is None or entry.id <= through)]
        return found[:count]

    async def skipped(self, shard: ShardId) -> Mapping[StreamId, Settlement]:
        await asyncio.sleep(0)
        if self.skip_failures:
            raise self.skip_failures.pop(0)
        return dict.fromkeys(self.skips, Settlement())

    async def readers(self, shard: ShardId) -> ReaderNotes:
        self.notes_read += 1
        await asyncio.sleep(0)
        if self.notes_failures:
            raise self.notes_failures.pop(0)
        return ReaderNotes(dict(self.notes), self.now_ms)

    async def compact(
        self,
        shard: ShardId,
        incarnation: int,
        epoch: int,
        stream: str,
        before: StreamId,
        *,
        keep_from: StreamId | None = None,
    ) -> bool:
        await asyncio.sleep(0)
        if self.compact_answer:
            self.compacted.append(before)
            trim_to = before if keep_from is None else min(before, keep_from)
            self.entries = [entry for entry in self.entries if entry.id >= trim_to]
        return self.compact_answer

    def claim(self, epoch: int, sent_ms: int, replay_from: StreamId = STREAM_START) -> Claimed:
        self.entries.append(Entry(StreamId(epoch, 0), "C", b""))
        return Claimed(epoch, False, replay_from, None, "h", sent_ms)


def lease_of(epoch: int, clock: HandClock, give_up: Any, lease_ms: int = 3_000) -> Lease:
    return Lease(SHARD, 1, epoch, deadline_ms=clock.ms + lease_ms, clock=clock, give_up=give_up)


__all__ = ["AppendRefusedError", "ObedientLog", "ToyCodec", "ToyShard"]
