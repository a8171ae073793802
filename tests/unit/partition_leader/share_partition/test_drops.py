"""How share-partitions end: lost leadership, retiring, fencing, read-back."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from kip932.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    RequestTimedOutError,
)
from kip932.state_values import StaleLeaderError
from partition_leader.share_partition.core.events import AckBatch

from .worlds import Member, World, code, run, settle


async def holding(world: World, records: int = 4, name: str = "m", connection: int | None = None) -> Member:
    """A member that has acquired offsets 0 … records − 1 of partition 0."""
    await world.produce(records)
    member = world.member(name, connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


@pytest.mark.rule("PL-602", "PL-632")
def test_a_read_of_a_dropped_object_that_fails_late_does_not_touch_its_successor() -> None:
    async def scenario(world: World) -> None:
        world.persister.fail("read", CoordinatorNotAvailableError("late"), delay_s=2.0)
        await holding_nothing(world)
        world.lose()
        await world.lead(0)
        world.persister.hold("read")
        pending = world.member("b").fetch(0, max_wait_ms=9_000)
        await asyncio.sleep(3)
        assert not pending.done
        world.persister.let_go("read")
        assert await pending.ranges() == []

    async def holding_nothing(world: World) -> None:
        world.member("a").fetch(0, max_wait_ms=100)
        await asyncio.sleep(0.5)

    run(scenario)


@pytest.mark.scenario("S-110")
@pytest.mark.rule("PL-632", "PL-631")
def test_lost_leadership_answers_what_waits_and_writes_nothing_more() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        assert await world.member(group="other").fetch(0).ranges() == [(0, 3, 1)]
        world.persister.hold("write")
        pending = member.accept(0, 1)
        queued = member.accept(2, 3)
        await settle()
        world.lose()
        assert len(world.leader.share_partitions) == 0, "of every group"
        await settle()
        assert code(await pending.ack_error()) == code(await queued.ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert world.persister.running == 0
        world.persister.let_go("write")
        await settle()
        assert world.persister.writes == []

    run(scenario)


@pytest.mark.scenario("S-110")
@pytest.mark.rule("PL-633", "PL-602", "PL-105")
def test_a_new_leadership_starts_from_what_is_stored_with_a_new_epoch() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        assert await member.accept(0, 1).ack_error() is None
        world.lose()
        await world.lead(0)
        assert await world.member("n").fetch(0).ranges() == [(2, 3, 1)]
        assert code(await member.accept(2, 3).ack_error()) == "INVALID_RECORD_STATE"

    run(scenario)


@pytest.mark.rule("CM-13", "PL-731")
@pytest.mark.parametrize(("above", "gives_up"), [(7, True), (0, False)])
def test_leadership_is_given_up_only_when_a_higher_epoch_is_stored(above: int, gives_up: bool) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        stored = world.epochs[0] + above
        world.persister.fail("write", StaleLeaderError("fenced", stored), unknown=False)
        assert code(await member.accept(0, 3).ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert [floor for _, floor in world.given_up] == ([stored] if gives_up else [])
        if not gives_up:
            assert await world.member("n").fetch(0, max_wait_ms=50).ranges() == [(0, 3, 1)]
            assert world.host().core.generation == 2

    run(scenario)


@pytest.mark.rule("PL-631", "PL-523", "PL-212", "PL-601")
def test_a_fetch_parks_until_the_retiring_object_has_written_and_then_gets_the_successor() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        member.acknowledge({}, epoch=-1)
        await settle()
        assert world.host() is None
        pending = world.member("n").fetch(0, max_wait_ms=60_000)
        await settle()
        assert world.host() is None
        assert not pending.done
        world.persister.let_go("write")
        await settle()
        assert await pending.ranges() == [(0, 3, 2)], "the release was written first"
        assert world.host().core.generation == 2

    run(scenario)


@pytest.mark.rule("PL-631")
def test_a_retiring_object_that_cannot_write_gives_way_after_the_operation_time_out() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", RequestTimedOutError("lost"), delay_s=14.0)
        world.persister.fail("write", RequestTimedOutError("lost"), delay_s=14.0)
        member.acknowledge({0: [AckBatch(0, 1, (1,))]}, epoch=-1)
        pending = world.member("n").fetch(0, max_wait_ms=60_000)
        assert await pending.ranges() == [(0, 3, 1)]
        assert pending.at_s <= 15.1

    run(scenario)


@pytest.mark.rule("PL-631")
def test_retiring_takes_as_long_as_the_setting_says_and_no_longer() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", RequestTimedOutError("lost"), delay_s=14.0)
        member.acknowledge({0: [AckBatch(0, 1, (1,))]}, epoch=-1)
        pending = world.member("n").fetch(0, max_wait_ms=60_000)
        assert await pending.ranges() == [(0, 3, 1)]
        assert 2.0 <= pending.at_s <= 2.6

    run(scenario, operation_timeout_ms=2_000)


@pytest.mark.rule("PL-523")
def test_the_last_session_retires_its_group_and_no_other() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        other = world.member("o", group="other")
        await other.fetch(0, 1, max_wait_ms=50).answer()
        second = world.member("n")
        await second.fetch(0, max_wait_ms=50).answer()
        member.acknowledge({}, epoch=-1)
        await settle()
        assert world.host() is not None, "the group has a session left"
        second.acknowledge({}, epoch=-1)
        await settle()
        assert world.host() is None
        assert world.host(0, "other") is not None
        assert world.host(1, "other") is not None

    run(scenario)


@pytest.mark.rule("PL-523", "PL-505")
def test_a_fetch_still_parked_when_its_session_closes_ends_and_opens_nothing_again() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        parked = member.fetch(max_wait_ms=60_000)
        await settle()
        member.acknowledge({}, epoch=-1)
        await settle()
        assert code((await parked.answer()).error) == "INVALID_SHARE_SESSION_EPOCH"
        await asyncio.sleep(1)
        assert world.host() is None

    run(scenario)


@pytest.mark.rule("PL-630", "PL-634", "PL-504")
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (GroupIdNotFoundError("gone"), "GROUP_ID_NOT_FOUND"),
        (FencedStateEpochError("reset"), "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_state_that_was_reset_or_deleted_drops_the_object(error: Exception, seen: str) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", error, unknown=False)  # type: ignore[arg-type]
        assert code(await member.accept(0, 3).ack_error()) == seen
        await settle()
        assert world.host() is None
        assert world.given_up == []
        assert await member.fetch(max_wait_ms=50).ranges() == [(0, 3, 1)]

    run(scenario)


@pytest.mark.rule("PL-707")
@pytest.mark.parametrize("applied", [True, False])
def test_an_unknown_outcome_is_read_back_with_the_next_generation(applied: bool) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", RequestTimedOutError("lost"), applied=applied)
        assert code(await member.accept(0, 3).ack_error()) == "UNKNOWN_SERVER_ERROR"
        await settle()
        assert [(kind, generation) for kind, _, generation in world.persister.calls] == [
            ("read", 1),
            ("write", 1),
            ("read", 2),
        ]
        assert world.host().core.start_offset == (4 if applied else 0)
        assert await member.accept(0, 3).ack_error() is None

    run(scenario)


@pytest.mark.rule("PL-707")
def test_a_read_back_that_fails_retires_the_object_and_a_successor_reads_what_is_stored() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", RequestTimedOutError("lost"), applied=True)
        world.persister.fail("read", RequestTimedOutError("lost"), delay_s=1.0)
        member.accept(0, 3)
        parked = member.fetch(max_wait_ms=9_000)
        await asyncio.sleep(2)
        assert world.host().core.generation == 3
        assert world.host().core.start_offset == 4
        world.leader.requests.abandon(parked.handle)

    run(scenario)


@pytest.mark.rule("PL-102", "PL-631")
def test_a_record_in_an_impossible_state_ends_the_object_and_the_next_fetch_reads_what_is_stored(
    contradictions: list[str],
) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        pending = member.accept(0, 1)
        await settle()
        window = world.host().core._state.window
        window.assign(next(window.walk()), 1, bytes([0]))
        with structlog.testing.capture_logs() as logged:
            world.persister.let_go("write")
            assert code(await pending.ack_error()) == "UNKNOWN_SERVER_ERROR"
        said = 'offset 1 is Available, and "write persisted"'
        assert [found.startswith(said) for found in contradictions] == [True]
        assert [(line["log_level"], line["partition"]) for line in logged if "exc_info" in line] == [("error", 0)]
        assert [line["cause"].startswith(said) for line in logged if "cause" in line] == [True]
        assert await world.member("n").fetch(0).ranges() == [(2, 3, 1)]
        assert world.host().core.generation == 2
        contradictions.clear()

    run(scenario)
