"""A request over many partitions lets other tasks run in between (CM-97): the tests count the other tasks' turns and
act during them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kip932.api.v1 import share_fetch_pb2 as pb
from kip932.api.v1.produce_pb2 import ProduceResponse
from kip932.errors import NotLeaderOrFollowerError
from partition_leader.fetch import wide_fetch
from partition_leader.fetch.wide_fetch import CHECK_SLICE, WIDE
from partition_leader.share_partition import partitions
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.partitions import DEFERRED_SLICE, DeferredWork
from partition_leader.share_rpc import requests
from partition_leader.topic_log.state import AppendOutcome
from partition_leader.topic_rpc.produce import PendingProduce
from shard_runtime.rpc.binding import NO_CALLER
from tests.support.virtual_time import now_s, turns_of
from tests.unit.partition_leader.share_partition.slices import narrow
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, code, part, run, settle

MANY = 8 * WIDE


@pytest.fixture
def narrowly() -> Iterator[None]:
    with narrow():
        yield


class SlowTurns:
    """Turns that take one second each."""

    def __init__(self, every: int) -> None:
        """Ignore `every`: every step is a turn."""

    async def step(self, cost: int = 1) -> None:
        await asyncio.sleep(1)


@pytest.mark.rule("CM-97")
def test_a_session_of_many_partitions_is_checked_and_answered_in_turns() -> None:
    async def scenario(world: World) -> None:
        world.facts.topics[TOPIC] = MANY
        request = pb.ShareFetchRequest(
            group_id=GROUP, member_id="m", share_session_epoch=0, min_bytes=1, max_bytes=1 << 20, max_records=500
        )
        topic = request.topics.add(topic_id=TOPIC)
        for number in range(4, MANY):  # led by other nodes
            topic.partitions.add(partition_index=number)
        answers: list[pb.ShareFetchResponse] = []

        async def fetch() -> None:
            context = NO_CALLER
            answers.append(await world.leader.service.share_fetch(request, context))

        # Each partition is waited for, checked, gathered and written.
        assert await turns_of(fetch()) >= 4 * MANY // CHECK_SLICE
        assert sum(len(each.partitions) for each in answers[0].responses) == MANY - 4
        await world.member("m").fetch(epoch=-1).answer()

    run(scenario)


@pytest.mark.rule("CM-97", "PL-204")
def test_a_walk_acquires_in_order_until_the_records_are_used_up(narrowly: None) -> None:
    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(2, number)
        member = world.member()
        first = member.fetch(0, 1, 2, 3, max_records=3)
        assert await first.ranges(0) == [(0, 1, 1)]
        assert await first.ranges(1) == [(0, 1, 1)], "whole batches, to the record that was asked for"
        assert await first.ranges(2) == []
        second = member.fetch()
        assert [await second.ranges(number) for number in range(4)] == [[], [], [(0, 1, 1)], [(0, 1, 1)]]

    run(scenario)


@pytest.mark.rule("CM-97", "PL-214")
def test_records_that_come_behind_the_walk_are_found_by_the_next_one(narrowly: None) -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        for passed in range(12):  # at each point of the walk
            began = now_s()
            pending = member.fetch(max_wait_ms=5_000)
            await settle(passed)
            await world.produce(1)
            assert await pending.ranges() == [(passed, passed, 1)]
            assert pending.at_s - began < 1

    run(scenario)


@pytest.mark.rule("CM-97", "PL-215", "PL-206")
@pytest.mark.parametrize("passed", range(10))
def test_a_walk_whose_caller_is_gone_ends_and_leaves_nothing(narrowly: None, passed: int) -> None:
    async def scenario(world: World) -> None:
        await world.produce(1)
        member = world.member()
        pending = member.fetch(0, 1, 2, 3, max_wait_ms=5_000)
        await settle(passed)
        world.leader.requests.abandon(pending.handle)
        await settle()
        world.assert_quiet()
        assert not pending.done

    run(scenario)


@pytest.mark.rule("CM-97", "PL-213", "PL-215", "PL-206")
@pytest.mark.parametrize("passed", [*range(0, 30, 3), None])
def test_a_read_from_the_store_that_ends_too_late_leaves_no_lock(narrowly: None, passed: int | None) -> None:
    """`passed`: the number of turns after which the caller leaves; None if the deadline passes instead."""

    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        for number in range(4):
            await world.produce(1, number)
        pending = member.fetch(max_wait_ms=0 if passed is None else 5_000)
        if passed is not None:
            await settle(passed)
            world.leader.requests.abandon(pending.handle)
        await settle(60)
        world.assert_quiet()
        assert {world.host(number).core.in_flight for number in range(4)} <= {0, 1}

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("CM-97", "PL-206", "PL-252")
def test_a_read_that_fails_during_a_walk_leaves_no_lock(narrowly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        for number in range(4):
            await world.produce(1, number)

        async def broken(*_: object, **__: object) -> None:
            raise OSError("no such disk")

        monkeypatch.setattr(world.log(1), "read", broken)
        pending = member.fetch(max_wait_ms=0)
        assert code(await pending.error(1)) == "UNKNOWN_SERVER_ERROR"
        await settle()
        world.assert_quiet()

    run(scenario, tail_cache_bytes=0)


@pytest.mark.rule("CM-97", "PL-205")
def test_a_walk_meets_what_has_changed_since_it_checked(narrowly: None) -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        pending = member.fetch(max_wait_ms=5_000)
        await settle()
        await world.produce(1)
        assert not pending.done
        world.lose(3)
        assert await pending.ranges(0) == [(0, 0, 1)]
        assert code(await pending.error(3)) == "NOT_LEADER_OR_FOLLOWER"

    run(scenario)


@pytest.mark.rule("CM-97", "PL-505")
@pytest.mark.parametrize("passed", range(0, 30, 2))
def test_a_session_opened_again_keeps_what_it_acquired_whatever_its_predecessor_still_gathers(
    narrowly: None, monkeypatch: pytest.MonkeyPatch, passed: int
) -> None:
    monkeypatch.setattr(requests, "Turns", SlowTurns)

    async def scenario(world: World) -> None:
        await world.member("o").fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        await world.produce(2)
        member = world.member()
        old = member.fetch(0, 1, 2, 3, max_wait_ms=5_000)
        await settle(passed)
        assert not old.done
        member.epoch = 0
        new = member.fetch(0, 1, 2, 3, max_wait_ms=5_000)
        assert [(first, last) for first, last, _ in await new.ranges()] == [(0, 1)]
        assert code((await old.answer()).error) == "INVALID_SHARE_SESSION_EPOCH"
        await settle()
        assert world.host().core.in_flight == 2
        other = world.member("p").fetch(0, max_wait_ms=100)
        assert await other.ranges() == [], "its predecessor gave back what it had acquired itself, no more"
        assert await member.accept(0, 1).ack_error() is None
        assert world.host().core.start_offset == 2

    run(scenario)


@pytest.mark.rule("CM-97", "PL-520", "PL-523")
def test_a_group_that_returns_at_once_meets_nothing_of_its_last_session(
    narrowly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "Turns", SlowTurns)

    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(1, number)
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=50).answer()
        held = {number: world.host(number) for number in range(4)}
        member.fetch(epoch=-1)
        assert [world.leader.share_partitions.has(host.key) for host in held.values()] == [True] * 4, "not yet retired"
        began = now_s()
        again = world.member("n").fetch(0, 1, 2, 3, max_wait_ms=5_000)
        await again.answer()
        assert again.at_s - began < 1, "the fetch must run the work that was due"
        assert [await again.ranges(number) for number in range(4)] == [[(0, 0, 2)]] * 4
        for number, host in held.items():
            assert world.host(number) is not host
            assert world.host(number).core.generation > host.core.generation

    run(scenario)


@pytest.mark.rule("CM-97")
def test_a_share_partition_that_is_made_counts_as_four(narrowly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[int] = []

    class Counted(SlowTurns):
        async def step(self, cost: int = 1) -> None:
            costs.append(cost)

    monkeypatch.setattr(wide_fetch, "Turns", Counted)

    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=0).answer()
        assert costs[:4] == [4] * 4
        costs.clear()
        await member.fetch(max_wait_ms=0).answer()
        assert set(costs) == {1}

    run(scenario)


@pytest.mark.rule("CM-97", "PL-213")
def test_a_deadline_that_passes_amid_a_check_makes_it_the_last_attempt(
    narrowly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        member = world.member()
        await member.fetch(0, 1, 2, 3, max_wait_ms=0).answer()
        monkeypatch.setattr(wide_fetch, "Turns", SlowTurns)
        began = now_s()
        pending = member.fetch(max_wait_ms=1_500)  # one pass over the partitions takes four seconds
        await asyncio.sleep(2.5)
        assert not pending.done
        await world.produce(1, 3)
        assert await pending.ranges(3) == [(0, 0, 1)], "the look that was under way found it"
        assert pending.at_s - began <= 4.1
        began = now_s()
        in_vain = member.fetch(max_wait_ms=1_500)
        assert [await in_vain.ranges(number) for number in range(4)] == [[]] * 4
        assert in_vain.at_s - began <= 4.1, "it did not look again"

    run(scenario)


@pytest.mark.rule("CM-97")
def test_work_for_later_is_done_in_turns_and_first_where_a_caller_reaches() -> None:
    async def body(_: World) -> None:
        gone: list[Any] = []
        done: list[tuple[Any, str]] = []
        due = DeferredWork(lambda host: host not in gone)
        hosts: list[Any] = list(range(10 * DEFERRED_SLICE))
        due.add(hosts, lambda host: done.append((host, "released")))
        due.add(hosts, lambda host: done.append((host, "retired")))
        assert not done
        due.settle(hosts[7])
        assert done == [(7, "released"), (7, "retired")]
        gone.append(hosts[8])
        due.add(hosts[9:10], lambda host: done.append((host, "at once")))
        assert done[2:] == [(9, "released"), (9, "retired"), (9, "at once")]

        assert due._task is not None
        assert await turns_of(due._task) >= 9
        assert len(done) == 2 * (len(hosts) - 1) + 1
        await due.close()

    run(body)


@pytest.mark.rule("CM-98")
def test_the_refusals_of_a_produce_over_many_partitions_are_written_in_turns() -> None:
    async def scenario(world: World) -> None:
        refused = AppendOutcome((), -1, -1, NotLeaderOrFollowerError("elsewhere"))
        pending = PendingProduce([(part(number), refused) for number in range(MANY)], world.leader.led)
        answers: list[ProduceResponse] = []

        async def write() -> None:
            answers.append(await pending.response())

        assert await turns_of(write()) >= MANY // 256
        assert [one.index for one in answers[0].responses[0].partition_responses] == list(range(MANY))

    run(scenario)


@pytest.mark.rule("PL-218")
def test_a_walk_does_not_wait_for_the_acknowledgements_of_its_request(
    narrowly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = 0
    walk = wide_fetch.WideShareFetch._attempt

    async def counted(fetch: wide_fetch.WideShareFetch) -> None:
        nonlocal walks
        walks += 1
        await walk(fetch)

    monkeypatch.setattr(wide_fetch.WideShareFetch, "_attempt", counted)

    async def scenario(world: World) -> None:
        await world.produce(2)
        await world.produce(2, 1)
        member = world.member()
        both = member.fetch(0, 1)
        assert (await both.ranges(0), await both.ranges(1)) == ([(0, 1, 1)], [(0, 1, 1)])
        await world.produce(3, 1)
        world.persister.hold("write")
        fetch = member.fetch(acks={0: [AckBatch(0, 1, (1,))]})
        await settle(200)
        assert world.host(1).core.in_flight == 5, "it has acquired, though it is far from filled"
        assert not fetch.done
        world.persister.let_go("write")
        assert await fetch.ranges(1) == [(2, 4, 1)]

        world.persister.hold("write")
        parked = member.fetch(acks={1: [AckBatch(2, 4, (1,))]}, max_wait_ms=300)
        await settle(200)
        before = walks
        world.persister.let_go("write")
        await settle(200)
        assert walks == before, "the outcome is no reason for another walk"
        assert await parked.ranges(1) == []

    run(scenario)
