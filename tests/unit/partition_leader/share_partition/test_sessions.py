"""Sessions, and the lease that a leader needs to respond."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.errors import (
    CoordinatorNotAvailableError,
)
from kip932.state_batches import CAUSE_ACK, ArchivedRange
from partition_leader.share_partition.core.events import AckBatch
from shard_runtime.config.group_config import GroupConfig
from tests.support.virtual_time import now_s

from .worlds import Member, World, code, part, run, settle


async def holding(world: World, records: int = 4, name: str = "m", connection: int | None = None) -> Member:
    """A member that has acquired offsets 0 … records − 1 of partition 0."""
    await world.produce(records)
    member = world.member(name, connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


@pytest.mark.rule("PL-411", "CM-3", "PL-733")
def test_past_the_lease_nothing_is_confirmed_that_no_write_backs() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        fetch = member.fetch(max_records=2, acks={0: [AckBatch(0, 3, (1,))]})
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
        assert await member.fetch(1).ranges(1) == [(0, 0, 1)]
        world.persister.hold("write")
        both = member.acknowledge({0: [AckBatch(0, 3, (4,))], 1: [AckBatch(0, 0, (1,))]}, is_renew_ack=True)
        await settle()
        assert not both.done, "the renewal waits for the write of the accept"
        world.lapse()
        world.persister.let_go("write")
        assert code(await both.ack_error(0)) == "NOT_LEADER_OR_FOLLOWER"
        assert await both.ack_error(1) is None, "its write is durable"
        world.renewed()

    run(scenario)


@pytest.mark.rule("PL-322", "PL-323", "PL-420")
def test_a_fetch_that_renews_applies_its_acknowledgements_and_fetches_nothing() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        acks = {0: [AckBatch(0, 1, (4,)), AckBatch(2, 3, (1,))]}
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        refused = await member.fetch(acks=acks, is_renew_ack=True, **{**nothing, "max_records": 1}).answer()
        assert code(refused.error) == "INVALID_REQUEST"
        assert world.persister.writes == []
        member.epoch -= 1  # the request was refused before it consumed its epoch
        renewing = member.fetch(acks=acks, is_renew_ack=True, **nothing)
        assert await renewing.ack_error() is None
        assert await renewing.ranges() == []
        assert (await renewing.answer()).lock_ms == 30_000
        assert world.host().core.in_flight == 4, "two more records wait"
        assert len(world.persister.writes) == 1

    run(scenario)


@pytest.mark.rule("PL-254", "PL-301")
@pytest.mark.parametrize(("before_ms", "after_ms", "reported_ms"), [(10_000, 60_000, 10_000), (60_000, 10_000, 10_000)])
def test_no_answer_shows_a_longer_lock_than_one_that_its_request_began(
    before_ms: int, after_ms: int, reported_ms: int
) -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.configure(lock_ms=before_ms)
        await world.produce(2)
        world.persister.hold("write")
        both = member.acknowledge({0: [AckBatch(0, 0, (1,)), AckBatch(1, 3, (4,))]}, is_renew_ack=True)
        await settle()
        world.configure(lock_ms=after_ms)
        world.persister.let_go("write")
        assert (await both.answer()).lock_ms == reported_ms, "the renewals count from when the request came"

        world.configure(lock_ms=before_ms)
        world.persister.hold("write")
        fetched = member.fetch(acks={0: [AckBatch(1, 1, (1,))]})
        await asyncio.sleep(1)
        assert world.host().core.in_flight == 5, "they are locked, and the answer waits for the write"
        world.configure(lock_ms=after_ms)
        world.persister.let_go("write")
        assert (await fetched.answer()).lock_ms == reported_ms
        assert await fetched.ranges() == [(4, 5, 1)]

        world.configure(lock_ms=after_ms)
        parked = member.fetch()
        await settle()
        world.configure(lock_ms=before_ms)
        await world.produce(1)
        assert (await parked.answer()).lock_ms == before_ms, "nothing was locked before the change"

    run(scenario)


@pytest.mark.rule("CM-3", "PL-630", "PL-252")
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


@pytest.mark.rule("PL-505", "PL-502")
def test_what_a_fetch_of_a_replaced_session_acquired_is_given_back() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(2)
        world.persister.hold("write")
        old = member.fetch(max_records=2, acks={0: [AckBatch(0, 3, (1,))]})
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


@pytest.mark.rule("PL-505", "PL-508")
@pytest.mark.parametrize("epoch", [0, -1])
def test_what_a_request_of_an_ended_session_acquired_is_free_also_in_a_partition_forgotten_since(epoch: int) -> None:
    """The end of the session does not release what it forgot (PL-508); the request itself has to."""

    async def scenario(world: World) -> None:
        await world.produce(3)
        await world.produce(2, 1)
        member, other = world.member(), world.member("other")
        assert await other.fetch(2, max_wait_ms=0).ranges(2) == []
        assert await member.fetch(0, max_records=3).ranges() == [(0, 2, 1)]
        world.persister.hold("write")
        both = member.fetch(1, max_records=2, acks={0: [AckBatch(0, 2, (1,))]})
        await settle()
        assert (both.done, world.host(1).core.in_flight) == (False, 2), "its answer waits for the write"
        await member.fetch(forgotten=(part(1),), max_wait_ms=0).answer()
        await member.fetch(*([0] if epoch == 0 else []), epoch=epoch, max_wait_ms=0).answer()
        world.persister.let_go("write")
        answer = await both.answer()
        assert (code(answer.error), list(answer.partitions)) == ("INVALID_SHARE_SESSION_EPOCH", [])
        assert await other.fetch(1, max_wait_ms=1_000).ranges(1) == [(0, 1, 2)], "long before their locks expire"

    run(scenario)


@pytest.mark.rule("PL-505", "PL-1201")
def test_giving_back_late_does_not_take_from_the_new_session_what_it_was_given_since() -> None:
    async def scenario(world: World) -> None:
        await world.produce(2, 1)
        member = world.member("m")
        first = member.fetch(0, 1)
        assert await first.ranges(1) == [(0, 1, 1)]
        await world.produce(3, 0)
        # Acquires 0-2 of partition 0, and waits for the write of partition 1's acknowledgement.
        world.persister.fail("write", CoordinatorNotAvailableError("slow"), unknown=False, delay_s=3.0)
        old = member.fetch(max_records=3, acks={1: [AckBatch(0, 1, (1,))]})
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
        began = now_s()
        refused = world.member("b").fetch(0, max_wait_ms=500)
        given_up = world.member("c").fetch(0, max_wait_ms=500)
        world.leader.requests.abandon(given_up.handle)
        assert code((await refused.answer()).error) == "SHARE_SESSION_LIMIT_REACHED"
        assert refused.at_s - began == pytest.approx(0.5, abs=0.01)
        await asyncio.sleep(1)
        assert not given_up.done

    run(scenario, sessions_max=1)


@pytest.mark.rule("PL-520", "PL-522", "PL-524", "12.17")
def test_the_end_of_a_stream_releases_what_its_sessions_held() -> None:
    async def scenario(world: World) -> None:
        await holding(world, connection=7)
        pending = world.member("n").fetch(0, max_wait_ms=9_000)
        world.leader.requests.connection_lost(7)
        await settle()
        assert await pending.ranges() == [(0, 3, 2)]

    run(scenario)


@pytest.mark.rule("PL-524")
def test_a_silent_session_without_a_stream_ends_and_one_with_a_parked_fetch_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A session times out after the duration of a lock; the session's time-out is shortened here, so that no lock
    expires first."""
    monkeypatch.setattr(GroupConfig, "idle_ms", 45_000)

    async def scenario(world: World) -> None:
        world.configure(lock_ms=3_600_000)
        silent = await holding(world)
        waiting = world.member("n")
        parked = waiting.fetch(0, max_wait_ms=120_000)
        world.leader.start()
        assert await parked.ranges() == [(0, 3, 2)]
        assert 45 <= parked.at_s <= 51
        assert code((await silent.accept(0, 3).answer()).error) == "SHARE_SESSION_NOT_FOUND"

    run(scenario)


