"""Writes the streams of a backup into an empty store, and keeps nodes off it until all are written (CM-143).

While a restore is incomplete, the key of the cluster id is a hash, the mark. No node of any build starts on such a
store or makes a cluster in it: SET NX does not change a key that exists, and reading a hash as a string is an error.
The last step replaces the hash by the cluster id.

Every call may be repeated, even by a second run that was suspended until the first had ended and nodes used the store:
entries have the backup's ids, and an entry, field or string that exists already is left as it is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final

from shard_runtime.record_log.protocol import LogError, StoreUnavailableError, StreamTip
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.codec import stream_tip
from shard_runtime.record_log.redis.connection import (
    TOO_SMALL,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    Store,
    StoreSettings,
    is_unavailable,
)
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, WAKE_CHANNEL
from shard_runtime.record_log.redis.query_connection import QueryConnections
from shard_runtime.record_log.redis.stream_copies import RawEntry

_CLUSTER_KEY: Final = re.compile(rb"\{(gc|sgs|tp|meta|nodes|owners|txn)[:}]|(gc|sgs):config$")
_SCAN: Final = 1_000
_BACKUP: Final = "backup"
_CLUSTER: Final = "cluster"
_EMPTY: Final = "empty"


class StoreNotEmptyError(LogError):
    """The store holds keys of a cluster, or an incomplete restore of another backup; the message names which."""


class RestoredStreams:
    """Writes a backup into one store. Its calls raise LogError."""

    def __init__(self, store: Store, settings: StoreSettings) -> None:
        self._store = store
        self._settings = settings
        self._queries = QueryConnections(store, settings, None)
        self.unreplicated = False
        """Whether a replica was late with a write; the restore then waits for no replica any more."""

    async def close(self) -> None:
        """Close every connection."""
        await self._queries.close()

    # -- the mark -----------------------------------------------------------------------------------------------------

    async def begin(self, backup_id: str, cluster_id: str) -> str:
        """Mark the store if it is empty or marked by a restore of the same backup. Returns the cluster id in the mark.
        Raises StoreNotEmptyError."""
        await self.require_empty()
        made = await self._mark(_BACKUP, backup_id)
        await self._mark(_CLUSTER, cluster_id)
        backup, cluster, empty = await self._marked()
        if backup != backup_id:
            raise StoreNotEmptyError(
                f"the store holds an incomplete restore of another backup, {backup}; restore that one again, or empty "
                "the store"
            )
        if not empty:  # no restore has written here yet: each notes `empty` first, so any key has another origin
            try:
                await self._queries.answered("of the store", self._require_only_the_mark)
            except StoreNotEmptyError:
                if made:
                    await self._ask(META_CLUSTER_ID, ("DEL", META_CLUSTER_ID))
                raise
            await self._mark(_EMPTY, "1")
        return cluster

    async def require_empty(self) -> None:
        """Raise StoreNotEmptyError for a store that holds a cluster, or a cluster's keys without the mark."""
        (kind,) = await self._ask(META_CLUSTER_ID, ("TYPE", META_CLUSTER_ID))
        if kind == b"string":
            (found,) = await self._ask(META_CLUSTER_ID, ("GET", META_CLUSTER_ID))
            raise StoreNotEmptyError(
                f"the store holds cluster {found.decode(errors='replace')} already, from a restore that has ended or "
                "from nodes that were started on it; a backup is restored into an empty store. Pass another --store or "
                "--data; or empty this one, when what it holds is not needed"
            )
        if kind != b"hash":
            await self._queries.answered("of the store", self._require_only_the_mark)

    async def require_marked(self, backup_id: str) -> None:
        """Raise LogError when this restore's mark is no longer there: the store may be in use by now."""
        (kind,) = await self._ask(META_CLUSTER_ID, ("TYPE", META_CLUSTER_ID))
        if kind != b"hash" or (await self._marked())[0] != backup_id:
            raise LogError(
                "the mark of this restore is gone from the store: another run of it has ended it, so that nodes may "
                "work on the store by now, or the store was emptied meanwhile. Check before you change anything"
            )

    async def finish(self, backup_id: str, cluster_id: str) -> None:
        """Replace the mark by the cluster id: then nodes may start. Raises LogError when the mark is missing."""
        await self.require_marked(backup_id)
        await self._write(META_CLUSTER_ID, ("SET", META_CLUSTER_ID, cluster_id))
        with contextlib.suppress(LogError):  # waiting nodes also check again by themselves
            await self._ask(WAKE_CHANNEL, ("PUBLISH", WAKE_CHANNEL, "restored"))

    async def _mark(self, field: str, value: str) -> bool:
        (reply,) = await self._ask(META_CLUSTER_ID, ("HSETNX", META_CLUSTER_ID, field, value))
        return bool(reply)

    async def _marked(self) -> tuple[str, str, bool]:
        (found,) = await self._ask(META_CLUSTER_ID, ("HMGET", META_CLUSTER_ID, _BACKUP, _CLUSTER, _EMPTY))
        backup, cluster, empty = (b"" if each is None else each for each in found)
        return backup.decode(), cluster.decode(), bool(empty)

    async def _require_only_the_mark(self) -> None:
        """Raise StoreNotEmptyError if the store holds a key of a cluster besides the mark."""
        try:
            await self._store.refresh()
            for node in self._store.nodes:
                found = await self._find_cluster_key(node)
                if found:
                    raise StoreNotEmptyError(
                        f"the store is not empty: it holds {found}; a backup is restored into an empty store"
                    )
        except ConnectionLostError as error:
            raise StoreUnavailableError(str(error)) from error

    async def _find_cluster_key(self, node: str) -> str:
        """A key of a cluster on a node, besides the mark; "" when there is none. Other programs' keys do not count."""
        connection = await self._store.connect(node)
        try:
            cursor: Reply = b"0"
            while True:
                (reply,) = await connection.run([("SCAN", cursor, "COUNT", _SCAN)], self._settings.reply_ms)
                if is_unavailable(reply):
                    raise StoreUnavailableError(f"store node {node}: it answered {reply}")
                if isinstance(reply, ErrorReply):
                    raise LogError(f"store node {node}: checking whether it is empty: it answered {reply}")
                cursor, keys = reply
                for key in keys:
                    if key != META_CLUSTER_ID.encode() and _CLUSTER_KEY.match(key):
                        return str(key.decode(errors="replace"))
                if cursor == b"0":
                    return ""
        finally:
            await connection.close()

    # -- content ------------------------------------------------------------------------------------------------------

    async def append(self, stream: str, entries: Sequence[RawEntry]) -> None:
        """Write entries under their own ids in one transaction; those that exist already are left as they are."""
        adds: list[Command] = [("XADD", stream, str(entry.id), *entry.fields) for entry in entries]
        *_, replies = await self._write(stream, ("MULTI",), *adds, ("EXEC",))
        for reply in replies:
            if isinstance(reply, ErrorReply) and TOO_SMALL not in reply.message:
                raise LogError(f"writing {stream}: the store answered {reply}")

    async def put_hash(self, key: str, fields: dict[bytes, bytes]) -> None:
        """Write the fields of a hash that do not exist yet."""
        await self._write(key, *(("HSETNX", key, name, value) for name, value in fields.items()))

    async def put_string(self, key: str, value: bytes) -> None:
        """Write a string, unless the key exists."""
        await self._write(key, ("SET", key, value, "NX"))

    async def tip(self, stream: str) -> StreamTip | None:
        """The stream's last id, length and first id; None when it does not exist."""
        (reply,) = await self._ask(stream, ("EVALSHA", scripts.STREAM_TIP.digest, 1, stream))
        return None if reply is None else stream_tip(reply)

    async def _write(self, key: str, *commands: Command) -> list[Reply]:
        """Run commands and wait for the connected replicas; after one was late, wait for none any more."""
        replicas = 0 if self.unreplicated else self._queries.connected_replicas(key) or 0
        answered = await self._queries.repeat(key, commands, replicas)
        self.unreplicated = self.unreplicated or answered.acked < replicas
        return _require_no_error(key, answered.replies)

    async def _ask(self, key: str, *commands: Command) -> list[Reply]:
        return _require_no_error(key, (await self._queries.repeat(key, commands)).replies)


def _require_no_error(key: str, replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if isinstance(reply, ErrorReply):
            raise LogError(f"restoring {key}: the store answered {reply}")
    return replies
