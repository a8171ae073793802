"""The store's cluster-wide keys: node list, metadata log, hints, constants, wake channel (CM-1…4, CM-14, CM-20).

No shard's ownership depends on them. Calls are safe to repeat, and are repeated for a bounded time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kip932.entry_checksum import checksum
from shard_runtime.record_log.cluster_store import IncompleteRestoreError, LiveNodes, NodeRecord, StoredMetadata
from shard_runtime.record_log.damage_notes import DamageNotes
from shard_runtime.record_log.protocol import LogError, NameTakenError, ShardKind, StoreUnavailableError, StreamId
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.codec import entries
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    Store,
    StoreSettings,
    parse_replication,
)
from shard_runtime.record_log.redis.keys import (
    INCOMPLETE_RESTORE,
    META_CLUSTER_ID,
    META_LOG,
    META_SKIP,
    META_TOUCH,
    NODE_NAMES,
    NODE_NEXT_ID,
    NODES,
    WAKE_CHANNEL,
    is_restoring,
    owners_key,
)
from shard_runtime.record_log.redis.query_connection import Answered, QueryConnections
from shard_runtime.record_log.redis.skipped_entries import read_skips, write_skip
from shard_runtime.record_log.redis.transaction_store import StoreTransactionStore
from shard_runtime.record_log.settlements import Settlement

_METADATA_TYPE: Final = "V"
_METADATA_EPOCH: Final = 1
#: How many hints are parsed, in about 4 ms, before the event loop may run other tasks.
_HINTS_SLICE: Final = 2_000


class StoreClusterStore:
    """`ClusterStore` over any store. It reads the cluster id itself, so its connections only require a master."""

    def __init__(self, store: Store, settings: StoreSettings, damage: DamageNotes | None = None) -> None:
        self._store = store
        self._settings = settings
        self._damage = damage or DamageNotes()
        self._queries = QueryConnections(store, settings, None)
        self._closing = asyncio.Event()
        self._transactions = StoreTransactionStore(self._queries, settings)

    @property
    def connected_replicas(self) -> int | None:
        """Replicas of the master that holds the node list, as counted with the last reply from there."""
        return self._queries.connected_replicas(NODES)

    @property
    def transactions(self) -> StoreTransactionStore:
        """The records of transactional ids."""
        return self._transactions

    # -- constants ----------------------------------------------------------------------------------------------------

    async def cluster_id(self) -> str | None:
        """The cluster id; None while the store is not initialised."""
        found = await self._one(META_CLUSTER_ID, ("GET", META_CLUSTER_ID))
        return None if found is None else str(found.decode())

    async def init_cluster(self, cluster_id: str) -> str:
        """Set the cluster id unless there is one; return the id in force."""
        return await self.constant(META_CLUSTER_ID, cluster_id)

    async def constant(self, key: str, value: str) -> str:
        """Set a constant unless it is set; return the value in force."""
        answered = await self._queries.repeat(
            key, (("SET", key, value, "NX"), ("GET", key)), self._settings.append_replicas
        )
        for reply in answered.replies:
            _require(key, reply)
        found = answered.replies[1]
        if found is None:
            raise LogError(f"constant {key}: the store has no value right after it was set to {value}")
        return str(found.decode())

    # -- nodes --------------------------------------------------------------------------------------------------------

    async def register_node(
        self, name: str, incarnation: int, dead: frozenset[int], record: NodeRecord, ttl_ms: int
    ) -> NodeRecord:
        """Give a name its stable node id and enter it in the list (CM-1)."""
        reply = await self._one(
            NODES,
            (
                "EVALSHA",
                scripts.NODE_REGISTER.digest,
                3,
                NODES,
                NODE_NAMES,
                NODE_NEXT_ID,
                name,
                str(incarnation),
                ttl_ms,
                _pack(record),
                *(str(old) for old in sorted(dead)),
            ),
            self._settings.append_replicas,
        )
        if reply[0] == b"TAKEN":
            raise NameTakenError(
                f"node name {name}: it is held by incarnation {reply[2].decode()} (node {reply[1].decode()}) for "
                f"another {int(reply[3])} ms; stop that process, wait, or give this one another node.name"
            )
        return _with(record, int(reply[1]), incarnation)

    async def renew_node(self, record: NodeRecord, ttl_ms: int) -> LiveNodes:
        """Renew the entry and return the live nodes. Raises LogError when another incarnation holds it (CM-1)."""
        reply = await self._one(NODES, self._renewal(record, ttl_ms, "renew"))
        if reply[0] == b"TAKEN":
            raise LogError(
                f"node {record.node_id} ({record.name}): its entry is held by incarnation {reply[1].decode()}, "
                f"this process is {record.incarnation}; register again only if the store's history changed"
            )
        nodes = tuple(_unpack(int(reply[i]), reply[i + 1]) for i in range(2, len(reply), 2))
        return LiveNodes(nodes, int(reply[1]))

    async def remove_node(self, record: NodeRecord) -> None:
        """Remove this node's entry, if it is still this incarnation's."""
        await self._one(NODES, self._renewal(record, 1, "remove"))

    @staticmethod
    def _renewal(record: NodeRecord, ttl_ms: int, mode: str) -> Command:
        return (
            "EVALSHA",
            scripts.NODE_RENEW.digest,
            1,
            NODES,
            record.node_id,
            str(record.incarnation),
            ttl_ms,
            _pack(record),
            mode,
        )

    # -- metadata log -------------------------------------------------------------------------------------------------

    async def append_metadata(self, version: int, payload: bytes, before: str) -> bool:
        """Append entry `1-<version>`, if the log ends with the entry before it (CM-20). Payloads carry a random id.

        After a lost reply the same entry is sent again. If the store already has it, the write of META_TOUCH after it
        and the WAIT prove it durable. Returns False when another change came first, or a fail-over lost the entry that
        this one was computed from.
        """
        proof = checksum(META_LOG, (_METADATA_EPOCH, version), _METADATA_TYPE, payload)
        add: Command = (
            "EVALSHA", scripts.METADATA_APPEND.digest, 1, META_LOG, version, before, _METADATA_TYPE, payload, proof,
        )  # fmt: skip
        read_back: Command = ("XRANGE", META_LOG, f"1-{version}", f"1-{version}")
        touch: Command = ("SET", META_TOUCH, version)
        try:
            async with asyncio.timeout(self._settings.call_ms / 1000):
                return await self._appended((INFO_REPLICATION, add, touch, read_back), payload)
        except TimeoutError:
            raise StoreUnavailableError(
                f"metadata version {version}: no durable answer in time; it may be in force, read the log first"
            ) from None

    async def _appended(self, commands: tuple[Command, ...], payload: bytes) -> bool:
        """Repeat until enough replicas have the entry under one history, or the log has another entry at its id."""
        wait, pause_ms = self._settings.append_replicas, self._settings.backoff_ms
        while True:
            try:
                answered = await self._queries.once(META_LOG, commands, wait)
            except StoreUnavailableError:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, self._settings.backoff_max_ms)
                await self._queries.refresh_nodes()
                continue
            before, added, _, found = answered.replies
            _require(META_LOG, added)
            if isinstance(found, ErrorReply) or [entry.record for entry in entries(META_LOG, found)] != [payload]:
                return False
            if answered.acked >= wait and parse_replication(before).history == answered.history:
                return True

    async def read_metadata(self, after_version: int, count: int) -> list[StoredMetadata]:
        """Entries above a version, in order, damaged ones included."""
        reply = await self._one(META_LOG, ("XRANGE", META_LOG, f"(1-{after_version}", "+", "COUNT", count))
        found = entries(META_LOG, reply)
        self._damage.note(META_LOG, found)
        return [StoredMetadata(entry.id.seq, entry.record, entry.damage) for entry in found]

    async def skipped_metadata(self) -> frozenset[int]:
        """The versions of damaged entries that nodes skip (CM-103)."""
        return frozenset(entry.seq for entry in await read_skips(self._queries, META_SKIP))

    async def skip_metadata(self, version: int) -> None:
        """Note a version that nodes skip (CM-103)."""
        at = StreamId(_METADATA_EPOCH, version)
        await write_skip(self._queries, META_SKIP, at, self._settings.append_replicas, Settlement())

    async def confirm_metadata(self, version: int, payload: bytes) -> bool:
        """Return whether entry `1-<version>` is this one and is on enough replicas (CM-20).

        A write after it, with a WAIT for as many replicas as an append needs, proves that. Where appends wait for no
        replica, no proof is needed. Raises StoreUnavailableError while too few replicas have the entry.
        """
        wait = self._settings.append_replicas
        if not wait:
            return True
        touch: Command = ("SET", META_TOUCH, version)
        read_back: Command = ("XRANGE", META_LOG, f"1-{version}", f"1-{version}")
        answered = await self._queries.repeat(META_LOG, (INFO_REPLICATION, touch, read_back), wait)
        before, touched, found = answered.replies
        _require(META_LOG, touched)
        _require(META_LOG, found)
        if [entry.record for entry in entries(META_LOG, found)] != [payload]:
            return False
        if answered.acked < wait or parse_replication(before).history != answered.history:
            raise StoreUnavailableError(f"metadata version {version} is not on {wait} replicas as yet")
        return True

    async def trim_metadata(self, below_version: int) -> None:
        """Remove entries below a version."""
        await self._one(META_LOG, ("XTRIM", META_LOG, "MINID", f"1-{below_version}"))

    # -- hints and wake-ups -------------------------------------------------------------------------------------------

    async def put_hints(self, kind: ShardKind, hints: Mapping[str, tuple[int, int]]) -> None:
        """Store owner hints for look-ups."""
        if hints:
            words = [word for name, (node, epoch) in hints.items() for word in (name, f"{node} {epoch}")]
            await self._one(owners_key(kind), ("HSET", owners_key(kind), *words))

    async def remove_hints(self, kind: ShardKind, names: Sequence[str]) -> None:
        """Remove the hints of shards that no longer exist."""
        if names:
            await self._one(owners_key(kind), ("HDEL", owners_key(kind), *names))

    async def hints(self, kind: ShardKind) -> dict[str, tuple[int, int]]:
        """All hints of a kind."""
        reply = await self._one(owners_key(kind), ("HGETALL", owners_key(kind)))
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        return await _all_hints(pairs)

    async def hints_of(self, kind: ShardKind, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """The hints of these shards; a shard without a hint is left out."""
        if not names:
            return {}
        values = await self._one(owners_key(kind), ("HMGET", owners_key(kind), *names))
        return {name: _hint(value) for name, value in zip(names, values, strict=True) if value is not None}

    async def wake(self, reason: str) -> None:
        """PUBLISH on the wake channel."""
        await self._one(WAKE_CHANNEL, ("PUBLISH", WAKE_CHANNEL, reason))

    async def wakes(self) -> AsyncIterator[str]:
        """Yield published reasons, and "subscribed" at the start of each subscription: earlier messages are missed.

        That includes the first subscription: a claim may have been refused before it, and the owner may have released
        the shard since. After a broken connection it subscribes again.
        """
        pause_ms = self._settings.backoff_ms
        while not self._closing.is_set():
            try:
                async for reason in self._subscribed():
                    pause_ms = self._settings.backoff_ms
                    yield reason
            except ConnectionLostError:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(pause_ms * 2, self._settings.backoff_max_ms)
                await self._queries.refresh_nodes()

    async def _subscribed(self) -> AsyncIterator[str]:
        node = self._store.node_of(WAKE_CHANNEL)
        if node is None:
            await self._store.refresh()
            node = self._store.node_of(WAKE_CHANNEL)
        if node is None:
            raise ConnectionLostError("no store node is known")
        connection = await self._store.connect(node)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            replication = await connection.run([INFO_REPLICATION], self._settings.reply_ms)
            if parse_replication(replication[0]).role != "master":
                raise ConnectionLostError(f"store node {node} is not a master")
            (heard,) = await connection.run([("SUBSCRIBE", WAKE_CHANNEL)], self._settings.reply_ms)
            if isinstance(heard, ErrorReply):  # without a subscription, no message would ever arrive
                raise ConnectionLostError(f"store node {node} refuses the subscription: {heard}")
            yield "subscribed"
            while True:
                message = asyncio.ensure_future(connection.message())
                try:
                    await asyncio.wait({message, closing}, return_when=asyncio.FIRST_COMPLETED)
                    if not message.done():
                        return
                finally:  # await it: else its later failure would be logged as never retrieved
                    message.cancel()
                    await asyncio.gather(message, return_exceptions=True)
                yield message.result()[2].decode()
        finally:
            closing.cancel()
            await connection.close()

    async def close(self) -> None:
        """Close every connection, and end `wakes`."""
        self._closing.set()
        await self._queries.close()

    async def _one(self, key: str, command: Command, wait: int = 0) -> Reply:
        answered: Answered = await self._queries.repeat(key, (command,), wait)
        _require(key, answered.replies[0])
        return answered.replies[0]


def _require(key: str, reply: Reply) -> None:
    if key == META_CLUSTER_ID and is_restoring(reply):
        raise IncompleteRestoreError(INCOMPLETE_RESTORE)
    if isinstance(reply, ErrorReply):
        raise StoreUnavailableError(f"{key}: the store refused: {reply}")


async def _all_hints(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, tuple[int, int]]:
    """The hints by name, parsed in slices so that a large cluster's do not block the event loop (CM-96)."""
    hints: dict[str, tuple[int, int]] = {}
    for name, value in pairs:
        hints[name.decode()] = _hint(value)
        if not len(hints) % _HINTS_SLICE:
            await asyncio.sleep(0)
    return hints


