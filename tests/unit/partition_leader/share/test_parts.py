"""The small parts around the hosts: deadlines, shares of the tail cache, cached group settings."""

from __future__ import annotations

import asyncio

import pytest

from partition_leader.led_partitions import TailCaches
from partition_leader.share.deadlines import Deadlines
from partition_leader.share.group_view import EffectiveGroup, GroupViews
from tests.support.clocks import LoopClock
from tests.support.virtual_time import run as run_virtual

from .worlds import World, run

KIB = 1024


@pytest.mark.rule("P-13")
def test_a_deadline_comes_once_and_a_newer_one_replaces_it() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[tuple[str, int]] = []

        def a(now_ms: int) -> None:
            seen.append(("a", now_ms))

        def b(now_ms: int) -> None:
            seen.append(("b", now_ms))

        start = clock.now_ms()
        deadlines.set(a, start + 500)
        deadlines.set(b, start + 100)
        deadlines.set(a, start + 50)
        deadlines.set(a, start + 300)
        await asyncio.sleep(1)
        assert seen == [("b", start + 100), ("a", start + 300)]
        deadlines.set(a, start + 2_000)
        deadlines.set(a, None)
        await asyncio.sleep(3)
        assert len(seen) == 2
        assert len(deadlines) == 0

    run_virtual(main())


@pytest.mark.rule("P-13", "PL-303")
def test_a_failing_holder_keeps_nobody_else_from_its_deadline() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[int] = []

        def bad(_: int) -> None:
            raise RuntimeError("a defect")

        deadlines.set(bad, clock.now_ms() + 10)
        deadlines.set(seen.append, clock.now_ms() + 10)
        await asyncio.sleep(1)
        assert len(seen) == 1

    run_virtual(main())


@pytest.mark.rule("P-13")
def test_superseded_deadlines_do_not_pile_up_and_many_are_served_in_turns() -> None:
    async def main() -> None:
        clock = LoopClock()
        deadlines = Deadlines(clock)
        seen: list[int] = []
        holders = [lambda _, n=n: seen.append(n) for n in range(1_000)]
        for turn in range(20):
            for holder in holders:
                deadlines.set(holder, clock.now_ms() + 60_000 - turn)
        assert len(deadlines._heap) <= 4 * len(holders) + 1
        await asyncio.sleep(61)
        assert sorted(seen) == list(range(1_000))
        deadlines.close()

    run_virtual(main())


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


@pytest.mark.rule("CM-46")
def test_every_led_partition_gets_the_least_of_a_tail_cache() -> None:
    async def scenario(world: World) -> None:
        assert world.log(0)._state.tail._limit == 64 * KIB

    run(scenario, caches=TailCaches(total_bytes=100 * KIB, least_bytes=64 * KIB))


@pytest.mark.rule("PL-1003")
def test_group_settings_are_computed_once_for_each_version_of_the_metadata() -> None:
    version = 1
    computed: list[str] = []

    def effective(group_id: str) -> EffectiveGroup:
        computed.append(group_id)
        return EffectiveGroup(1_000 * version, 5, 200, True, "latest", False)

    views = GroupViews(effective, lambda: version)
    view = views.view("g")
    assert (view.settings.lock_ms, view.auto_offset_reset, view.read_committed) == (1_000, "latest", False)
    assert computed == ["g"]
    version = 2
    assert view.settings.lock_ms == 2_000
    assert computed == ["g", "g"]
