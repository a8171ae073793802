"""An administrator: adds partitions, deletes and re-creates topics, changes group configs, deletes records, reads
lags."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from kip932.errors import KafkaError
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError
from sharegroups.aio import Admin
from tests.simulation.history import Administered
from tests.simulation.shape import CONSUMED
from tests.simulation.workload import configs
from tests.simulation.workload.cast import Cast
from tests.simulation.workload.topics import Topics, admin_of
from tests.simulation.workload.witness import Witness, error_text

_PARTITIONS_MAX = 4
_CONFIGS = (
    ("share.record.lock.duration.ms", ("1000", "1500", "4000")),
    ("share.delivery.count.limit", ("2", "3", "5", "10")),
    ("share.partition.max.record.locks", ("100", "2000")),
    ("share.auto.offset.reset", ("earliest", "latest")),
)


_INTERVALS = (
    ("share.session.timeout.ms", ("1500", "3000", "8000")),
    ("share.heartbeat.interval.ms", ("200", "700", "2000")),
    ("share.assignment.interval.ms", ("0", "400", "1500")),
)
_RETENTION = (("retention.ms", ("1000", "3000")), ("retention.bytes", ("1", "300", "2000")))
_NEEDED = ("sharegroups.retention", "consumed")
_KEEP_ALL = (("retention.ms", "-1"), ("retention.bytes", "-1"), ("sharegroups.retention", "time_and_size"))


class Administrator:
    """Does one random task after another. `mortal`: topics that may be deleted; they are soon re-created."""

    def __init__(self, cast: Cast, rng: Random, name: str, mortal: tuple[str, ...]) -> None:
        self.name = name
        self._cast = cast
        self._world = cast.world
        self._rng = rng
        self._mortal = mortal
        self._witness = Witness(cast.world, name)
        self._partitions = dict(cast.topics)
        self._pressed = cast.world.random(f"{name}/pressed")
        self._short: dict[str, None] = {}

    async def work(self) -> None:
        """Do one task after another; before returning, re-create each topic that was deleted."""
        if not await self._cast.topic(next(iter(self._cast.topics))):
            return
        async with admin_of(self._witness) as admin:
            chores = self._chores(admin)
            if CONSUMED in self._world.shape.pressures:
                for topic in self._cast.topics:
                    await self._keep_only_needed(admin, topic)
            while await self._cast.pause(self._rng.uniform(0.1, 1.4)):
                await self._rng.choice(chores)()

    async def drain(self) -> None:
        """Switch back to keeping all records, so that no log start moves when everything is at rest."""
        if self._short:
            async with admin_of(self._witness) as admin:
                for name in self._short:
                    await self._keep(admin, name, _KEEP_ALL)

    def _chores(self, admin: Admin) -> list[Callable[[], Awaitable[None]]]:
        topics = Topics(self._witness, admin)
        chores: list[Callable[[], Awaitable[None]]] = [
            lambda: self._configure(admin),
            lambda: self._configure(admin),
            lambda: self._read_lags(admin),
            lambda: self._read_lags(admin),
            lambda: self._read_lags(admin),
            lambda: self._cut(admin),
            lambda: self._grow(topics),
        ]
        pressures = self._world.shape.pressures
        if "retention" in pressures:
            chores += [lambda: self._retain(admin)] * 2
        if CONSUMED in pressures:
            chores.append(lambda: self._keep_only_needed(admin, self._pressed.choice(list(self._cast.topics))))
        if "intervals" in pressures:
            chores += [lambda: self._time(admin)] * 2
        if self._mortal:
            chores += [lambda: self._replace(topics)] * 2
        return chores

    async def _configure(self, admin: Admin) -> None:
        group = self._rng.choice(self._cast.groups)
        name, values = self._rng.choice(_CONFIGS)
        await configs.alter(self._witness, admin, group.name, ((name, self._rng.choice(values)),))

    async def _time(self, admin: Admin) -> None:
        """Change the session timeout, the heartbeat interval, or how often assignments are computed."""
        group = self._pressed.choice(self._cast.groups)
        name, values = self._pressed.choice(_INTERVALS)
        await configs.alter(self._witness, admin, group.name, ((name, self._pressed.choice(values)),))

    async def _retain(self, admin: Admin) -> None:
        """Limit a topic's retention to a short time or few bytes, or keep all records again."""
        topic = self._pressed.choice(list(self._cast.topics))
        if topic in self._world.topics:
            name, values = self._pressed.choice(_RETENTION)
            self._short[topic] = None
            await self._keep(admin, topic, ((name, self._pressed.choice([*values, "-1"])),))

    async def _keep_only_needed(self, admin: Admin, topic: str) -> None:
        """Make a topic keep only the records that some group still needs."""
        if topic in self._world.topics:
            self._short[topic] = None
            await self._keep(admin, topic, (_NEEDED,))

    async def _keep(self, admin: Admin, topic: str, changes: tuple[tuple[str, str], ...]) -> None:
        await configs.alter(self._witness, admin, topic, changes, of_topic=True)

    async def _read_lags(self, admin: Admin) -> None:
        await configs.lags(self._witness, admin, self._rng.choice(self._cast.groups).name)

    async def _grow(self, topics: Topics) -> None:
        name = self._rng.choice(list(self._cast.topics))
        if name in self._world.topics and self._partitions[name] < _PARTITIONS_MAX:
            self._partitions[name] += 1
            await topics.grow(name, self._partitions[name])

    async def _replace(self, topics: Topics) -> None:
        """Delete a topic and re-create it, at once or after a while, perhaps with more or fewer partitions."""
        name = self._rng.choice(self._mortal)
        if name not in self._world.topics or not await topics.delete(name):
            return
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.uniform(0, 1.5))
        if self._rng.random() < 0.3:
            self._partitions[name] = self._rng.randint(1, 3)
        await topics.create(name, self._partitions[name])

    async def _cut(self, admin: Admin) -> None:
        """Call DeleteRecords with some offset of the log, or for all of it."""
        name = self._rng.choice(list(self._cast.topics))
        topic_id = self._world.topics.get(name)
        if topic_id is None:
            return
        partition = TopicPartition(name, self._rng.randrange(self._partitions[name]))
        asked_ms = self._world.now_ms()
        before = -1
        with self._witness.trying("list_offsets") as attempt:
            end = (await admin.list_offsets([partition]))[partition]
            if isinstance(end, KafkaError):
                raise end
        if attempt.error:
            return
        before = self._rng.randint(max(0, end - 10), end)
        try:
            start = (await admin.delete_records({partition: before}))[partition]
            error = error_text(start) if isinstance(start, KafkaError) else ""
        except (KafkaError, TransportError) as problem:
            error = error_text(problem)
        detail = f"{topic_id}/{partition.partition} {before}"
        self._witness.saw(Administered, "DeleteRecords", name, detail, error, asked_ms)
