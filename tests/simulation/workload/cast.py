"""The state that the workloads of one run share: topics, groups, and which members hold which records."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Self

from tests.simulation.history import Place
from tests.simulation.shape import DELAYS, DELAYS_MAX_MS, TRANSACTIONS
from tests.simulation.workload.topics import Topics, admin_of
from tests.simulation.workload.witness import Witness

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The interval at which a client checks whether a topic exists yet, or whether the work is over.
_POLL_S = 0.1
_NAP_S = 0.5
ISOLATION_LEVEL = "share.isolation.level"
DELAY_MAX = "sharegroups.retry.delay.max.ms"


@dataclass(frozen=True)
class GroupRules:
    """A group: the topics that it reads, its initial configs, and the habits of its members.

    `size`: the number of members at a time; `hasty` ones stay for less than a second. `explicit`: the fraction that
    acknowledge explicitly. `poison`: one in this many records is never finished by any member; 0 for none. `rest_s`:
    how long, at most, a place in the group stays empty after a member leaves. `delays`: True if members release with
    delays.
    """

    name: str
    topics: tuple[str, ...]
    configs: tuple[tuple[str, str], ...]
    lock_ms: int
    size: int
    hasty: bool
    explicit: float
    poison: int
    rest_s: float = 0.2
    delays: bool = False

    def pressed(self, rng: Random, pressures: Collection[str]) -> Self:
        """Return the same group with configs adjusted to the run's pressures (`shape.PRESSURES`)."""
        configs = dict(self.configs)
        if "by_duration" in pressures and rng.random() < 0.7:
            configs["share.auto.offset.reset"] = rng.choice(["by_duration:PT1S", "by_duration:PT3S"])
        if "no renewals" in pressures:
            configs["share.renew.acknowledge.enable"] = "false"
        if "assignment" in pressures:
            configs["share.assignment.interval.ms"] = rng.choice(["400", "1500"])
        if TRANSACTIONS in pressures:
            configs[ISOLATION_LEVEL] = "read_committed"
        if "bulk" in pressures:
            configs["share.partition.max.record.locks"] = "2000"
        if DELAYS in pressures:
            configs[DELAY_MAX] = rng.choice(DELAYS_MAX_MS)
        return replace(self, configs=tuple(configs.items()), delays=DELAYS in pressures)

    @classmethod
    def draw(cls, rng: Random, name: str, topics: tuple[str, ...], size_max: int) -> Self:
        """Draw a group; it reads at least the first topic."""
        lock_ms = rng.choice([1000, 1000, 1500, 2500])
        reset = "latest" if rng.random() < 0.15 else "earliest"
        configs = [("share.record.lock.duration.ms", str(lock_ms)), ("share.auto.offset.reset", reset)]
        if rng.random() < 0.7:
            configs.append(("share.session.timeout.ms", rng.choice(["3000", "5000"])))
        if rng.random() < 0.85:
            configs.append(("share.delivery.count.limit", str(rng.choice([2, 3, 5]))))
        if rng.random() < 0.3:
            configs.append(("share.partition.max.record.locks", "100"))
        some = tuple(topic for topic in topics[1:] if rng.random() < 0.7)
        return cls(
            name,
            topics[:1] + some,
            tuple(configs),
            lock_ms,
            size=rng.randint(1, size_max),
            hasty=rng.random() < 0.12,
            explicit=rng.choice([0.0, 0.5, 1.0, 1.0]),
            poison=rng.choice([0, 5, 9]),
        )

    def poisonous(self, value: bytes) -> bool:
        """Return True if no member of this group can handle the record."""
        return self.poison > 0 and int(value.rpartition(b":")[2]) % self.poison == 0


@dataclass
class Cast:
    """The state shared by a run's workloads. `topics`: the number of partitions with which each topic is created.
    `holding`: by group and place, the member that received the record and has not settled it."""

    world: World
    topics: Mapping[str, int]
    groups: tuple[GroupRules, ...]
    holding: dict[str, dict[Place, str]] = field(default_factory=dict)
    begun: bool = False

    @property
    def working(self) -> bool:
        """Return True while the work phase lasts."""
        return self.world.phase == "work"

    async def topic(self, name: str) -> bool:
        """Wait until a topic exists; return False if the work is over first. The first call creates all topics."""
        if not self.begun:
            self.begun = True
            await self._create()
        while self.working:
            if name in self.world.topics:
                return True
            await asyncio.sleep(_POLL_S)
        return False

    async def _create(self) -> None:
        witness = Witness(self.world, "opening")
        with self.world.client(witness.process):
            task = asyncio.create_task(self._create_all(witness))
        await task

    async def _create_all(self, witness: Witness) -> None:
        async with admin_of(witness) as admin:
            for name, partitions in self.topics.items():
                await Topics(witness, admin).create(name, partitions)

    async def pause(self, seconds: float) -> bool:
        """Sleep, but at most a moment past the end of the work; return True if the work continues."""
        for _ in range(int(seconds / _NAP_S)):
            if not self.working:
                return False
            await asyncio.sleep(_NAP_S)
        await asyncio.sleep(seconds % _NAP_S)
        return self.working

    def holds(self, group: str, place: Place, member_id: str) -> None:
        """Note that a member received a record."""
        self.holding.setdefault(group, {})[place] = member_id

    def settled(self, group: str, place: Place, member_id: str) -> None:
        """Note that it has settled the record, or is gone."""
        held = self.holding.get(group, {})
        if held.get(place) == member_id:
            del held[place]
