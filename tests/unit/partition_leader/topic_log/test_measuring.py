"""How large a topic log is: exact from its index, an estimate where nothing may be read."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.settings import TopicLogSettings
from tests.support.small_limits import PAGES
from tests.twin import FaultPoint, Stage
from tests.unit.partition_leader.topic_log.harness import Cluster, batch, record_bytes

pytestmark = pytest.mark.asyncio
COLD = TopicLogSettings(tail_cache_bytes=0)


def never() -> bool:
    return False


def always() -> bool:
    return True


@pytest.mark.rule("PL-960")
async def test_an_empty_log_has_nothing_and_no_oldest_record() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead()
        measured = await log.measure(always)
        assert measured == (0, True, None, 0)


@pytest.mark.rule("PL-960")
@pytest.mark.parametrize("settings", [TopicLogSettings(), COLD], ids=["cached", "cold"])
async def test_bytes_records_and_the_oldest_append_are_those_that_the_log_still_has(
    settings: TopicLogSettings,
) -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(settings)
        first, second = batch(3, text="first"), batch(5, text="second-and-longer")
        await log.append([first], 1_000)
        cluster.clock.ms += 1
        await log.append([second], 1_000)
        first_ms = (await log.read(0, 1)).batches[0].append_time_ms
        second_ms = (await log.read(3, 1)).batches[0].append_time_ms
        assert second_ms > first_ms
        assert await log.measure(always) == (len(first.data) + len(second.data), True, first_ms, 8)
        await log.move_log_start(3)
        assert await log.measure(always) == (len(second.data), True, second_ms, 5)
        await log.move_log_start(8)
        assert await log.measure(always) == (0, True, None, 0)


@pytest.mark.rule("PL-960")
async def test_holes_are_no_records() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(COLD)
        await log.append([batch(3)], 1_000)
        await log.raise_log_end(10)
        assert (await log.measure(always)).records == 3


@pytest.mark.rule("PL-961")
async def test_without_a_read_the_size_is_an_estimate_and_the_oldest_is_not_known() -> None:
    async with Cluster() as cluster:
        log = await cluster.node().lead(COLD)
        await log.append([batch(4)], 1_000)
        reads: list[int] = []

        async def watch(point: FaultPoint) -> None:
            reads.extend([1] * (point.stage is Stage.SEND and (point.has("EVALSHA") or point.has("XRANGE"))))

        cluster.store.hook = watch
        estimate = await log.measure(never)
        assert (estimate.exact, estimate.oldest_append_ms, estimate.records) == (False, None, 4)
        assert estimate.size > 0
        assert reads == []
        exact = await log.measure(always)
        assert (exact.exact, exact.size) == (True, len(record_bytes([f"x-{i}".encode() for i in range(4)])))
        assert len(reads) == 1
        assert await log.measure(never) == exact, "what was read once is not read again"
        assert len(reads) == 1


@pytest.mark.rule("PL-961")
async def test_a_page_that_the_log_start_has_cut_counts_in_part_until_it_may_be_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in PAGES[0]:
        monkeypatch.setattr(name, 4)
    async with Cluster() as cluster:
        log = await cluster.node().lead(COLD)
        for _ in range(6):
            await log.append([batch(10)], 1_000)
        whole = await log.measure(always)
        assert (whole.exact, whole.records) == (True, 60)
        await log.move_log_start(10)
        cut = await log.measure(never)
        assert (cut.exact, cut.oldest_append_ms, cut.size, cut.records) == (False, None, whole.size * 5 // 6, 50)
        again = await log.measure(always)
        assert (again.exact, again.size) == (True, whole.size * 5 // 6)
        assert again.oldest_append_ms is not None
