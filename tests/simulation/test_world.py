from __future__ import annotations

import asyncio
from random import Random

import pytest

from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.simulation import determinism
from tests.simulation.world import Shape, World


async def _produced_and_consumed(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        for each in world.shape.processes:
            group.create_task(world.start(each.name))
    await world.settled()
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
