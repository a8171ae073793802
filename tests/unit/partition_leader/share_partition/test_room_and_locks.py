"""A fetch without buffer space for its response checks for space now and then, and does not hold a fetch lock
meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from partition_leader.fetch.fetch import ShareFetchOperation
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_partition.core.share_partition import SharePartition
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.budget import Budget, Holder, Share
from tests.support.virtual_time import now_s

from .test_long_poll import started
from .worlds import World, run, settle


def test_a_fetch_without_room_for_an_answer_waits_without_looking_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = 0
    attempt = ShareFetchOperation.attempt

    def counted(operation: ShareFetchOperation) -> None:
        nonlocal checks
        checks += 1
        attempt(operation)

    monkeypatch.setattr(ShareFetchOperation, "attempt", counted)

    async def scenario(world: World) -> None:
        await started(world)
        bytes_in_flight = Budget(1)
        bytes_in_flight.add(Holder("c"), 1)
        pending = world.member("n").fetch(0, max_wait_ms=10_000, caller=_sharing(bytes_in_flight))
        await world.produce(2)
        await settle(500)
        assert not pending.done
        assert checks < 10
        assert await world.member("o").fetch(0).ranges() == [(0, 1, 1)], "others have room"
        assert await pending.ranges() == []

    run(scenario)


def test_a_fetch_lock_that_comes_after_its_fetch_has_gone_on_is_given_back() -> None:
    async def scenario(world: World) -> None:
        await started(world, records=2)
        host, asked = world.host(), []
        host.acknowledge("m", (AckBatch(0, 1, (1,)),), lambda _: asked.append(host.lock(99, 1)))
        await settle()
        assert asked == [None], "the answer was given within an event of this share-partition"
        assert host.core.fetch_lock is None

    run(scenario)


def test_a_parked_fetch_is_answered_soon_after_its_connection_has_room_again() -> None:
    async def scenario(world: World) -> None:
        await started(world)
        bytes_in_flight = Budget(1_000_000)
        bytes_in_flight.add(Holder("producer"), 1_000_000)  # like a burst of Produce requests on other connections
        pending = world.member("n").fetch(0, max_wait_ms=60_000, caller=_sharing(bytes_in_flight))
        await world.produce(2)
        await settle()
        assert not pending.done
        began = now_s()
        bytes_in_flight.give(Holder("producer"), 1_000_000)
        assert await pending.ranges() == [(0, 1, 1)]
        assert pending.at_s - began <= 0.1

    run(scenario)


def _sharing(budget: Budget) -> CallContext:
    return replace(NO_CALLER, share=Share(budget, Holder("c")))


@pytest.mark.rule("PL-206")
def test_a_fault_in_one_share_partition_leaves_no_fetch_lock_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        await world.member().fetch(0, 1, max_wait_ms=50).answer()
        await world.produce(2, 0)
        failing = world.host(0).core
        whole = SharePartition._expire

        def faulty(core: SharePartition) -> None:
            if core is failing:
                raise RuntimeError("a fault that no check foresaw")
            whole(core)

        monkeypatch.setattr(SharePartition, "_expire", faulty)
        pending = world.member("n").fetch(0, 1, min_bytes=0, max_wait_ms=100)
        await settle()
        assert pending.done, "the fetch must get its response"
        monkeypatch.undo()
        locks = {number: world.host(number).core.overview().fetch_lock for number in (0, 1)}
        assert locks == {0: None, 1: None}

    run(scenario, tail_cache_bytes=0)  # the read goes to the store
