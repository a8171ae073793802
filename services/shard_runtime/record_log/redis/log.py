"""The logs and owner records of one store: `RecordLog` over any `Store`, a real one or the tests' twin.

It holds the shards this process has claimed. Writes go to the right node's writer, reads use a separate connection.
`store_calls`, `flush` and `connection_check` evaluate the replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final

from shard_runtime.clock import Clock
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import (
    CLAIM_TYPE,
    STREAM_START,
    Appended,
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Entry,
    LogError,
    ReaderNotes,
    Renewal,
    Renewed,
    ShardId,
    ShardLostError,
    StoreUnavailableError,
    StreamAppend,
    StreamId,
    StreamTip,
)
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.codec import claim_record, entries, index_entries, stream_id, stream_tip
from shard_runtime.record_log.redis.connection import Command, ErrorReply, Reply, Store, StoreConnection, StoreSettings
from shard_runtime.record_log.redis.flush import FlushCall
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, shard_of_stream
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.redis.skipped_entries import read_skips, write_skip
from shard_runtime.record_log.redis.store_calls import (
    AnsweredCall,
    AnswerT,
    ClaimCall,
    CompactCall,
    PlainCall,
    ReleaseCall,
    RenewCall,
    StoreCall,
)
from shard_runtime.record_log.redis.writer import Writer
from shard_runtime.record_log.settlements import Settlement

_UNROUTED: Final = ""
_RENEWALS_PER_CALL: Final = 500
_READS_MAX: Final = 3
_READERS_MAX: Final = 512
#: A call that reads entries without their batches stops after this many bytes of entries: the store does nothing else
#: meanwhile, for about 2 ms.
INDEX_CALL_BYTES: Final = 1024 * 1024
_SKIPPED: Final = Settlement()


class StoreRecordLog:
    """`RecordLog` over a store."""

    def __init__(
        self,
        store: Store,
        settings: StoreSettings,
        clock: Clock,
        rng: Random | None = None,
        damage: DamageNotes | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._rng = rng or Random()
        self._damage = damage or DamageNotes()
        self._held: dict[ShardId, ClaimedShard] = {}
        self._writers: dict[str, Writer] = {}
        self._queries = QueryConnections(store, settings, settings.cluster_id)
        self._closed = False
        self._refusing: frozenset[str] = frozenset()

    async def open(self) -> None:
        """Connect to the store's (first) node. Raises StoreUnavailableError with the cause when that fails in time."""
        await self._call(PlainCall(META_CLUSTER_ID, ()), "opening the log")

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """True while every node in use may be written to and has no unresolved flush (CM-15)."""
        used = [writer for writer in self._writers.values() if not writer.idle or writer.connected]
        return bool(used) and all(writer.available and writer.node not in self._refusing for writer in used)

    def available_for(self, shard: ShardId) -> bool:
        """Return whether new work may be accepted for a shard."""
        held = self._held.get(shard)
        writer = self._writer_of(shard.owner_key if held is None else held.owner_key)
        return writer is not None and writer.available and writer.node not in self._refusing

    def refuse_new_work(self, nodes: Iterable[str]) -> None:
        """Refuse new work for shards on these store nodes from now on, and accept it on all others (CM-171)."""
        self._refusing = frozenset(nodes)

    @property
    def history(self) -> str:
        """The history of the node that holds the cluster id; of the only node, without cluster mode."""
        writer = self._writer_of(META_CLUSTER_ID)
        return "" if writer is None else writer.history

    def history_of(self, shard: ShardId) -> str:
        """The history of the node that holds a shard. It is read for every held shard several times within a lease, so
        the shard's key is not built when the store has only one node."""
        writer = self._writer_of(shard.owner_key if self._store.clustered else META_CLUSTER_ID)
        return "" if writer is None else writer.history

    def tail_checked(self, shard: ShardId) -> str:
        """The history for `Renewal.tail_ok`, or ""."""
        held = self._held.get(shard)
        return "" if held is None else held.tail_checked()

    def lost(self, shard: ShardId) -> ShardLostError | None:
        """Why this process may no longer use a shard; None while it may."""
        held = self._held.get(shard)
        return None if held is None else held.lost

    # -- ownership ----------------------------------------------------------------------------------------------------

    async def claim(self, request: ClaimRequest) -> ClaimAnswer:
        """Try to own a shard (CM-12). After a lost reply the same claim is sent again."""
        record = claim_record(
            request.node_id, request.incarnation, request.address, request.nonce, self._clock.wall_ms()
        )
        call = ClaimCall(request, record, self._settings.claim_replicas, self._clock, self._hold)
        return await self._call(call, f"claiming {request.shard.tag}")

    def _hold(self, request: ClaimRequest, claimed: Claimed, record: bytes, connection: StoreConnection) -> None:
        shard = request.shard
        before = self._held.get(shard)
        if before is not None:
            before.lose(ShardLostError(f"shard {shard.tag} was claimed again by this process"))
        entry = Entry(StreamId(claimed.epoch, 0), CLAIM_TYPE, record)
        self._held[shard] = ClaimedShard(
            shard=shard,
            incarnation=request.incarnation,
            epoch=claimed.epoch,
            last=dict.fromkeys(shard.streams, entry),
            lossy=claimed.lossy,
            whole_under=claimed.history,
            checked_on=connection,
        )

    async def renew(self, renewals: Sequence[Renewal]) -> list[Renewed | None]:
        """Renew leases: many per function call, but one per call in cluster mode (CM-3)."""
        size = 1 if self._store.clustered else _RENEWALS_PER_CALL
        calls: list[RenewCall] = []
        for start in range(0, len(renewals), size):
            group = renewals[start : start + size]
            held = [held for renewal in group if (held := self._held.get(renewal.shard)) is not None]
            calls.append(
                RenewCall(group, held, self._settings.claim_replicas, self._clock, self._cluster_id_for(group[0].shard))
            )
        for call in calls:
            self._submit(call)
        if calls:
            await asyncio.wait([call.answer for call in calls], timeout=self._settings.call_ms / 1000)
        answers: list[Renewed | None] = []
        for start, call in zip(range(0, len(renewals), size), calls, strict=True):
            answers += self._renewed(call, renewals[start : start + size])
        return answers

    def _cluster_id_for(self, shard: ShardId) -> str | None:
        """The cluster id, if the shard's node is the one that holds it: then a renewal checks it (CM-19)."""
        node = self._store.node_of(META_CLUSTER_ID)
        same = node is not None and node == self._store.node_of(shard.owner_key)
        return self._settings.cluster_id if same else None

    def _renewed(self, call: RenewCall, renewals: Sequence[Renewal]) -> list[Renewed | None]:
        answer = call.answer
        if not answer.done():
            answer.cancel()
        if answer.cancelled() or answer.exception() is not None:
            return [None] * len(renewals)
        return [self._apply_renewal(*pair) for pair in zip(renewals, answer.result(), strict=True)]

    def _apply_renewal(self, renewal: Renewal, renewed: Renewed) -> Renewed:
        """Note the reply to a renewal. `ok` becomes False for a shard whose tail is lost: its host must claim it
        again."""
        held = self._held.get(renewal.shard)
        if held is None or held.epoch != renewal.epoch:
            return renewed
        if not renewed.ok:
            held.lose(ShardLostError(f"shard {renewal.shard.tag}: its renewal was refused, others own it"))
        elif renewal.tail_ok:
            # The host has repaired the tail, under this or an earlier history. From now on writes check the shard's
            # own last id; if the history has changed since, the tail was already checked again.
            held.lossy = False
        return renewed if held.lost is None else renewed._replace(ok=False)

    async def release(self, shard: ShardId, incarnation: int, epoch: int) -> bool:
        """Give a shard up. This process never uses that epoch again, even if the release fails."""
        await self.drop(shard)
        return await self._call(ReleaseCall(shard, incarnation, epoch), f"releasing {shard.tag}")

    async def drop(self, shard: ShardId) -> None:
        """Forget a shard."""
        held = self._held.pop(shard, None)
        if held is not None:
            held.lose(ShardLostError(f"shard {shard.tag} was dropped by this process"))

    # -- writing ------------------------------------------------------------------------------------------------------

    async def append(self, shard: ShardId, epoch: int, appends: Sequence[StreamAppend]) -> Appended:
        """Append one atomic flush; return once it is committed. Cancelling the caller does not cancel the flush."""
        held = self._usable(shard, epoch)
        if held.flush is not None:
            raise LogError(f"shard {shard.tag}: a flush is outstanding, and at most one may be")
        filled = [append for append in appends if append.entries]
        if not filled:
            return Appended(held.last[held.streams[-1]].id, 0)
        for append in filled:
            _require_order(held, append)
        call = FlushCall(held, filled, self._settings.append_replicas, self._clock.wall_ms)
        held.flush = call
        self._submit(call)
        return await call.answer

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
        """Move `replay_from` (main log only), then trim."""
        held = self._held.get(shard)
        if held is None or held.epoch != epoch or held.incarnation != incarnation or held.lost is not None:
            return False
        trim_to = before if keep_from is None else min(before, keep_from)
        call = CompactCall(held, stream, before, trim_to, self._settings.claim_replicas)
        return await self._call(call, f"compacting {stream}")

    async def delete_streams(self, shard: ShardId) -> None:
        """Remove a deleted topic's streams and owner record."""
        await self.drop(shard)
        call = PlainCall(shard.owner_key, [("DEL", *shard.streams, shard.owner_key)])
        await self._call(call, f"deleting the streams of {shard.tag}")

    def _usable(self, shard: ShardId, epoch: int) -> ClaimedShard:
        held = self._held.get(shard)
        if held is None or held.epoch != epoch:
            found = "no claim" if held is None else f"epoch {held.epoch}"
            raise ShardLostError(f"shard {shard.tag}: asked to write in epoch {epoch}, but this process holds {found}")
        if held.lost is not None:
            raise held.lost
        return held

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """A page of a stream."""
        reply = await self._read(stream, ("XRANGE", stream, f"({after}", _end(through), "COUNT", count))
        return self._with_damage_reported(stream, entries(stream, reply))

    async def index(self, stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
        """A page without batches."""
        return await self._without_batches(stream, after, _end(through), count, "oldest")

    async def read_back(self, stream: str, before: StreamId, count: int) -> list[Entry]:
        """A page backwards, without batches."""
        return await self._without_batches(stream, before, "-", count, "newest")

    async def tip(self, stream: str) -> StreamTip | None:
        """A stream's last id and length; None when it does not exist."""
        reply = await self._read(stream, ("EVALSHA", scripts.STREAM_TIP.digest, 1, stream))
        return None if reply is None else stream_tip(reply)

    async def _without_batches(self, stream: str, at: StreamId, to: str, count: int, order: str) -> list[Entry]:
        """Up to `count` entries beyond `at`, in as many calls as INDEX_CALL_BYTES asks for."""
        found: list[Entry] = []
        while True:
            left = count - len(found)
            call: Command = (
                "EVALSHA", scripts.LOG_INDEX.digest, 1, stream, f"({at}", to, left, order, INDEX_CALL_BYTES,
            )  # fmt: skip
            reply = await self._read(stream, call)
            found += index_entries(stream, reply)
            if not reply[0]:
                return self._with_damage_reported(stream, found)
            at = found[-1].id

    def _with_damage_reported(self, stream: str, found: list[Entry]) -> list[Entry]:
        self._damage.note(stream, found)
        return found

    async def skipped(self, shard: ShardId) -> Mapping[StreamId, Settlement]:
        """The content of the shard's hash of settled entries."""
        return await read_skips(self._queries, shard.skip_key)

    async def skip(self, shard: ShardId, entry: StreamId, settlement: Settlement = _SKIPPED) -> None:
        """Store an operator's decision about an entry, beside the stream (CM-103, CM-114). Raises LogError."""
        await write_skip(self._queries, shard.skip_key, entry, self._settings.append_replicas, settlement)

    async def replay_from(self, shard: ShardId) -> StreamId:
        """The id where a claim's replay would begin (CM-12); earlier entries are kept only for readers. Raises
        LogError."""
        reply = (await self._queries.repeat(shard.owner_key, (("HMGET", shard.owner_key, "replay_from"),))).replies[0]
        if isinstance(reply, ErrorReply):
            raise LogError(f"reading {shard.owner_key}: the store answered {reply}")
        return stream_id(reply[0]) if reply[0] else STREAM_START

    async def readers(self, shard: ShardId) -> ReaderNotes:
        """Readers' notes: one page of the hash, since other processes write without limit. Advisory: it may predate a
        fail-over."""
        key = shard.readers_key
        answered = await self._queries.repeat(key, (("HSCAN", key, 0, "COUNT", _READERS_MAX), ("TIME",)))
        for reply in answered.replies:
            if isinstance(reply, ErrorReply):
                raise LogError(f"reading {key}: the store answered {reply}")
        (_, words), (seconds, micros) = answered.replies
        notes = {words[i].decode(errors="replace"): words[i + 1] for i in range(0, len(words), 2)}
        return ReaderNotes(notes, int(seconds) * 1_000 + int(micros) // 1_000)

    async def _read(self, stream: str, command: Command) -> Reply:
        """Read under the history that the writer has checked: a read must not mix two histories of a log.

        When they differ, make the writer check its connection (an idle one has not noticed a fail-over yet), then read
        again.
        """
        for _ in range(_READS_MAX):
            answered = await self._queries.repeat(stream, (command,))
            if self._checked(stream, answered.history):
                break
            held = self._held.get(shard_of_stream(stream))
            await self._call(PlainCall(stream, (), () if held is None else (held,)), f"reading {stream}")
        else:
            raise StoreUnavailableError(f"the store's history kept changing while {stream} was read; read again")
        reply = answered.replies[0]
        if isinstance(reply, ErrorReply):
            raise LogError(f"reading {stream}: the store answered {reply}")
        return reply

    def _checked(self, stream: str, history: str) -> bool:
        """Return whether `history` is the one under which a claimed stream's tail was found whole. For a stream not
        claimed here, `history` must be that of its node's writer, if one is connected.

        A claimed stream is not compared with the writer: after a fail-over of a Redis Cluster the new master may have
        no writer yet.
        """
        held = self._held.get(shard_of_stream(stream))
        if held is not None and held.lost is None:
            return held.whole_under == history
        writer = self._writer_of(stream)
        return writer is None or not writer.connected or writer.history == history

    # -- writers ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every connection and end every task; unanswered calls fail."""
        self._closed = True
        writers, self._writers = list(self._writers.values()), {}
        for writer in writers:
            await writer.close()
        await self._queries.close()

    async def _call(self, call: AnsweredCall[AnswerT], what: str) -> AnswerT:
        self._submit(call)  # type: ignore[arg-type]  # every subclass of AnsweredCall is a StoreCall
        try:
            async with asyncio.timeout(self._settings.call_ms / 1000):
                return await call.answer
        except TimeoutError:
            writer = self._writer_of(call.key)
            cause = writer.trouble if writer is not None and writer.trouble else "it did not answer"
            raise StoreUnavailableError(f"{what}: no durable answer of the store in time: {cause}") from None

    def _submit(self, call: StoreCall) -> None:
        if self._closed:
            call.fail(StoreUnavailableError("the log is closed"))
            return
        node = self._store.node_of(call.key) or _UNROUTED
        writer = self._writers.get(node)
        if writer is None:
            writer = self._writers[node] = Writer(
                node, self._store, self._settings, rng=self._rng, route=self._submit, held_on=self._held_on
            )
        writer.submit(call)

    def _writer_of(self, key: str) -> Writer | None:
        return self._writers.get(self._store.node_of(key) or _UNROUTED)

    def _held_on(self, node: str) -> list[ClaimedShard]:
        return [held for held in self._held.values() if self._store.node_of(held.owner_key) == node]


def _end(through: StreamId | None) -> str:
    return "+" if through is None else str(through)


def _require_order(held: ClaimedShard, append: StreamAppend) -> None:
    """Raise ValueError for ids that cannot be this owner's next ones: the store would refuse them, and the shard would
    be treated as lost."""
    first, last = append.entries[0].id, held.last[append.stream].id
    if first.epoch != held.epoch or first <= last:
        raise ValueError(f"{append.stream}: entry {first} cannot follow {last} in epoch {held.epoch}")
