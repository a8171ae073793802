"""Stories (scenarios played step by step) of a client on one real node in virtual time: a topic, a group, and all code
down to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, Final

from sharegroups import AlterConfig, ConfigResource, NewTopic, TopicPartition
from sharegroups.aio import Admin, Producer, ShareConsumer
from sharegroups.messages import Message, Messages
from tests.simulation import determinism
from tests.simulation.shape import Shape
from tests.simulation.world import World

TOPIC = "topic"
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
BOUND_S = 30
#: A story's limit in virtual seconds. The node's own timers never end, so a story that hangs would run forever.
STORY_S: Final = 300
#: How long a story may take to clean up after its cancellation.
_CLEAN_UP_S: Final = 60


class Cluster:
    """One node with a topic `topic` of one partition; groups start at the earliest record."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._settings = {"bootstrap.servers": world.bootstrap()}
        self.admin = Admin(self._settings, transport=world.transport("admin"))
        self.producer = Producer(self._settings, transport=world.transport("producer"))
        self._consumers = 0

    async def produce(self, *values: bytes) -> None:
        """Produce one batch for each record."""
        for value in values:
            await self.producer.send(TOPIC, value)

    async def produce_batch(self, count: int) -> None:
        """Produce `count` records in one batch."""
        for number in range(count):
            await self.producer.produce(TOPIC, b"v%d" % number)
        await self.producer.flush()

    async def configure(self, group: str, **configs: object) -> None:
        """Set configs of a group, with `_` for a dot."""
        changes = [AlterConfig(name.replace("_", "."), str(value)) for name, value in configs.items()]
        resource = ConfigResource.group(group)
        assert await self.admin.incremental_alter_configs({resource: changes}) == {resource: None}

    def consumer(self, group: str = "group1", **settings: Any) -> ShareConsumer:
        """Return a subscribed consumer, by default one that gets whole batches."""
        self._consumers += 1
        given = {**self._settings, "group.id": group, "share.acquire.mode": "batch_optimized", **settings}
        made = ShareConsumer(given, transport=self.world.transport(f"consumer{self._consumers}"))
        made.subscribe([TOPIC])
        return made

    async def offsets(self, group: str = "group1") -> tuple[int | None, int | None]:
        """Return start offset and lag of the group."""
        found = (await self.admin.list_share_group_offsets({group: None}))[group]
        assert isinstance(found, dict), found
        one = found[TopicPartition(TOPIC, 0)]
        assert one is not None
        return one.start_offset, one.lag


async def first(consumer: ShareConsumer) -> Messages:
    """Return the result of the first poll that is not empty."""
    for _ in range(BOUND_S):
        if messages := await consumer.poll(1):
            return messages
    raise AssertionError("nothing was delivered")


def deliveries(messages: Messages | list[Message]) -> list[tuple[int, int]]:
    """Return (offset, delivery count) of each message."""
    return [(message.offset(), message.delivery_count()) for message in messages]


async def bounded(story: Coroutine[Any, Any, None]) -> None:
    """Play a story within `STORY_S`. If it has failed and its clean-up never ends, raise its failure; if it waits
    forever, raise AssertionError with the place where it waits."""
    played = asyncio.create_task(story)
    await asyncio.wait({played}, timeout=STORY_S)
    if played.done():
        played.result()
        return
    late = AssertionError(f"the story did not end within {STORY_S} virtual seconds: it waits at {_waits_at(story)}")
    played.cancel()
    await asyncio.wait({played}, timeout=_CLEAN_UP_S)
    if played.done() and (failure := await _failure(played)) is not None:
        raise failure from late
    raise late


def _waits_at(waiting: Any) -> str:
    """Return the current lines of a coroutine and of those that it awaits, outermost first."""
    lines = []
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        waiting = waiting.cr_await
    return " > ".join(lines)


async def _failure(cancelled: asyncio.Task[None]) -> BaseException | None:
    """Return the error with which a story had failed before its cancellation."""
    try:
        await cancelled
    except BaseException as error:
        ended: BaseException | None = error
        while isinstance(ended, asyncio.CancelledError):
            ended = ended.__context__
        return ended
    return None


def on_one_node(**flags: str) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Turn a coroutine function that takes a Cluster into a test; `flags` are the node's settings, with `_` for a
    dot."""
    settings = {"group.share.record.lock.duration.ms": "15000"}
    settings |= {name.replace("_", "."): value for name, value in flags.items()}

    def made(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @wraps(test)
        def played() -> None:
            async def story() -> None:
                world = World(1, Shape((Shape.two().processes[0],), flags=settings))
                await world.open()
                await world.start("a")
                await world.settled()
                cluster = Cluster(world)
                assert await cluster.admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
                await test(cluster)
                await cluster.producer.close()
                await cluster.admin.close()
                await world.close()
                assert world.complaints == []

            determinism.run(1, lambda: bounded(story()))

        del played.__wrapped__  # otherwise pytest takes the cluster for a fixture
        return played

    return made
