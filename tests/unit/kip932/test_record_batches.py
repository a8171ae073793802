"""A batch's header is checked against its bytes, within bounded memory and without creating an object per record."""

from __future__ import annotations

import gzip
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932 import record_batches
from kip932.api.v1.record_batch_pb2 import Header, Record, RecordBatch
from kip932.compression.frames import MoreBytesError
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import CorruptMessageError, InvalidRecordError, KafkaError, UnsupportedCompressionTypeError
from kip932.ids import BATCH_FIELDS_MAX, BATCH_PLAIN_BYTES_MAX, BATCH_RECORDS_MAX
from kip932.record_batches import (
    PARSED_BYTES_MAX,
    ContentCounter,
    check_batch,
    compression_of,
    open_batch,
    plausible_count,
)
from tests.support.missing_codecs import without

ROOM = BATCH_PLAIN_BYTES_MAX + (1 << 20)
EMPTY_RECORD = b"\x12\x00"
EMPTY_HEADER = b"\x1a\x00"
LIBRARY_KINDS = [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
of_each_kind = pytest.mark.parametrize("kind", LIBRARY_KINDS, ids=[kind.label for kind in LIBRARY_KINDS])
RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=300),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(
            st.builds(Header, key=st.text(max_size=5), value=st.none() | st.binary(max_size=9)), max_size=3
        ),
        timestamp_delta_ms=st.integers(-(2**40), 2**40),
    ),
    min_size=1,
    max_size=20,
)


def packed(plain: bytes, base_timestamp_ms: int = 0, kind: Compression = Compression.GZIP) -> bytes:
    packed_records = frames_of(kind).compress(plain, None)
    return RecordBatch(
        base_timestamp_ms=base_timestamp_ms, compression=kind, compressed_records=packed_records
    ).SerializeToString()


def peak_of(data: bytes, announced: int, opens: bool = False) -> int:
    """Return the peak memory, in bytes of Python objects, while a batch is checked or opened; the batch must be
    refused."""
    tracemalloc.start()
    try:
        with pytest.raises((KafkaError, MoreBytesError)):
            open_batch(data, announced) if opens else check_batch(data, announced, ROOM)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.rule("CM-112")
@given(records=RECORDS, cuts=st.lists(st.integers(1, 40), min_size=1), kind=st.sampled_from(Compression))
def test_honest_batches_pass_and_are_counted_alike_in_pieces_of_any_size(
    records: list[Record], cuts: list[int], kind: Compression
) -> None:
    plain = RecordBatch(records=records).SerializeToString()
    if kind is Compression.NONE:
        data = RecordBatch(base_timestamp_ms=7, records=records).SerializeToString()
    else:
        data = packed(plain, base_timestamp_ms=7, kind=kind)
    count = len(records)
    assert check_batch(data, count, ROOM) == len(data) + len(plain) * bool(kind)
    base_ms, opened = open_batch(data, count)
    assert (base_ms, list(opened)) == (7, records)
    for wrong in (count - 1, count + 1):
        with pytest.raises(InvalidRecordError):
            check_batch(data, wrong, ROOM)
        with pytest.raises(CorruptMessageError):
            open_batch(data, wrong)
    counter = ContentCounter(count)
    at = number = 0
    while at < len(plain):
        size = cuts[number % len(cuts)]
        counter.feed(plain[at : at + size])
        at, number = at + size, number + 1
    assert counter.finish() == count
    if len(plain) > 1:
        counter = ContentCounter(count)
        counter.feed(plain[:-1])
        with pytest.raises(CorruptMessageError, match="ends inside"):
            counter.finish()


@pytest.mark.rule("CM-112", "CL-110")
def test_29_bytes_that_say_two_thousand_million_records_cost_nothing() -> None:
    """Earlier, such batches were stored, and the leader and the client built ranges of that size."""
    liar = packed(EMPTY_RECORD)
    assert len(liar) < 40
    for announced in (2**31 - 1, BATCH_RECORDS_MAX, 2):
        with pytest.raises(InvalidRecordError, match="records"):
            check_batch(liar, announced, ROOM)
        with pytest.raises(CorruptMessageError):
            open_batch(liar, announced)
        assert peak_of(liar, announced) < 1 << 21
    assert plausible_count(2**31 - 1, len(liar)) == BATCH_RECORDS_MAX
    assert plausible_count(2**31 - 1, 1000) == 516_000
    assert plausible_count(3, len(liar)) == 3
    assert plausible_count(1, 0) == 1


