"""A fetch that also acknowledges waits before it acquires, and waiting fetches share the free record locks ("room")."""

from __future__ import annotations

import asyncio

import pytest

from kip932.ids import ACQUIRE_BATCH_OPTIMIZED, ACQUIRE_RECORD_LIMIT
from partition_leader.share_partition.core.events import AckBatch
from tests.support.virtual_time import now_s

from .test_long_poll import started
from .test_sessions import holding
from .worlds import World, run, settle


def held(world: World, number: int = 0) -> int:
    return int(world.host(number).core.in_flight)


@pytest.mark.rule("PL-216")
def test_a_fetch_that_acknowledges_waits_with_acquiring_unless_it_is_filled_or_its_time_is_over() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=12)
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 3, (1,))]})
        await settle()
        assert held(world) == 4, "the fetch must not acquire before its response can be sent"
        await world.produce(3)
        world.persister.let_go("write")
        assert await both.ranges() == [(4, 5, 1), (6, 8, 1)]

        await world.produce(4)
        world.persister.hold("write")
        filled = member.fetch(max_records=4, acks={0: [AckBatch(4, 8, (1,))]})
        await settle()
        assert held(world) == 9, "it acquires at once, up to its maximum"
        world.persister.let_go("write")
        assert await filled.ranges() == [(9, 12, 1)]

        await world.produce(20)
        world.persister.hold("write")
        late = member.fetch(max_records=9, max_wait_ms=300, acks={0: [AckBatch(9, 12, (1,))]})
        await asyncio.sleep(0.29)
        assert held(world) == 4, "there is room for 8 of 9"
        await asyncio.sleep(0.02)
        assert held(world) == 24, "its time is over: a whole batch"
        assert not late.done
        world.persister.let_go("write")
        assert await late.ranges() == [(13, 32, 1)]

    run(scenario)


@pytest.mark.rule("PL-216")
def test_records_are_others_meanwhile() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 3, (1,))]}, max_wait_ms=2_000)
        began = now_s()
        await settle()
        assert await world.member("other").fetch(0).ranges() == [(4, 5, 1)]
        world.persister.let_go("write")
        assert await both.ranges() == []
        assert both.at_s - began == pytest.approx(2.0, abs=0.02), "it waits on, and counts from when it came"

    run(scenario)


@pytest.mark.rule("PL-216")
def test_at_its_deadline_it_acquires_what_there_is() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 3, (1,))]}, max_wait_ms=300)
        await asyncio.sleep(0.29)
        assert held(world) == 4
        await asyncio.sleep(0.02)
        assert held(world) == 6
        assert not both.done
        world.persister.let_go("write")
        assert await both.ranges() == [(4, 5, 1)]

    run(scenario)


@pytest.mark.rule("PL-216")
@pytest.mark.parametrize("later", [False, True])
def test_one_that_can_be_filled_acquires_at_once(later: bool) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        if not later:
            await world.produce(2)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 3, (1,))]}, max_records=4)
        await settle()
        if later:
            assert held(world) == 4
            await world.produce(2)
            await settle()
        assert held(world) == 8
        world.persister.let_go("write")
        assert await both.ranges() == [(4, 5, 1), (6, 7, 1)]

    run(scenario)


@pytest.mark.rule("PL-216")
def test_records_without_room_for_them_fill_nothing_and_the_written_acknowledgements_give_room() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=6)
        member = await holding(world)
        await world.produce(6)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 3, (1,))]}, max_records=6)
        await settle()
        assert held(world) == 4
        world.persister.let_go("write")
        assert await both.ranges() == [(4, 9, 1)]

    run(scenario)


