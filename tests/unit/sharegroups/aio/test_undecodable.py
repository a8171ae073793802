"""A consumer that gets a batch without having its library: no record is lost, accepted or used up (CL-111)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import UnsupportedCompressionTypeError
from sharegroups import AcknowledgeType
from sharegroups.aio import ShareConsumer
from sharegroups.messages import Message
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.log import Log
from tests.support.fake_cluster.stories import EXPLICIT, consumer, on_fake_cluster, produce, released
from tests.support.missing_codecs import without


def produce_with(fake: FakeCluster, number: int, count: int = 3, partition: int = 0) -> None:
    """Append a batch with this compression number; if the number is unknown, the batch has unreadable bytes."""
    plain = RecordBatch(records=[Record(value=b"v")] * count).SerializeToString()
    known = number in set(Compression)
    packed = frames_of(Compression(number)).compress(plain, None) if known else b"?"
    data = RecordBatch(compression=number, compressed_records=packed).SerializeToString()
    fake.log("t", partition).append(data, count)
    fake.notify()


def poor(fake: FakeCluster, *names: str, **settings: Any) -> ShareConsumer:
    """A consumer that lacks these libraries."""
    with without(*names):
        return consumer(fake, **settings)


async def refused(c: ShareConsumer, polls: int = 3) -> str:
    """Poll several times; return the error text, which must be the same each time."""
    texts = set()
    for _ in range(polls):
        with pytest.raises(UnsupportedCompressionTypeError) as raised:
            await c.poll(5)
        texts.add(raised.value.message)
    await asyncio.sleep(1)
    (text,) = texts
    return text


async def closed(c: ShareConsumer) -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        await c.close()


@pytest.mark.rule("CL-111")
@on_fake_cluster()
async def test_a_consumer_names_what_it_can_decompress(fake: FakeCluster) -> None:
    async with consumer(fake) as rich:
        rich.subscribe(["t"])
        await rich.poll(1)
    assert {tuple(request.compression_types) for request in fake.fetches} == {(2, 3, 4)}
    fake.fetches.clear()
    async with poor(fake, "lz4", "snappy") as c:
        c.subscribe(["t"])
        await c.poll(1)
    assert {tuple(request.compression_types) for request in fake.fetches} == {(4,)}


@pytest.mark.rule("CL-111", "PL-257")
@on_fake_cluster(partitions=2)
async def test_the_records_go_to_a_member_that_has_the_library_as_a_first_delivery(
    fake: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of the two members has one partition; the one without the library gives up its partition by leaving."""
    one, two = poor(fake, "zstd"), consumer(fake)
    for c in (one, two):
        c.subscribe(["t"])
        await c.poll(2)
    for c in (one, two):
        await c.poll(6)
    assert len(fake.members) == 2
    for partition in (0, 1):
        produce_with(fake, 4, partition=partition)
    text = await refused(one)
    assert text.startswith(("t-0: ", "t-1: "))
    assert "pip install 'sharegroups[zstd]'" in text
    assert "leaves group 'g'" in text
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [text], "once"
    found: list[Message] = []
    while len(found) < 6:
        found += await two.poll(20)
    assert {(message.partition(), message.offset(), message.delivery_count()) for message in found} == {
        (partition, offset, 1) for partition in (0, 1) for offset in (0, 1, 2)
    }
    assert len(fake.members) == 1
    await closed(one)
    await two.close()


@pytest.mark.rule("CL-111", "CL-113")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
@on_fake_cluster()
async def test_a_batch_that_comes_all_the_same_is_released_once_and_not_fetched_again(
    fake: FakeCluster, mode: str
) -> None:
    """An older leader ignores the member's compression types, so its records use up one delivery, however often poll is
    called."""
    c = consumer(fake, **{"share.acknowledgement.mode": mode})
    c.subscribe(["t"])
    await c.poll(1)
    produce_with(fake, 3)
    with without("lz4"):
        text = await refused(c, polls=7)
    assert text.startswith("t-0: the batch with offsets 0 to 2 cannot be read: this Python has no library for lz4 ")
    assert "Try: pip install 'sharegroups[lz4]'" in text
    assert {fake.states("t")[offset] for offset in range(3)} == {"available"}
    assert [count for _, _, count in fake.log("t").states["g"].values()] == [1] * 3
    assert released(fake) == [(0, 2, [2], [0])], "at once, whatever the group's back-off (CL-113)"
    assert fake.members == {}
    async with consumer(fake) as rich:
        rich.subscribe(["t"])
        assert [message.delivery_count() for message in await rich.poll(5)] == [2, 2, 2]
    await closed(c)


@pytest.mark.rule("CL-111")
@on_fake_cluster()
async def test_a_compression_of_a_later_version_is_neither_corrupt_nor_accepted(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "unreadable", lambda *_: None)
    c = consumer(fake)
    c.subscribe(["t"])
    await c.poll(1)
    produce_with(fake, 9)
    text = await refused(c)
    assert "it has compression 9, which this version does not know; it knows 0 (none), 1 (gzip)" in text
    assert fake.states("t")[0] == "available"
    await closed(c)


@pytest.mark.rule("CL-111")
@on_fake_cluster(partitions=2)
async def test_what_was_acknowledged_is_sent_and_what_lies_in_the_buffer_is_released(fake: FakeCluster) -> None:
    c = consumer(fake, **EXPLICIT)
    produce(fake, 2)
    c.subscribe(["t"])
    one, two = await c.poll(5)
    produce(fake, 2)
    produce_with(fake, 2, 2, partition=1)
    with without("snappy"):
        c.acknowledge(one)
        c.acknowledge(two, AcknowledgeType.REJECT)
        await refused(c)
    states = fake.log("t", 0).states["g"]
    assert {offset: state[0] for offset, state in states.items()} == {
        0: "acknowledged",
        1: "archived",
        2: "available",
        3: "available",
    }
    assert {state[0] for state in fake.log("t", 1).states["g"].values()} == {"available"}
    await closed(c)


@pytest.mark.rule("CL-111", "CL-8")
@on_fake_cluster()
async def test_unsubscribing_and_subscribing_again_does_not_bring_it_back(fake: FakeCluster) -> None:
    c = poor(fake, "zstd")
    c.subscribe(["t"])
    await c.poll(1)
    produce_with(fake, 4)
    await refused(c)
    c.unsubscribe()
    c.subscribe(["t"])
    await refused(c)
    assert fake.members == {}
    await closed(c)
