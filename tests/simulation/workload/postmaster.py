"""The operator of dead letters: groups get a dead-letter queue whose topic is created late, closed for a while, deleted
and re-created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from sharegroups.aio import Admin
from tests.simulation.history import LETTER_TOPIC
from tests.simulation.workload import configs
from tests.simulation.workload.cast import Cast
from tests.simulation.workload.topics import Topics, admin_of
from tests.simulation.workload.witness import Witness

_TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
_COPY_CONFIG: Final = "errors.deadletterqueue.copy.record.enable"
_ENABLE_CONFIG: Final = "errors.deadletterqueue.group.enable"
_PARTITIONS: Final = (1, 1, 2, 3)
_TRIES: Final = 20


class Postmaster:
    """Gives every group the same queue at the start. At the end the topic exists and is open."""

    def __init__(self, cast: Cast, rng: Random, name: str) -> None:
        self.name = name
        self._cast = cast
        self._rng = rng
        self._witness = Witness(cast.world, name)
        self._partitions = rng.choice(_PARTITIONS)
        self._mortal = rng.random() < 0.4

    async def work(self) -> None:
        """Configure the groups, create the topic at once or later, then disturb it."""
        if not await self._cast.topic(next(iter(self._cast.topics))):
            return
        async with admin_of(self._witness) as admin:
            topics = Topics(self._witness, admin)
            for rules in self._cast.groups:
                copies = self._rng.choice(["true", "false"])
                await self._set(admin, rules.name, (_TOPIC_CONFIG, LETTER_TOPIC), (_COPY_CONFIG, copies))
            if not await self._cast.pause(self._rng.choice([0.0, 0.0, 1.0, 3.0])):
                return
            await self._open(admin, topics)
            chores: list[Callable[[], Awaitable[object]]] = [
                lambda: self._allow(admin, "false"),
                lambda: self._allow(admin, "true"),
                lambda: self._allow(admin, "true"),
            ]
            if self._mortal:
                chores.append(lambda: self._replace(admin, topics))
            while await self._cast.pause(self._rng.uniform(0.3, 2.5)):
                await self._rng.choice(chores)()

    async def drain(self) -> None:
        """Open the queue, so that pending letters can be written."""
        async with admin_of(self._witness) as admin:
            await self._open(admin, Topics(self._witness, admin))

    async def _open(self, admin: Admin, topics: Topics) -> None:
        if LETTER_TOPIC not in self._cast.world.topics:
            await topics.create(LETTER_TOPIC, self._partitions)
        await self._allow(admin, "true")

    async def _allow(self, admin: Admin, enabled: str) -> None:
        await self._set(admin, LETTER_TOPIC, (_ENABLE_CONFIG, enabled), of_topic=True)

    async def _replace(self, admin: Admin, topics: Topics) -> None:
        """Delete the topic with all its letters, and re-create it."""
        if LETTER_TOPIC in self._cast.world.topics and await topics.delete(LETTER_TOPIC):
            await self._cast.pause(self._rng.choice([0.0, 0.5, 2.0]))
            await self._open(admin, topics)

    async def _set(self, admin: Admin, target: str, *changes: tuple[str, str], of_topic: bool = False) -> None:
        for _ in range(_TRIES):
            error = await configs.alter(self._witness, admin, target, changes, of_topic=of_topic)
            if error not in configs.UNSURE:
                return
