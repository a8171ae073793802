"""The fields of a dead letter, and how dead letters are divided into batches."""

from __future__ import annotations

import pytest

from kip932.api.v1.record_batch_pb2 import Header, Record, RecordBatch
from kip932.compression.kinds import Compression
from kip932.record_batches import check_batch
from partition_leader.dead_letters.letter_codec import PREFIX, Origin, Source, decoded, fits, hops_of, letter, packed
from partition_leader.share_partition.core.effects import DLQ_CLIENT_REJECT, DLQ_DELIVERY_COUNT_EXCEEDED
from partition_leader.topic_log.core.batch import LogBatch
from tests.support.kafka_made import Made, kafka_batch

ORIGIN = Origin("g", "orders", 3, "topic-id")


def names(record: Record) -> list[tuple[str, bytes | None]]:
    return [(header.key, header.value if header.HasField("value") else None) for header in record.headers]


@pytest.mark.rule("PL-909")
def test_a_letter_without_copy_has_its_headers_in_order_and_a_key_that_names_it() -> None:
    made = letter(ORIGIN, 17, 2, DLQ_CLIENT_REJECT, now_ms=1_000)
    assert (made.record.key, made.record.HasField("value"), made.timestamp_ms) == (b"g:orders:3:17", False, 1_000)
    assert names(made.record) == [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"3"),
        ("__dlq.errors.offset", b"17"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
        ("__dlq.errors.topic.id", b"topic-id"),
    ]


@pytest.mark.rule("PL-911")
def test_a_copy_keeps_what_the_record_had_and_leaves_out_headers_that_would_pass_for_the_servers() -> None:
    source = Record(key=b"k", value=b"v")
    source.headers.add(key="a", value=b"1")
    source.headers.add(key=PREFIX + "topic", value=b"forged")
    source.headers.add(key="a")
    made = letter(ORIGIN, 1, 5, DLQ_DELIVERY_COUNT_EXCEEDED, now_ms=9, source=Source(source, 77))
    assert (made.record.key, made.record.value, made.timestamp_ms) == (b"k", b"v", 77)
    assert names(made.record)[:2] == [("a", b"1"), ("a", None)]
    assert names(made.record)[-2] == (PREFIX + "message", b"Offset delivery count exceeded the threshold.")
    assert len(made.record.headers) == 9
    assert source.headers[1] == Header(key=PREFIX + "topic", value=b"forged"), "the source is left as it is"


@pytest.mark.rule("PL-943", "PL-911")
def test_the_reason_is_the_first_of_the_servers_headers_and_one_of_the_source_is_not_copied() -> None:
    source = Record(value=b"v")
    source.headers.add(key="a", value=b"1")
    source.headers.add(key=PREFIX + "reason", value=b"that of an earlier letter")
    for given in (None, Source(source, 77)):
        made = letter(ORIGIN, 1, 5, DLQ_CLIENT_REJECT, now_ms=9, source=given, hops=2, reason="ValueError: ä\nb")
        keys = [key for key, _ in names(made.record) if key.startswith(PREFIX)]
        assert keys[:2] == [PREFIX + "reason", PREFIX + "topic"]
        assert (keys[-1], len(keys)) == (PREFIX + "hops", 9)
        assert dict(names(made.record))[PREFIX + "reason"] == "ValueError: ä\nb".encode()
        assert hops_of(Source(made.record, 9)) == 2, "the chain is counted as without it"


@pytest.mark.rule("PL-911")
def test_null_keys_and_values_stay_null() -> None:
    made = letter(ORIGIN, 1, 5, DLQ_CLIENT_REJECT, now_ms=9, source=Source(Record(value=b""), 77))
    assert not made.record.HasField("key")
    assert (made.record.HasField("value"), made.record.value) == (True, b"")


