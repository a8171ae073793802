"""Places shards on nodes by a rendezvous hash over the live nodes of a role (CM-11). Pure.

Placement decides which node should claim a shard. Only the owner record gives the right to serve it (CM-2, CM-12).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.record_log.protocol import ShardId, ShardKind

ROLE_GROUP_COORDINATOR: Final = "group_coordinator"
ROLE_SHARE_COORDINATOR: Final = "share_coordinator"
ROLE_PARTITION_LEADER: Final = "partition_leader"
ROLES: Final = frozenset({ROLE_GROUP_COORDINATOR, ROLE_SHARE_COORDINATOR, ROLE_PARTITION_LEADER})

#: The role whose nodes own the shards of a kind.
ROLE_OF_KIND: Final = {
    ShardKind.GROUP: ROLE_GROUP_COORDINATOR,
    ShardKind.SHARE_STATE: ROLE_SHARE_COORDINATOR,
    ShardKind.TOPIC: ROLE_PARTITION_LEADER,
}

NODE_LIVE: Final = "live"
NODE_LEAVING: Final = "leaving"


def weight(shard: ShardId, node_id: int) -> bytes:
    """Return a node's weight for a shard: the same 8 bytes on every platform, compared as bytes."""
    return blake2b(f"{shard.kind.value}|{shard.name}|{node_id}".encode(), digest_size=8).digest()


def target(shard: ShardId, node_ids: Iterable[int]) -> int | None:
    """Return the node of highest weight; None without nodes. When a node joins or leaves, only its own shards move."""
    return max(node_ids, key=lambda node_id: (weight(shard, node_id), node_id), default=None)


def candidates(nodes: Iterable[NodeRecord], kind: ShardKind) -> frozenset[int]:
    """Return the ids of the nodes that may get shards of a kind: live ones of its role, never leaving ones (CM-4)."""
    role = ROLE_OF_KIND[kind]
    return frozenset(node.node_id for node in nodes if node.state == NODE_LIVE and role in node.roles)