@pytest.mark.rule("CM-112", "CL-110")
def test_as_many_records_as_a_batch_may_have_are_believed_of_few_bytes() -> None:
    """zstd packs them into 45 bytes; with gzip's bounds all but 23,000 of them would be treated as a hole, and lost."""
    data = packed(EMPTY_RECORD * BATCH_RECORDS_MAX, kind=Compression.ZSTD)
    assert len(data) < 60
    assert check_batch(data, BATCH_RECORDS_MAX, ROOM) > 2 * BATCH_RECORDS_MAX
    assert plausible_count(BATCH_RECORDS_MAX, len(data)) == BATCH_RECORDS_MAX
    assert len(open_batch(data, BATCH_RECORDS_MAX)[1]) == BATCH_RECORDS_MAX


@pytest.mark.rule("CM-112", "CM-116")
@of_each_kind
def test_a_kind_without_its_library_is_neither_checked_nor_opened(kind: Compression) -> None:
    data = packed(EMPTY_RECORD, kind=kind)
    with without(kind.label):
        for check in (partial(check_batch, data, 1, ROOM), partial(open_batch, data, 1)):
            with pytest.raises(UnsupportedCompressionTypeError, match=rf"pip install 'sharegroups\[{kind.label}\]'"):
                check()
    assert check_batch(data, 1, ROOM) > len(data)


@pytest.mark.rule("PL-257")
@given(kind=st.sampled_from(Compression), base=st.integers(-(2**40), 2**40), records=st.integers(1, 3))
def test_the_kind_of_a_stored_batch_is_found_in_its_outer_fields(kind: Compression, base: int, records: int) -> None:
    plain = RecordBatch(records=[Record(value=b"\x18\x04")] * records).SerializeToString()
    data = packed(plain, base, kind) if kind else RecordBatch(base_timestamp_ms=base).SerializeToString() + plain
    assert compression_of(data) == kind


@pytest.mark.rule("PL-257")
def test_the_kind_is_found_wherever_its_field_is_as_protobuf_finds_it() -> None:
    kind, records, strange = b"\x18\x04", b"\x22\x03abc", b"\x78\x01\x7d\x01\x02\x03\x04\x79" + bytes(8) + b"\x7a\x02xy"
    for data in (records + kind, strange + kind + records, b"\x18\x02" + records + kind, kind + records + strange):
        assert RecordBatch.FromString(data).compression == 4
        assert compression_of(data) == 4
    negative = RecordBatch(compression=-3, compressed_records=b"x").SerializeToString()
    assert compression_of(negative) == -3
    assert compression_of(kind + records + b"\xff\xff\xff") == 4, "what follows is the reader's trouble"
    assert compression_of(b"") == 0
    assert compression_of(b"\x78\x01" * 100_000 + kind) == 0, "bounded: the member that gets it finds out"


@given(data=st.binary(max_size=60))
def test_the_kind_of_any_bytes_is_a_number(data: bytes) -> None:
    assert isinstance(compression_of(data), int)


@pytest.mark.rule("CM-112", "CM-116")
def test_an_unknown_kind_is_refused_with_those_that_are_known() -> None:
    data = RecordBatch(compression=7, compressed_records=b"x").SerializeToString()
    known = r"0 \(none\), 1 \(gzip\), 2 \(snappy\), 3 \(lz4\), 4 \(zstd\)"
    with pytest.raises(InvalidRecordError, match=f"compression 7; expected one of {known}"):
        check_batch(data, 1, ROOM)
    with pytest.raises(UnsupportedCompressionTypeError, match=f"compression 7, .*{known}"):
        open_batch(data, 1)


