"""A topic is deleted and created again by the same name, amid faults and consumption: nothing of the old topic is
left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey, topic_id_text
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer
from tests.simulation import determinism
from tests.simulation.process import Process
from tests.simulation.world import Shape, World
from tests.support.virtual_time import now_s

ROUNDS = 5
RECORDS = 30
#: Seconds without new faults within which a topic's streams are removed. A fault hits only one process at a time, so
#: the other one removes them.
REMOVAL_S = 8


class Story:
    """The scenario for one seed; `wrong` lists everything that went wrong."""

    def __init__(self, seed: int, faults: bool) -> None:
        self.rng = Random(seed)
        self.faults = faults
        self.world = World(seed, Shape.two())
        self.wrong: list[str] = []
        self.got: dict[bytes, int] = {}
        self.stop = False

    async def report(self) -> list[str]:
        world = self.world
        await world.open()
        await world.start("a")
        await world.start("b")
        settings = {"bootstrap.servers": world.bootstrap()}
        async with Admin(settings, transport=world.transport("admin")) as admin, asyncio.TaskGroup() as tasks:
            consuming = tasks.create_task(self._consume(settings))
            for number in range(ROUNDS):
                await self._round(admin, settings, number)
            self.stop = True
            await consuming
        await asyncio.sleep(30)
        self._leftovers()
        await world.close()
        return self.wrong

    async def _round(self, admin: Admin, settings: dict[str, str], number: int) -> None:
        await self._until_none(lambda: admin.create_topics([NewTopic("t", 2)]))
        values = [f"{number}:{index}".encode() for index in range(RECORDS)]
        async with Producer(settings, transport=self.world.transport(f"p{number}")) as producer:
            fault = asyncio.ensure_future(self._fault())
            for value in values:
                await producer.send("t", value)
            await fault
        deadline = now_s() + 120
        whole = number % 2 == 0  # every other topic is deleted while its records are still being consumed
        while whole and not all(value in self.got for value in values):
            if now_s() > deadline:
                missing = [value for value in values if value not in self.got]
                self.wrong.append(f"INV-1: round {number}: {missing} never came")
                break
            await asyncio.sleep(0.2)
        fault = asyncio.ensure_future(self._fault())
        await asyncio.sleep(self.rng.random() * 2)
        await self._until_none(lambda: admin.delete_topics(["t"]))
        for value in values:
            self.got.setdefault(value, 0)
        await fault
        await asyncio.sleep(REMOVAL_S)

    async def _until_none(self, call: Callable[[], Awaitable[dict[str, KafkaError | None]]]) -> None:
        error: KafkaError | None = None
        for _ in range(100):
            try:
                (error,) = (await call()).values()
            except KafkaError as failure:
                error = failure
            if error is None or "exist" in str(error).lower():
                return
            await asyncio.sleep(0.3)
        raise AssertionError(f"not done: {error}")

    async def _consume(self, settings: dict[str, str]) -> None:
        consumer = ShareConsumer(
            {**settings, "group.id": "g", "share.acknowledgement.mode": "explicit"}, transport=self.world.transport("c")
        )
        consumer.subscribe(["t"])
        while not self.stop:
            try:
                messages = await consumer.poll(0.5)
                for message in messages:
                    self.got[message.value()] = self.got.get(message.value(), 0) + 1
                    consumer.acknowledge(message)
                await consumer.commit_sync(2.0)
            except KafkaError:
                await asyncio.sleep(0.2)
        await consumer.close(5.0)

    async def _fault(self) -> None:
        if not self.faults:
            return
        world, name = self.world, self.rng.choice("ab")
        await asyncio.sleep(self.rng.random())
        match self.rng.randrange(4):
            case 0:
                await world.kill(name)
                await asyncio.sleep(self.rng.random() * 4)
                await world.start(name)
            case 1:
                await world.stop(name)
                await world.start(name)
            case 2:
                world.store.cut_off(name)
                await asyncio.sleep(self.rng.random() * 5)
                world.store.heal()
            case _:
                world.store.cut_all()

    def _leftovers(self) -> None:
        nodes = self.world.processes.values()
        live = {topic_id for node in nodes for topic_id in node.node.metadata.image.by_id}
        if live:
            self.wrong.append(f"topics {live} are still there")
        data = self.world.store.master.data
        left = [key for key in (*data.hashes, *data.streams) if "{tp:" in key]
        if left:
            self.wrong.append(f"CM-21: streams are left: {sorted(left)}")
        if names := [_name(key) for process in nodes for key in _states(process)]:
            self.wrong.append(f"SC-80: states are left: {names}")


def _states(process: Process) -> Iterator[SharePartitionKey]:
    """Yield the share-partitions that have state at coordinators with a valid lease and no unconfirmed write."""
    state = process.state
    for index in state.dispatcher.served() if state else ():
        host = state.hosts[index]
        if host.waiting == 0 and host._tenure.lease.valid():
            yield from host.shard._states


def _name(key: SharePartitionKey) -> str:
    return f"{key.group_id}:{topic_id_text(key.topic_id)}:{key.partition}"


async def reported(seed: int, faults: bool) -> list[str]:
    """Run the scenario; return everything that went wrong."""
    return await Story(seed, faults).report()


@pytest.mark.rule("CM-21", "SC-80", "GC-79", "INV-15")
@pytest.mark.parametrize("seed", range(3))
def test_nothing_of_a_deleted_topic_is_left(seed: int) -> None:
    assert determinism.run(seed, lambda: reported(seed, faults=False)) == []


@pytest.mark.rule("CM-21", "SC-80", "GC-79", "INV-15")
@pytest.mark.parametrize("seed", range(6))
def test_nothing_of_a_deleted_topic_is_left_whatever_fails_meanwhile(seed: int) -> None:
    assert determinism.run(seed, lambda: reported(seed, faults=True)) == []
