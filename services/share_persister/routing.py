"""Which shard a share-partition's state lies on."""

from __future__ import annotations

from functools import lru_cache

from kip932.ids import SharePartitionKey, shard_index


@lru_cache(maxsize=65_536)
def state_shard(key: SharePartitionKey, shards: int) -> int:
    """SC-3's shard of a key, remembered: hashing the text takes longer than the rest of a look-up."""
    return shard_index(key.text, shards)
