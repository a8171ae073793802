"""The connection to the simulated store: its delays and faults, and the crash points at writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shard_runtime.record_log.redis.connection import Command, ErrorReply, StoreConnection
from tests.simulation import determinism
from tests.simulation.clock import living
from tests.simulation.points import Point
from tests.simulation.world import Shape, World
from tests.twin import ConnectionLostError, Stage

SET: list[Command] = [("SET", "k", "1")]
GET: list[Command] = [("GET", "k")]


def simulated(test: Callable[[World], Coroutine[Any, Any, None]], replicas: int = 0) -> Callable[[], None]:
    async def main() -> None:
        await test(World(1, Shape.two(replicas)))

    def run() -> None:
        determinism.run(1, main)

    run.__name__ = test.__name__
    return run


def replicated(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return simulated(test, replicas=2)


async def connect(world: World, name: str = "c") -> StoreConnection:
    """Return a connection of the client process `name`."""
    world.transport(name)
    return await world.store.client(name).connect("")


def begin(world: World, work: Coroutine[Any, Any, Any], name: str = "c") -> asyncio.Task[Any]:
    with world.client(name):
        return world.loop.create_task(work)


def held(world: World) -> bytes | None:
    return world.store.master.data.strings.get("k")


@simulated
async def test_a_pipeline_takes_time_both_ways(world: World) -> None:
    world.storage.in_parts = 0.0
    connection = await connect(world)
    assert await connection.run(SET, 1_000) == [b"OK"]
    assert 0.0001 <= world.loop.time() <= 0.001


@simulated
async def test_a_pipeline_may_arrive_in_two_parts_with_others_between(world: World) -> None:
    world.storage.in_parts = 1.0
    one, two = await connect(world), await connect(world)
    commands: list[Command] = [("INCR", "n") for _ in range(40)]
    replies = await asyncio.gather(one.run(commands, 1_000), two.run(commands, 1_000))
    assert sorted(reply for each in replies for reply in each) == list(range(1, 81))
    assert any(each != list(range(each[0], each[0] + 40)) for each in replies)


@simulated
async def test_what_a_paused_process_had_sent_is_executed_and_its_reply_waits(world: World) -> None:
    connection = await connect(world)
    call = begin(world, connection.run(SET, 60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.pause("c")
    await asyncio.sleep(1)
    assert held(world) == b"1"
    assert not call.done()
    world.resume("c")
    assert await call == [b"OK"]


@simulated
async def test_a_kill_before_a_write_keeps_it_from_being_executed(world: World) -> None:
    connection = await connect(world)
    world.points.arm("c", Point.BEFORE_WRITE, 2, lambda: world.kill_client("c"))
    assert await connection.run(SET, 1_000) == [b"OK"]
    assert await connection.run(GET, 1_000) == [b"1"], "a read is no such point"
    begin(world, connection.run([("SET", "k", "2")], 1_000))
    await asyncio.sleep(5)
    assert held(world) == b"1"


@simulated
async def test_a_kill_after_a_write_keeps_the_reply_back(world: World) -> None:
    connection = await connect(world)
    world.points.arm("c", Point.AFTER_WRITE, 1, lambda: world.kill_client("c"))
    call = begin(world, connection.run(SET, 1_000))
    await asyncio.sleep(5)
    assert held(world) == b"1"
    assert call.cancelled()


@simulated
async def test_a_pause_before_a_write_lets_it_through_at_the_end_of_the_pause(world: World) -> None:
    connection = await connect(world)

    async def pause() -> None:
        world.pause("c")

    world.points.arm("c", Point.BEFORE_WRITE, 1, pause)
    call = begin(world, connection.run(SET, 60_000))
    await asyncio.sleep(5)
    assert held(world) is None
    world.resume("c")
    assert await call == [b"OK"]


@simulated
async def test_a_process_that_is_cut_off_has_sent_what_it_sent(world: World) -> None:
    connection = await connect(world)
    call = begin(world, connection.run(SET, 1_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    world.storage.cut_off("c")
    with pytest.raises(ConnectionLostError):
        await call
    with pytest.raises(ConnectionLostError):
        await connect(world)
    await asyncio.sleep(0.01)
    assert held(world) == b"1"
    world.storage.mend("c")
    assert await (await connect(world)).run(GET, 1_000) == [b"1"]


@simulated
async def test_lost_replies_end_the_connection(world: World) -> None:
    world.storage.lose_replies("c", 1.0)
    with pytest.raises(ConnectionLostError):
        await (await connect(world)).run(SET, 1_000)
    world.storage.calm()
    assert await (await connect(world)).run(SET, 1_000) == [b"OK"]


@simulated
async def test_held_replies_come_late_and_the_write_counts_before(world: World) -> None:
    world.storage.hold("c", Stage.REPLY, 1.0, 2_000)
    call = begin(world, (await connect(world)).run(SET, 60_000))
    await asyncio.sleep(0.01)
    assert held(world) == b"1"
    assert not call.done()
    assert await call == [b"OK"]


@simulated
async def test_refusals_end_when_they_are_lifted(world: World) -> None:
    connection = await connect(world)
    for code in ("OOM", "READONLY", "NOREPLICAS"):
        world.storage.refuse(code)
        (refusal,) = await connection.run(SET, 1_000)
        assert isinstance(refusal, ErrorReply)
        assert refusal.code == code
        world.storage.refuse(None)
    assert await connection.run(SET, 1_000) == [b"OK"]


@replicated
async def test_replicas_have_a_write_a_little_later_than_the_master(world: World) -> None:
    connection = await connect(world)
    assert await connection.run([*SET, ("WAIT", 2, 1_000)], 5_000) == [b"OK", 2]
    lagging = world.storage.lag(1)
    assert await connection.run([("SET", "k", "2"), ("WAIT", 2, 1_000)], 5_000) == [b"OK", 1]
    assert lagging.data.strings["k"] == b"1"
    world.storage.catch_up()
    assert lagging.data.strings["k"] == b"2"


@replicated
async def test_the_replica_that_is_furthest_ahead_is_promoted(world: World) -> None:
    connection = await connect(world)
    world.storage.lag(0)
    await connection.run([*SET, ("WAIT", 1, 1_000)], 5_000)
    world.storage.fail_over()
    assert held(world) == b"1"


@replicated
async def test_what_no_replica_has_is_lost_in_a_fail_over(world: World) -> None:
    connection = await connect(world)
    await connection.run([*SET, ("WAIT", 2, 1_000)], 5_000)
    for number in range(2):
        world.storage.lag(number)
    await connection.run([("SET", "k", "2")], 1_000)
    history = world.store.master.history
    world.storage.fail_over()
    assert (held(world), world.store.master.history == history) == (b"1", False)


@replicated
async def test_a_process_may_stay_with_a_former_master_through_several_fail_overs(world: World) -> None:
    stays = await connect(world, "c")
    world.storage.split("c")
    goes = await connect(world, "d")
    world.storage.split("c", "d")
    for connection, value in ((stays, "old"), (goes, "newer")):
        assert await connection.run([("SET", "k", value), ("WAIT", 1, 50)], 5_000) == [b"OK", 0]
    assert held(world) is None
    world.storage.heal()
    for connection in (stays, goes):
        with pytest.raises(ConnectionLostError):
            await connection.run(GET, 1_000)
    assert await (await connect(world, "c")).run(GET, 1_000) == [None]


@simulated
async def test_a_published_message_takes_its_time(world: World) -> None:
    listener, speaker = await connect(world), await connect(world)
    await listener.run([("SUBSCRIBE", "ch")], 1_000)
    with living(None):
        heard = world.loop.create_task(listener.message())
    assert await speaker.run([("PUBLISH", "ch", "hi")], 1_000) == [1]
    assert await heard == [b"message", b"ch", b"hi"]
