"""Reports what is known about each damaged entry in the coordinators' logs, found by replaying them as an owner does
(CM-115).

It only reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core.assignor import SimpleAssignor
from group_coordinator.core.shard import GroupShard
from group_coordinator.core.views import CoordinatorSettings
from kip932.entry_checksum import key_of
from kip932.ids import SharePartitionKey
from shard_runtime.clock import SystemClock
from shard_runtime.config.group_config import GroupConfig
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.replay import QUARANTINE_MAX, BrokenRecordError, replay_log
from shard_runtime.hosting.shard import Codec, DamagedEntry
from shard_runtime.hosting.shard_tenure import ShardTenure
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import STREAM_START, Entry, ShardId, ShardKind, StreamId
from shard_runtime.record_log.redis.codec import stream_id
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.settlements import Choice, Settlement
from share_coordinator.codec import SNAPSHOT, ShareStateCodec
from share_coordinator.core.shard import ShareStateShard
from share_coordinator.core.share_state import ShareState
from share_node.state.dump import describe

_PAGE: Final = 500
#: Placeholder for the metadata, which only a decision needs.
_NOTHING: Final[Any] = None
_REDELIVERY_NOTE: Final = "the group gets every record of the partition again that the topic still has"  # GC-82


class Damaged(NamedTuple):
    """One damaged entry. `neighbours`: the entries before and after it. `whole_at`: the last whole copy of its
    share-partition's state before it, None if there is none. `later_updates`: how many intact entries of the
    share-partition follow that copy. `left`: the state of its share-partition without the entry, None when there is
    none."""

    shard: ShardId
    found: DamagedEntry
    entry: Entry | None
    neighbours: tuple[Entry | None, Entry | None]
    whole_at: StreamId | None
    later_updates: int
    left: Mapping[str, object] | None

    @property
    def choices(self) -> dict[Choice, str]:
        """The possible choices, and what each loses."""
        if self.shard.kind is ShardKind.GROUP:
            return {
                Choice.SKIP: "what the entry changed is lost: a member joins again or an assignment is made again; of "
                "the group's list of share-partitions, these are initialised again, and records may come again"
            }
        if self.found.key is None:
            return {
                Choice.SKIP: "what the entry changed is lost, of an unknown share-partition: records that "
                "were accepted may come again, deleted state may be there again"
            }
        lost = "acknowledgements in the entry are forgotten, and their records may come again"
        if self.whole_at is None:
            lost = f"there is no whole state before the entry: {_REDELIVERY_NOTE}"
        return {Choice.SKIP: lost, Choice.DROP: f"the whole state of the share-partition is lost: {_REDELIVERY_NOTE}"}

    def document(self) -> dict[str, object]:
        """Return all of it as plain values."""
        before, after = (_place(self.shard, entry) for entry in self.neighbours)
        return {
            "kind": self.shard.kind.value,
            "shard": self.shard.name,
            "stream": self.found.stream,
            "entry": self.found.at,
            "found": self.found.found,
            "key": self.found.text if self.found.key is not None else "unknown",
            "bytes": None if self.entry is None else len(self.entry.record),
            "before": before,
            "after": after,
            "last_whole_state": None if self.whole_at is None else str(self.whole_at),
            "later_updates": self.later_updates,
            "without_it": self.left,
            "choices": {choice.value: loses for choice, loses in self.choices.items()},
        }


class DamageReport:
    """Searches shards of one store for damaged entries."""

    def __init__(self, log: StoreRecordLog) -> None:
        self._log = log

    async def of(self, shards: Iterable[ShardId]) -> AsyncIterator[Damaged]:
        """Yield the damaged entries that are not settled and would still make an owner refuse something. Raises
        LogError."""
        for shard in shards:
            start = await self._log.replay_from(shard)
            settled = dict(await self._log.skipped(shard))
            found = await self._found(shard, start, settled)
            if found:
                entries = await self._entries(shard, start)
                left = await self._without(shard, start, settled, found)
                for each in found:
                    yield _damaged(shard, each, entries, left)

    async def _found(
        self, shard: ShardId, start: StreamId, settled: Mapping[StreamId, Settlement]
    ) -> list[DamagedEntry]:
        """Return the entries that a replay puts in quarantine. An entry that ends the replay is skipped, and the replay
        is repeated."""
        passed: dict[StreamId, Settlement] = {}
        ends: list[DamagedEntry] = []
        while True:
            replayed = empty(shard)
            try:
                await self._replay(shard, start, {**settled, **passed}, replayed)
            except BrokenRecordError as error:
                ends.append(error.found)
                passed[_id(error.found)] = Settlement()
                if len(ends) <= QUARANTINE_MAX:
                    continue
            waiting = [found for found in (*ends, *replayed.quarantined()) if _id(found) not in settled]
            return sorted(waiting, key=_id)  # one to be dropped stays in quarantine until its owner has dropped it

    async def _without(
        self, shard: ShardId, start: StreamId, settled: Mapping[StreamId, Settlement], found: Iterable[DamagedEntry]
    ) -> Any:
        """Return the shard as it would be without these entries."""
        replayed = empty(shard)
        await self._replay(shard, start, {**settled, **{_id(each): Settlement() for each in found}}, replayed)
        return replayed

    async def _replay(
        self, shard: ShardId, start: StreamId, settled: Mapping[StreamId, Settlement], replayed: Any
    ) -> None:
        stream = shard.streams[0]
        tip = await self._log.tip(stream)
        lease = Lease(shard, 0, 0, deadline_ms=0, clock=SystemClock(), give_up=lambda reason, above: None)
        log: Any = _LogWithSettlements(self._log, settled)
        await replay_log(
            log,
            codec(shard),
            ShardTenure(replayed, lease, CompactionLimits()),
            stream,
            replay_from=start,
            through=STREAM_START if tip is None else tip.last,
            page_entries=_PAGE,
        )

    async def _entries(self, shard: ShardId, start: StreamId) -> list[Entry]:
        stream = shard.streams[0]
        entries: list[Entry] = await self._log.read(stream, STREAM_START, start, _PAGE) if start.epoch else []
        entries = [entry for entry in entries if entry.id == start]
        after = start
        while page := await self._log.read(stream, after, None, _PAGE):
            entries += page
            after = page[-1].id
        return entries


class _LogWithSettlements:
    """The store's log, with settlements other than the stored ones."""

    def __init__(self, log: StoreRecordLog, settled: Mapping[StreamId, Settlement]) -> None:
        self.read = log.read
        self._settled = settled

    async def skipped(self, shard: ShardId) -> Mapping[StreamId, Settlement]:
        del shard
        return self._settled


