"""Checks a connection, and each claimed shard on it, before anything is written there (CM-19, CM-20).

Reads and judges; never writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shard_runtime.record_log.protocol import ShardLostError, StreamDeletedError, TailLostError
from shard_runtime.record_log.redis import lease_commands, scripts
from shard_runtime.record_log.redis.claimed_shard import ClaimedShard
from shard_runtime.record_log.redis.codec import entries, stream_id
from shard_runtime.record_log.redis.connection import (
    INFO_REPLICATION,
    Command,
    ConnectionLostError,
    ErrorReply,
    Reply,
    Store,
    StoreConnection,
    is_unavailable,
    parse_replication,
)
from shard_runtime.record_log.redis.keys import INCOMPLETE_RESTORE, META_CLUSTER_ID, is_restoring

_SHARDS_PER_PIPELINE: Final = 64


class NotCheckedError(Exception):
    """The connection must not be used for writes: its node is not a master, belongs to another cluster, or changed
    meanwhile."""


async def check_connection(
    connection: StoreConnection, store: Store, node: str, cluster_id: str | None, timeout_ms: int
) -> str:
    """Load the functions and require a master of this cluster. Returns its history. Raises NotCheckedError."""
    local = store.node_of(META_CLUSTER_ID) == node
    commands: list[Command] = [("SCRIPT", "LOAD", script.source) for script in scripts.ALL]
    commands.append(("GET", META_CLUSTER_ID) if local else ("PING",))
    commands.append(INFO_REPLICATION)
    replies = await connection.run(commands, timeout_ms)
    replication = parse_replication(replies[-1])
    if replication.role != "master":
        raise NotCheckedError(f"the store node {node} is {replication.role or replies[-1]!r}, expected a master")
    for reply in replies[: len(scripts.ALL)]:
        if isinstance(reply, ErrorReply):
            raise NotCheckedError(f"the store node {node} refused to load a function: {reply}")
    if cluster_id is not None:
        found = replies[-2] if local else await _cluster_id(store, timeout_ms)
        require_cluster(node, found, cluster_id)
    return replication.history


async def _cluster_id(store: Store, timeout_ms: int) -> Reply:
    """Read the cluster id from the node that holds it."""
    node = store.node_of(META_CLUSTER_ID)
    if node is None:
        raise ConnectionLostError("no node of the store is known yet")
    connection = await store.connect(node)
    try:
        return (await connection.run([("GET", META_CLUSTER_ID)], timeout_ms))[0]
    finally:
        await connection.close()


def require_cluster(node: str, found: Reply, expected: str) -> None:
    """Raise NotCheckedError unless the store has the expected cluster id, so that a wiped or wrong store is not taken
    for an empty one (CM-20)."""
    if is_restoring(found):
        raise NotCheckedError(f"the store node {node}: {INCOMPLETE_RESTORE}")
    if is_unavailable(found):
        raise NotCheckedError(f"the store node {node} does not serve at present: {found}")
    if isinstance(found, ErrorReply) or found is None:
        raise NotCheckedError(
            f"the store node {node} has no cluster id ({found}), expected {expected}: it may be wiped"
        )
    if found.decode() != expected:
        raise NotCheckedError(f"the store node {node} belongs to cluster {found.decode()}, expected {expected}")


async def check_shards(
    connection: StoreConnection, held: Sequence[ClaimedShard], history: str, timeout_ms: int
) -> None:
    """Read each shard's owner record and tail; resolve flushes of unknown outcome by reading back.

    Raises NotCheckedError when the history changed meanwhile, because no reply counts then, or a read was refused.
    """
    for start in range(0, len(held), _SHARDS_PER_PIPELINE):
        group = held[start : start + _SHARDS_PER_PIPELINE]
        asked = [_check_commands(shard) for shard in group]
        commands = [command for questions in asked for command in questions]
        replies = await connection.run([*commands, INFO_REPLICATION], timeout_ms)
        if parse_replication(replies[-1]) != ("master", history):
            raise NotCheckedError("the store's history changed while its logs were checked")
        for reply in replies:
            if isinstance(reply, ErrorReply):
                raise NotCheckedError(f"the store refused to show a log: {reply}")
        at = 0
        for shard, questions in zip(group, asked, strict=True):
            error = _judge(shard, replies[at : at + len(questions)])
            at += len(questions)
            if error is not None:
                shard.lose(error)
                continue
            shard.checked_on, shard.whole_under = connection, history


def _check_commands(held: ClaimedShard) -> list[Command]:
    asked = [lease_commands.owner_query(held.shard)]
    for stream in held.shard.streams:
        last = held.last[stream].id
        if last < held.trimmed_below(stream):
            asked.append(("EVALSHA", scripts.STREAM_TIP.digest, 1, stream))
        else:
            asked.append(("XRANGE", stream, str(last), str(last)))
    if held.flush is not None and held.flush.needs_read_back:
        asked += held.flush.read_back()
    return asked


def _judge(held: ClaimedShard, replies: Sequence[Reply]) -> ShardLostError | None:
    where = f"shard {held.shard.tag}, epoch {held.epoch}"
    if not lease_commands.is_owner(replies[0], held.incarnation, held.epoch):
        return ShardLostError(f"{where}: its owner record is no longer ours")
    at = 1
    for stream in held.shard.streams:
        last, reply = held.last[stream], replies[at]
        at += 1
        if last.id < held.trimmed_below(stream):
            if reply is None:
                return StreamDeletedError(f"{where}: the stream {stream} is gone")
            if stream_id(reply[0]) < last.id:
                return TailLostError(
                    f"{where}: {stream} ends at {reply[0].decode()}, this owner had confirmed {last.id}"
                )
            continue
        found = entries(stream, reply)
        if found != [last]:
            what = "holds other bytes there" if found else "has no such entry"
            return TailLostError(f"{where}: this owner had confirmed {last.id} in {stream}, the store {what}")
    if held.flush is not None and held.flush.needs_read_back:
        return held.flush.resolve(replies[at:])
    return None
