"""A consumer receives records that a client of Kafka's produced, among those of our own producers (CM-222)."""

from __future__ import annotations

import pytest

from kip932.compression.kinds import Compression
from kip932.errors import CorruptMessageError
from kip932.kafka_batches import stored
from sharegroups import TopicPartition
from sharegroups.aio import Admin
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce
from tests.support.kafka_made import Made, kafka_batch, values

RECORDS: list[Made] = [
    (None, None, [], 7),
    (b"", b"", [("", None), ("h", b"")], 5),
    (b"k" * 100, b"v" * 20_000, [("h", b"1"), ("h", b"2")], 9_000_000),
]


def append(fake: FakeCluster, *batches: tuple[bytes, int]) -> None:
    for data, count in batches:
        fake.log("t").append(data, count)
    fake.notify()


@pytest.mark.rule("CM-222")
@pytest.mark.parametrize("kind", Compression)
@on_fake_cluster()
async def test_keys_values_headers_and_times_are_those_that_were_produced(fake: FakeCluster, kind: Compression) -> None:
    produce(fake, value=b"own")
    append(fake, (stored(kafka_batch(RECORDS, kind)), 3))
    async with consumer(fake) as c:
        c.subscribe(["t"])
        found = list(await c.poll(5))
        while len(found) < 4:
            found += await c.poll(5)
    assert {tuple(request.batch_formats) for request in fake.fetches} == {(2,)}
    assert [(one.offset(), one.error()) for one in found] == [(0, None), (1, None), (2, None), (3, None)]
    assert found[0].value() == b"own0"
    assert [(one.key(), one.value(), one.headers(), one.timestamp()[1]) for one in found[1:]] == RECORDS
    assert [len(one) for one in found[1:]] == [0, 0, 20_000]


@pytest.mark.rule("CM-222")
@on_fake_cluster()
async def test_deserializers_get_the_bytes_of_kafkas_records(fake: FakeCluster) -> None:
    append(fake, (stored(kafka_batch(RECORDS)), 3))
    async with consumer(fake, **{"key.deserializer": len, "value.deserializer": len}) as c:
        c.subscribe(["t"])
        found = list(await c.poll(5))
        assert [(one.key(), one.value()) for one in found] == [(None, None), (0, 0), (100, 20_000)]


@pytest.mark.rule("CM-222", "CL-110")
@on_fake_cluster()
async def test_a_damaged_batch_is_delivered_as_errors_and_the_next_one_is_read(fake: FakeCluster) -> None:
    data = stored(kafka_batch(values(b"a", b"b")))
    append(fake, (data[:61] + b"\x03" + data[62:], 2), (data, 2))
    async with consumer(fake, **EXPLICIT) as c:
        c.subscribe(["t"])
        found = list(await c.poll(5))
        while len(found) < 4:
            found += await c.poll(5)
        assert [type(one.error()) for one in found] == [CorruptMessageError] * 2 + [type(None)] * 2
        assert "the batch with offsets 0 to 1 cannot be read" in str(found[0].error())
        assert [one.value() for one in found] == [None, None, b"a", b"b"]


@pytest.mark.rule("CM-225", "CL-92")
@on_fake_cluster()
async def test_records_are_read_by_offset_from_a_batch_of_kafkas_format(fake: FakeCluster) -> None:
    append(fake, (stored(kafka_batch(RECORDS, Compression.LZ4)), 3))
    async with Admin({"bootstrap.servers": fake.bootstrap}, transport=fake.transport()) as admin:
        read = await admin.read_records(TopicPartition("t", 0), 1)
    assert [(one.offset, one.key, one.value, list(one.headers), one.timestamp_ms) for one in read.records] == [
        (1, *RECORDS[1]),
        (2, *RECORDS[2]),
    ]
