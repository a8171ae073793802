"""The fields and entries of a request are counted in its bytes without parsing, and none passes uncounted (CM-181)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError, Message

from kip932.api.v1 import create_topics_pb2, produce_pb2, share_acknowledge_pb2
from kip932.internal.v1 import write_share_group_state_pb2
from shard_runtime.rpc.fields import FIELDS_MAX, Counted, count, shape_of

Produce = produce_pb2.ProduceRequest


def counted(request: Message) -> Counted:
    return count(request.SerializeToString(), shape_of(request.DESCRIPTOR))


def produce(partitions: int, batches: int) -> Produce:
    request = Produce(acks=-1, timeout_ms=1)
    topic = request.topic_data.add(topic_id=bytes(16))
    for index in range(partitions):
        data = topic.partition_data.add(index=index + 1)
        for _ in range(batches):
            data.batches.add(record_batch=bytes(300), record_count=7)
    return request


@pytest.mark.rule("CM-181")
def test_fields_and_entries_of_nested_lists_are_counted_and_contents_are_passed_over() -> None:
    request = produce(3, 4)
    # acks, timeout; a topic with an id; partitions with an index; batches with bytes and a count
    assert counted(request) == Counted(fields=2 + 2 + 3 * 2 + 12 * 3, entries=2 + 3 + 12 * 2)


@pytest.mark.rule("CM-181")
def test_what_is_empty_counts_as_much_as_what_is_not() -> None:
    request = Produce()
    batches = request.topic_data.add().partition_data.add().batches
    for _ in range(1_000):
        batches.add()
    assert counted(request).entries == 1_002


@pytest.mark.rule("CM-181")
def test_a_message_of_numbers_alone_is_one_entry() -> None:
    request = write_share_group_state_pb2.WriteShareGroupStateRequest()
    partition = request.topics.add(topic_id=bytes(16)).partitions.add()
    for offset in range(1_000):
        partition.state_batches.add(first_offset=offset + 1, last_offset=offset + 1, delivery_state=2, delivery_count=3)
    assert counted(request) == Counted(fields=1_003, entries=1_003)


@pytest.mark.rule("CM-181")
def test_it_ends_at_the_first_field_too_many() -> None:
    request = Produce()
    for _ in range(FIELDS_MAX):
        request.topic_data.add()
    assert counted(request) == Counted(FIELDS_MAX, FIELDS_MAX)
    request.topic_data.add()
    assert counted(request) == Counted(FIELDS_MAX + 1, FIELDS_MAX)


@pytest.mark.rule("CM-181")
@pytest.mark.parametrize(
    "field",
    [
        pytest.param(b"\x08\x01", id="a number"),
        pytest.param(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a long number"),
        pytest.param(b"\x09" + bytes(8), id="eight bytes"),
        pytest.param(b"\x0d" + bytes(4), id="four bytes"),
        pytest.param(b"\x0b\x0c", id="a group"),
        pytest.param(b"\xfa\x7f\x00", id="an unknown field"),
        pytest.param(b"\xa2\x80\x80\x80\x00\x00", id="a field number in more bytes than it needs"),
    ],
)
def test_every_kind_of_field_is_counted(field: bytes) -> None:
    assert count(field * (FIELDS_MAX + 1), shape_of(Produce.DESCRIPTOR)).fields == FIELDS_MAX + 1


def test_entries_after_an_unknown_group_are_found() -> None:
    request = produce(1, 2)
    group = b"\xfb\x7f\xfa\x7f\x02ab\xfc\x7f"
    assert Produce.FromString(group + request.SerializeToString()).topic_data == request.topic_data
    assert (
        count(group + request.SerializeToString(), shape_of(Produce.DESCRIPTOR)).entries == counted(request).entries + 1
    )


def entries_of(message: Message) -> Iterator[object]:
    """Yield every message, string and byte string within a parsed message."""
    for field, value in message.ListFields():
        values: Any = value if field.is_repeated else [value]
        for one in values:
            if isinstance(one, Message):
                yield one
                yield from entries_of(one)
            elif isinstance(one, (str, bytes)):
                yield one


CHANGES: Final = 300


@pytest.mark.rule("CM-181")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "kind",
    [Produce, create_topics_pb2.CreateTopicsRequest, share_acknowledge_pb2.ShareAcknowledgeRequest, empty_pb2.Empty],
    ids=lambda kind: kind.DESCRIPTOR.name,
)
def test_broken_bytes_are_counted_without_an_error_and_whatever_is_parsed_was_counted(
    kind: type[Message], seed: int
) -> None:
    rng = random.Random(seed)
    data = bytearray(produce(3, 3).SerializeToString() * 2)
    for _ in range(CHANGES):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 8, 10, 18, 26, 34, 128, 255, rng.randrange(256)))
        found = count(bytes(data), shape_of(kind.DESCRIPTOR))
        try:
            parsed = kind.FromString(bytes(data))
        except DecodeError:
            continue
        assert sum(1 for _ in entries_of(parsed)) <= found.entries
