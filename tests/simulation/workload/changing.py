"""Groups that an administrator changes: it deletes the groups or their offsets, alters offsets, and lists and describes
groups.

Members of one group come and go meanwhile, so it is empty during some changes and not during others. The other groups
have no members: altering their offsets creates them, and their interrupted changes are left to the coordinators.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from kip932.errors import GroupIdNotFoundError, KafkaError
from kip932.ids import TopicPartition
from kip932.rpc.transport import TransportError
from sharegroups.aio import Admin
from tests.simulation.history import Administered, GroupListed
from tests.simulation.workload import Workload, configs
from tests.simulation.workload.cast import Cast, GroupRules
from tests.simulation.workload.consuming import Member
from tests.simulation.workload.groups import ShareGroup
from tests.simulation.workload.manners import Manners
from tests.simulation.workload.topics import admin_of
from tests.simulation.workload.witness import Witness, error_text

#: An offset that some logs have reached and some have not.
_OFFSET_MAX: Final = 25
#: How many times a call of unknown outcome is retried.
_AGAIN_MAX: Final = 3
#: The probability that the caller goes away before the response, and after how long.
_HURRIED: Final = 0.3
_PATIENCE_S: Final = (0.005, 0.01, 0.02, 0.04)
#: The error recorded for a call whose response was not awaited; it may have succeeded.
_UNHEARD: Final = "REQUEST_TIMED_OUT"

Change = Callable[[Admin], Awaitable[str]]


def changed_groups(cast: Cast, rng: Random, topics: tuple[str, ...]) -> list[Workload]:
    """Draw a group whose members come and go, two without members, and the client that changes them."""
    drawn = GroupRules.draw(_source(rng), "c0", topics, 2)
    session = ("share.session.timeout.ms", rng.choice(["1000", "2000"]))
    begun = replace(drawn, rest_s=2.5, hasty=rng.random() < 0.6, configs=(*drawn.configs, session))
    lived_in = begun.pressed(cast.world.random("c0/pressed"), cast.world.shape.pressures)
    bare = tuple(replace(lived_in, name=name, size=0) for name in ("c1", "c2"))
    return [ShareGroup(cast, _source(rng), lived_in), GroupChanger(cast, _source(rng), "changer", lived_in, bare)]


def _source(rng: Random) -> Random:
    return Random(rng.getrandbits(64))


class GroupChanger:
    """Does one task after another, each on one of its groups; some tasks are two concurrent calls. The groups in `bare`
    have no members."""

    def __init__(self, cast: Cast, rng: Random, name: str, lived_in: GroupRules, bare: tuple[GroupRules, ...]) -> None:
        self.name = name
        self._cast = cast
        self._world = cast.world
        self._rng = rng
        self._lived_in = lived_in
        self._bare = bare
        self._groups = (lived_in, lived_in, *bare)
        self._witness = Witness(cast.world, name)
        self._visits = 0

    async def work(self) -> None:
        """Change groups until the work is over."""
        if not await self._cast.topic(next(iter(self._cast.topics))):
            return
        chores: list[Callable[[Admin, GroupRules], Awaitable[None]]] = [
            self._one, self._one, self._one, self._two, self._two, self._made_again, self._met, self._left,
            self._list,
        ]  # fmt: skip
        async with admin_of(self._witness) as admin:
            while await self._cast.pause(self._rng.uniform(0.05, 0.8)):
                await self._rng.choice(chores)(admin, self._rng.choice(self._groups))

    async def drain(self) -> None:
        """Do nothing: interrupted changes are completed without it (OP-6)."""

    # ---- tasks

    async def _one(self, admin: Admin, group: GroupRules) -> None:
        """Make a change; usually, one of unknown outcome is retried. Sometimes the caller goes away in the middle,
        leaving the rest to the coordinator (GC-108)."""
        change = self._change(group)
        if self._rng.random() < _HURRIED:
            await self._hurried(change(admin))
            return
        for _ in range(_AGAIN_MAX):
            if await change(admin) not in configs.UNSURE or self._rng.random() < 0.3:
                break

    async def _hurried(self, change: Awaitable[str]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rng.choice(_PATIENCE_S)):
                await change

    async def _left(self, admin: Admin, _group: GroupRules) -> None:
        """Create a group without members, and delete it without waiting for the response."""
        group = self._rng.choice(self._bare)
        await self._alteration(group)(admin)
        await self._hurried(self._delete_group(admin, group.name))

    async def _two(self, admin: Admin, group: GroupRules) -> None:
        """Make two changes at once, one of which has to wait (GC-107)."""
        changes = [self._change(group) for _ in range(2)]
        await asyncio.gather(*(change(admin) for change in changes))

    async def _made_again(self, admin: Admin, group: GroupRules) -> None:
        """Delete a group, and create another one with its id (GC-93, GC-101)."""
        await self._delete_group(admin, group.name)
        await self._alteration(group)(admin)

    async def _met(self, admin: Admin, _group: GroupRules) -> None:
        """Let a member join while the group is being deleted, and stay for a moment (GC-93)."""
        group = self._lived_in
        self._visits += 1
        process = f"{self.name}.visitor{self._visits}"
        manners = replace(Manners.draw(self._rng, group.explicit, hasty=True), dawdle=0.0)
        visitor = Random(self._rng.getrandbits(64))
        begins_s = self._rng.choice([0.0, 0.0, 0.002, 0.005, 0.2])
        with self._world.client(process):
            member = Member(self._cast, group, Witness(self._world, process), manners, visitor)
            task = asyncio.create_task(self._visit(member, begins_s))
        await asyncio.gather(self._delete_group(admin, group.name), task)

    @staticmethod
    async def _visit(member: Member, begins_s: float) -> None:
        await asyncio.sleep(begins_s)
        await member.live()

    async def _list(self, admin: Admin, group: GroupRules) -> None:
        """List groups, describe this one, and read its offsets."""
        asked = len(self._world.history.events)
        with self._witness.trying("list_groups") as attempt:
            listed = {each.group_id for each in await admin.list_groups()}
        if not attempt.error:
            for name in sorted({each.name for each in self._groups}):
                self._witness.saw(GroupListed, "ListGroups", name, name in listed, asked)
        asked = len(self._world.history.events)
        with self._witness.trying("describe_share_groups") as attempt:
            seen = (await admin.describe_share_groups([group.name]))[group.name]
            if isinstance(seen, KafkaError) and not isinstance(seen, GroupIdNotFoundError):
                raise seen
        if not attempt.error:
            there = not isinstance(seen, KafkaError)
            self._witness.saw(GroupListed, "ShareGroupDescribe", group.name, there, asked)
        await configs.lags(self._witness, admin, group.name)

    # ---- changes

    def _change(self, group: GroupRules) -> Change:
        """Draw a change; all random choices are made now."""
        drawn = self._rng.random()
        if drawn < 0.35:
            return lambda admin: self._delete_group(admin, group.name)
        if drawn < 0.6:
            topics = self._some(group.topics)
            return lambda admin: self._delete_offsets(admin, group.name, topics)
        return self._alteration(group)

    def _alteration(self, group: GroupRules) -> Change:
        """Draw new offsets for some partitions: the start of the log, a number, or the end."""
        wanted = {}
        for topic in self._some(group.topics):
            for number in range(self._cast.topics[topic]):
                if self._rng.random() < 0.8:
                    place = TopicPartition(topic, number)
                    wanted[place] = self._rng.choice([0, 0, self._rng.randint(1, _OFFSET_MAX), None])
        return lambda admin: self._alter(admin, group.name, wanted)

    def _some(self, topics: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(topic for topic in topics if self._rng.random() < 0.6) or topics[:1]

    async def _delete_group(self, admin: Admin, group: str) -> str:
        asked_ms, error = self._world.now_ms(), _UNHEARD
        try:
            failure = (await admin.delete_share_groups([group]))[group]
            error = error_text(failure) if failure is not None else ""
        except (KafkaError, TransportError) as problem:
            error = error_text(problem)
        finally:
            self._witness.saw(Administered, "DeleteGroups", group, "", error, asked_ms)
        return error

    async def _delete_offsets(self, admin: Admin, group: str, topics: Iterable[str]) -> str:
        asked_ms, whole = self._world.now_ms(), _UNHEARD
        errors: dict[str, KafkaError | None] = {}
        try:
            errors = await admin.delete_share_group_offsets(group, topics)
            whole = ""
        except (KafkaError, TransportError) as problem:
            whole = error_text(problem)
        finally:
            for topic in topics:
                error = _of(errors.get(topic), whole)
                self._witness.saw(Administered, "DeleteShareGroupOffsets", group, topic, error, asked_ms)
        return whole

    async def _alter(self, admin: Admin, group: str, wanted: dict[TopicPartition, int | None]) -> str:
        offsets = {place: start for place, start in wanted.items() if start is not None}
        ends = [place for place in wanted if place not in offsets]
        if ends:
            with self._witness.trying("list_offsets"):
                for place, end in (await admin.list_offsets(ends)).items():
                    if not isinstance(end, KafkaError):
                        offsets[place] = end
        asked_ms, whole = self._world.now_ms(), _UNHEARD
        errors: dict[TopicPartition, KafkaError | None] = {}
        try:
            errors = await admin.alter_share_group_offsets(group, offsets)
            whole = ""
        except (KafkaError, TransportError) as problem:
            whole = error_text(problem)
        finally:
            for place, start in offsets.items():
                error = _of(errors.get(place), whole)
                detail = f"{place.topic}/{place.partition} {start}"
                self._witness.saw(Administered, "AlterShareGroupOffsets", group, detail, error, asked_ms)
        return whole


def _of(error: KafkaError | None, whole: str) -> str:
    return whole if error is None else error_text(error)
