"""How share-partitions are initialised: reads, start offsets, failures, holes."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InQuarantineError,
)
from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share_partition.core.status import Status
from tests.support.virtual_time import now_s
from tests.unit.partition_leader.topic_log.harness import batch

from .persister import Fault, Stored
from .worlds import TOPIC, Member, World, code, key, run, settle


async def holding(world: World, records: int = 4, name: str = "m", connection: int | None = None) -> Member:
    """A member that has acquired offsets 0 … records − 1 of partition 0."""
    await world.produce(records)
    member = world.member(name, connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


@pytest.mark.rule("PL-604", "PL-731", "PL-601", "PL-635")
def test_a_failed_read_gives_its_mapped_error_to_every_waiting_fetch_once() -> None:
    async def scenario(world: World) -> None:
        world.persister.fail("read", CoordinatorLoadInProgressError("loading"), delay_s=1.0)
        first = world.member("a").fetch(0, max_wait_ms=9_000)
        await asyncio.sleep(0.5)
        joined = world.member("b").fetch(0, max_wait_ms=9_000)
        assert code(await first.error()) == code(await joined.error()) == "COORDINATOR_NOT_AVAILABLE"
        assert first.at_s == joined.at_s == pytest.approx(1.0)
        assert len(world.persister.calls) == 1
        assert await world.member("c").fetch(0, max_wait_ms=100).ranges() == [], "the next fetch makes a new object"
        assert [generation for _, _, generation in world.persister.calls] == [1, 2]

    run(scenario)


def _in_quarantine(world: World) -> None:
    """Make every later read of state fail because the state is in quarantine."""
    world.persister.chance = lambda kind: Fault(InQuarantineError("entry 7-3 is damaged")) if kind == "read" else None


@pytest.mark.rule("PL-604", "PL-731", "SC-114")
def test_what_is_in_quarantine_is_reported_by_every_fetch_also_beside_records_and_read_once_a_second() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2, 1)
        member = world.member()
        assert await member.fetch(1).ranges(1) == [(0, 1, 1)]
        _in_quarantine(world)
        world.persister.calls.clear()
        began_s = now_s()
        first = member.fetch(0, max_wait_ms=400)  # waits, since partition 1 has no records yet
        assert code(await first.error()) == "COORDINATOR_NOT_AVAILABLE"
        assert first.at_s - began_s == pytest.approx(0.4)
        for _ in range(16):
            await world.produce(1, 1)
            pending = member.fetch(max_wait_ms=400)
            error = await pending.error()
            assert isinstance(error, InQuarantineError)
            assert "entry 7-3" in error.message
            assert len(await pending.ranges(1)) == 1
            await asyncio.sleep(0.1)
        assert len([kind for kind, *_ in world.persister.calls if kind == "read"]) == 2
        world.persister.chance = lambda _: None
        await asyncio.sleep(1)
        assert code(await member.fetch(max_wait_ms=400).error()) == "COORDINATOR_NOT_AVAILABLE", "it is read meanwhile"
        await world.produce(1, 0)
        assert await member.fetch(max_wait_ms=400).ranges(0) == [(0, 0, 1)]
        assert world.leader.share_partitions._quarantined.is_empty

    run(scenario)


@pytest.mark.rule("PL-604", "SC-114")
def test_what_was_in_quarantine_long_ago_is_not_reported_and_other_failures_take_its_place() -> None:
    async def scenario(world: World) -> None:
        _in_quarantine(world)
        assert code(await world.member("a").fetch(0).error()) == "COORDINATOR_NOT_AVAILABLE"
        world.persister.chance = lambda _: None
        await asyncio.sleep(30)
        assert await world.member("b").fetch(0, max_wait_ms=100).ranges() == []
        await world.member("b").fetch(epoch=-1).answer()
        world.lose()
        await world.lead()
        _in_quarantine(world)
        assert code(await world.member("c").fetch(0).error()) == "COORDINATOR_NOT_AVAILABLE"
        world.persister.chance = lambda _: Fault(CoordinatorLoadInProgressError("loading"), delay_s=0.1)
        await asyncio.sleep(1)
        stale, fresh = world.member("d").fetch(0), world.member("e").fetch(0, max_wait_ms=5_000)
        assert "entry 7-3" in str(await stale.error())
        assert "entry 7-3" in str(await fresh.error())
        await asyncio.sleep(0.2)
        assert "loading" in str(await world.member("f").fetch(0, max_wait_ms=5_000).error())

    run(scenario)


@pytest.mark.rule("PL-604")
def test_stored_state_that_cannot_be_loaded_fails_the_waiting_fetch_and_is_not_read_again_by_it() -> None:
    async def scenario(world: World) -> None:
        world.persister.stored[key()] = Stored(0, ranks={3: (1, 9)})
        pending = world.member().fetch(0, max_wait_ms=5_000)
        assert code(await pending.error()) == "UNKNOWN_SERVER_ERROR"
        assert pending.at_s == 0
        assert len(world.persister.calls) == 1

    run(scenario)


@pytest.mark.rule("PL-604", "PL-609")
def test_a_start_offset_that_cannot_be_written_fails_the_waiting_fetch() -> None:
    async def scenario(world: World) -> None:
        world.persister.stored[key()] = Stored(-1)
        world.persister.fail("write", CoordinatorNotAvailableError("away"))
        pending = world.member().fetch(0, max_wait_ms=5_000)
        assert code(await pending.error()) == "COORDINATOR_NOT_AVAILABLE"
        assert len(world.persister.calls) == 2

    run(scenario)


@pytest.mark.rule("PL-635", "12.7")
def test_a_share_partition_not_initialised_yet_is_read_again_five_times() -> None:
    async def scenario(world: World) -> None:
        world.persister.missing.add(key())
        pending = world.member().fetch(0, max_wait_ms=5_000)
        assert code(await pending.error()) == "UNKNOWN_SERVER_ERROR"
        assert len(world.persister.calls) == 5
        second = world.member("b").fetch(0, max_wait_ms=5_000)
        await asyncio.sleep(0.3)
        world.persister.missing.clear()
        assert await second.ranges() == []
        assert world.host().core.status is Status.ACTIVE

    run(scenario)


@pytest.mark.rule("PL-605", "PL-609", "SC-39", "12.25")
@pytest.mark.parametrize(("policy", "start"), [("latest", 6), ("earliest", 2), ("by_duration:PT1H", 6)])
def test_an_unset_start_offset_is_resolved_by_the_group_and_written_before_anything_is_delivered(
    policy: str, start: int
) -> None:
    async def scenario(world: World) -> None:
        world.configure(auto_offset_reset=policy)
        for _ in range(3):
            await world.produce(2)
        await world.log().move_log_start(2)
        world.persister.stored[key()] = Stored(-1)
        world.persister.hold("write")
        pending = world.member().fetch(0, max_wait_ms=9_000)
        await settle()
        assert world.host().core.status is Status.INITIALIZING
        world.persister.let_go("write")
        await settle()
        assert world.persister.stored[key()].start == start
        assert pending.done is (start < 6)

    run(scenario)


@pytest.mark.rule("PL-605")
def test_a_start_offset_by_duration_is_that_of_the_first_record_young_enough() -> None:
    async def scenario(world: World) -> None:
        world.configure(auto_offset_reset="by_duration:PT1H")
        now_ms = world.clock.wall_ms()
        for age_ms in (7_200_000, 3_660_000, 3_540_000, 0):
            await world.log().append([batch(2, timestamps=[now_ms - age_ms] * 2)], 10_000)
        world.persister.stored[key()] = Stored(-1)
        assert await world.member().fetch(0).ranges() == [(4, 5, 1), (6, 7, 1)]
        assert world.persister.stored[key()].start == 4

    run(scenario)


@pytest.mark.rule("PL-604", "PL-605")
def test_a_start_offset_that_cannot_be_determined_fails_the_waiting_fetch() -> None:
    async def scenario(world: World) -> None:
        world.persister.stored[key()] = Stored(-1)
        world.persister.hold("read")
        pending = world.member().fetch(0, max_wait_ms=5_000)
        await settle()
        world.lapse()
        world.persister.let_go("read")
        assert code(await pending.error()) == "NOT_LEADER_OR_FOLLOWER"
        assert pending.at_s == 0
        assert world.persister.writes == []
        world.renewed()
        assert await world.member("n").fetch(0, max_wait_ms=50).ranges() == []

    run(scenario)


@pytest.mark.rule("PL-601", "PL-509")
def test_a_partition_that_its_topic_lacks_is_refused_and_stays_in_the_session() -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        pending = member.fetch(9, max_wait_ms=5_000)
        assert code(await pending.error(9)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert pending.at_s == 0
        world.facts.topics[TOPIC] = 10
        await world.lead(9)
        await world.produce(2, 9)
        assert await member.fetch().ranges(9) == [(0, 1, 1)]

    run(scenario)


@pytest.mark.rule("PL-611", "PL-918")
def test_records_stored_for_a_dead_letter_of_a_group_without_a_queue_are_archived_and_a_log_line_says_so() -> None:
    async def scenario(world: World) -> None:
        await world.produce(4)
        world.persister.stored[key()] = Stored(0, ranks={0: (1, STATE_ARCHIVING), 1: (5, STATE_ARCHIVING)})
        with structlog.testing.capture_logs() as logged:
            assert await world.member().fetch(0).ranges() == [(2, 3, 1)]
            await settle()
        (line,) = [line for line in logged if line["event"] == "records_archived_without_letter"]
        assert (line["log_level"], line["records"], line["reason"]) == ("error", 2, "switched_off")
        assert world.host().core.start_offset == 2

    run(scenario)


@pytest.mark.rule("CM-47")
def test_the_log_end_is_raised_to_what_a_leader_stored() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        world.persister.stored[key()] = Stored(5, ranks={7: (1, STATE_ARCHIVED)})
        await world.member().fetch(0, max_wait_ms=100).ranges()
        assert world.log().high_watermark == 8
        assert await world.produce(1) == 8

    run(scenario)


@pytest.mark.rule("CM-47", "PL-608")
def test_a_share_partition_at_a_hole_without_data_behind_it_moves_over_it_at_once() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        world.persister.stored[key()] = Stored(5, ranks={7: (1, STATE_ARCHIVED), 9: (2, STATE_AVAILABLE)})
        pending = world.member().fetch(0, max_wait_ms=60_000)
        await settle()
        assert not pending.done
        assert world.host().core.start_offset == 10
        assert await world.produce(3) == 10
        await settle()
        assert await pending.ranges() == [(10, 12, 1)]
        await asyncio.sleep(6)
        assert world.persister.stored[key()].start == 10, "PL-621 carries the new start offset"

    run(scenario)


@pytest.mark.rule("CM-47", "PL-124")
def test_a_hole_met_at_the_end_of_a_poll_is_skipped_when_nothing_is_in_flight() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world, 2)
        await world.log().raise_log_end(1_000)
        assert await member.fetch(max_wait_ms=100).ranges() == []
        assert world.host().core.start_offset == 0, "the start offset must not pass records in flight"
        await member.accept(0, 1).answer()
        assert world.host().core.start_offset == 2
        assert await member.fetch(max_wait_ms=100).ranges() == []
        assert world.host().core.start_offset == 1_000

    run(scenario)


@pytest.mark.rule("CM-83")
def test_state_far_beyond_the_log_is_the_affair_of_its_group_alone_and_is_reported_every_ten_seconds() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2)
        world.persister.stored[key()] = Stored(2**40)
        world.persister.stored[key(group="other")] = Stored(0)
        with structlog.testing.capture_logs() as lines:
            for _ in range(4):
                assert code(await world.member().fetch(0, max_wait_ms=100).error()) == "UNKNOWN_SERVER_ERROR"
                await asyncio.sleep(4)
        reported = [line for line in lines if line["event"] == "state_beyond_log_end"]
        assert 1 <= len(reported) <= 2, "four times in twelve seconds"
        assert world.host() is None or world.host().core.status is not Status.ACTIVE
        assert await world.member("n", "other").fetch(0, max_wait_ms=100).ranges() == [(0, 1, 1)]
        assert await world.produce(1) == 2

    run(scenario)