def _hint(value: bytes) -> tuple[int, int]:
    node, _, epoch = value.partition(b" ")
    return int(node), int(epoch)


def _pack(record: NodeRecord) -> str:
    return json.dumps(
        {
            "incarnation": str(record.incarnation),
            "name": record.name,
            "address": record.address,
            "roles": sorted(record.roles),
            "rack": record.rack,
            "state": record.state,
            "internal": record.internal_address,
            "access": record.access_control,
            **({"kafka": record.kafka_address} if record.kafka_address else {}),
            **({"external": record.external_address} if record.external_address else {}),
            **({"kafka_external": record.kafka_external_address} if record.kafka_external_address else {}),
        },
        separators=(",", ":"),
    )


def _unpack(node_id: int, data: bytes) -> NodeRecord:
    found = json.loads(data)
    return NodeRecord(
        node_id=node_id,
        incarnation=int(found["incarnation"]),
        name=found["name"],
        address=found["address"],
        roles=frozenset(found["roles"]),
        rack=found["rack"],
        state=found["state"],
        internal_address=found["internal"],
        access_control=found.get("access"),
        kafka_address=found.get("kafka", ""),
        external_address=found.get("external", ""),
        kafka_external_address=found.get("kafka_external", ""),
    )


def _with(record: NodeRecord, node_id: int, incarnation: int) -> NodeRecord:
    return replace(record, node_id=node_id, incarnation=incarnation)
