"""The shards that keys name, and slots as the store computes them."""

from __future__ import annotations

import pytest

from shard_runtime.record_log.protocol import ShardId, ShardKind
from shard_runtime.record_log.redis.keys import shard_of_stream, slot_of


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        ("foo", 12182),
        ("somekey", 11058),
        ("foo{hash_tag}", 2515),
        ("bar{hash_tag}", 2515),
        ("{}foo", 9500),
        ("{}f}oo", 6285),
    ],
)
def test_a_slot_is_the_one_that_the_store_gives(key: str, slot: int) -> None:
    """CLUSTER KEYSLOT returns the same values; an empty tag counts as no tag."""
    assert slot_of(key) == slot


def test_a_stream_names_its_shard() -> None:
    shard = ShardId(ShardKind.GROUP, "7")
    assert {shard_of_stream(stream) for stream in shard.streams} == {shard}
