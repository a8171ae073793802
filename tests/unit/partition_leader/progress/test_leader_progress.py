"""The figures of a leader, over the real core and log: what they show while members work, leave and come back."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final

import pytest

from kip932.errors import CoordinatorNotAvailableError, RequestTimedOutError
from partition_leader.progress import leader_progress
from partition_leader.progress.core.figures import Figures
from partition_leader.progress.leader_progress import FETCHING_MS, FRESH_MS
from partition_leader.topic_log.topic_log import TopicLog
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, key, run

OF: Final = (GROUP, TOPIC)


async def figures(world: World, number: int = 0, group: str = GROUP) -> Figures:
    """Return the current figures of a share-partition."""
    await asyncio.sleep(FRESH_MS / 1000 + 0.1)
    return (await world.leader.progress.board()).parts[key(number, group)]


async def fetched(world: World, number: int = 0, name: str = "m", *, records: int = 500) -> None:
    assert await world.member(name).fetch(number, max_wait_ms=100, max_records=records).ranges(number)


@pytest.mark.rule("PL-950")
@pytest.mark.parametrize("cache_bytes", [1 << 20, 0])
def test_the_age_is_that_of_the_first_unfinished_record(cache_bytes: int) -> None:
    async def scenario(world: World) -> None:
        for _ in range(3):
            await world.produce(1)
            await asyncio.sleep(10)
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100).ranges()
        await world.leader.progress.round()
        assert 30_000 <= ((await figures(world)).oldest_ms or 0) < 32_000
        assert await member.accept(0, 1).ack_error() is None
        await world.leader.progress.round()
        assert 10_000 <= ((await figures(world)).oldest_ms or 0) < 15_000
        assert await member.accept(2, 2).ack_error() is None
        found = await figures(world)
        assert (found.lag, found.oldest_ms) == (0, None)

    run(scenario, tail_cache_bytes=cache_bytes)


@pytest.mark.rule("PL-950")
def test_only_some_ages_are_read_from_the_store_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leader_progress.COLD_READS_MAX == 200
    monkeypatch.setattr(leader_progress, "COLD_READS_MAX", 2)

    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(1, number)
            member = world.member(f"m{number}")
            assert await member.fetch(number, max_wait_ms=100).ranges(number)
            await world.produce(1, number)
            assert await member.accept(0, 0, number).ack_error(number) is None
        known = []
        for _ in range(2):
            await world.leader.progress.round()
            parts = world.leader.progress.latest.parts
            known.append(sum(one.oldest_ms is not None for one in parts.values()))
        assert known == [2, 4], "what was read is remembered, so the others get their turn"

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("PL-950")
def test_a_session_fetches_until_30_seconds_after_its_last_request_and_is_counted_once_in_a_sum() -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        await world.produce(1, 1)
        for name in ("a", "b"):
            await world.member(name).fetch(0, 1, max_wait_ms=100).answer()
        assert (await figures(world)).fetching == 2
        assert (await world.leader.progress.board()).sums[OF].fetching == 2
        await asyncio.sleep(FETCHING_MS / 1000)
        assert (await figures(world)).fetching == 0
        world.member("c").fetch(0, max_wait_ms=60_000, min_bytes=1 << 30)
        await asyncio.sleep(40)
        assert (await figures(world)).fetching == 1, "it is parked there"

    run(scenario)


@pytest.mark.rule("PL-952")
def test_counts_and_rates_of_what_is_loaded() -> None:
    async def scenario(world: World) -> None:
        await world.produce(8)
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100).ranges()
        found = await figures(world)
        assert (found.finished.records, found.arrived, found.recent.ms, found.since_finish_ms) == (0, 8, 0, None)
        await world.leader.progress.round()
        await asyncio.sleep(10)
        assert await member.accept(0, 2).ack_error() is None
        await world.produce(1)
        found = await figures(world)
        assert (found.finished.records, found.arrived) == (3, 9)
        assert (found.recent.finished, found.recent.arrived) == (3, 1)
        assert 11_000 <= found.recent.ms < 12_000
        assert 1_000 <= (found.since_finish_ms or 0) < 2_000

    run(scenario)


@pytest.mark.rule("PL-952")
def test_counters_of_a_topic_do_not_fall_when_a_partition_is_lost_and_the_partition_counts_from_0() -> None:
    async def scenario(world: World) -> None:
        for number in range(2):
            await world.produce(4, number)
            member = world.member(f"m{number}")
            assert await member.fetch(number, max_wait_ms=100).ranges(number)
            assert await member.accept(0, number, number).ack_error(number) is None
        progress = world.leader.progress
        assert (await figures(world, 1)).finished.records == 2
        assert progress.latest.sums[OF].finished.records == 3
        world.lose(1)
        await figures(world)
        assert list(progress.latest.parts) == [key(0)], "the partition has another leader, which counts it now"
        assert progress.latest.sums[OF].finished.records == 1
        assert progress.latest.departed[OF].records == 2
        await world.lead(1)
        await fetched(world, 1, "again")
        assert (await figures(world, 1)).finished.records == 0
        assert progress.latest.departed[OF].records == 2

    run(scenario)


@pytest.mark.rule("PL-950")
def test_a_slow_store_delays_no_answer_for_long_and_few_reads_are_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(1, number)
            member = world.member(f"m{number}")
            assert await member.fetch(number, max_wait_ms=100).ranges(number)
            await world.produce(1, number)
            assert await member.accept(0, 0, number).ack_error(number) is None
        progress, reads = world.leader.progress, []
        read = TopicLog.append_time

        async def slow(log: TopicLog, offset: int, cold: bool) -> int | None:
            if cold:
                reads.append(offset)
                await asyncio.sleep(5)
            return await read(log, offset, cold)

        monkeypatch.setattr(TopicLog, "append_time", slow)
        running = asyncio.create_task(progress.round())
        await asyncio.sleep(0.1)
        with pytest.raises(RequestTimedOutError):
            await progress.board()
        await running
        assert len(reads) == 1, "the others get their turn in later rounds"
        first = progress.latest
        running = asyncio.create_task(progress.round())
        await asyncio.sleep(1.5)
        assert await progress.board() is first
        await running
        assert progress.pause_ms == progress._interval_ms, "waiting for the store is not computing"

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("PL-952")
def test_what_is_dropped_while_others_are_computed_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_progress, "SLICE", 1)

    async def scenario(world: World) -> None:
        for number in range(3):
            await world.produce(4, number)
            member = world.member(f"m{number}", connection=number)
            assert await member.fetch(number, max_wait_ms=100).ranges(number)
            assert await member.accept(0, 1, number).ack_error(number) is None
        world.starts.groups = {TOPIC: {GROUP: dict.fromkeys(range(3), 0)}}
        running = asyncio.create_task(world.leader.progress.round())
        for number in range(3):
            await asyncio.sleep(0)
            world.leader.requests.connection_lost(number)
        await running
        await asyncio.sleep(5)
        assert len(world.leader.share_partitions) == 0
        await world.leader.progress.round()
        assert world.leader.progress.latest.sums[OF].finished.records == 6

    run(scenario)


@pytest.mark.rule("PL-952")
def test_counters_do_not_fall_while_the_state_of_what_was_dropped_is_not_known_again() -> None:
    async def scenario(world: World) -> None:
        progress = world.leader.progress
        for number in range(2):
            await world.produce(4, number)
            member = world.member(f"m{number}", connection=number)
            assert await member.fetch(number, max_wait_ms=100).ranges(number)
            assert await member.accept(0, 1, number).ack_error(number) is None
        world.starts.groups = {TOPIC: {GROUP: dict.fromkeys(range(2), 2)}}
        await progress.round()
        assert progress.latest.sums[OF].finished.records == 4
        world.persister.stored[key(1)].state_epoch += 1  # the group's offsets were reset
        assert await member.accept(2, 2, 1).ack_error(1) is not None
        assert world.leader.share_partitions.peek(key(1)) is None
        world.starts.refusal = CoordinatorNotAvailableError("away")
        await progress.round()
        found = progress.latest
        assert (found.sums[OF].finished.records, found.sums[OF].lag) == (4, None)
        world.starts.refusal, world.starts.groups = None, {TOPIC: {GROUP: {0: 2}}}
        await progress.round()
        assert list(progress.latest.parts) == [key(0)], "it has no state any more"

    run(scenario)


@pytest.mark.rule("PL-950")
def test_those_who_ask_at_the_same_time_share_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    async def scenario(world: World) -> None:
        progress = world.leader.progress
        compute = progress._compute

        async def counted(*given: object, sample: bool) -> None:
            computed.append(sample)
            await compute(*given, sample=sample)  # type: ignore[arg-type]

        monkeypatch.setattr(progress, "_compute", counted)
        await world.produce(1)
        await fetched(world)
        boards = await asyncio.gather(*(progress.board() for _ in range(5)))
        assert len({id(board) for board in boards}) == 1
        await asyncio.sleep(FRESH_MS / 1000 - 0.1)
        await progress.board()
        assert computed == [False]
        await asyncio.sleep(0.2)
        await progress.board()
        await progress.round()
        assert computed == [False, False, True]

    run(scenario)


@pytest.mark.rule("PL-952")
def test_an_object_that_retires_under_an_earlier_epoch_is_not_counted_under_the_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        progress = world.leader.progress
        await world.produce(4, 0)
        member = world.member("m", connection=0)
        assert await member.fetch(0, max_wait_ms=100).ranges(0)
        assert await member.accept(0, 1, 0).ack_error(0) is None
        world.starts.groups = {TOPIC: {GROUP: {0: 2}}}
        await progress.round()
        assert progress.latest.sums[OF].finished.records == 2
        old = world.host(0)
        monkeypatch.setattr(old, "log", SimpleNamespace(epoch=old.log.epoch - 1))
        found = await figures(world)
        assert (found.lag, found.in_flight) == (2, 0), "what is stored, not what the old object holds"
        monkeypatch.undo()

    run(scenario)
