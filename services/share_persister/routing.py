"""Finds the shard that has a share-partition's state."""

from __future__ import annotations

from functools import lru_cache

from kip932.ids import SharePartitionKey, shard_index


@lru_cache(maxsize=65_536)
def state_shard(key: SharePartitionKey, shards: int) -> int:
    """Return the shard of a key (SC-3); cached, since hashing the text takes longer than the rest of a lookup."""
    return shard_index(key.text, shards)
