"""Reads from the tail cache and from the store, never beyond the high watermark."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import OffsetOutOfRangeError
from partition_leader.topic_log.settings import TopicLogSettings
from tests.twin import FaultPoint, Stage

from .harness import Cluster, batch

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("PL-007")
async def test_offsets_outside_the_log_are_out_of_range() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        await log.append([batch(3)], 1000)
        for offset in (-1, 4):
            with pytest.raises(OffsetOutOfRangeError):
                log.read_cached(offset, 100)
            with pytest.raises(OffsetOutOfRangeError):
                await log.read(offset, 100)
        end = log.read_cached(3, 100)
        assert end is not None
        assert (end.batches, end.data_offset) == ((), 3)


@pytest.mark.rule("PL-006", "CM-46", "P-8")
@pytest.mark.parametrize("cache", [0, 100, 1 << 20])
async def test_reads_give_the_same_batches_from_memory_and_from_the_store(cache: int) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=cache, read_ahead_bytes=64))
        sent = [batch(1 + i % 3, text=f"b{i}") for i in range(40)]
        for one in sent:
            await log.append([one], 1000)
        ends: list[int] = []
        for one in sent:
            ends.append((ends[-1] if ends else 0) + one.record_count)
        for offset in range(log.high_watermark):
            first = next(i for i, end in enumerate(ends) if end > offset)
            single = await log.read(offset, 1)
            assert [one.data for one in single.batches] == [sent[first].data]
            assert single.batches[0].base_offset <= offset <= single.batches[0].last_offset
            room = len(sent[first].data) * 3
            several = await log.read(offset, room)
            assert sum(one.size for one in several.batches) <= room
            datas = [one.data for one in several.batches]
            assert datas == [one.data for one in sent[first : first + len(datas)]]
            limited = await log.read(offset, 1 << 20, max_offsets=1)
            assert len(limited.batches) == 1
        if cache:
            newest = log.read_cached(log.high_watermark - 1, 1)
            assert newest is not None
            assert newest.batches[0] is (await log.read(log.high_watermark - 1, 1)).batches[0]


@pytest.mark.rule("CM-46")
async def test_groups_that_ask_at_once_for_old_batches_cause_one_read() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0))
        for _ in range(5):
            await log.append([batch(1)], 1000)
        reads = []

        async def count(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("XRANGE"):
                reads.append(1)

        cluster.store.hook = count
        assert log.read_cached(0, 1000) is None
        results = await asyncio.gather(*(log.read(0, 1000) for _ in range(8)))
        assert {len(result.batches) for result in results} == {5}
        assert len(reads) == 1
        kept = log.read_cached(2, 1000)
        assert kept is not None
        assert kept.batches[0] is results[0].batches[2]


async def test_bytes_available_is_exact_in_the_cache_and_positive_below_it() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        sizes = []
        for i in range(6):
            one = batch(2, text="y" * i)
            sizes.append(len(one.data))
            await log.append([one], 1000)
        assert [log.bytes_available(i * 2) for i in range(7)] == [sum(sizes[i:]) for i in range(7)]
        log.set_cache_bytes(0)
        assert all(log.bytes_available(offset) > 0 for offset in range(12))
        assert log.bytes_available(12) == 0


@pytest.mark.rule("CM-46")
@pytest.mark.parametrize(("batches", "count"), [(0, 1), (1, 1), (3, 3), (20, 8)])
async def test_a_cold_read_asks_for_as_many_entries_as_the_bytes_that_were_asked_for_may_hold(
    batches: int, count: int
) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0, read_ahead_bytes=1))
        for _ in range(40):
            await log.append([batch(1, text="alike")], 1000)
        mean = log._state.mean_batch_bytes
        assert mean < 512, "it follows the batches"
        counts: list[int] = []

        async def watch(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("XRANGE"):
                counts.extend(int(command[-1]) for command in point.commands if command[0] == "XRANGE")

        cluster.store.hook = watch
        assert (await log.read(0, batches * mean + mean // 2)).batches
        assert counts[0] == count


@pytest.mark.rule("CM-46")
async def test_further_pages_of_a_cold_read_go_by_the_size_of_the_batches_just_read() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=0, read_ahead_bytes=1))
        large = len(batch(1, text="large" * 800).data)
        for _ in range(20):
            await log.append([batch(1, text="large" * 800)], 1000)
        for _ in range(60):
            await log.append([batch(1, text="small")], 1000)
        assert log._state.mean_batch_bytes * 4 < large, "recent batches are far smaller"
        counts: list[int] = []

        async def watch(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("XRANGE"):
                counts.extend(int(command[-1]) for command in point.commands if command[0] == "XRANGE")

        cluster.store.hook = watch
        assert len((await log.read(0, 12 * large)).batches) == 12
        assert counts == [8, 4], "a first page, then what is left by the size of these"


@pytest.mark.rule("PL-824")
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
async def test_the_batches_of_some_offsets_are_found_without_a_change_of_any_cache(cache_bytes: int) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(TopicLogSettings(tail_cache_bytes=cache_bytes))
        for _ in range(5):
            await log.append([batch(3)], 1000)
        window, cached = log._state.window, log.cached_bytes()
        for first, last, bases in ((0, 14, [0, 3, 6, 9, 12]), (4, 4, [3]), (2, 3, [0, 3]), (14, 14, [12])):
            found = await log.batches_between(first, last)
            assert [one.base_offset for one in found] == bases
            assert all(bool(one.data) == bool(cache_bytes) for one in found), "a cold read leaves the bytes out"
        assert (log._state.window, log.cached_bytes()) == (window, cached)
