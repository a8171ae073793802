"""Replays a shard's stream into an empty shard, in pages: between pages the node continues to serve its other shards.

Entries that cannot be replayed are put in quarantine: the shard refuses requests that depend on them and serves the
rest (CM-107). `DamagedKeys` finds the key that such an entry changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic

import structlog

from kip932.entry_checksum import key_of, proves_key
from shard_runtime.hosting.shard import Codec, CommandT, DamagedEntry, RecordT
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.record_log.protocol import (
    CLAIM_TYPE,
    NOOP_TYPE,
    DamagedEntryError,
    Entry,
    RecordLog,
    StreamId,
)
from shard_runtime.record_log.settlements import Choice, Settlement

log = structlog.get_logger(__name__)

#: A shard with more entries in quarantine is not served at all: no operator would settle that many one by one.
QUARANTINE_MAX: Final = 1_000
#: The maximum number of a log's keys to compare with a damaged entry's checksum: among more, one could match by chance.
COMPARED_KEYS_MAX: Final = 100_000
#: How many keys are compared, in about 2 ms, before other tasks may run (CM-94).
COMPARED_KEYS_SLICE: Final = 2_000
_EMPTY_TYPES: Final = frozenset({CLAIM_TYPE, NOOP_TYPE})


class BrokenRecordError(DamagedEntryError):
    """An entry of the stream is missing, differs from what was written, or cannot be applied, and the shard cannot
    separate the state that depends on it. The shard is not served until an operator settles the entry, `found`
    (CM-103)."""

    def __init__(self, message: str, found: DamagedEntry) -> None:
        super().__init__(message)
        self.found = found


@dataclass(slots=True)
class ReplayedLog:
    """How many entries were replayed, and how many of them are of unknown type or version (SC-51), were skipped by an
    operator's decision (CM-103), or are in quarantine (CM-107)."""

    entries: int = 0
    unknown: int = 0
    skipped: int = 0
    quarantined: int = 0


async def replay_log(
    record_log: RecordLog,
    codec: Codec[RecordT],
    tenure: ShardTenure[CommandT, RecordT],
    stream: str,
    *,
    replay_from: StreamId,
    through: StreamId,
    page_entries: int,
) -> ReplayedLog:
    """Replay `replay_from`…`through` (both inclusive, CM-12) in order, yielding to the loop after every page.

    The claim entry at `through` is already in the stream, so the store refuses what an older owner still sends (SR-6).
    An entry that is missing, damaged, undecodable or inconsistent with the earlier ones goes into the shard's
    quarantine, unless an operator lets replays skip it (CM-103, CM-107). Raises LogError when the store cannot be read:
    claim and replay again. Raises BrokenRecordError when the shard cannot be served without the entry.
    """
    after = predecessor(replay_from)
    keys = DamagedKeys(record_log, stream, after, through, page_entries)
    replay = _Replay(record_log, codec, tenure, stream, keys)
    page = await record_log.read(stream, after, through, page_entries)
    while len(page) == page_entries:
        # The store reads the next page while this one is replayed; no more than one page is read ahead.
        ahead = asyncio.ensure_future(record_log.read(stream, page[-1].id, through, page_entries))
        try:
            await asyncio.sleep(0)
            await replay.page(page)
            page = await ahead
        finally:
            if not ahead.done():
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
    await replay.page(page)
    if replay.result.unknown:
        log.warning("unknown_entries_skipped", shard=tenure.lease.shard.tag, entries=replay.result.unknown)
    return replay.result


def predecessor(entry: StreamId) -> StreamId:
    """The largest id below `entry`, for reads whose lower bound is exclusive."""
    if entry.seq:
        return StreamId(entry.epoch, entry.seq - 1)
    return StreamId(entry.epoch - 1, 2**64 - 1) if entry.epoch else entry