@pytest.mark.rule("CM-112", "CL-110")
@pytest.mark.parametrize(
    ("plain", "announced", "reported"),
    [
        (EMPTY_RECORD * 20_000_000, 5, "more records"),
        (bytes((0x12,)) + b"\x80\xda\xc4\x09" + EMPTY_HEADER * 10_000_000, 1, "headers"),
        (b"\x12\x80\x80\x80\x1f" + b"\x40\x01" * (BATCH_PLAIN_BYTES_MAX // 2), 1, "headers"),
        (bytes(BATCH_PLAIN_BYTES_MAX // 2), 1, "field 0"),
    ],
    ids=["records", "headers", "unknown fields", "zeros"],
)
def test_a_bomb_is_left_off_at_the_first_bound(
    plain: bytes, announced: int, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed(plain)
    assert len(data) < 1 << 20
    assert BATCH_FIELDS_MAX < 10_000_000
    with pytest.raises(KafkaError, match=reported):
        check_batch(data, announced, ROOM)
    del plain
    # No field is kept, and tracing every allocation takes long, so an eighth of the fields shows the same.
    monkeypatch.setattr(record_batches, "BATCH_FIELDS_MAX", BATCH_FIELDS_MAX // 8)
    assert peak_of(data, announced) < 4 << 20
    assert peak_of(data, announced, opens=True) < 12 << 20


@pytest.mark.rule("CM-112", "CL-110")
@of_each_kind
def test_a_bomb_of_any_kind_is_left_off_as_one_of_gzip(kind: Compression) -> None:
    """None of its sixteen million records becomes an object."""
    data = packed(EMPTY_RECORD * (1 << 24), kind=kind)
    assert len(data) < 2 << 20
    with pytest.raises(KafkaError, match="more records than the 5"):
        check_batch(data, 5, ROOM)
    assert peak_of(data, 5) < 6 << 20
    assert peak_of(data, 5, opens=True) < 12 << 20


@pytest.mark.rule("CM-112")
def test_one_record_may_have_64_mib_when_decompressed_and_no_more() -> None:
    value = bytes(BATCH_PLAIN_BYTES_MAX - 20)
    fits = packed(RecordBatch(records=[Record(value=value)]).SerializeToString())
    assert check_batch(fits, 1, ROOM) > BATCH_PLAIN_BYTES_MAX - 20
    over = packed(RecordBatch(records=[Record(value=value + bytes(40))]).SerializeToString())
    with pytest.raises(MoreBytesError):
        check_batch(over, 1, ROOM)
    with pytest.raises(CorruptMessageError, match="decompressed"):
        open_batch(over, 1)


@pytest.mark.rule("CM-112")
def test_a_caller_with_little_room_is_sent_elsewhere() -> None:
    plain = RecordBatch(records=[Record(value=bytes(5000))]).SerializeToString()
    data = packed(plain)
    with pytest.raises(MoreBytesError):
        check_batch(plain, 1, len(plain) - 1)
    with pytest.raises(MoreBytesError):
        check_batch(data, 1, len(data) + len(plain) - 1)
    assert check_batch(data, 1, len(data) + len(plain)) == len(data) + len(plain)


@pytest.mark.rule("CM-112")
def test_a_long_walk_breathes() -> None:
    breaths: list[int] = []
    records = [Record(value=b"abc")] * 100_000
    plain = RecordBatch(records=records).SerializeToString() + b"\x28\x00" * 300_000
    check_batch(packed(plain), len(records), ROOM, lambda: breaths.append(1))
    assert len(breaths) > 50
    check_batch(RecordBatch(records=records[:5]).SerializeToString(), 5, ROOM, lambda: pytest.fail("a short one"))


@pytest.mark.rule("CM-112")
def test_a_large_plain_batch_is_walked_through_before_it_is_parsed() -> None:
    many = EMPTY_RECORD * (PARSED_BYTES_MAX // 2 + 1)
    assert peak_of(many, 5) < 4 << 20
    with pytest.raises(InvalidRecordError, match="more records than the 5"):
        check_batch(many, 5, ROOM)
    honest = RecordBatch(records=[Record(value=bytes(600_000))] * 3).SerializeToString()
    assert check_batch(honest, 3, ROOM) == len(honest)


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize(
    "data",
    [
        packed(EMPTY_RECORD)[:-3],
        RecordBatch(compression=1, compressed_records=b"no gzip").SerializeToString(),
        RecordBatch(compression=1, compressed_records=gzip.compress(EMPTY_RECORD)[:-4]).SerializeToString(),
        RecordBatch(compression=1, compressed_records=gzip.compress(EMPTY_RECORD) + b"more").SerializeToString(),
        RecordBatch(compression=1, compressed_records=gzip.compress(b"\x12\x05ab")).SerializeToString(),
        RecordBatch(compression=1, records=[Record()]).SerializeToString(),
        RecordBatch(compression=7, compressed_records=b"x").SerializeToString(),
        RecordBatch(records=[Record()], compressed_records=b"x").SerializeToString(),
        b"\xff\xff\xff",
    ],
    ids=[
        "cut", "no gzip", "no end", "more than a frame", "no records", "twice", "unknown", "both", "no message",
    ],  # explicit ids: gzip frames contain the time, and two processes must collect the same tests
)  # fmt: skip
def test_what_is_no_batch_is_refused(data: bytes) -> None:
    with pytest.raises((CorruptMessageError, InvalidRecordError)):
        check_batch(data, 1, ROOM)


@given(data=st.binary(max_size=200), announced=st.integers(1, 2**31 - 1))
def test_any_bytes_are_answered_with_an_error_or_a_count(data: bytes, announced: int) -> None:
    for raw in (data, packed(data)):
        try:
            check_batch(raw, announced, ROOM)
        except (CorruptMessageError, InvalidRecordError):
            continue
        assert len(open_batch(raw, announced)[1]) == announced
