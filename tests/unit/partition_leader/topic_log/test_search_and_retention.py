"""Offsets by time, log starts, retention."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import threading

import pytest

from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.errors import OffsetOutOfRangeError
from kip932.ids import OFFSET_EARLIEST, OFFSET_LATEST, OFFSET_MAX_TIMESTAMP
from kip932.record_batches import open_batch
from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.settings import TopicLogSettings
from partition_leader.topic_log.topic_log import TopicLog
from shard_runtime.record_log.protocol import Entry, StreamId
from tests.support.clocks import WALL_MS
from tests.support.kafka_made import kafka_batch
from tests.support.small_limits import PAGES
from tests.twin import FaultPoint, Stage

from .harness import SHARD, Cluster, batch, record_bytes

pytestmark = pytest.mark.asyncio


async def found(log: TopicLog, timestamp_ms: int) -> tuple[int, int] | None:
    answer = await log.offset_for(timestamp_ms)
    return None if answer is None else (answer.offset, answer.timestamp_ms)


def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PAGES[0]:
        monkeypatch.setattr(name, 4)


@pytest.mark.rule("CM-45", "PL-605")
async def test_offsets_are_found_by_time_also_when_timestamps_go_back() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        assert await found(log, OFFSET_LATEST) == (0, -1)
        assert await found(log, OFFSET_MAX_TIMESTAMP) is None
        assert await found(log, 0) is None
        for times in ([100, 110, 120], [300], [150, 140, 500, 160], [200]):
            await log.append([batch(len(times), timestamps=times)], 1000)
        assert await found(log, OFFSET_EARLIEST) == (0, -1)
        assert await found(log, OFFSET_LATEST) == (9, -1)
        assert await found(log, 0) == (0, 100)
        assert await found(log, 111) == (2, 120)
        assert await found(log, 121) == (3, 300)
        assert await found(log, 301) == (6, 500)
        assert await found(log, 501) is None
        assert await found(log, OFFSET_MAX_TIMESTAMP) == (6, 500)
        await log.append([batch(1, timestamps=[900])], 1000)
        assert await found(log, 501) == (9, 900)
        await log.move_log_start(7)
        assert await found(log, 150) == (7, 160)
        assert await found(log, OFFSET_EARLIEST) == (7, -1)


@pytest.mark.rule("CM-45")
async def test_a_compressed_batch_is_opened_to_find_its_record() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        inner = RecordBatch.FromString(record_bytes([b"a", b"b", b"c"], [10, 20, 30]))
        packed = gzip.compress(RecordBatch(records=inner.records).SerializeToString())
        data = RecordBatch(base_timestamp_ms=10, compression=1, compressed_records=packed).SerializeToString()
        broken = RecordBatch(base_timestamp_ms=10, compression=1, compressed_records=b"??").SerializeToString()
        await log.append([NewBatch(data, 3, 30), NewBatch(broken, 2, 99)], 1000)
        assert await found(log, 15) == (1, 20)
        assert await found(log, 50) == (3, 99)


@pytest.mark.rule("CM-45", "CM-225")
@pytest.mark.parametrize("kind", Compression)
async def test_a_record_in_a_batch_of_kafkas_format_is_found_by_its_time(kind: Compression) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        times = [(None, b"v", (), timestamp_ms) for timestamp_ms in (10, 30, 20)]
        broken = kafka_batch(times)[:-9]
        await log.append([batch(1, timestamps=[5]), NewBatch(kafka_batch(times, kind), 3, 30)], 1000)
        await log.append([NewBatch(broken, 2, 99), NewBatch(kafka_batch(times * 700, kind), 2_100, 30)], 1000)
        assert await found(log, 6) == (1, 10)
        assert await found(log, 11) == (2, 30)
        assert await found(log, 50) == (4, 99), "the first offset of what cannot be decoded"
        await log.move_log_start(7)
        assert await found(log, 21) == (7, 30)
        assert await found(log, OFFSET_MAX_TIMESTAMP) == (7, 30)


@pytest.mark.rule("CM-45", "CM-116")
async def test_a_few_bytes_that_may_become_64_mib_are_opened_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[bool] = []

    def noted(data: bytes, announced: int) -> object:
        threads.append(threading.current_thread() is threading.main_thread())
        return open_batch(data, announced)

    monkeypatch.setattr("partition_leader.topic_log.reader.open_batch", noted)
    plain = RecordBatch(records=[Record(value=bytes(40 << 20)), Record(timestamp_delta_ms=5)]).SerializeToString()
    packed = frames_of(Compression.ZSTD).compress(plain, None)
    data = RecordBatch(compression=4, compressed_records=packed).SerializeToString()
    assert len(data) < 1 << 14
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await log.append([NewBatch(data, 2, 5), batch(1, timestamps=[900])], 1000)
        assert await found(log, 3) == (1, 5)
        assert await found(log, 800) == (2, 900)
    assert threads == [False, True]


@pytest.mark.rule("CM-45")
async def test_the_log_start_moves_into_a_batch_and_survives_a_takeover() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        for _ in range(3):
            await log.append([batch(4)], 1000)
        assert await log.move_log_start(6) == 6
        assert await log.move_log_start(2) == 6
        with pytest.raises(OffsetOutOfRangeError):
            await log.move_log_start(13)
        with pytest.raises(OffsetOutOfRangeError):
            log.read_cached(5, 100)
        first = await log.read(6, 1)
        assert (first.batches[0].base_offset, first.log_start_offset) == (4, 6)
        entries = await one.log.read(SHARD.streams[0], StreamId(0, 0), None, 10)
        assert [entry.id.seq for entry in entries] == [8, 12]
        log = await two.lead()
        assert (log.log_start_offset, log.high_watermark) == (6, 12)
        assert (await log.read(6, 1)).batches[0].base_offset == 4


@pytest.mark.rule("CM-40", "CM-45")
async def test_a_log_trimmed_empty_keeps_its_end_over_takeovers() -> None:
    async with Cluster() as cluster:
        one, two = cluster.node(), cluster.node()
        log = await one.lead()
        for _ in range(3):
            await log.append([batch(4)], 1000)
        assert await log.move_log_start(-1) == 12
        for node in (two, one, two):
            await log.close()
            log = await node.lead()
            assert (log.log_start_offset, log.high_watermark) == (12, 12)
        assert (await log.append([batch(1)], 1000)).base_offsets == (12,)
        assert (await log.read(12, 10)).batches[0].base_offset == 12


@pytest.mark.rule("CM-45")
async def test_the_log_start_is_durable_before_anything_is_cut() -> None:
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()
        for _ in range(3):
            await log.append([batch(4)], 1000)
        order: list[str] = []

        async def watch(point: FaultPoint) -> None:
            if point.stage is Stage.COMMAND:
                order.extend(word for word in ("EXEC", "XTRIM") if point.has(word))

        cluster.store.hook = watch
        await log.move_log_start(8)
        assert order == ["EXEC", "XTRIM"]


@pytest.mark.rule("CM-45")
async def test_retention_by_age_takes_whole_batches_by_the_time_of_their_append() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        for i in range(5):
            cluster.clock.ms = 10_000 * (i + 1)
            await log.append([batch(2, timestamps=[1, 2])], 1000)
        now = WALL_MS + 50_000
        assert await log.retain(now, -1, -1) == 0
        assert await log.retain(now, 40_000, -1) == 0
        assert await log.retain(now, 25_000, -1) == 4
        assert await log.retain(now, 0, -1) == 8
        assert await log.retain(now + 1, 0, -1) == 10
        assert (await log.append([batch(1)], 1000)).base_offsets == (10,)


@pytest.mark.rule("CM-45")
async def test_retention_by_size_keeps_at_least_the_bytes_asked_for() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        for _ in range(6):
            await log.append([batch(1, text="same")], 1000)
        size = len(batch(1, text="same").data)
        assert await log.retain(WALL_MS, -1, 6 * size) == 0
        assert await log.retain(WALL_MS, -1, 4 * size + 1) == 1
        assert await log.retain(WALL_MS, -1, 2 * size) == 4
        await log.append([batch(1, text="same")], 1000)
        assert await log.retain(WALL_MS, -1, 2 * size) == 5
        assert await log.retain(WALL_MS, -1, 0) == 7


@pytest.mark.rule("CM-45")
async def test_retention_by_size_keeps_them_where_the_index_has_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        for _ in range(14):
            await log.append([batch(1, text="same")], 1000)
        size = len(batch(1, text="same").data)
        assert [await log.retain(WALL_MS, -1, 9 * size) for _ in range(4)] == [5] * 4
        await log.append([batch(1, text="same")], 1000)
        assert [await log.retain(WALL_MS, -1, 9 * size) for _ in range(3)] == [6] * 3
        assert [await log.retain(WALL_MS, -1, 5 * size) for _ in range(3)] == [10] * 3


@pytest.mark.rule("CM-45")  # (b), retention.bytes remain
async def test_a_log_start_that_moves_during_a_sweep_makes_it_delete_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead(TopicLogSettings(tail_cache_bytes=0))
        for _ in range(12):
            await log.append([batch(1, text="same")], 1000)
        size = len(batch(1, text="same").data)
        index, moves = node.log.index, [6]

        async def amid(stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
            entries = await index(stream, after, through, count)
            while moves:
                await log.move_log_start(moves.pop())
            return entries

        monkeypatch.setattr(node.log, "index", amid)
        assert await log.retain(WALL_MS, -1, 5 * size) == 6
        assert await log.retain(WALL_MS, -1, 5 * size) == 7


@pytest.mark.rule("CM-45")  # (b), a sweep reads no batch twice
async def test_sweeps_read_each_batch_once_and_none_that_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("core.pages", "reader"):
        monkeypatch.setattr(f"partition_leader.topic_log.{module}.PAGE_BYTES", 30 * 1024)
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead(TopicLogSettings(tail_cache_bytes=0))
        read: list[int] = []
        index = node.log.index

        async def counted(stream: str, after: StreamId, through: StreamId | None, count: int) -> list[Entry]:
            entries = await index(stream, after, through, count)
            read.extend(entry.id.seq for entry in entries if entry.kind == "B")
            return entries

        monkeypatch.setattr(node.log, "index", counted)

        async def sweep(retention_bytes: int) -> list[int]:
            read.clear()
            await log.retain(WALL_MS, -1, retention_bytes)
            return sorted(read)

        size = len(batch(1, text="v" * 10_000).data)
        for _ in range(20):
            await log.append([batch(1, text="v" * 10_000)], 1000)
        assert await sweep(100 * size) == list(range(1, 21)), "at first all of them"
        assert await sweep(100 * size) == [], "then none, though the last page is short"
        await log.append([batch(1, text="v" * 10_000)], 1000)
        assert await sweep(100 * size) == [21], "the one that came since"
        assert max(await sweep(19 * size)) <= 5, "a page of those to delete"
        assert log.log_start_offset == 2
        assert set(await sweep(19 * size)) <= {3, 4}, "the rest of the page that contains the log start"
        assert await sweep(19 * size) == []
        assert log._state.pages.size(2) == 19 * size
        log = await node.lead()
        for _ in range(3):
            await log.append([batch(1, text="v" * 10_000)], 1000)
        assert max(await sweep(100 * size)) <= 21, "the tail cache has the later ones"
        assert log._state.pages.size(2) == 22 * size


@pytest.mark.rule("CM-96")  # a page of the index, even if no read of the store lies between two pages
async def test_others_get_their_turn_between_the_pages_of_an_index_that_is_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_pages(monkeypatch)
    async with Cluster() as cluster:
        node = cluster.node()
        log = await node.lead()
        for _ in range(20):
            await log.append([batch(1, text="same")], 1000)
        size = len(batch(1, text="same").data)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def refused(*_: object) -> list[Entry]:
            raise AssertionError("the tail cache has all of the log")

        monkeypatch.setattr(node.log, "index", refused)
        task = asyncio.create_task(other())
        assert await log.offset_for(1) is None
        task.cancel()
        assert turns >= 20 // 4
        assert log._state.pages.size(0) == 20 * size


@pytest.mark.rule("CM-45")
async def test_the_largest_timestamp_is_one_that_the_log_still_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        for timestamp_ms in (1, 2, 3, 4, 5, 90, 6, 7, 8, 30, 9):
            await log.append([batch(1, timestamps=[timestamp_ms])], 1000)
        assert await found(log, OFFSET_MAX_TIMESTAMP) == (5, 90)
        await log.move_log_start(6)
        assert await found(log, OFFSET_MAX_TIMESTAMP) == (9, 30)
        assert await found(log, 31) is None


@pytest.mark.rule("CM-45")
async def test_pages_of_the_index_are_followed_over_their_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch)
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        for i in range(30):
            await log.append([batch(1, timestamps=[1_000 + i])], 1000)
            if i % 5 == 0:
                assert await found(log, 1_000 + i) == (i, 1_000 + i)
        for i in range(30):
            assert await found(log, 1_000 + i) == (i, 1_000 + i)
        await log.move_log_start(6)
        assert await found(log, 0) == (6, 1_006)
        size = len(batch(1, timestamps=[1_000]).data)
        assert 20 <= await log.retain(WALL_MS, -1, 5 * size) <= 25


@pytest.mark.rule("CM-45")
@pytest.mark.parametrize(("retention_ms", "retention_bytes"), [(1, -1), (-1, 0)])
async def test_one_sweep_checks_a_bounded_number_of_batches_and_the_next_ones_trim_the_rest(
    monkeypatch: pytest.MonkeyPatch, retention_ms: int, retention_bytes: int
) -> None:
    """The bound on the work of one sweep, by age and by size."""
    small_pages(monkeypatch)
    monkeypatch.setattr("partition_leader.topic_log.trim._SWEEP_BATCHES", 6)
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        for _ in range(20):
            await log.append([batch(1)], 1000)
        starts = [await log.retain(WALL_MS + 86_400_000, retention_ms, retention_bytes) for _ in range(5)]
        steps = [after - before for before, after in itertools.pairwise([0, *starts])]
        assert max(steps) < 6 + 4, f"{starts}: the bound, and at most the rest of a page"
        assert starts[1] > starts[0], "a sweep goes on where the last one ended"
        assert starts[-1] == 20
