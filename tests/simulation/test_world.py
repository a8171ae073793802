"""Processes in a simulated cluster start and end like real ones, and their errors are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
import structlog

from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.simulation import determinism
from tests.simulation.history import ProcessChanged
from tests.simulation.points import Point
from tests.simulation.world import KilledError, Shape, World


def simulated(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        world = World(1, Shape.two())
        await world.open()
        await test(world)

    def run() -> None:
        determinism.run(1, main)

    run.__name__ = test.__name__
    return run


async def started(world: World) -> None:
    """Start every process, and wait until it serves its shards."""
    async with asyncio.TaskGroup() as group:
        for each in world.shape.processes:
            group.create_task(world.start(each.name))
    await world.settled()


def changes(world: World) -> list[str]:
    return [f"{each.process} {each.what}" for each in world.history.of(ProcessChanged)]


def streams(world: World) -> int:
    """Return the number of entries in the store."""
    return sum(stream.added for stream in world.store.master.data.streams.values())


async def _produced_and_consumed(world: World) -> None:
    await started(world)
    admin = Admin({"bootstrap.servers": world.bootstrap()}, transport=world.transport("admin"))
    await admin.create_topics([NewTopic("jobs", 2)])
    with world.client("p"):
        producer = Producer({"bootstrap.servers": world.bootstrap()}, transport=world.transport("p"))
        sent = {b"%d" % n for n in range(20)}
        for value in sorted(sent):
            await producer.send("jobs", value)
    with world.client("c"):
        settings = {"bootstrap.servers": world.bootstrap(), "group.id": "g"}
        consumer = ShareConsumer(settings, transport=world.transport("c"))
        consumer.subscribe(["jobs"])
        got: set[bytes | None] = set()
        while not got >= sent:
            got |= {message.value() for message in await consumer.poll(1.0)}
        await consumer.close(5.0)
    await producer.close()
    await admin.close()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_drawn_cluster_serves_producers_and_consumers(seed: int) -> None:
    async def main() -> list[str]:
        world = World(seed, Shape.draw(Random(seed)))
        await world.open()
        await asyncio.wait_for(_produced_and_consumed(world), 120)
        await world.close()
        return world.complaints

    assert determinism.run(seed, main) == []


@pytest.mark.rule("CM-4")
@simulated
async def test_a_stopped_process_hands_its_shards_over_at_once(world: World) -> None:
    await started(world)
    began = world.now_ms()
    await world.stop("a")
    await world.settled()
    assert world.now_ms() - began < 2_500, "less than a lease"
    assert changes(world)[2:] == ["a stopping", "a stopped"]
    assert world.complaints == []


@simulated
async def test_nothing_of_a_killed_process_reaches_the_store_any_more(world: World) -> None:
    await started(world)
    await world.stop("b")
    await world.settled()
    await world.kill("a")
    await asyncio.sleep(0.1)
    before = streams(world)
    await asyncio.sleep(30)
    assert streams(world) == before
    assert world.store.master.sessions == []
    assert world.complaints == []


@pytest.mark.rule("CM-12")
@simulated
async def test_a_killed_process_that_knows_its_dead_takes_its_shards_back_at_once(world: World) -> None:
    await started(world)
    for knows_dead, at_most_ms in ((True, 1_000), (False, 8_000)):
        await world.kill("a")
        began = world.now_ms()
        process = await world.start("a", knows_dead=knows_dead)
        await world.settled()
        assert world.now_ms() - began < at_most_ms
        assert process.incarnation > 2
    assert world.now_ms() - began > 1_500, "a stranger waits for the lease of its name"


@pytest.mark.rule("CM-3")
@simulated
async def test_a_process_that_was_frozen_for_longer_than_its_lease_gives_its_shards_up(world: World) -> None:
    await started(world)
    paused, other = world.processes["a"], world.processes["b"]
    shards = set(paused.state.dispatcher.served())
    world.pause("a")
    await asyncio.sleep(10)
    assert set(paused.state.dispatcher.served()) == shards, "it does not know yet"
    assert shards <= set(other.state.dispatcher.served())
    world.resume("a")
    await asyncio.sleep(0.01)
    for index in shards & set(paused.state.dispatcher.served()):
        assert not paused.state.hosts[index]._tenure.lease.valid()
    await world.settled()
    await world.close()
    assert world.complaints == []


@simulated
async def test_a_kill_at_a_write_while_a_process_starts_ends_the_start(world: World) -> None:
    world.points.arm("a", Point.AFTER_WRITE, 3, lambda: world.kill("a"))
    with pytest.raises(KilledError):
        await world.start("a")
    assert changes(world) == ["a killed"]
    await started(world)


@simulated
async def test_a_start_goes_on_until_the_store_is_there(world: World) -> None:
    world.storage.vanish()
    start = world.loop.create_task(world.start("a"))
    await asyncio.sleep(10)
    assert not start.done()
    world.storage.appear()
    process = await start
    assert process.ready
    assert process.incarnation > 1


@simulated
async def test_wall_clocks_jump_and_deadline_clocks_do_not(world: World) -> None:
    clock = world.clock_of("a")
    wall_ms, now_ms = clock.wall_ms(), clock.now_ms()
    world.jump("a", 60_000)
    assert (clock.wall_ms() - wall_ms, clock.now_ms() - now_ms) == (60_000, 0)
    assert world.clock_of("b").now_ms() != now_ms, "no two machines were started at the same moment"


@simulated
async def test_a_killed_client_ends_and_nothing_more_of_it_leaves(world: World) -> None:
    await started(world)
    ended: list[str] = []

    async def live() -> None:
        admin = Admin({"bootstrap.servers": world.bootstrap()}, transport=world.transport("c"))
        try:
            await asyncio.sleep(100)
        finally:
            ended.append("cancelled")
            await admin.create_topics([NewTopic("jobs", 2)])

    with world.client("c"):
        task = world.loop.create_task(live())
    await asyncio.sleep(1)
    await world.kill_client("c")
    assert task.cancelled()
    assert ended == ["cancelled"]
    assert world.loop.time() < 3
    await asyncio.sleep(10)
    assert not world.processes["a"].node.metadata.image.topics


@simulated
async def test_what_is_wrong_in_a_process_is_a_complaint(world: World) -> None:
    await started(world)

    async def fail() -> None:
        raise ValueError("no caller asks")

    with world.client("c"):
        task = world.loop.create_task(fail(), name="careless")
    await asyncio.sleep(1)
    assert task.done()
    structlog.get_logger().error("should not be")
    taken = world.processes["a"]
    taken._made._end("its name was taken")  # type: ignore[union-attr]  # it has been started
    await asyncio.sleep(10)
    assert "a" not in world.processes
    logged, gave_up, silent = world.complaints
    assert "should not be" in logged
    assert "gave up: its name was taken" in gave_up
    assert "careless" in silent
    assert "no caller asks" in silent