def empty(shard: ShardId) -> Any:
    """Return an empty shard of this kind, to replay into; it makes no decisions."""
    if shard.kind is ShardKind.GROUP:
        settings = CoordinatorSettings()
        return GroupShard(lambda: _NOTHING, lambda group_id: GroupConfig(), settings, SimpleAssignor())
    return ShareStateShard(_NOTHING, 1, 1)


def codec(shard: ShardId) -> Codec[Any]:
    """The codec of the shard's log."""
    return GroupLogCodec() if shard.kind is ShardKind.GROUP else ShareStateCodec()


def _damaged(shard: ShardId, found: DamagedEntry, entries: list[Entry], left: Any) -> Damaged:
    at = next(index for index, entry in enumerate(entries) if entry.id == _id(found))
    neighbours = (entries[at - 1] if at else None, entries[at + 1] if at + 1 < len(entries) else None)
    whole_at, updates, state = None, 0, None
    if isinstance(found.key, SharePartitionKey):
        same = [entry for entry in entries if not entry.damage and codec(shard).key(key_of(entry.record)) == found.key]
        copies = [entry.id for entry in same if entry.kind == SNAPSHOT and entry.id < _id(found)]
        whole_at = copies[-1] if copies else None
        updates = sum(entry.id > (whole_at or STREAM_START) for entry in same)
        state = left.state(found.key)
    return Damaged(shard, found, entries[at], neighbours, whole_at, updates, _state(state))


def _state(state: ShareState | None) -> dict[str, object] | None:
    if state is None:
        return None
    return {
        "start_offset": state.start_offset,
        "state_epoch": state.state_epoch,
        "leader_epoch": state.fence[0],
        "state_batches": len(state.batches),
    }


def _place(shard: ShardId, entry: Entry | None) -> dict[str, object] | None:
    """Describe a neighbour, with the time of its append: the damaged entry was appended between the two."""
    if entry is None:
        return None
    record = {} if entry.damage else describe(shard.streams[0], entry, shard.kind)["record"]
    ms = record.get("append_time_ms") if isinstance(record, dict) else None
    appended = None if ms is None else datetime.fromtimestamp(int(ms) / 1_000, UTC).isoformat(timespec="milliseconds")
    return {"entry": str(entry.id), "type": entry.kind, "appended": appended}


def _id(found: DamagedEntry) -> StreamId:
    return stream_id(found.at)
