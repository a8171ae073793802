"""Names of keys that belong to no shard, and a key's slot in a Redis Cluster (CM-2, CM-10, CM-14, CM-20)."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Final

from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.record_log.redis.connection import ErrorReply, Reply

NODES: Final = "{nodes}"
NODE_NAMES: Final = "{nodes}:names"
NODE_NEXT_ID: Final = "{nodes}:next"
META_LOG: Final = "{meta}:log"
META_CLUSTER_ID: Final = "{meta}:cluster"
META_TOUCH: Final = "{meta}:touch"
"""Written with each metadata append or confirmation: WAIT only covers what its own connection wrote (CM-19)."""
META_SKIP: Final = "{meta}:skip"
"""The hash of damaged metadata entries that nodes skip, by an operator's decision (CM-103)."""
WAKE_CHANNEL: Final = "{meta}:wake"

INCOMPLETE_RESTORE: Final = (
    "the store holds part of a backup: its restore has not ended, or was interrupted. Run the same `sharegroups "
    "restore` again, which writes what is missing; or empty the store"
)

SLOTS: Final = 16384


def is_restoring(reply: Reply) -> bool:
    """Return whether a reply to a read of the cluster id shows an incomplete restore (CM-143): until it is complete,
    the key is a hash, which cannot be read as a string."""
    return isinstance(reply, ErrorReply) and reply.code == "WRONGTYPE"


def owners_key(kind: ShardKind) -> str:
    """The key of the hash of a kind's owner hints (CM-14)."""
    return "{owners}:" + kind.value


def shard_of_stream(stream: str) -> ShardId:
    """The shard that a stream belongs to, by its hash tag. Raises ValueError for a key that belongs to no shard."""
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


TRANSACTION_PREFIX: Final = "{txn:"


def transaction_id(key: bytes) -> str | None:
    """The transactional id whose record has this key; None for any other key."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    begins = text.startswith(TRANSACTION_PREFIX) and text.endswith("}")
    return text[len(TRANSACTION_PREFIX) : -1] if begins else None


def transaction_key(transactional_id: str) -> str:
    """The key of a transactional id's record (CM-151). No command touches two of them, so it does not matter that a
    brace in the id ends the hash tag early."""
    return TRANSACTION_PREFIX + transactional_id + "}"
