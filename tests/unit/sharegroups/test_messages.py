"""The messages of a poll: what the deserializers get, and how many objects Python's collector has to inspect."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Record, RecordBatch
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.errors import CorruptMessageError
from kip932.ids import TopicIdPartition
from sharegroups.consuming.share_messages import Locked, delivered
from sharegroups.errors import KeyDeserializationError, ValueDeserializationError
from sharegroups.messages import Delivered, Deserializer, Messages

_SESSION = cast(Any, SimpleNamespace())


def _delivery(records: list[Record], data: bytes | None = None) -> list[Delivered]:
    """One delivery of one batch; `data` replaces its bytes."""
    packed = RecordBatch(base_timestamp_ms=1_000, records=records).SerializeToString()
    batch = FetchedBatch(base_offset=7, count=len(records), batch=packed if data is None else data)
    part = ShareFetchResponse.PartitionResult(records=[batch])
    part.acquired_records.add(first_offset=7, last_offset=6 + len(records), delivery_count=2)
    return [delivered("t", TopicIdPartition(bytes(16), 0), Locked(_SESSION, 1), part).delivered]


def _refuse(data: bytes) -> Any:
    raise ArithmeticError(data)


def test_for_each_record_that_is_read_there_is_one_object_that_the_collector_visits() -> None:
    found = _delivery([Record(key=b"k", value=b"%d" % number) for number in range(400)])
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        messages = Messages(found)
        assert [message.value() for message in messages] == [b"%d" % number for number in range(400)]
        assert all(message.key() == b"k" and message.timestamp() == (1, 1_000) for message in messages)
        assert 400 <= gc.get_count()[0] - before < 420
    finally:
        gc.enable()


@pytest.mark.parametrize("index", [0, 399])
def test_a_message_stays_the_same_object_however_it_is_reached(index: int) -> None:
    messages = Messages(_delivery([Record(value=b"v")] * 400))
    assert messages[index] is list(messages)[index] is messages.records()[index] is messages[index:][0]
    assert messages[index].offset() == 7 + index


def _upper(data: bytes) -> str:
    return data.decode().upper()


@pytest.mark.parametrize(
    ("for_key", "for_value", "key", "value", "error"),
    [
        (_upper, None, "K", b"v", None),
        (None, _upper, b"k", "V", None),
        (lambda _: None, lambda _: None, None, None, None),
        (lambda _: 0, lambda _: "", 0, "", None),
        (_refuse, _upper, b"k", "V", KeyDeserializationError),
        (_upper, _refuse, "K", b"v", ValueDeserializationError),
        (_refuse, _refuse, b"k", b"v", ValueDeserializationError),
    ],
)
def test_key_and_value_are_what_the_deserializers_return_even_nothing_and_the_raw_bytes_where_one_fails(
    for_key: Deserializer | None, for_value: Deserializer | None, key: Any, value: Any, error: type[Exception] | None
) -> None:
    (message,) = Messages(_delivery([Record(key=b"k", value=b"v")]), for_key, for_value)
    assert (message.key(), message.value()) == (key, value)
    assert type(message.error()) is (error or type(None))
    assert (message.topic(), message.partition(), message.offset(), message.delivery_count()) == ("t", 0, 7, 2)


def test_deserializers_are_given_no_null_and_nothing_of_a_batch_that_cannot_be_read() -> None:
    (null,) = Messages(_delivery([Record()]), _refuse, _refuse)
    assert (null.key(), null.value(), null.headers(), null.error()) == (None, None, [], None)
    (corrupt,) = Messages(_delivery([Record(value=b"v")], b"\xff"), _refuse, _refuse)
    assert (corrupt.key(), corrupt.value(), corrupt.headers(), corrupt.timestamp()[0]) == (None, None, [], 1)
    assert isinstance(corrupt.error(), CorruptMessageError)
    assert "offset" in str(corrupt.error())


def test_the_deserializers_run_once_for_each_record() -> None:
    ran: list[bytes] = []
    messages = Messages(_delivery([Record(value=b"a"), Record(value=b"b")]), None, ran.append)
    assert [message.value() for message in messages] == [message.value() for message in messages] == [None, None]
    assert ran == [b"a", b"b"]