class _Replay(Generic[CommandT, RecordT]):
    """One replay in progress. It reads an operator's settlements once, and only if an entry is broken."""

    def __init__(
        self,
        record_log: RecordLog,
        codec: Codec[RecordT],
        tenure: ShardTenure[CommandT, RecordT],
        stream: str,
        keys: DamagedKeys,
    ) -> None:
        self.result = ReplayedLog()
        self._log = record_log
        self._codec = codec
        self._tenure = tenure
        self._stream = stream
        self._keys = keys
        self._due: tuple[int, int] | None = None
        self._settled: Mapping[StreamId, Settlement] | None = None

    async def page(self, page: Sequence[Entry]) -> None:
        """Replay the next entries; only broken ones cause an await (P-2). Raises LogError or BrokenRecordError."""
        positions, due = self._tenure.positions, self._due
        self.result.entries += len(page)
        for entry in page:
            at, damage = entry.id, entry.damage
            if at != due and (missing := _missing(due, at)):
                await self._broken(entry, missing, None)
            due = at[0], at[1] + 1
            if damage:
                await self._broken(entry, f"is damaged: {damage}", await self._keys.of(entry))
            elif entry.kind not in _EMPTY_TYPES:
                why = self._apply(entry)
                if not why:
                    continue
                await self._broken(entry, why, key_of(entry.record) or None)
            positions.note(at, None)
        self._due = due

    def _apply(self, entry: Entry) -> str:
        """Replay an intact record. Returns the reason it cannot be replayed, in words, or ""."""
        try:
            record = self._codec.decode(entry.kind, entry.record)
        except ValueError as error:
            return f"cannot be read: {error}"
        tenure = self._tenure
        if record is None:
            self.result.unknown += 1
            tenure.positions.note_unknown(entry.id)
            return ""
        try:
            tenure.shard.replay(record)
        except Exception as error:
            return f"does not fit what was replayed before it: {error!r}"
        tenure.positions.note(entry.id, tenure.shard.anchor(record))
        return ""

    async def _broken(self, entry: Entry, why: str, key: bytes | None) -> None:
        """Skip an entry that was settled or changes nothing; put any other in quarantine."""
        shard = self._tenure.lease.shard
        if self._settled is None:
            self._settled = await self._log.skipped(shard)
        settled = self._settled.get(entry.id)
        if settled is not None and settled.choice is Choice.SKIP:
            self.result.skipped += 1
            log.warning(
                "damaged_entry_skipped",
                shard=shard.tag,
                entry=str(entry.id),
                cause=why,
                effect="skipped, as an operator decided",
            )
            return
        if key == b"":
            log.warning(
                "harmless_damaged_entry_skipped",
                stream=self._stream,
                entry=str(entry.id),
                cause="the entry changes nothing",
            )
            return
        found = DamagedEntry(self._stream, str(entry.id), why, self._named(key))
        self.result.quarantined += 1
        if self.result.quarantined > QUARANTINE_MAX or not self._tenure.shard.quarantine(found):
            raise _not_served(entry, found)
        if settled is not None and found.key is not None and self._tenure.shard.drop(found.key):
            log.warning(
                "damaged_state_dropped",
                shard=shard.tag,
                entry=str(entry.id),
                key=found.text,
                effect="the state of this key is dropped, as an operator decided",
            )
            return
        log.error(
            "damaged_entry_quarantined",
            stream=self._stream,
            entry=str(entry.id),
            cause=why,
            key=found.text,
            effect="requests that need the entry are refused until an operator settles it",
            try_next="settle it with `sharegroups state repair`",
        )

    def _named(self, key: bytes | None) -> object:
        try:
            return None if key is None else self._codec.key(key)
        except ValueError:
            return None


def _missing(due: tuple[int, int] | None, entry: StreamId) -> str:
    """Return a description if entries are missing before `entry`, which is not the one `due`; else "". Sequences have
    no gap inside an epoch, and each epoch begins with its claim (SR-7), so a missing entry was lost."""
    if due is None or (entry.seq == 0 and entry.epoch != due[0]):
        return ""
    return f"does not follow {StreamId(due[0], due[1] - 1)}: entries between them are missing"


def _not_served(entry: Entry, found: DamagedEntry) -> BrokenRecordError:
    kind, name = found.stream[1 : found.stream.index("}")].split(":", 1)
    return BrokenRecordError(
        f"entry {entry.id} of {found.stream} (type {entry.kind!r}, {len(entry.record)} bytes) "
        f"{found.found.rstrip('.')}. This shard is not served "
        "before that is settled; the others are. Restore the store from a copy, or go on "
        "without the entry, which loses what it changed: "
        f"sharegroups state repair --kind {kind} --shard {name} --choose skip",
        found,
    )


class DamagedKeys:
    """Finds the keys whose state one log's damaged entries change (CM-106). It reads the log again when needed, at most
    once.

    An entry's field `k` is a checksum over its key. When the key can still be read from the record, `k` proves it. When
    it cannot, `k` is compared with the keys of the log's other entries.
    """

    def __init__(self, record_log: RecordLog, stream: str, after: StreamId, through: StreamId, page: int) -> None:
        self._log = record_log
        self._stream = stream
        self._after = after
        self._through = through
        self._page = page
        self._named: set[bytes] | None = None

    async def of(self, entry: Entry) -> bytes | None:
        """The bytes of a damaged entry's key; b"" for an entry without a key (a claim, a no-op), None when unknown.

        Raises LogError.
        """
        if entry.id.seq == 0 and not entry.key_proof:
            return b""  # a claim: it has sequence 0, and a record at sequence 0 would have a proof
        if not entry.key_proof:
            return None
        for key in (key_of(entry.record), b""):
            if proves_key(self._stream, entry.id, key, entry.key_proof):
                return key
        if self._named is None:
            self._named = await self._read_keys()
        fits = []
        for number, key in enumerate(self._named, start=1):
            if proves_key(self._stream, entry.id, key, entry.key_proof):
                fits.append(key)
            if not number % COMPARED_KEYS_SLICE:
                await asyncio.sleep(0)
        return fits[0] if len(fits) == 1 else None

    async def _read_keys(self) -> set[bytes]:
        keys: set[bytes] = set()
        after = self._after
        while True:
            page = await self._log.read(self._stream, after, self._through, self._page)
            keys.update(key_of(entry.record) for entry in page if not entry.damage)
            if len(page) < self._page or len(keys) > COMPARED_KEYS_MAX:
                return keys if len(keys) <= COMPARED_KEYS_MAX else set()
            after = page[-1].id
            await asyncio.sleep(0)
