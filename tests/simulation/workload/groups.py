"""A share group: its members join, consume, leave and are killed; at the end a new member drains the remaining
records."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from kip932.ids import TopicPartition
from shard_runtime.config import group_extensions, kafka_configs
from sharegroups.aio import Admin
from tests.simulation.history import ClientFailed
from tests.simulation.shape import SIZE_FLAG
from tests.simulation.workload import configs
from tests.simulation.workload.cast import DELAY_MAX, ISOLATION_LEVEL, Cast, GroupRules
from tests.simulation.workload.consuming import Member
from tests.simulation.workload.manners import TIDY, Ending, Manners
from tests.simulation.workload.topics import Topics, admin_of
from tests.simulation.workload.witness import Witness

#: How long draining a group may take without faults: dead members' locks and sessions expire, and state is written.
_DRAIN_S = 60.0
_DRAIN_POLL_S = 2.0
#: A full group refuses the draining consumer, which then gives up, so it joins only after the dead members' sessions
#: have expired. Sessions last 10 s; if the coordinator did not know for a while whether they lived, they last that long
#: again (GC-32a).
_EXPIRED_S = 24.0
_POLL_S = 0.1
#: The configs that must apply during a group's whole lifetime.
_KNOWN: Final[dict[str, Any]] = {
    ISOLATION_LEVEL: kafka_configs.GROUP_ISOLATION_LEVEL,
    DELAY_MAX: group_extensions.GROUP_RETRY_DELAY_MAX_MS,
}
#: The number of consecutive polls without records, each followed by lag 0, after which the group counts as drained.
_QUIET = 2


class ShareGroup:
    """One group, as its rules define it."""

    def __init__(self, cast: Cast, rng: Random, rules: GroupRules) -> None:
        self.name = rules.name
        self._cast = cast
        self._world = cast.world
        self._rng = rng
        self._rules = rules
        self._slots = [Random(rng.getrandbits(64)) for _ in range(rules.size)]

    async def work(self) -> None:
        """Set the group's configs, then have members in every slot until the work is over."""
        if not await self._cast.topic(self._rules.topics[0]):
            return
        witness = Witness(self._world, self.name)
        async with admin_of(witness) as admin:
            while self._cast.working:
                if await configs.alter(witness, admin, self.name, self._rules.configs) not in configs.UNSURE:
                    break
        while not self._is_known() and await self._cast.pause(_POLL_S):
            pass
        async with asyncio.TaskGroup() as tasks:
            for number, rng in enumerate(self._slots):
                tasks.create_task(self._fill(number, rng))

    def _is_known(self) -> bool:
        """Return True if every process has learned the group's isolation level and maximum delay, if these are set. A
        process that starts later knows them from the start."""
        configs = dict(self._rules.configs)
        nodes = [process.node for process in self._world.processes.values() if process.ready]
        return all(
            str(node.configs.group(self.name, definition)) == configs[name]
            for name, definition in _KNOWN.items()
            if name in configs
            for node in nodes
        )

    async def drain(self) -> None:
        """Accept the remaining records of topics that still exist, with a new member, until none is left."""
        if SIZE_FLAG in self._world.shape.flags:
            await asyncio.sleep(_EXPIRED_S)
        process = f"{self.name}.drain"
        with self._world.client(process):
            task = asyncio.create_task(self._drain(Witness(self._world, process)))
        await task

    async def _fill(self, number: int, rng: Random) -> None:
        """Run one member after another."""
        life = 0
        while self._cast.working:
            life += 1
            process = f"{self.name}.{number}.{life}"
            drawn = Manners.draw(rng, self._rules.explicit, self._rules.hasty)
            manners = drawn.pressed(self._world.random(f"{process}/pressed"), self._world.shape.pressures)
            with self._world.client(process):
                member = Member(self._cast, self._rules, Witness(self._world, process), manners, rng)
                task = asyncio.create_task(member.live())
            await asyncio.wait([task], timeout=manners.lives_s * 0.9 if manners.ending is Ending.KILLED else None)
            if not task.done():
                await self._world.kill_client(process)
                member.gone()
            if task.done() and not task.cancelled():
                task.result()
            await self._cast.pause(rng.uniform(0, self._rules.rest_s))

    async def _drain(self, witness: Witness) -> None:
        async with admin_of(witness) as admin:
            topics = Topics(witness, admin)
            if partitions := await self._partitions(topics):
                await self._empty(witness, admin, topics, partitions)

    async def _partitions(self, topics: Topics) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for name in self._rules.topics:
            topic = await topics.learn(name)
            if topic is not None:
                found += [TopicPartition(name, part.partition) for part in topic.partitions]
        return found

    async def _empty(self, witness: Witness, admin: Admin, topics: Topics, partitions: list[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _DRAIN_S
        member = Member(self._cast, self._rules, witness, TIDY, self._rng)
        joined = dict.fromkeys(partition.topic for partition in partitions)
        member.join(joined)
        quiet = 0
        while quiet < _QUIET:
            if loop.time() > end:
                witness.saw(ClientFailed, "drain", "NOT_EMPTY")
                break
            if await member.step(_DRAIN_POLL_S):
                quiet = 0
                continue
            # A node that is behind may have reported a topic that no longer exists.
            partitions = [one for one in await self._partitions(topics) if one.topic in joined]
            seen = await configs.lags(witness, admin, self.name, partitions)
            quiet = quiet + 1 if seen and not any(seen.get(partition, -1) for partition in partitions) else 0
        await member.leave()
