"""A client reports a stored batch with false counts as an error, within bounds, whatever the leader says (CL-110)."""

from __future__ import annotations

import gzip
import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.errors import CorruptMessageError
from kip932.ids import ACK_RELEASE, TopicIdPartition
from sharegroups.connection import wire
from sharegroups.consuming.share_messages import DELIVERY_OFFSETS_MAX, Locked, delivered
from sharegroups.messages import Messages

PARTITION = TopicIdPartition(bytes(16), 0)
SESSION = cast(Any, SimpleNamespace())
ENORMOUS = 2**31 - 1


def packed(plain: bytes) -> bytes:
    return RecordBatch(compression=1, compressed_records=gzip.compress(plain)).SerializeToString()


@pytest.mark.rule("CL-110")
@pytest.mark.parametrize("filler", [0, 300_000], ids=["29 bytes", "300 KB"])
@pytest.mark.parametrize("explicit", [True, False])
def test_an_enormous_batch_of_an_older_leader_costs_no_memory(filler: int, explicit: bool) -> None:
    """Before this rule, the messages of a poll and the array of acknowledge types had 2^31-1 entries."""
    assert DELIVERY_OFFSETS_MAX == 200_000
    data = RecordBatch(compression=1, compressed_records=gzip.compress(b"\x12\x00") + bytes(filler)).SerializeToString()
    part = ShareFetchResponse.PartitionResult()
    part.records.add(base_offset=7, count=ENORMOUS, batch=data)
    part.acquired_records.add(first_offset=7, last_offset=7 + ENORMOUS - 1, delivery_count=1)
    tracemalloc.start()
    try:
        taken = delivered("t", PARTITION, Locked(SESSION, 1), part).delivered
        messages = Messages([taken])
        assert 0 < len(messages) <= DELIVERY_OFFSETS_MAX
        assert len(messages.records()) == len(messages)
        assert isinstance(messages[0].error(), CorruptMessageError)
        assert messages[0].offset() == 7
        if explicit:
            assert taken.delivery.acknowledge(7, ACK_RELEASE)
        taken.delivery.accept_rest()
        acks = taken.delivery.take()
        assert acks[0].first == 7
        assert acks[-1].last < 7 + DELIVERY_OFFSETS_MAX
        assert sum(len(ack.types) for ack in acks) < 100
        assert tracemalloc.get_traced_memory()[1] < 96 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.rule("CL-110")
def test_a_bomb_is_an_unreadable_batch() -> None:
    for plain, reported in (
        (b"\x12\x00" * 10_000_000, "more records than the 1"),
        (bytes((0x12, 0x80, 0x80, 0x80, 0x08)) + b"\x1a\x00" * (1 << 23), "headers"),
        (RecordBatch(records=[Record(value=bytes(65 << 20))]).SerializeToString(), "decompressed"),
    ):
        found = wire.decode(FetchedBatch(base_offset=3, count=1, batch=packed(plain)))
        assert found.records == ()
        assert reported in str(found.error)
        assert "offsets 3 to 3" in str(found.error)
