"""A batch's header is checked against its bytes before the batch is stored (CM-112), and large requests do not hold the
event loop (CM-113). In an older log, a batch with a false header is read as a hole."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kip932.api.v1 import produce_pb2
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import InvalidRequestError, UnsupportedCompressionTypeError
from kip932.ids import BATCH_RECORDS_MAX, OFFSET_MAX, PARTITION_BATCHES_MAX, PRODUCED_BATCHES_MAX, TopicIdPartition
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.operations import RaiseEndOperation
from partition_leader.topic_log.state import AppendOutcome
from partition_leader.topic_log.topic_log import TopicLog
from partition_leader.topic_rpc import produce_batches
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.budget import Budget, Holder, Share
from tests.support.missing_codecs import without
from tests.unit.partition_leader.topic_log.harness import Cluster, batch, record_bytes

from .requests import Directory, only, request, wire_batch

pytestmark = pytest.mark.asyncio

INT32_MAX = 2**31 - 1


def packed(plain: bytes) -> bytes:
    return RecordBatch(compression=1, compressed_records=gzip.compress(plain)).SerializeToString()


LIAR = packed(b"\x12\x00")


class Roomy(Directory):
    """A directory whose topic allows large batches (max.message.bytes)."""

    def max_message_bytes(self, topic_id: bytes) -> int:
        return 64 << 20


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"record_batch": LIAR, "record_count": INT32_MAX}, 87),
        ({"record_batch": LIAR, "record_count": 2}, 87),
        ({"record_batch": packed(b"\x12\x00" * 3), "record_count": 1}, 87),
        ({"record_batch": LIAR[:-3], "record_count": 1}, 2),
        ({"record_batch": packed(b"\x12\x09abc"), "record_count": 1}, 2),
        ({"record_batch": record_bytes([b""] * 5), "record_count": BATCH_RECORDS_MAX + 1}, 87),
    ],
    ids=["2^31-1", "one more", "fewer", "cut", "no batch", "beyond the limit"],
)
async def test_a_batch_that_lies_is_refused_and_nothing_is_stored(fields: dict[str, Any], code: int) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Roomy(log))
        refused = only(await service.produce(request(wire_batch(), wire_batch(**fields))))
        assert refused.error_code == code, refused.error_message
        assert refused.error_message
        assert log.high_watermark == 0
        assert only(await service.produce(request(wire_batch(record_batch=LIAR, record_count=1)))).error_code == 0


@pytest.mark.rule("CM-112", "CM-116")
@pytest.mark.parametrize("kind", [Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
async def test_batches_of_every_kind_are_checked_and_refused_without_their_library(kind: Compression) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Roomy(log))
        packed_records = frames_of(kind).compress(b"\x12\x00" * 3, None)
        data = RecordBatch(compression=kind, compressed_records=packed_records).SerializeToString()
        honest, liar = (wire_batch(record_batch=data, record_count=count) for count in (3, 4))
        with without(kind.label):
            refused = only(await service.produce(request(wire_batch(), honest)))
            assert refused.error_code == UnsupportedCompressionTypeError.code
            assert f"pip install 'sharegroups[{kind.label}]'" in refused.error_message
        assert only(await service.produce(request(wire_batch(), liar))).error_code == 87
        assert log.high_watermark == 0
        assert only(await service.produce(request(honest))).base_offset == 0
        assert log.high_watermark == 3
        assert (await log.read(0, 1)).batches[0].data == data


@pytest.mark.rule("CM-112", "P-4")
async def test_a_stream_stays_in_order_when_one_request_is_checked_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large compressed request comes between small ones. While it is checked, the event loop keeps running."""
    large = RecordBatch(records=[Record(value=bytes(2_000))] * 1_000).SerializeToString()
    bad = packed(large + b"\x12\x00")
    real, entered, go = produce_batches.check_rest, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(parts: Any) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert go.wait(30)
        real(parts)

    monkeypatch.setattr("partition_leader.topic_rpc.produce.check_rest", slow)
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Roomy(log))
        answers: dict[int, produce_pb2.ProduceResponse.PartitionResult] = {}

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            for number, made in enumerate(
                (
                    wire_batch(3),
                    wire_batch(record_batch=packed(large), record_count=1_000),
                    wire_batch(record_batch=bad, record_count=1_000),
                    wire_batch(2),
                )
            ):
                yield produce_pb2.ProduceStreamRequest(correlation_id=number, request=request(made))

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            answers[answer.correlation_id] = only(answer.response)

        serving = asyncio.ensure_future(service.produce_stream(requests(), write))
        await asyncio.wait_for(entered.wait(), 30)
        other = only(await service.produce(request(wire_batch(1))))  # another caller is served meanwhile
        assert other.base_offset == 3
        go.set()
        await asyncio.wait_for(serving, 60)
        assert [(answers[n].error_code, answers[n].base_offset) for n in range(4)] == [
            (0, 0),
            (0, 4),
            (87, -1),
            (0, 1_004),
        ]


