"""How share-partitions begin, fail, retire and go with their leadership; how sessions end."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupIdNotFoundError,
    RequestTimedOutError,
)
from kip932.ids import STATE_ARCHIVED, STATE_AVAILABLE
from partition_leader.core.events import AckBatch
from partition_leader.core.status import Status
from partition_leader.led_partitions import shard_of

from .worlds import Fault, Member, Stored, World, code, key, part, run, settle


async def holding(world: World, records: int = 4, name: str = "m", connection: int | None = None) -> Member:
    """A member that has acquired offsets 0 … records − 1 of partition 0."""
    await world.produce(records)
    member = world.member(name, connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


# --- initialisation


@pytest.mark.rule("PL-604", "PL-731")
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


@pytest.mark.rule("PL-635")
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


@pytest.mark.rule("PL-605", "PL-609")
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
        assert world.host().core.start_offset == 0, "what is in flight stays"
        await member.accept(0, 1).answer()
        assert world.host().core.start_offset == 2
        assert await member.fetch(max_wait_ms=100).ranges() == []
        assert world.host().core.start_offset == 1_000

    run(scenario)


# --- drops


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


@pytest.mark.rule("PL-632", "PL-631")
def test_lost_leadership_answers_what_waits_and_writes_nothing_more() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        pending = member.accept(0, 1)
        queued = member.accept(2, 3)
        await settle()
        world.lose()
        await settle()
        assert code(await pending.ack_error()) == code(await queued.ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert world.persister.running == 0
        world.persister.let_go("write")
        await settle()
        assert world.persister.writes == []

    run(scenario)


@pytest.mark.rule("PL-633", "PL-602")
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
        world.persister.fail("write", FencedLeaderEpochError("fenced"), unknown=False, leader_epoch=stored)
        assert code(await member.accept(0, 3).ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert [floor for _, floor in world.given_up] == ([stored] if gives_up else [])
        if not gives_up:
            assert await world.member("n").fetch(0, max_wait_ms=50).ranges() == [(0, 3, 1)]
            assert world.host().core.generation == 2

    run(scenario)


@pytest.mark.rule("PL-631", "PL-523")
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
def test_a_fetch_still_parked_when_its_session_closes_ends_and_opens_nothing_anew() -> None:
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


@pytest.mark.rule("PL-630", "PL-634")
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


# --- the lease


@pytest.mark.rule("PL-411", "CM-3")
def test_past_the_lease_nothing_is_confirmed_that_no_write_backs() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        fetch = member.fetch(acks={0: [AckBatch(0, 3, (1,))]})
        await settle()
        renewal = member.acknowledge({}, is_renew_ack=True)
        world.lapse()
        assert code(await member.accept(4, 5, kind=1).ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        world.persister.let_go("write")
        await settle()
        assert code(await fetch.error()) == "NOT_LEADER_OR_FOLLOWER", "acquired before, answered after"
        assert await fetch.ack_error() is None, "its write is durable"
        assert (await renewal.answer()).error is None
        world.renewed()
        await settle()
        assert world.host() is not None
        assert await member.fetch().ranges() == [(4, 5, 2)], "it was given back"

    run(scenario)


@pytest.mark.rule("PL-411", "PL-325")
def test_a_renewal_whose_lease_lapsed_before_the_answer_is_refused() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(1, 1)
        opened = world.member("n")
        await opened.fetch(0, 1, max_wait_ms=100).answer()
        world.persister.hold("write")
        both = member.acknowledge({0: [AckBatch(0, 1, (4,))]}, is_renew_ack=True)
        assert await both.ack_error() is None
        mixed = opened.acknowledge({0: [], 1: [AckBatch(0, 0, (1,))]})
        await settle()
        assert not mixed.done
        world.persister.let_go("write")
        await mixed.answer()

    run(scenario)


@pytest.mark.rule("CM-3", "PL-630")
def test_a_lease_that_lapsed_and_came_back_has_forgotten_nothing() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.lapse()
        assert code(await member.fetch(max_wait_ms=0).error()) == "NOT_LEADER_OR_FOLLOWER"
        world.renewed()
        assert await member.fetch().ranges() == [(4, 5, 1)]
        assert await member.accept(0, 5).ack_error() is None

    run(scenario)


# --- sessions


@pytest.mark.rule("PL-505", "PL-502")
def test_what_a_fetch_of_a_replaced_session_acquired_is_given_back() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        old = member.fetch(acks={0: [AckBatch(0, 3, (1,))]})
        await settle()
        assert world.host().core.in_flight == 6
        again = world.member("m")
        renewed = again.fetch(0, max_wait_ms=9_000)
        await settle()
        assert not renewed.done
        world.persister.let_go("write")
        await settle()
        assert code((await old.answer()).error) == "INVALID_SHARE_SESSION_EPOCH"
        assert await renewed.ranges() == [(4, 5, 2)]

    run(scenario)


@pytest.mark.rule("PL-505", "PL-1201")
def test_giving_back_late_does_not_take_from_the_new_session_what_it_was_given_since() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2, 1)
        member = world.member("m")
        first = member.fetch(0, 1)
        assert await first.ranges(1) == [(0, 1, 1)]
        await world.produce(3, 0)
        # Acquires 0-2 of partition 0, and waits for the acknowledgement of partition 1.
        world.persister.fail("write", CoordinatorNotAvailableError("slow"), unknown=False, delay_s=3.0)
        old = member.fetch(acks={1: [AckBatch(0, 1, (1,))]})
        await settle()
        assert world.host(0).core.in_flight == 3
        again = world.member("m")
        assert await again.fetch(0).ranges() == [(0, 2, 2)], "released with the old session, acquired by the new one"
        assert code((await old.answer()).error) == "INVALID_SHARE_SESSION_EPOCH"
        await settle()
        assert await world.member("thief").fetch(0, max_wait_ms=50).ranges() == []
        assert await again.accept(0, 2).ack_error() is None

    run(scenario)


@pytest.mark.rule("PL-506", "V20")
def test_the_session_limit_is_answered_after_max_wait() -> None:
    async def scenario(world: World) -> None:
        await world.member("a").fetch(0, max_wait_ms=0).answer()
        began = asyncio.get_running_loop().time()
        refused = world.member("b").fetch(0, max_wait_ms=500)
        given_up = world.member("c").fetch(0, max_wait_ms=500)
        world.leader.requests.abandon(given_up.handle)
        assert code((await refused.answer()).error) == "SHARE_SESSION_LIMIT_REACHED"
        assert refused.at_s - began == pytest.approx(0.5, abs=0.01)
        await asyncio.sleep(1)
        assert not given_up.done

    run(scenario, sessions_max=1)


@pytest.mark.rule("PL-520", "PL-522", "PL-524")
def test_the_end_of_a_stream_releases_what_its_sessions_held() -> None:
    async def scenario(world: World) -> None:
        await holding(world, connection=7)
        pending = world.member("n").fetch(0, max_wait_ms=9_000)
        world.leader.requests.connection_lost(7)
        await settle()
        assert await pending.ranges() == [(0, 3, 2)]

    run(scenario)


@pytest.mark.rule("PL-524")
def test_a_silent_session_without_a_stream_ends_and_one_with_a_parked_fetch_does_not() -> None:
    async def scenario(world: World) -> None:
        world.configure(lock_duration_ms=3_600_000)
        silent = await holding(world)
        waiting = world.member("n")
        parked = waiting.fetch(0, max_wait_ms=120_000)
        world.leader.start()
        assert await parked.ranges() == [(0, 3, 2)]
        assert 45 <= parked.at_s <= 51
        assert code((await silent.accept(0, 3).answer()).error) == "SHARE_SESSION_NOT_FOUND"

    run(scenario)


@pytest.mark.rule("PL-402")
def test_acknowledgements_make_no_share_partition_and_name_who_leads() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        answer = member.acknowledge({1: [AckBatch(0, 0, (1,))], 9: [AckBatch(0, 0, (1,))], 2: []})
        assert code(await answer.ack_error(1)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert code(await answer.ack_error(9)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await answer.ack_error(2) is None
        assert world.host(1) is None

    run(scenario)


# --- ownership


@pytest.mark.rule("CM-4", "CM-12", "PL-412")
def test_a_hand_over_finishes_the_state_writes_under_way_and_refuses_what_is_new() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.faults["write"].append(slow(1.0))
        acknowledged = member.accept(0, 3)
        parked = world.member("n").fetch(0, max_wait_ms=60_000)
        await settle()
        handing = asyncio.get_running_loop().create_task(world.leader.owner(shard_of(part())).releasing())
        await settle()
        assert code(await parked.error()) == "NOT_LEADER_OR_FOLLOWER"
        assert code(await member.accept(0, 3).ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        await handing
        assert await acknowledged.ack_error() is None
        assert world.persister.stored[key()].start == 4
        assert len(world.leader.share_partitions) == 0

    run(scenario)


@pytest.mark.rule("CM-4", "CM-12")
def test_a_hand_over_does_not_wait_for_ever_and_leaves_no_call_behind() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        acknowledged = member.accept(0, 3)
        await settle()
        await world.leader.owner(shard_of(part())).releasing()
        await settle()
        assert asyncio.get_running_loop().time() <= 5
        assert code(await acknowledged.ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert world.persister.running == 0
        world.persister.let_go("write")

    run(scenario)


@pytest.mark.rule("CM-12")
def test_a_hand_over_cut_short_still_ends_the_log() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        member.accept(0, 3)
        await settle()
        topic_log = world.log()
        handing = asyncio.get_running_loop().create_task(world.leader.owner(shard_of(part())).releasing())
        await settle()
        handing.cancel()
        await settle()
        assert topic_log.closed
        assert len(world.leader.share_partitions) == 0
        world.persister.let_go("write")

    run(scenario)


@pytest.mark.rule("PL-632")
def test_a_deleted_topic_is_led_no_more_at_once_and_its_log_ends_with_its_shard() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        topic_log = world.log()
        parked = member.fetch(max_wait_ms=60_000)
        await settle()
        topics, world.facts.topics = world.facts.topics, {}
        world.leader.topics_changed(frozenset(topics))
        await settle()
        assert code(await parked.error()) == "UNKNOWN_TOPIC_ID"
        assert len(world.leader.share_partitions) == 0
        for number in range(4):
            await world.leader.owner(shard_of(part(number))).releasing()
        assert topic_log.closed
        assert world.leader.led._owners == {}

    run(scenario)


@pytest.mark.rule("PL-602")
def test_generations_are_remembered_for_each_partition_and_not_for_each_group() -> None:
    async def scenario(world: World) -> None:
        for number in range(20):
            member = world.member("m", group=f"g{number}")
            await member.fetch(0, max_wait_ms=0).answer()
            member.acknowledge({}, epoch=-1)
            await settle()
        assert len(world.leader.share_partitions._generations) == 1
        world.lose()
        assert world.leader.share_partitions._generations == {}

    run(scenario)


def slow(delay_s: float) -> Fault:
    return Fault(delay_s=delay_s)
