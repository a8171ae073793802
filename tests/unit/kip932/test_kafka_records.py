"""The inside of Kafka's batches: headers are checked, records are counted and decoded, and damage is found."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.errors import CorruptMessageError, InvalidRecordError
from kip932.ids import BATCH_RECORDS_MAX
from kip932.kafka_records import (
    HEADER,
    HEADER_BYTES,
    Header,
    KafkaRecords,
    RecordCounter,
    Row,
    checked_header,
    compare_count,
    decode,
    encode,
    encode_headers,
    is_kafka_batch,
    kafka_compression_of,
    zigzag,
)

SIZES = st.sampled_from([0, 1, 63, 64, 65, 8191, 8192, 20_000]) | st.integers(0, 300)
CONTENT = st.none() | SIZES.map(bytes) | st.binary(max_size=70)
DELTAS = st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 20_000)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3)
ROWS = st.lists(st.tuples(CONTENT, CONTENT, DELTAS, HEADERS.map(encode_headers)), min_size=1, max_size=12)
ONE: Row = (None, b"v", 0, None)


def rows_of(records: KafkaRecords) -> list[Row]:
    return [
        (
            record.key if record.HasField("key") else None,
            record.value if record.HasField("value") else None,
            record.timestamp_delta_ms,
            encode_headers([(one.key, one.value if one.HasField("value") else None) for one in record.headers]),
        )
        for record in records
    ]


def header(data: bytes, **changed: int) -> bytes:
    """`data`, which are the records, after a header with these values."""
    size = HEADER_BYTES + len(data) - 12
    usual = Header(0, size, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    return HEADER.pack(*usual._replace(**changed)) + data


@pytest.mark.rule("CM-222")
@given(rows=ROWS)
def test_records_come_back_as_they_were_encoded(rows: list[Row]) -> None:
    data = encode(rows)
    found = decode(b"before" + data, 6, len(rows))
    assert rows_of(found) == rows
    assert rows_of(found[1:]) == rows[1:]
    assert [one.value for one in found] == [found[place].value for place in range(len(found))]


@pytest.mark.rule("CM-221")
@given(rows=ROWS, cuts=st.lists(st.integers(1, 40), min_size=1))
def test_records_are_counted_by_lengths_and_by_fields_alike(rows: list[Row], cuts: list[int]) -> None:
    data, count = encode(rows), len(rows)
    compare_count(data, 0, count)
    counter = RecordCounter(count)
    at = number = 0
    while at < len(data):
        size = cuts[number % len(cuts)] * (1 + len(data) // 4_000)
        counter.feed(data[at : at + size])
        at, number = at + size, number + 1
    assert counter.finish() == count
    assert counter.bytes == len(data)
    headers = [decode(data, 0, count)[place].headers for place in range(count)]
    assert counter.fields == sum(2 + 2 * len(of_one) for of_one in headers)
    for wrong in (count - 1, count + 1):
        with pytest.raises(InvalidRecordError, match="records"):
            compare_count(data, 0, wrong)
        with pytest.raises(CorruptMessageError):
            decode(data, 0, wrong)
    short = RecordCounter(count)
    short.feed(data[:-1])
    with pytest.raises(CorruptMessageError, match="inside a record"):
        short.finish()
    with pytest.raises(InvalidRecordError, match="more records"):
        RecordCounter(count - 1).feed(data)


@pytest.mark.rule("CM-222")
@given(rows=ROWS, data=st.data())
def test_any_damage_gives_records_or_an_error_of_ours(rows: list[Row], data: st.DataObject) -> None:
    good = bytearray(encode(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    bad = bytes(good[: data.draw(st.integers(0, len(good)))])
    count = data.draw(st.integers(1, 15))
    with suppress(CorruptMessageError, InvalidRecordError):
        found = decode(bad, 0, count)
        assert len(found) == len(rows_of(found)) == count
    with suppress(CorruptMessageError, InvalidRecordError):
        compare_count(bad, 0, count)
    with suppress(CorruptMessageError, InvalidRecordError):
        counter = RecordCounter(count)
        counter.feed(bad)
        assert counter.finish() <= count


@pytest.mark.rule("CM-221")
@pytest.mark.parametrize(
    ("record", "count", "said"),
    [
        (zigzag(-1), 1, "length below 6"),
        (zigzag(5) + bytes(5), 1, "length below 6"),
        (zigzag(-(1 << 20)) + bytes(9), 1, "length below 6"),
        (b"\xff" * 6, 1, "more than 5 bytes"),
        (zigzag(1 << 30), 1, "longer than the rest"),
        (zigzag(100) + bytes(6), 1, "longer than the rest"),
    ],
)
def test_a_length_that_no_record_has_is_found(record: bytes, count: int, said: str) -> None:
    with pytest.raises(CorruptMessageError, match=said):
        compare_count(record, 0, count)


@pytest.mark.rule("CM-222")
@pytest.mark.parametrize(
    "fields",
    [
        b"\0\0\0\x01\x01\x02",  # a header, and the record ends
        b"\0\0\0\x01\x01\x01",  # −1 headers
        b"\0\0\0\x03\x01\0",  # a key of −2 bytes
        b"\0\0\0\x01\x14\0",  # a value beyond the record
        b"\0\0\0\x01\x01\0\0",  # a byte is left
        b"\0\0\0\x01\x01\x02\x01\x01",  # a header without a name
        b"\0" + b"\xff" * 11 + b"\0\0\0",  # a timestamp of more than ten bytes
    ],
)
def test_fields_that_do_not_fill_their_record_are_found(fields: bytes) -> None:
    data = zigzag(len(fields)) + fields
    with pytest.raises(CorruptMessageError):
        decode(data, 0, 1)
    with pytest.raises(CorruptMessageError):
        RecordCounter(1).feed(data)


@pytest.mark.rule("CM-221", "CM-222")
def test_a_million_headers_are_refused_before_they_take_memory() -> None:
    pairs = b"\0\x01" * 1_100_000
    fields = b"\0\0\0\x01\x01" + zigzag(1_100_000) + pairs
    data = zigzag(len(fields)) + fields
    tracemalloc.start()
    try:
        for refused in (partial(decode, data, 0, 1), partial(RecordCounter(1).feed, data)):
            with pytest.raises(InvalidRecordError, match="1000000 keys, values and headers"):
                refused()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.rule("CM-221")
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"size": 55}, "has 69 bytes; its header says 67"),
        ({"count": 0, "last_offset_delta": -1}, "says 0 records"),
        ({"count": -5, "last_offset_delta": -6}, "says -5 records"),
        ({"count": 2}, "2 records and 0 as the last"),
        ({"last_offset_delta": 1}, "1 records and 1 as the last"),
        ({"count": BATCH_RECORDS_MAX + 1, "last_offset_delta": BATCH_RECORDS_MAX}, "expected 1 to 100000"),
        ({"count": 2, "last_offset_delta": 1}, "says 2 records; 1 were announced"),
        ({"attributes": 0x20}, "control batch"),
        ({"attributes": 0x08}, "LogAppendTime"),
        ({"attributes": 0x40}, "delete horizon"),
    ],
)
def test_a_header_that_no_producer_sends_is_refused(changed: dict[str, int], said: str) -> None:
    records = encode([ONE])
    assert checked_header(header(records), 1).count == 1
    with pytest.raises(InvalidRecordError, match=said):
        checked_header(header(records, **changed), 1)


@pytest.mark.rule("CM-220")
@given(data=st.binary(max_size=70))
def test_the_compression_of_any_bytes_is_a_number(data: bytes) -> None:
    assert 0 <= kafka_compression_of(data) < 8
    assert is_kafka_batch(data) == data.startswith(b"\0")


@pytest.mark.rule("CM-222")
def test_a_name_that_is_not_utf_8_is_read_with_a_replacement() -> None:
    headers = b"\x02" + b"\x04\xff\x41" + b"\x01"
    (record,) = decode(encode([(None, None, 0, headers)]), 0, 1)
    (one,) = record.headers
    assert (one.key, one.HasField("value")) == ("\ufffdA", False)
    assert (record.key, record.value) == (b"", b"")