@pytest.mark.rule("PL-911", "CM-225")
@pytest.mark.parametrize("kind", Compression)
def test_a_record_of_kafkas_format_is_copied_into_a_letter_of_our_own(kind: Compression) -> None:
    made: list[Made] = [(None, b"", [("a", None), (PREFIX + "topic", b"forged")], 70), (b"k", None, [("b", b"2")], 71)]
    data = kafka_batch(made, kind)
    opened = decoded(LogBatch(5, 6, len(data), data, 1_000, 71))
    assert opened is not None
    base_ms, records = opened
    sources = [Source(record, base_ms + record.timestamp_delta_ms) for record in records]
    assert [hops_of(source) for source in sources] == [1, 0]
    letters = [letter(ORIGIN, 5, 1, DLQ_CLIENT_REJECT, now_ms=9, source=source) for source in sources]
    (batch,) = packed(letters, 10_000).batches
    assert batch.data[0] != 0
    copied = RecordBatch.FromString(batch.data)
    assert [copied.base_timestamp_ms + one.timestamp_delta_ms for one in copied.records] == [70, 71]
    first, second = copied.records
    assert (first.HasField("key"), first.HasField("value"), first.value) == (False, True, b"")
    assert (second.key, second.HasField("value")) == (b"k", False)
    assert names(first)[:2] == [("a", None), (PREFIX + "topic", b"orders")]
    assert names(second)[:1] == [("b", b"2")]


@pytest.mark.rule("PL-911")
def test_batches_stay_within_the_limit_and_keep_all_letters_in_order() -> None:
    made = [letter(ORIGIN, offset, 1, DLQ_CLIENT_REJECT, now_ms=1_000 + offset) for offset in range(100)]
    limit = 1_000
    found = packed(made, limit)
    assert len(found.batches) > 20
    assert all(len(batch.data) <= limit for batch in found.batches)
    assert found.size == sum(len(batch.data) for batch in found.batches)
    seen: list[tuple[bytes, int]] = []
    for batch in found.batches:
        assert check_batch(batch.data, batch.record_count, 1 << 20) > 0
        opened = RecordBatch.FromString(batch.data)
        times = [opened.base_timestamp_ms + record.timestamp_delta_ms for record in opened.records]
        assert batch.max_timestamp_ms == max(times)
        seen += [(record.key, at) for record, at in zip(opened.records, times, strict=True)]
    assert seen == [(f"g:orders:3:{offset}".encode(), 1_000 + offset) for offset in range(100)]


@pytest.mark.rule("PL-911")
def test_a_timestamp_that_no_batch_of_letters_could_hold_is_exchanged_for_the_present_one() -> None:
    times = [-(2**63), -(2**62) - 1, -(2**62), 2**62 - 1, 2**62, 2**63 - 1, 2**64 - 2]  # the last: base plus delta
    made = [
        letter(ORIGIN, offset, 1, DLQ_CLIENT_REJECT, now_ms=1_000, source=Source(Record(value=b"v"), time))
        for offset, time in enumerate(times)
    ]
    (batch,) = packed(made, 10_000).batches
    opened = RecordBatch.FromString(batch.data)
    kept = [opened.base_timestamp_ms + record.timestamp_delta_ms for record in opened.records]
    assert kept == [1_000, 1_000, -(2**62), 2**62 - 1, 1_000, 1_000, 1_000]
    assert [record.value for record in opened.records] == [b"v"] * len(times)


@pytest.mark.rule("PL-911")
def test_what_fits_is_what_a_batch_of_its_own_may_have() -> None:
    made = letter(ORIGIN, 1, 5, DLQ_CLIENT_REJECT, now_ms=1_700_000_000_000)
    (batch,) = packed([made], 10_000).batches
    least = next(size for size in range(10, 10_000) if fits(made, size))
    assert len(batch.data) <= least <= len(batch.data) + 18
    assert len(packed([made], least).batches[0].data) <= least


def log_batch(data: bytes, count: int, is_control: bool = False) -> LogBatch:
    return LogBatch(0, count - 1, len(data), data, 0, 0, is_control=is_control)


@pytest.mark.rule("PL-913")
def test_control_batches_and_batches_that_cannot_be_decoded_have_no_records() -> None:
    good = RecordBatch(base_timestamp_ms=5, records=[Record(value=b"x")]).SerializeToString()
    found = decoded(log_batch(good, 1))
    assert found is not None
    assert found[0] == 5
    assert decoded(log_batch(good, 1, is_control=True)) is None
    assert decoded(log_batch(b"\xff\xff", 1)) is None
    assert decoded(log_batch(b"", 1)) is None
