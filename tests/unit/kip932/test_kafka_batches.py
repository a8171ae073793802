"""Batches in Kafka's format: what is stored of them, what is served, and what another implementation reads of it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st

from kip932.api.v1.record_batch_pb2 import FetchedBatch, Header, Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.entry_checksum import crc32c
from kip932.errors import CorruptMessageError, UnsupportedForMessageFormatError
from kip932.kafka_batches import (
    for_kafka_client,
    from_native,
    header_of,
    is_kafka_batch,
    marker,
    served,
    split,
    stored,
)
from kip932.record_batches import check_batch, open_batch
from tests.support.kafka_made import Made
from tests.support.kafka_made import kafka_batch as kafkas

ROOM = 1 << 22
NAMES = st.text(max_size=5)
TIMES = st.integers(0, 2**42)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=3),
        TIMES,
    ),
    min_size=1,
    max_size=20,
)


def native(records: list[Made], kind: Compression = Compression.NONE) -> bytes:
    base_ms = records[0][3]
    made = [
        Record(
            key=key,
            value=value,
            headers=[Header(key=name, value=content) for name, content in headers],
            timestamp_delta_ms=timestamp_ms - base_ms,
        )
        for key, value, headers, timestamp_ms in records
    ]
    if kind is Compression.NONE:
        return RecordBatch(base_timestamp_ms=base_ms, records=made).SerializeToString()
    packed = frames_of(kind).compress(RecordBatch(records=made).SerializeToString(), None)
    return RecordBatch(base_timestamp_ms=base_ms, compression=kind, compressed_records=packed).SerializeToString()


def read_by_aiokafka(data: bytes) -> list[Made]:
    batch: Any = DefaultRecordBatch(bytearray(data))
    assert batch.validate_crc()
    return [(record.key, record.value, record.headers, record.timestamp) for record in batch]


def read_here(data: bytes, count: int) -> list[Made]:
    base_ms, records = open_batch(data, count)
    return [
        (
            record.key if record.HasField("key") else None,
            record.value if record.HasField("value") else None,
            [(one.key, one.value if one.HasField("value") else None) for one in record.headers],
            base_ms + record.timestamp_delta_ms,
        )
        for record in records
    ]


@pytest.mark.rule("CM-220", "CM-221", "CM-222")
@given(records=RECORDS, kind=st.sampled_from(Compression))
def test_what_another_client_wrote_is_accepted_and_read_as_it_was_meant(records: list[Made], kind: Compression) -> None:
    data = kafkas(records, kind)
    header = header_of(data)
    assert (header.count, header.size, header.last_offset_delta) == (len(records), len(data), len(records) - 1)
    assert header.max_timestamp_ms == max(record[3] for record in records)
    assert check_batch(data, len(records), ROOM) >= len(data)
    assert read_here(stored(data), len(records)) == records


@pytest.mark.rule("CM-223")
@given(records=RECORDS, kind=st.sampled_from(Compression), base=st.integers(0, 2**60))
def test_a_batch_of_our_own_format_is_read_by_another_client(records: list[Made], kind: Compression, base: int) -> None:
    data = from_native(
        native(records, kind), len(records), base, leader_epoch=4, producer_id=77, producer_epoch=1, base_sequence=9
    )
    header = header_of(data)
    assert header.compression == kind
    assert (header.base_offset, header.leader_epoch) == (base, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 1, 9)
    assert header.max_timestamp_ms == max(record[3] for record in records)
    assert read_by_aiokafka(data) == records
    assert check_batch(stored(data), len(records), ROOM) >= len(data)
    assert [(record.offset, record.timestamp) for record in DefaultRecordBatch(bytearray(data))] == [
        (base + place, record[3]) for place, record in enumerate(records)
    ]


@pytest.mark.rule("CM-220")
@given(records=RECORDS, base=st.integers(0, 2**62), epoch=st.integers(0, 2**31 - 1))
def test_twelve_bytes_differ_between_what_was_sent_stored_and_served(
    records: list[Made], base: int, epoch: int
) -> None:
    sent = struct.pack(">q", 12) + kafkas(records)[8:]
    kept = stored(sent)
    assert is_kafka_batch(kept)
    assert (header_of(kept).base_offset, header_of(kept).leader_epoch) == (0, -1)
    parts = served(kept, base, epoch)
    data = b"".join(parts)
    assert (header_of(data).base_offset, header_of(data).leader_epoch) == (base, epoch)
    assert data[8:12] + data[16:] == kept[8:12] + kept[16:] == sent[8:12] + sent[16:]
    assert isinstance(parts[1], memoryview)
    assert parts[1].obj is kept, "it is not copied"
    assert [record.offset for record in DefaultRecordBatch(bytearray(data))] == [
        base + place for place in range(len(records))
    ]


@pytest.mark.rule("CM-220")
def test_the_first_byte_shows_the_format() -> None:
    record: Made = (None, b"v", [], 5)
    assert is_kafka_batch(kafkas([record]))
    for other in (b"", native([record]), RecordBatch(records=[Record()]).SerializeToString()):
        assert not is_kafka_batch(other)


@pytest.mark.rule("CM-220")
def test_the_records_of_a_produce_are_cut_into_batches() -> None:
    one, two = kafkas([(None, b"a", [], 1)]), kafkas([(None, b"b", [], 1), (b"k", None, [], 2)])
    assert split(one + two) == [one, two]
    assert split(memoryview(two)) == [two]
    assert split(b"") == []
    assert all(part.obj is both for both in [one + two] for part in split(both)), "nothing is copied"
    for cut in (one[:-1], one[:60], one + two[:-1], one + b"\0"):
        with pytest.raises(CorruptMessageError, match="bytes"):
            split(cut)
    for length in (-1, 0, 48, 2**31 - 1):
        with pytest.raises(CorruptMessageError, match="expected 61 to"):
            split(one[:8] + struct.pack(">i", length) + one[12:])


@pytest.mark.rule("CM-221")
def test_older_formats_are_refused_by_their_magic() -> None:
    data = kafkas([(None, b"a", [], 1)])
    for magic in (0, 1, 3):
        with pytest.raises(UnsupportedForMessageFormatError, match=f"magic {magic}; expected 2"):
            header_of(data[:16] + bytes((magic,)) + data[17:])
    with pytest.raises(UnsupportedForMessageFormatError, match="magic 1"):
        header_of(data[:16] + b"\x01" + bytes(17))
    for size in (0, 16, 60):
        with pytest.raises(CorruptMessageError, match="at least 61"):
            header_of(data[:size])


@pytest.mark.rule("CM-223")
@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_a_control_batch_that_says_how_the_transaction_ended(commit: bool) -> None:
    data = marker(41, 3, 900, 2, timestamp_ms=1_000, commit=commit)
    header = header_of(data)
    assert header.is_control
    assert header.is_transactional
    assert not header.is_log_append_time
    assert (header.base_offset, header.leader_epoch, header.count) == (41, 3, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (900, 2, -1)
    assert crc32c(data[21:]) == header.crc
    batch: Any = DefaultRecordBatch(bytearray(data))
    assert batch.is_control_batch
    (record,) = batch
    assert record.key == struct.pack(">hh", 0, commit)


@pytest.mark.rule("CM-223")
def test_each_kind_of_fetched_batch_becomes_what_a_client_of_kafkas_reads() -> None:
    records: list[Made] = [(b"k", b"v", [("h", None)], 7), (None, b"", [], 6)]
    kept = stored(kafkas(records, Compression.GZIP))
    parts = for_kafka_client(FetchedBatch(base_offset=10, count=2, batch=kept), 3)
    assert b"".join(parts) == b"".join(served(kept, 10, 3))
    own = FetchedBatch(
        base_offset=10, count=2, batch=native(records), producer_id=5, producer_epoch=1, is_transactional=True
    )
    data = b"".join(for_kafka_client(own, 3))
    assert read_by_aiokafka(data) == records
    header = header_of(data)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (5, 1, 3)
    control = FetchedBatch(
        base_offset=12, count=1, is_control=True, control_type=1, producer_id=5, producer_epoch=1, append_time_ms=44
    )
    assert b"".join(for_kafka_client(control, 3)) == marker(12, 3, 5, 1, timestamp_ms=44, commit=True)
    with pytest.raises(CorruptMessageError):
        for_kafka_client(FetchedBatch(base_offset=10, count=2, batch=b"\xff"), 3)


@pytest.mark.rule("CM-223")
def test_times_and_epochs_that_kafkas_format_cannot_have_are_limited() -> None:
    data = RecordBatch(
        base_timestamp_ms=2**63 - 1, records=[Record(timestamp_delta_ms=2**62), Record(timestamp_delta_ms=-(2**63))]
    ).SerializeToString()
    header = header_of(from_native(data, 2, 0, producer_id=1, producer_epoch=2**31 - 1))
    assert (header.max_timestamp_ms, header.producer_epoch) == (2**63 - 1, 2**15 - 1)
