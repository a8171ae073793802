"""Parked fetches: every reason to wake them, woken one at a time, none forgotten, all ended by their deadlines."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError
from partition_leader.fetch.fetch import ShareFetchOperation
from partition_leader.share_partition.core.events import AckBatch
from tests.support.virtual_time import now_s

from .worlds import World, code, run, settle


async def started(world: World, name: str = "m", *, records: int = 0) -> tuple[object, object]:
    """A member whose session is open on an active share-partition, and the ranges that it acquired."""
    if records:
        await world.produce(records)
    member = world.member(name)
    ranges = await member.fetch(0, max_wait_ms=50).ranges()
    return member, ranges


@pytest.mark.rule("PL-210", "PL-213")
def test_a_fetch_without_data_is_answered_empty_at_its_deadline() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        began = now_s()
        pending = world.member("n").fetch(0, max_wait_ms=700)
        assert await pending.ranges() == []
        assert pending.at_s - began == pytest.approx(0.7, abs=0.01)

    run(scenario)


@pytest.mark.rule("PL-214", "PL-601")
def test_the_end_of_initialisation_wakes_the_fetch_that_began_it() -> None:
    async def scenario(world: World) -> None:
        await world.produce(3)
        world.persister.hold("read")
        pending = world.member().fetch(0, max_wait_ms=5_000)
        await settle()
        assert not pending.done
        world.persister.let_go("read")
        await settle()
        assert await pending.ranges() == [(0, 2, 1)]
        assert pending.at_s == 0

    run(scenario)


@pytest.mark.rule("PL-214", "PL-008")
def test_new_records_wake_a_parked_fetch() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        pending = world.member("n").fetch(0, max_wait_ms=10_000)
        await world.produce(4)
        await settle()
        assert pending.done
        assert await pending.ranges() == [(0, 3, 1)]

    run(scenario)


@pytest.mark.rule("PL-214", "P-5", "12.12")
@pytest.mark.parametrize("kind", [2, 1])
def test_released_records_and_freed_room_wake_a_parked_fetch(kind: int) -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=5)
        for _ in range(2):
            await world.produce(5)
        member, ranges = await started(world)
        assert ranges == [(0, 4, 1)]
        pending = world.member("n").fetch(0, max_wait_ms=10_000)
        await settle()
        assert not pending.done
        member.accept(0, 4, kind=kind)  # type: ignore[attr-defined]
        await settle()
        assert pending.done
        assert await pending.ranges() == ([(0, 4, 2)] if kind == 2 else [(5, 9, 1)])

    run(scenario)


@pytest.mark.rule("PL-214", "PL-303")
def test_an_expired_lock_wakes_a_parked_fetch_at_that_moment() -> None:
    async def scenario(world: World) -> None:
        world.configure(lock_ms=2_000)
        _, ranges = await started(world, records=3)
        assert ranges == [(0, 2, 1)]
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        assert await pending.ranges() == [(0, 2, 2)]
        assert pending.at_s == pytest.approx(2.0, abs=0.02)

    run(scenario)


@pytest.mark.rule("PL-214", "PL-520")
def test_a_closed_session_wakes_a_parked_fetch() -> None:
    async def scenario(world: World) -> None:
        member, _ = await started(world, records=3)
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        member.acknowledge({}, epoch=-1)  # type: ignore[attr-defined]
        await settle()
        assert pending.done
        assert await pending.ranges() == [(0, 2, 2)]

    run(scenario)


@pytest.mark.rule("PL-214", "PL-707")
def test_a_roll_back_wakes_a_parked_fetch_when_the_lock_ran_out_meanwhile() -> None:
    async def scenario(world: World) -> None:
        world.configure(lock_ms=1_000)
        member, _ = await started(world, records=3)
        world.persister.fail("write", CoordinatorNotAvailableError("away"), unknown=False, delay_s=3.0)
        refused = member.accept(0, 2)  # type: ignore[attr-defined]
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        assert await pending.ranges() == [(0, 2, 2)]
        assert pending.at_s == pytest.approx(3.0, abs=0.1)
        assert code(await refused.ack_error()) == "COORDINATOR_NOT_AVAILABLE"

    run(scenario)


@pytest.mark.rule("PL-214", "PL-620", "PL-008")
def test_a_log_start_that_frees_the_window_wakes_a_parked_fetch() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=5)
        await world.produce(5)
        await world.produce(5)
        await started(world)
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        await settle()
        assert not pending.done
        await world.log().move_log_start(5)
        await settle()
        assert pending.done
        assert await pending.ranges() == [(5, 9, 1)]

    run(scenario)


@pytest.mark.rule("PL-214", "PL-1003", "GC-138")
def test_a_changed_setting_wakes_a_parked_fetch() -> None:
    async def scenario(world: World) -> None:
        world.configure(max_record_locks=5)
        await world.produce(5)
        await world.produce(5)
        await started(world)
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        await settle()
        assert not pending.done
        world.configure(max_record_locks=50)
        await settle()
        assert pending.done
        assert await pending.ranges() == [(5, 9, 1)]

    run(scenario)


@pytest.mark.scenario("S-110")
@pytest.mark.rule("PL-212", "PL-632", "PL-205", "PL-214")
def test_lost_leadership_ends_parked_fetches_at_once() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        pending = world.member("n").fetch(0, max_wait_ms=20_000)
        await settle()
        world.lose()
        await settle()
        assert pending.done
        assert code(await pending.error()) == "NOT_LEADER_OR_FOLLOWER"

    run(scenario)


@pytest.mark.rule("PL-212", "PL-205")
def test_a_failed_partition_alone_does_not_end_a_fetch_but_is_reported_with_it() -> None:
    async def scenario(world: World) -> None:
        pending = world.member().fetch(0, 1, max_wait_ms=20_000)
        await settle()
        world.lose(0)
        await settle()
        assert not pending.done
        await world.produce(2, 1)
        await settle()
        assert await pending.ranges(1) == [(0, 1, 1)]
        assert code(await pending.error(0)) == "NOT_LEADER_OR_FOLLOWER"

    run(scenario)


@pytest.mark.rule("PL-212")
def test_a_fetch_that_needs_no_bytes_waits_only_for_a_lock() -> None:
    async def scenario(world: World) -> None:
        pending = world.member().fetch(0, min_bytes=0, max_wait_ms=20_000)
        await settle()
        assert pending.done, "an empty share-partition that became active serves it"
        assert await pending.ranges() == []

    run(scenario)


@pytest.mark.scenario("S-038")
@pytest.mark.rule("PL-211", "PL-212", "PL-213")
def test_a_fetch_waits_for_its_min_bytes_and_others_do_not_wait_behind_it() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        greedy = world.member("n").fetch(0, min_bytes=1 << 19, max_wait_ms=9_000)
        modest = world.member("o").fetch(0, max_wait_ms=9_000)
        await world.produce(2)
        await settle()
        assert not greedy.done
        assert await modest.ranges() == [(0, 1, 1)]
        await world.produce(2)
        assert await greedy.ranges() == [(2, 3, 1)]
        assert greedy.at_s == pytest.approx(9.05, abs=0.01), "the deadline ignores min_bytes"

    run(scenario)


@pytest.mark.rule("PL-214", "P-5")
def test_waiters_are_served_one_at_a_time_in_order_of_arrival() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        parked = [world.member(f"n{i}").fetch(0, max_wait_ms=30_000, max_records=2, mode=1) for i in range(4)]
        await world.produce(5)
        await settle()
        assert [one.done for one in parked] == [True, True, True, False]
        assert [await one.ranges() for one in parked[:3]] == [[(0, 1, 1)], [(2, 3, 1)], [(4, 4, 1)]]

    run(scenario)


@pytest.mark.rule("PL-214", "PL-206")
def test_a_fetch_parked_behind_a_cold_read_is_woken_by_its_end() -> None:
    async def scenario(world: World) -> None:
        for _ in range(4):
            await world.produce(2)
        first = world.member("a").fetch(0, max_wait_ms=30_000, max_records=2)
        second = world.member("b").fetch(0, max_wait_ms=30_000, max_records=2)
        assert await first.ranges() == [(0, 1, 1)]
        assert await second.ranges() == [(2, 3, 1)]
        assert first.at_s == second.at_s == 0

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("PL-213", "PL-1207", "PL-206", "PL-214")
def test_a_cold_read_that_ends_after_the_deadline_acquires_nothing_and_leaves_no_lock() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        await started(world)
        await world.produce(2)
        member = world.member("n")
        pending = member.fetch(0, max_wait_ms=0)
        assert not pending.done, "its read goes to the store"
        assert await pending.ranges() == []
        await settle()
        assert world.host().core.overview().fetch_lock is None
        assert world.host().core.in_flight == 2
        assert await member.fetch(max_wait_ms=0).ranges() == [(2, 3, 1)], "the records read must still be available"

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("PL-215")
def test_a_cancelled_fetch_is_forgotten_and_acquires_nothing() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        pending = world.member("n").fetch(0, max_wait_ms=10_000)
        await settle()
        world.leader.requests.abandon(pending.handle)
        await world.produce(2)
        await settle()
        assert not pending.done
        assert world.host().core.in_flight == 0
        world.assert_quiet()

    run(scenario)


@pytest.mark.rule("PL-215", "PL-302")
def test_what_a_cancelled_fetch_had_acquired_stays_with_its_member_until_the_lock_ends() -> None:
    async def scenario(world: World) -> None:
        world.configure(lock_ms=2_000)
        member, _ = await started(world, records=2)
        await world.produce(2)
        world.persister.hold("write")
        pending = member.fetch(max_records=2, acks={0: [AckBatch(0, 1, (1,))]})  # type: ignore[attr-defined]
        await settle()
        began = now_s()
        world.leader.requests.abandon(pending.handle)
        world.persister.let_go("write")
        other = world.member("n").fetch(0, max_wait_ms=20_000)
        assert await other.ranges() == [(2, 3, 2)]
        assert other.at_s - began == pytest.approx(2.0, abs=0.02)
        assert not pending.done

    run(scenario)


@pytest.mark.rule("CM-4")
def test_draining_answers_parked_and_delayed_requests_at_once() -> None:
    async def scenario(world: World) -> None:
        parked = world.member("a").fetch(0, max_wait_ms=60_000)
        delayed = world.member("b").fetch(0, max_wait_ms=60_000)
        await settle()
        world.leader.drain()
        await settle()
        assert await parked.ranges() == []
        assert code((await delayed.answer()).error) == "SHARE_SESSION_LIMIT_REACHED"
        late = world.member("c").fetch(0, max_wait_ms=60_000)
        assert code((await late.answer()).error) == "SHARE_SESSION_LIMIT_REACHED"
        assert late.at_s < 1

    run(scenario, sessions_max=1)


@pytest.mark.rule("P-5", "P-13")
def test_a_thousand_parked_fetches_cost_no_check_each_when_one_can_be_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await started(world)
        parked = [world.member(f"n{i}").fetch(0, max_wait_ms=60_000) for i in range(1_000)]
        checks = 0
        attempt = ShareFetchOperation.attempt

        def counted(operation: ShareFetchOperation) -> None:
            nonlocal checks
            checks += 1
            attempt(operation)

        monkeypatch.setattr(ShareFetchOperation, "attempt", counted)
        for round_ in range(20):
            await world.produce(1)
            await settle(10)
            assert sum(one.done for one in parked) == round_ + 1
        assert checks <= 40
        for one in parked:
            world.leader.requests.abandon(one.handle)

    run(scenario, sessions_max=2_000)
