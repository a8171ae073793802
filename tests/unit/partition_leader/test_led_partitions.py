"""Led partitions share the memory of the tail caches."""

from __future__ import annotations

import asyncio
import re

import pytest

from kip932.errors import NotLeaderOrFollowerError
from partition_leader.led_partitions import TailCaches
from tests.unit.partition_leader.share_partition.worlds import World, part, run

KIB = 1024


@pytest.mark.rule("CM-46", "P-8")
def test_led_partitions_share_the_memory_of_the_tail_caches() -> None:
    async def scenario(world: World) -> None:
        sizes = {number: world.log(number)._state.tail._limit for number in range(4)}
        assert sizes == dict.fromkeys(range(4), 25 * KIB)
        world.lose(3)
        world.lose(2)
        assert world.log(0)._state.tail._limit == 40 * KIB, "never more than one log's own limit"
        await world.lead(2)
        assert world.log(0)._state.tail._limit == world.log(2)._state.tail._limit == 25 * KIB

    caches = TailCaches(total_bytes=100 * KIB, least_bytes=KIB)
    run(scenario, caches=caches, tail_cache_bytes=40 * KIB)


def test_who_does_not_lead_a_partition_names_it_by_its_topic() -> None:
    async def scenario(world: World) -> None:
        world.lose(3)
        with pytest.raises(NotLeaderOrFollowerError, match="does not lead t-3; clients look up its leader"):
            world.leader.led.lead(part(3))
        world.facts.names.clear()
        with pytest.raises(NotLeaderOrFollowerError, match=re.escape(part(3).text)):
            world.leader.led.lead(part(3))

    run(scenario)


@pytest.mark.rule("CM-46")
def test_what_the_tail_caches_take_is_bounded_and_reported() -> None:
    async def scenario(world: World) -> None:
        reported = []
        for _ in range(200):
            for number in range(4):
                await world.produce(1, number)
            reported.append(world.registry.get_sample_value("sharegroups_topic_log_cached_bytes") or 0.0)
        assert 0 < reported[0] < reported[1]
        assert reported[-1] == world.leader.led.cached_bytes() == sum(world.log(n).cached_bytes() for n in range(4))
        assert 80 * KIB < max(reported) <= 100 * KIB

    run(scenario, caches=TailCaches(total_bytes=100 * KIB, least_bytes=KIB))


@pytest.mark.rule("CM-46")
def test_every_led_partition_gets_the_least_of_a_tail_cache() -> None:
    async def scenario(world: World) -> None:
        assert world.log(0)._state.tail._limit == 64 * KIB

    run(scenario, caches=TailCaches(total_bytes=100 * KIB, least_bytes=64 * KIB))


@pytest.mark.rule("CM-170", "CM-45")
def test_nothing_is_deleted_by_age_while_the_clocks_are_in_doubt_and_size_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        for number in range(2):
            for _ in range(4):
                await world.produce(1, number)
        half = world.log(0).bytes_available(0) // 2
        await asyncio.sleep(60)
        kept = {"by age": (1_000, -1), "by size": (1_000, half)}
        doubt, bound = ["this host's clock is 60 s ahead"], ["by age"]
        monkeypatch.setattr(world.leader.led, "_clock_doubt", lambda: doubt[0])
        monkeypatch.setattr(world.facts, "retention", lambda _: kept[bound[0]])
        await world.leader.led.retain()
        assert [world.log(number).log_start_offset for number in range(2)] == [0, 0]
        bound[0] = "by size"
        await world.leader.led.retain()
        assert [world.log(number).log_start_offset for number in range(2)] == [2, 2]
        doubt[0] = ""
        await world.leader.led.retain()
        assert [world.log(number).log_start_offset for number in range(2)] == [4, 4]

    run(scenario)
