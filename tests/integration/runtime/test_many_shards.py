"""Ownership of more shards than one slice holds: claims, renewals and checks in slices. The store is a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from shard_runtime.ownership.ownership import OwnershipOptions
from shard_runtime.record_log.protocol import Renewal, Renewed, ShardLostError, StoreUnavailableError
from tests.integration.runtime.test_ownership_host import FIRST, SHARDS, World

pytestmark = pytest.mark.asyncio

OPTIONS = OwnershipOptions(tick_ms=5, claims_max=4, renewals_max=3, checks_max=3, loads_max=1)


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    world = World(OPTIONS)
    yield world
    await world.ownership.stop()


@pytest.mark.rule("CM-88")
async def test_no_more_is_claimed_while_what_is_claimed_waits_for_its_replay(world: World) -> None:
    for owner in world.owners.values():
        owner.gate.clear()
    world.ownership.start()
    await world.until(lambda: len(world.loading) == 1 and len(world.script.requests) == 4)
    for _ in range(20):  # neither ticks nor wake-ups cause another claim
        world.ownership.wake()
        await asyncio.sleep(0.002)
    assert len(world.script.requests) == 4
    assert not world.ownership.settled()
    for owner in world.owners.values():
        owner.gate.set()
    await world.settled()
    assert len(world.script.requests) == len(SHARDS)


@pytest.mark.rule("CM-88")
async def test_the_end_of_a_replay_makes_room_without_a_tick() -> None:
    world = World(OwnershipOptions(tick_ms=3_600_000, claims_max=2, loads_max=1))
    world.ownership.start()
    try:
        await world.settled()
        assert len(world.script.requests) == len(SHARDS)
    finally:
        await world.ownership.stop()


@pytest.mark.rule("CM-3", "CM-88")
async def test_renewals_follow_each_other_and_one_without_an_answer_ends_the_round(world: World) -> None:
    world.ownership.start()
    await world.settled()
    calls: list[int] = []
    at_once = most = 0
    silent = False

    async def renew(renewals: Sequence[Renewal]) -> list[Renewed | None]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        calls.append(len(renewals))
        await asyncio.sleep(0.002)
        at_once -= 1
        if silent:
            raise StoreUnavailableError("away")
        return [Renewed(True, "h", world.clock.ms) for _ in renewals]

    world.script.renew = renew  # type: ignore[method-assign]
    await asyncio.sleep(0.02)  # lets a round that began earlier end
    calls.clear()
    world.clock.ms += 1_000
    await world.until(lambda: len(calls) >= 3)
    assert (most, calls[:3]) == (1, [3, 3, 2])
    lease = world.owners[FIRST].lease
    assert lease is not None
    await world.until(lambda: lease.deadline_ms == world.clock.ms + 3_000)
    await world.until(lambda: at_once == 0 and len(calls) % 3 == 0)  # the round is over
    calls.clear()
    silent = True
    await world.until(lambda: len(calls) >= 4, pause_ms=1_000)
    assert set(calls) == {3}
    leases = [owner.lease for owner in world.owners.values() if owner.lease is not None]
    assert not any(lease.valid() for lease in leases)
    silent = False
    await world.until(lambda: all(lease.valid() for lease in leases), pause_ms=1_000)


@pytest.mark.rule("CM-88")
async def test_a_loss_and_an_interruption_are_found_among_more_leases_than_are_checked_in_one_go(
    world: World,
) -> None:
    world.ownership.start()
    await world.settled()
    leases = [owner.lease for owner in world.owners.values() if owner.lease is not None]
    world.script.up = False
    world.clock.ms += 1_000
    await world.until(lambda: all(lease.pauses == 1 for lease in leases), pause_ms=10)
    world.script.up = True
    await world.until(lambda: all(lease.pauses >= 2 for lease in leases), pause_ms=10)
    world.script.lost_now[FIRST] = ShardLostError("gone")
    claimed = len(world.script.requests)
    await world.until(lambda: len(world.script.requests) == claimed + 1, pause_ms=10)
    assert world.owners[FIRST].lost_for == ["gone"]