@pytest.mark.rule("PL-216")
def test_the_last_outcome_of_several_partitions_lets_it_check() -> None:
    async def scenario(world: World) -> None:
        for number in (0, 1):
            await world.produce(1, number)
        member = world.member()
        answer = member.fetch(0, 1)
        assert (await answer.ranges(0), await answer.ranges(1)) == ([(0, 0, 1)], [(0, 0, 1)])
        await world.produce(2, 1)
        world.persister.hold("write")
        both = member.fetch(acks={0: [AckBatch(0, 0, (1,))], 1: [AckBatch(0, 0, (1,))]})
        await settle()
        assert held(world, 1) == 1
        world.persister.let_go("write")
        assert await both.ranges(1) == [(1, 2, 1)]

    run(scenario)


@pytest.mark.rule("PL-216")
def test_records_that_others_hold_between_given_back_ones_and_new_ones_fill_nothing() -> None:
    async def scenario(world: World) -> None:
        other = await holding(world, 40, "other")
        member = world.member()
        assert await member.fetch(0, max_wait_ms=50).ranges() == []
        await world.produce(10)
        assert await member.fetch(max_records=10).ranges() == [(40, 49, 1)]
        assert await other.accept(3, 3, kind=2).ack_error() is None
        world.persister.hold("write")
        both = member.fetch(max_records=30, acks={0: [AckBatch(40, 49, (1,))]})
        await settle()
        await world.produce(29)
        assert held(world) == 50
        world.persister.let_go("write")
        assert await both.ranges() == [(3, 3, 2), (50, 78, 1)]

    run(scenario)


@pytest.mark.rule("PL-217")
@pytest.mark.parametrize(
    ("mode", "batch", "expected"),
    [
        pytest.param(ACQUIRE_RECORD_LIMIT, 4, [(12, 15), (16, 19), (20, 23)], id="4 of 12 each"),
        pytest.param(ACQUIRE_BATCH_OPTIMIZED, 3, [(12, 17), (18, 20), (21, 23)], id="4 of 12, 3 of 6, 3 of 3"),
    ],
)
def test_waiting_fetches_get_even_parts_of_the_room(mode: int, batch: int, expected: list[tuple[int, int]]) -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=12)
        holder = await holding(world, 12)
        *members, late, later = [world.member(name) for name in "abcde"]
        for member in (*members, late, later):
            assert await member.fetch(0, max_wait_ms=50).ranges() == []
        for _ in range(20 // batch):
            await world.produce(batch)
        waiting = [member.fetch(max_wait_ms=20_000, mode=mode, max_records=12) for member in members]
        await settle()
        assert await holder.accept(0, 11).ack_error() is None
        found = [await fetch.ranges() for fetch in waiting]
        assert [(ranges[0][0], ranges[-1][1]) for ranges in found] == expected

        # There is no room for new records, so the records that the last member releases are not divided.
        first, second = (member.fetch(max_wait_ms=20_000, mode=mode) for member in (late, later))
        await settle()
        low, high = expected[-1]
        assert await members[-1].accept(low, high, kind=2).ack_error() is None
        given = await first.ranges()
        assert (given[0][0], given[-1][1]) == (low, high)
        assert not second.done

    run(scenario)


@pytest.mark.rule("PL-217")
def test_one_that_comes_while_others_wait_leaves_them_theirs() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=8)
        for name in "ab":
            await started(world, name)
        parked = world.member("a").fetch(0, max_wait_ms=20_000, min_bytes=1_000_000)
        await settle()
        await world.produce(20)
        await settle()
        assert not parked.done, "it waits for more bytes"
        new = world.member("b").fetch(0, mode=ACQUIRE_RECORD_LIMIT)
        assert await new.ranges() == [(0, 3, 1)]

    run(scenario)


@pytest.mark.rule("PL-217")
def test_alone_it_gets_all_the_room_and_whole_batches_go_beyond_a_part() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=8)
        alone = world.member("a").fetch(0, max_wait_ms=20_000, mode=ACQUIRE_RECORD_LIMIT)
        await settle()
        await world.produce(20)
        assert await alone.ranges() == [(0, 7, 1)]
        await world.member("a").accept(0, 0).answer()

    run(scenario)