@pytest.mark.rule("PL-525")
def test_a_restart_that_switches_share_groups_off_and_on_ends_sessions_and_share_partitions() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.restart(enabled=lambda: False)
        assert code((await member.accept(0, 3).answer()).error) == "UNSUPPORTED_VERSION"
        await world.restart(enabled=lambda: True)
        assert world.host(0) is None
        assert code((await member.fetch(1).answer()).error) == "SHARE_SESSION_NOT_FOUND"
        assert await world.member("n").fetch(0).ranges() == [(0, 3, 1)], "deliveries without an outcome are not stored"

    run(scenario)


@pytest.mark.scenario("S-110")
@pytest.mark.rule("PL-402")
def test_acknowledgements_make_no_share_partition_and_name_who_leads() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        answer = member.acknowledge({1: [AckBatch(0, 0, (1,))], 9: [AckBatch(0, 0, (1,))], 2: []})
        assert code(await answer.ack_error(1)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert code(await answer.ack_error(9)) == "UNKNOWN_TOPIC_OR_PARTITION"
        assert await answer.ack_error(2) is None
        assert world.host(1) is None
        world.facts.topics = {}
        assert code(await member.accept(0, 0, partition=9).ack_error(9)) == "UNKNOWN_TOPIC_ID"

    run(scenario)


@pytest.mark.rule("PL-702", "PM-20", "X2", "X3", "X4", "X5", "X10")
def test_a_write_says_what_only_the_leader_knows() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(3)
        acks = [AckBatch(0, 0, (1,)), AckBatch(1, 2, (2,)), AckBatch(3, 3, (3,))]
        assert await member.acknowledge({0: acks}).ack_error() is None
        (write,) = world.persister.writes
        stats = write.stats
        assert stats.cause == CAUSE_ACK
        assert (stats.n_accept, stats.n_release, stats.n_reject, stats.n_timeout, stats.n_limit) == (1, 2, 1, 0, 0)
        assert (stats.max_dc, stats.sum_dc, stats.hwm, stats.speo) == (1, 2, 7, 4)
        assert (stats.write_id, stats.delivery_limit, stats.archived) == (1, 5, (ArchivedRange(3, 3, 1, 2),))
        assert (write.leader_epoch, write.generation, write.state_epoch) == (world.epochs[0], 1, 1)
        assert (write.start_offset, write.delivery_complete_count) == (1, 1)
        again = await member.fetch(1).ranges()
        assert await member.accept(*again[0][:2]).ack_error() is None
        accepted = world.persister.writes[-1].stats
        assert (accepted.write_id, accepted.delivery_limit, accepted.archived) == (2, None, ())

    run(scenario)


@pytest.mark.rule("PL-415")
def test_the_partitions_of_one_request_succeed_and_fail_each_for_itself() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await world.produce(1, 1)
        assert await member.fetch(1).ranges(1) == [(0, 0, 1)]
        answer = member.acknowledge({2: [AckBatch(5, 4, (1,))], 1: [AckBatch(0, 5, (1,))], 0: [AckBatch(0, 3, (1,))]})
        assert await answer.ack_error(0) is None
        assert code(await answer.ack_error(1)) == code(await answer.ack_error(2)) == "INVALID_REQUEST"
        assert (world.host(0).core.start_offset, world.host(1).core.start_offset) == (4, 0)
        assert await member.accept(0, 0, partition=1).ack_error(1) is None

    run(scenario)


@pytest.mark.rule("PL-521")
def test_a_release_that_cannot_be_written_is_nothing_to_the_client_that_closes_its_session() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.fail("write", CoordinatorNotAvailableError("away"), unknown=False)
        await member.fetch(1, 3, max_wait_ms=50).answer()
        world.lose(3)
        answer = await member.acknowledge({}, epoch=-1).answer()
        assert answer.error is None
        await settle()
        assert world.persister.writes == []

    run(scenario)


@pytest.mark.rule("PL-422")
def test_a_request_with_many_faults_is_answered_with_the_first_of_them() -> None:
    enabled = False

    async def scenario(world: World) -> None:
        nonlocal enabled
        await world.produce(1)
        holder = world.member("m")
        enabled = True
        assert await holder.fetch(0).ranges() == [(0, 0, 1)]
        enabled = False
        wrong = {"epoch": 5, "is_renew_ack": True, "max_records": 1, "acks": {0: [AckBatch(5, 4, (1,))]}}
        assert "share.version=0" in await reported(world.member("", ""), wrong)
        enabled = True
        assert "group_id is empty" in await reported(world.member("", ""), wrong)
        assert "member_id is empty" in await reported(world.member(""), wrong)
        assert "is_renew_ack with" in await reported(holder, wrong)
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        assert "epoch 5" in await reported(holder, wrong | nothing)
        last = holder.fetch(**(wrong | nothing | {"epoch": 1}))
        assert code(await last.ack_error()) == "INVALID_REQUEST"

    async def reported(member: Member, fields: dict[str, Any]) -> str:
        error = (await member.fetch(**fields).answer()).error
        assert error is not None
        return str(error)

    run(scenario, enabled=lambda: enabled)


@pytest.mark.rule("PL-701")
def test_only_what_ends_or_gives_back_a_delivery_is_written() -> None:
    async def scenario(world: World) -> None:
        world.configure(lock_ms=2_000)
        member = await holding(world)
        assert await member.acknowledge({0: [AckBatch(0, 3, (4,))]}, is_renew_ack=True).ack_error() is None
        await world.log().move_log_start(1)
        await settle()
        assert world.persister.writes == [], "neither sessions, acquisitions, renewals nor the log start"
        assert await member.accept(1, 1).ack_error() is None
        await asyncio.sleep(2)
        assert await member.fetch(max_wait_ms=50).ranges() == [(2, 3, 2)]
        member.acknowledge({}, epoch=-1)
        await settle()
        ends = [(write.start_offset, [tuple(one[:4]) for one in write.batches]) for write in world.persister.writes]
        assert ends == [(2, []), (2, [(2, 3, 0, 1)]), (2, [(2, 3, 0, 2)])]

    run(scenario)


@pytest.mark.rule("PL-508", "PL-403")
def test_a_forgotten_partition_keeps_its_records_with_their_member() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        await member.fetch(forgotten=(part(0),), max_wait_ms=50).answer()
        assert await world.member("n").fetch(0, max_wait_ms=50).ranges() == []
        assert await member.accept(0, 3).ack_error() is None

    run(scenario)


@pytest.mark.scenario("S-024")
@pytest.mark.rule("GC-8")
def test_with_share_groups_switched_off_every_fetch_and_acknowledgement_is_refused_before_anything_else() -> None:
    on = True

    async def scenario(world: World) -> None:
        nonlocal on
        await world.produce(4)
        member = world.member("m")
        assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, 3, 1)]
        on = False
        for pending in (member.accept(0, 1), member.fetch(0), world.member("").fetch(0)):
            refused = await pending.answer()
            assert code(refused.error) == "UNSUPPORTED_VERSION"
            assert (refused.lock_ms, list(refused.partitions)) == (0, [])
        on = True

    run(scenario, enabled=lambda: on)


def test_an_answer_holds_no_more_than_the_setting_says() -> None:
    async def scenario(world: World) -> None:
        for _ in range(40):
            await world.produce(1)
        one = world.member("one")
        few = await one.fetch(0, max_wait_ms=100, max_bytes=1 << 30).ranges()
        assert 1 <= sum(last - first + 1 for first, last, _ in few) < 40

    run(scenario, fetch_max_bytes=100)
