"""Faults: each strikes a running cluster, and has no lasting effect after it ends or is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from tests.simulation import determinism
from tests.simulation.faults import Fault
from tests.simulation.faults.catalogue import KINDS
from tests.simulation.faults.clients import meant
from tests.simulation.faults.processes import Kill, KillAtPoint, Pause, Stop, Visit
from tests.simulation.history import ProcessChanged
from tests.simulation.world import Shape, World

SHAPE = Shape.two(replicas=2)
DRAWN = [(kind, number) for kind in sorted(KINDS) for number in range(3)]


def play(act: Callable[[World], Awaitable[None]]) -> World:
    """Run `act` in a settled cluster; return the simulated world."""

    async def main() -> World:
        world = World(5, SHAPE)
        await world.open()
        async with asyncio.TaskGroup() as group:
            for each in SHAPE.processes:
                group.create_task(world.start(each.name))
        await world.settled()
        world.begin("work")
        await act(world)
        return world

    return determinism.run(5, main)


def drawn(kind: str, number: int) -> Fault:
    return KINDS[kind].draw(Random(f"{kind} {number}"), SHAPE)


async def mended(world: World) -> None:
    """Check that no fault is active any longer, and that every process is alive."""
    network, storage = world.network, world.storage
    assert not network._cuts
    assert (network.lose, network.duplicate, network.delay_ms[1]) == (0.0, 0.0, 2.0)
    assert not any(storage._lossy.values())
    assert not any(hold.rate for hold in storage._holds.values())
    assert storage.store.master.refuse is None
    assert storage.store.reachable
    assert not storage.store._cut_off
    assert not any(follower.paused for follower in storage.store.master.followers)
    assert not any(process.paused for process in world.processes.values())
    assert {each.wall_offset_ms for each in world._clocks.values()} <= set(range(-50, 50))


@pytest.mark.parametrize(("kind", "number"), DRAWN)
def test_a_fault_strikes_and_is_mended(kind: str, number: int) -> None:
    async def act(world: World) -> None:
        await drawn(kind, number).strike(world)
        await mended(world)
        assert set(world.processes) == {"a", "b"}
        await world.settled()

    play(act)


@pytest.mark.parametrize(("kind", "number"), DRAWN)
def test_a_fault_that_is_cancelled_is_mended_at_once(kind: str, number: int) -> None:
    async def act(world: World) -> None:
        strike = asyncio.create_task(drawn(kind, number).strike(world))
        await asyncio.sleep(Random(number).choice([0.01, 0.3, 1.0]))
        strike.cancel()
        await asyncio.wait([strike])
        assert strike.cancelled() or strike.exception() is None
        await mended(world)
        assert set(world.processes) <= {"a", "b"}

    play(act)


def lives(world: World) -> list[tuple[str, str]]:
    """Return what happened to processes, in order."""
    return [(event.process, event.what) for event in world.history.of(ProcessChanged)][2:]


def test_a_process_is_killed_at_the_point_it_comes_to() -> None:
    fault = KillAtPoint("a", "before a write", 2, 1, 100, True)
    assert lives(play(fault.strike)) == [("a", "killed"), ("a", "started")]


def test_faults_that_mean_the_same_process_do_not_trip_over_each_other() -> None:
    async def act(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            for fault in (Stop("a", 300), Kill("a", 200, True), Pause("a", 400), Kill("a", 50, False), Stop("a", 10)):
                group.create_task(fault.strike(world))
                await asyncio.sleep(0.02)
        await mended(world)
        assert set(world.processes) == {"a", "b"}
        await world.settled()

    play(act)


def test_a_visitor_takes_shards_and_gives_them_back() -> None:
    async def act(world: World) -> None:
        visit = asyncio.create_task(Visit("visitor0", ("share_coordinator",), 3_000, False).strike(world))
        await asyncio.sleep(2.5)
        assert world.processes["visitor0"].state.dispatcher.served()
        await visit
        assert "visitor0" not in world.processes
        await world.settled()

    play(act)


def test_two_visits_of_one_name_that_end_at_once_end_it_once() -> None:
    async def act(world: World) -> None:
        first = asyncio.create_task(Visit("visitor0", ("share_coordinator",), 30_000, False).strike(world))
        await asyncio.sleep(2.5)
        await world.kill("visitor0")
        second = asyncio.create_task(Visit("visitor0", ("share_coordinator",), 30_000, True).strike(world))
        await asyncio.sleep(2.5)
        assert world.processes["visitor0"].ready
        first.cancel()
        second.cancel()
        ended = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2
        assert "visitor0" not in world.processes
        await world.settled()

    play(act)


def test_a_name_that_is_a_node_s_too_means_no_client() -> None:
    world = cast(World, SimpleNamespace(clients=("g1", "c0", "x0"), processes={"g1": None}))
    assert [meant(world, f"client {number}") for number in range(3)] == ["c0", "x0", "c0"]
    assert meant(world, "g1") == "g1"
