"""The door to stored batches knows Kafka's format by the first byte, and checks it within the same bounds."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932 import kafka_records
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.compression.frames import MoreBytesError
from kip932.compression.kinds import Compression, frames_of
from kip932.entry_checksum import crc32c
from kip932.errors import (
    CorruptMessageError,
    InvalidRecordError,
    KafkaError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kip932.ids import BATCH_FIELDS_MAX, BATCH_PLAIN_BYTES_MAX, BATCH_RECORDS_MAX
from kip932.kafka_records import HEADER, HEADER_BYTES, Row, encode, encode_headers, zigzag
from kip932.record_batches import base_timestamp_of, check_batch, compression_of, open_batch
from tests.support.kafka_made import kafka_batch, values
from tests.support.missing_codecs import without

ROOM = BATCH_PLAIN_BYTES_MAX + (1 << 20)
GOOD = kafka_batch(values(b"a", b"b"))
LIBRARY_KINDS = [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
EMPTY: Row = (None, None, 0, None)


def with_crc(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def of(content: bytes, count: int, kind: Compression = Compression.NONE) -> bytes:
    """A batch whose header says `count` records, whatever is in `content`."""
    packed = frames_of(kind).compress(content, None) if kind else content
    header = (0, HEADER_BYTES + len(packed) - 12, -1, 2, 0, kind, count - 1, 5, 9, -1, -1, -1, count)
    return with_crc(HEADER.pack(*header) + packed)


def changed(at: int, value: bytes) -> bytes:
    """A good batch with other bytes at one place, and a checksum of them."""
    return with_crc(GOOD[:at] + value + GOOD[at + len(value) :])


@pytest.mark.rule("CM-221")
def test_what_the_check_costs_is_the_bytes_that_it_reads() -> None:
    assert check_batch(GOOD, 2, len(GOOD)) == len(GOOD)
    with pytest.raises(MoreBytesError):
        check_batch(GOOD, 2, len(GOOD) - 1)
    content = encode([(None, bytes(5_000), 0, None)])
    packed = of(content, 1, Compression.GZIP)
    assert check_batch(packed, 1, len(packed) + len(content)) == len(packed) + len(content)
    with pytest.raises(MoreBytesError):
        check_batch(packed, 1, len(packed) + len(content) - 1)


@pytest.mark.rule("CM-221")
@pytest.mark.parametrize("at", range(17, len(GOOD)))
def test_any_changed_byte_after_the_magic_is_found_by_the_checksum(at: int) -> None:
    data = GOOD[:at] + bytes((GOOD[at] ^ 0x01,)) + GOOD[at + 1 :]
    with pytest.raises((CorruptMessageError, InvalidRecordError)):
        check_batch(data, 2, ROOM)


@pytest.mark.rule("CM-221")
@pytest.mark.parametrize(
    ("data", "count", "error", "said"),
    [
        (changed(16, b"\x01"), 2, UnsupportedForMessageFormatError, "magic 1"),
        (GOOD[:17] + b"wide" + GOOD[21:], 2, CorruptMessageError, "the checksum of the record batch is 77696465, its"),
        (GOOD[:-1], 2, InvalidRecordError, "its header says"),
        (GOOD + b"\0", 2, InvalidRecordError, "its header says"),
        (GOOD[:40], 2, CorruptMessageError, "40 bytes; expected at least 61"),
        (GOOD, 1, InvalidRecordError, "says 2 records; 1 were announced"),
        (GOOD, BATCH_RECORDS_MAX + 1, InvalidRecordError, "at most 100000"),
        (changed(22, b"\x20"), 2, InvalidRecordError, "control batch"),
        (changed(22, b"\x08"), 2, InvalidRecordError, "LogAppendTime"),
        (changed(22, b"\x05"), 2, InvalidRecordError, "compression 5; expected one of 0"),
        (changed(22, b"\x01"), 2, CorruptMessageError, "gzip"),
        (changed(23, struct.pack(">i", 2)), 2, InvalidRecordError, "2 records and 2 as the last offset delta"),
        (of(encode([EMPTY] * 3), 2), 2, InvalidRecordError, "more records than the 2"),
        (of(encode([EMPTY]), 2), 2, InvalidRecordError, "1 records; its header says 2"),
        (of(zigzag(90) + bytes(6), 1), 1, CorruptMessageError, "longer than the rest"),
    ],
)
def test_a_batch_that_is_not_what_it_says_is_refused(
    data: bytes, count: int, error: type[KafkaError], said: str
) -> None:
    with pytest.raises(error, match=said):
        check_batch(data, count, ROOM)


@pytest.mark.rule("CM-222")
def test_a_reader_does_not_verify_the_checksum_and_says_corrupt_for_everything_else() -> None:
    wrong = GOOD[:17] + b"wide" + GOOD[21:]
    base_ms, records = open_batch(wrong, 2)
    assert (base_ms, [record.value for record in records]) == (1_000, [b"a", b"b"])
    for data, count in ((changed(16, b"\x01"), 2), (GOOD[:-1], 2), (GOOD[:40], 2), (GOOD, 3), (b"\0", 1)):
        with pytest.raises(CorruptMessageError):
            open_batch(data, count)
    with pytest.raises(UnsupportedCompressionTypeError, match="compression 5, which this version does not know"):
        open_batch(changed(22, b"\x05"), 2)


@pytest.mark.rule("CM-221", "CM-222", "CM-116")
@pytest.mark.parametrize("kind", LIBRARY_KINDS, ids=[kind.label for kind in LIBRARY_KINDS])
def test_a_kind_without_its_library_is_neither_checked_nor_opened(kind: Compression) -> None:
    data = kafka_batch(values(b"a"), kind)
    assert compression_of(data) == kind
    with without(kind.label):
        for check in (partial(check_batch, data, 1, ROOM), partial(open_batch, data, 1)):
            with pytest.raises(UnsupportedCompressionTypeError, match=rf"pip install 'sharegroups\[{kind.label}\]'"):
                check()
    assert check_batch(data, 1, ROOM) > len(data)


@pytest.mark.rule("CM-221", "CM-222", "CM-112")
@pytest.mark.parametrize("kind", [Compression.GZIP, *LIBRARY_KINDS])
def test_a_bomb_is_left_off_at_the_first_bound(kind: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    many = of(zigzag(6) + bytes(6), 5)[HEADER_BYTES:] * 4_000_000
    headers = b"\0\0\0\x01\x01" + zigzag(10_000_000) + b"\0\x01" * 10_000_000
    bombs = [
        (of(many, 5, kind), 5, "more records than the 5"),
        (of(zigzag(len(headers)) + headers, 1, kind), 1, "keys"),
    ]
    zeros = of(bytes(BATCH_PLAIN_BYTES_MAX + 1), 1, kind)
    with pytest.raises((MoreBytesError, CorruptMessageError)):
        check_batch(zeros, 1, ROOM)
    monkeypatch.setattr(kafka_records, "BATCH_FIELDS_MAX", BATCH_FIELDS_MAX // 8)
    for data, count, said in bombs:
        assert len(data) < 4 << 20
        tracemalloc.start()
        try:
            with pytest.raises(KafkaError, match=said):
                check_batch(data, count, ROOM)
            assert tracemalloc.get_traced_memory()[1] < 48 << 20
        finally:
            tracemalloc.stop()
        with pytest.raises(CorruptMessageError):
            open_batch(data, count)


@pytest.mark.rule("CM-221")
def test_a_large_batch_is_checked_field_by_field_and_lets_others_run() -> None:
    breaths: list[int] = []
    rows: list[Row] = [(b"key", bytes(30), 1, encode_headers([("a", b"1"), ("b", None)]))] * 30_000
    content = encode(rows)
    for kind in (Compression.NONE, Compression.GZIP):
        breaths.clear()
        data = of(content, 30_000, kind)
        cost = check_batch(data, 30_000, ROOM, lambda: breaths.append(1))
        assert cost == len(data) + bool(kind) * (len(content) + 30_000 * 6 * 32)
        assert len(breaths) > 50
        assert len(open_batch(data, 30_000)[1]) == 30_000
    bad = bytearray(content)
    bad[content.rindex(b"key") - 1] = 0x0C  # the last record's key is longer than its record
    bad[-1] = 0x7E
    with pytest.raises(CorruptMessageError, match="fields of a record"):
        check_batch(of(bytes(bad), 30_000), 30_000, ROOM)


@pytest.mark.rule("CM-225")
def test_the_base_timestamp_is_read_from_either_format_and_is_unknown_for_other_bytes() -> None:
    assert base_timestamp_of(GOOD) == 1_000
    assert base_timestamp_of(RecordBatch(base_timestamp_ms=5).SerializeToString()) == 5
    for data in (GOOD[:30], changed(16, b"\x01"), b"\xff\xff"):
        assert base_timestamp_of(data) is None


@pytest.mark.rule("CM-221", "CM-222")
@given(data=st.binary(max_size=200), count=st.integers(1, 2**31 - 1), kind=st.sampled_from(Compression))
def test_any_bytes_are_answered_with_an_error_or_a_count(data: bytes, count: int, kind: Compression) -> None:
    for raw in (b"\0" + data, of(data, min(count, BATCH_RECORDS_MAX), kind)):
        try:
            check_batch(raw, count, ROOM)
        except (CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError):
            continue
        assert count <= BATCH_RECORDS_MAX


@pytest.mark.rule("CM-222")
def test_a_client_decodes_without_the_checksums_library() -> None:
    code = (
        "import sys\n"
        "sys.modules['google_crc32c'] = None\n"
        "from kip932.record_batches import open_batch\n"
        f"print([bytes(one.value) for one in open_batch({GOOD!r}, 2)[1]])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.stderr) == ("[b'a', b'b']\n", "")