@pytest.mark.rule("CM-112")
async def test_large_requests_of_several_callers_are_checked_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers of CM-112 (d) that one request is checked at a time; not the size from which this applies, nor the order,
    nor any other clause."""
    large = packed(RecordBatch(records=[Record(value=bytes(2_000))] * 1_000).SerializeToString())
    real, inside, most = produce_batches.check_rest, 0, 0

    def watched(parts: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.05)  # the other requests arrive meanwhile
        real(parts)
        inside -= 1

    monkeypatch.setattr("partition_leader.topic_rpc.produce.check_rest", watched)
    async with Cluster() as cluster:
        service = ProduceService(Roomy(await cluster.node().lead()))
        made = [service.produce(request(wire_batch(record_batch=large, record_count=1_000))) for _ in range(4)]
        assert [only(answer).error_code for answer in await asyncio.gather(*made)] == [0] * 4
    assert most == 1


@pytest.mark.rule("CM-92")
@pytest.mark.parametrize("ends", ["answered", "cancelled"])
async def test_what_a_stream_sent_is_counted_while_it_waits_to_be_checked(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """All streams of a node wait for one thread. Before the fix, no budget included the requests that waited for it."""
    large = packed(RecordBatch(records=[Record(value=bytes(2_000))] * 1_000).SerializeToString())
    real, entered, go = produce_batches.check_rest, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(parts: Any) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert go.wait(30)
        real(parts)

    monkeypatch.setattr("partition_leader.topic_rpc.produce.check_rest", slow)
    budget = Budget(64 << 20)
    caller = CallContext(
        "peer", "connection", lambda: None, share=Share(budget, Holder("connection")), message_bytes=len(large)
    )
    async with Cluster() as cluster:
        service = ProduceService(Roomy(await cluster.node().lead()))

        async def requests() -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
            yield produce_pb2.ProduceStreamRequest(request=request(wire_batch(record_batch=large, record_count=1_000)))

        async def write(answer: produce_pb2.ProduceStreamResponse) -> None:
            assert only(answer.response).error_code == 0

        serving = asyncio.ensure_future(service.produce_stream(requests(), write, caller))
        await asyncio.wait_for(entered.wait(), 30)
        assert budget.used_bytes == len(large)
        if ends == "cancelled":
            serving.cancel()
        go.set()
        await asyncio.wait({serving}, timeout=60)
        assert budget.used_bytes == 0


@pytest.mark.rule("CM-112")
async def test_one_request_is_unpacked_up_to_a_bound() -> None:
    bomb = packed(RecordBatch(records=[Record(value=bytes(30 << 20))]).SerializeToString())
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Roomy(log))
        one = wire_batch(record_batch=bomb)
        assert only(await service.produce(request(one, one))).error_code == 0
        refused = only(await service.produce(request(one, one, one)))
        assert refused.error_code == 87
        assert "several requests" in refused.error_message
        assert log.high_watermark == 2


@pytest.mark.rule("CM-113")
async def test_a_request_of_many_batches_is_taken_in_steps_or_refused_whole() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        service = ProduceService(Directory(log))
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        many = request(*[wire_batch()] * PARTITION_BATCHES_MAX)
        for index in range(1, PRODUCED_BATCHES_MAX // PARTITION_BATCHES_MAX):
            many.topic_data[0].partition_data.add(index=index).batches.extend([wire_batch()] * PARTITION_BATCHES_MAX)
        beside = asyncio.ensure_future(others())
        try:
            taken = await service._take(many, NO_CALLER)
        finally:
            beside.cancel()
        assert turns >= PRODUCED_BATCHES_MAX // PARTITION_BATCHES_MAX
        await taken.wait()
        stored = only(await taken.response())
        assert (stored.error_code, len(stored.base_offsets)) == (0, PARTITION_BATCHES_MAX)
        assert log.high_watermark == PARTITION_BATCHES_MAX
        refused = only(await service.produce(request(*[wire_batch()] * (PARTITION_BATCHES_MAX + 1))))
        assert refused.error_code == 42
        assert str(PARTITION_BATCHES_MAX) in refused.error_message
        with pytest.raises(InvalidRequestError, match=str(PRODUCED_BATCHES_MAX)):
            await service.produce(request(*[wire_batch()] * (PRODUCED_BATCHES_MAX + 1)))
        assert log.high_watermark == PARTITION_BATCHES_MAX


class Waves(Directory):
    """A directory that leads every partition itself; batches are stored a millisecond after they arrive."""

    def __init__(self) -> None:
        self.forbidden = False
        self.under_way = self.most = 0

    def log(self, partition: TopicIdPartition) -> Any:
        return self

    def check_leader(self) -> None:
        """Do nothing: this node is the leader."""

    def submit(self, batches: list[NewBatch], timeout_ms: int) -> asyncio.Future[AppendOutcome]:
        assert 0 < timeout_ms <= 5_000
        future = asyncio.get_running_loop().create_future()
        self.under_way += len(batches)
        self.most = max(self.most, self.under_way)

        def stored() -> None:
            self.under_way -= len(batches)
            future.set_result(AppendOutcome((0,) * len(batches), 1, 0))

        asyncio.get_running_loop().call_later(0.001, stored)
        return future


@pytest.mark.rule("CM-113")
async def test_a_request_has_a_bounded_part_of_its_batches_on_the_way_to_the_store() -> None:
    """All partitions of a process share one pipeline: 10,000 batches at once would take a single step of the event
    loop."""
    many = request(wire_batch())
    for index in range(1, 3_000):
        many.topic_data[0].partition_data.add(index=index).batches.extend([wire_batch()] * 3)
    directory = Waves()
    response = await ProduceService(directory).produce(many)
    parts = response.responses[0].partition_responses
    assert len(parts) == 3_000
    assert not any(part.error_code for part in parts)
    assert directory.most <= 1_024


@pytest.mark.rule("CM-112")
async def test_no_offset_passes_the_largest() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await log._do(RaiseEndOperation(log._future(), OFFSET_MAX - 3))
        service = ProduceService(Directory(log))
        assert only(await service.produce(request(wire_batch(2)))).base_offset == OFFSET_MAX - 3
        refused = only(await service.produce(request(wire_batch(2))))
        assert refused.error_code == 1
        assert str(OFFSET_MAX) in refused.error_message
        assert only(await service.produce(request(wire_batch(1)))).base_offset == OFFSET_MAX - 1
        assert log.high_watermark == OFFSET_MAX


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize("follows", [True, False])
async def test_a_lie_in_an_older_log_is_a_hole_after_what_its_bytes_could_hold(follows: bool) -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        await log.append([batch(3), NewBatch(LIAR, INT32_MAX, 5)], 1000)  # as an older leader stored it
        end = 3 + INT32_MAX
        if follows:
            await log.append([batch(2)], 1000)
        assert log.high_watermark == end + 2 * follows
        log = await two.lead()
        read = await log.read(0, 1 << 20)
        assert [found.base_offset for found in read.batches] == [0, 3, *[end] * follows]
        liar = read.batches[1]
        assert liar.record_count == BATCH_RECORDS_MAX
        behind = await log.read(liar.last_offset + 1, 1 << 20)
        assert behind.data_offset == end
        assert [found.base_offset for found in behind.batches] == [end] * follows
        again = log.read_cached(liar.last_offset + 1, 1, 1)
        assert again is not None  # found in memory, so that a share-partition passes the hole
        assert again.data_offset == end
        headers = [found.base_offset async for page in log._reader.headers(0) for found in page]
        assert headers == [0, 3, *[end] * follows]
        await _searches_end(log)


async def _searches_end(log: TopicLog) -> None:
    """Run searches under a time limit: a search that kept returning to the same batch would exceed it."""
    async with asyncio.timeout(30):
        for timestamp in (-3, 0, 4, 5, 1_000):
            await log.offset_for(timestamp)
        await log.retain(10**15, 1, -1)
