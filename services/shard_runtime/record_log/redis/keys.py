"""Names of keys that belong to no single shard, and a key's slot in a Redis Cluster (CM-2, CM-10, CM-14, CM-20)."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Final

from shard_runtime.record_log.protocol import ShardId, ShardKind

NODES: Final = "{nodes}"
NODE_NAMES: Final = "{nodes}:names"
NODE_NEXT_ID: Final = "{nodes}:next"
META_LOG: Final = "{meta}:log"
META_CLUSTER_ID: Final = "{meta}:cluster"
META_TOUCH: Final = "{meta}:touch"
"""Written after a metadata entry that had to be read back: WAIT only covers what its own connection wrote (CM-19)."""
WAKE_CHANNEL: Final = "{meta}:wake"

SLOTS: Final = 16384


def owners_key(kind: ShardKind) -> str:
    """The key of the hash of a kind's owner hints (CM-14)."""
    return "{owners}:" + kind.value


def shard_of_stream(stream: str) -> ShardId:
    """The shard that a stream belongs to, by its hash tag. Raises ValueError for a key of no shard."""
    kind, _, name = stream[1 : stream.index("}")].partition(":")
    return ShardId(ShardKind(kind), name)


def slot_of(key: str) -> int:
    """The Redis Cluster slot of a key: CRC-16 of its hash tag when that is not empty, else of the whole key."""
    start = key.find("{")
    if start >= 0:
        end = key.find("}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key.encode(), 0) % SLOTS
