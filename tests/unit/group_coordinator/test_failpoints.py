"""The coordinator dies before and after each of its writes and calls, one at a time (GC-94, GC-103).

A story (a sequence of commands) is first run without a crash, to count the points at which it may crash and to find its
expected end. Then it is run once for each point and each kind of crash: the process stops there, another one takes
over, and the command is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportError
from kip932.state_values import StateSummary
from shard_runtime.record_log.protocol import Appended, ShardId, StreamAppend
from share_persister import PersisterError
from tests.support.group_admin import alter, delete_groups, delete_offsets, emptied, groups_of
from tests.support.group_cluster import GroupCluster, ShareStates, play
from tests.support.group_driver import topic_id
from tests.support.toy_shard import ObedientLog

T, U = topic_id("t"), topic_id("u")
#: When the process stops: before the place; after it; or before it, with the call taking effect long afterwards.
KINDS: Final = ("before", "after", "late")
AGAIN: Final = frozenset(
    error.code
    for error in (
        errors.CoordinatorLoadInProgressError,
        errors.CoordinatorNotAvailableError,
        errors.NotCoordinatorError,
    )
)


@dataclass
class Places:
    """Counts the places passed while `armed`, and stops the process at place number `at`."""

    at: int = 0
    kind: str = "before"
    armed: bool = False
    passed: int = 0
    names: list[str] = field(default_factory=list)
    crashed: asyncio.Event = field(default_factory=asyncio.Event)
    late: list[Callable[[], object]] = field(default_factory=list)

    async def through(self, name: str, do: Callable[[], Awaitable[Any]], late: Callable[[], object]) -> Any:
        """Pass one place, which runs `do`."""
        if not self.armed:
            return await do()
        self.passed += 1
        self.names.append(name)
        if self.passed != self.at:
            return await do()
        self.armed = False
        if self.kind == "after":
            await do()
        elif self.kind == "late":
            self.late.append(late)
        self.crashed.set()
        return await asyncio.Event().wait()


class Log(ObedientLog):
    """A log in which every append is a place; a late append is refused by the fence that a claim has raised."""

    places: Places

    async def append(self, shard: ShardId, epoch: int, appends: Sequence[StreamAppend]) -> Appended:
        found: Appended = await self.places.through(
            "append", lambda: ObedientLog.append(self, shard, epoch, appends), lambda: None
        )
        return found


class States(ShareStates):
    """A share coordinator in which every call is a place."""

    places: Places

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        def late() -> object:
            return [self._initialize(group_id, key, state_epoch, start) for key, start in start_offsets.items()]

        found: dict[TopicIdPartition, PersisterError | None] = await self.places.through(
            "initialize", lambda: ShareStates.initialize(self, group_id, state_epoch, start_offsets), late
        )
        return found

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        def late() -> object:
            return [self._delete(group_id, key, epoch) for key, epoch in partitions.items()]

        found: dict[TopicIdPartition, PersisterError | None] = await self.places.through(
            "delete", lambda: ShareStates.delete(self, group_id, partitions), late
        )
        return found

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at_ms: int | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        found: dict[TopicIdPartition, StateSummary | PersisterError] = await self.places.through(
            "summary", lambda: ShareStates.summary(self, group_id, partitions, delayed_at_ms), lambda: None
        )
        return found


class End(NamedTuple):
    """The state in which a story ends: the groups with their lists, and the stored start offsets. Epochs may differ."""

    groups: dict[str, tuple[dict[bytes, tuple[int, ...]], dict[bytes, list[int]], list[bytes]]]
    starts: dict[tuple[str, TopicIdPartition], int]


def _end(world: GroupCluster) -> End:
    groups = {
        group_id: (
            dict(group.states.initialized),
            {key: list(topic.initializing) for key, topic in group.states.topics.items() if topic.initializing},
            list(group.states.deleting),
        )
        for group_id, group in groups_of(world).items()
    }
    return End(groups, {key: found.start_offset for key, found in world.persister.states.items()})


Command = Callable[[GroupCluster], Awaitable[int]]


class Story(NamedTuple):
    """One scenario: the state before it, the command (which returns the error code that the caller sees), the places it
    passes, and the end."""

    before: Callable[[GroupCluster], Awaitable[None]]
    command: Command
    places: list[str]
    end: End


async def _group(world: GroupCluster) -> None:
    await emptied(world, "t", "u")
    world.leaders.ends = dict.fromkeys([(T, 0), (T, 1)], 100)


async def _topics(world: GroupCluster) -> None:
    world.create("t", 2)


async def _delete_group(world: GroupCluster) -> int:
    code = int((await delete_groups(world, "grp"))["grp"].error_code)
    return 0 if code == errors.GroupIdNotFoundError.code else code


async def _delete_offsets(world: GroupCluster) -> int:
    answer = await delete_offsets(world, ["t"])
    codes = {int(topic.error_code) for topic in answer.responses} - {errors.UnknownTopicOrPartitionError.code}
    return int(answer.error_code) or max(codes, default=0)


async def _alter(world: GroupCluster) -> int:
    answer = await alter(world, {"t": [(0, 7), (1, 9)]})
    codes = {int(part.error_code) for topic in answer.responses for part in topic.partitions}
    return int(answer.error_code) or max(codes, default=0)


async def _join(world: GroupCluster) -> int:
    """Let a member join and heartbeat until everything is initialised, each time with the epoch from the last
    response."""
    epoch = 0
    for _ in range(8):
        answer = await world.heartbeat("m", epoch, ["t"] if epoch == 0 else None)
        if answer.error_code:
            return int(answer.error_code)
        epoch = answer.member_epoch
        await asyncio.sleep(0.01)
        if groups_of(world)["grp"].states.initialized == {T: (0, 1)}:
            return 0
        await asyncio.sleep(30)  # the interval after which an initialisation is ordered again
    return -1


def _left(**starts: int) -> End:
    """The end with exactly these start offsets and nothing in progress; `t0` is partition 0 of t."""
    keys = {TopicIdPartition(topic_id(name[0]), int(name[1])): start for name, start in sorted(starts.items())}
    initialized: dict[bytes, tuple[int, ...]] = {}
    for key in keys:
        initialized[key.topic_id] = (*initialized.get(key.topic_id, ()), key.partition)
    return End({"grp": (initialized, {}, [])}, {("grp", key): start for key, start in keys.items()})


STORIES: Final = {
    "delete group": Story(_group, _delete_group, ["append", "delete", "append"], End({}, {})),
    "delete offsets": Story(_group, _delete_offsets, ["append", "delete", "append"], _left(u0=-1, u1=-1)),
    "alter": Story(_group, _alter, ["append", "initialize", "append"], _left(t0=7, t1=9, u0=-1, u1=-1)),
    "initialise": Story(_topics, _join, ["append", "initialize", "append"], _left(t0=-1, t1=-1)),
}


def _world(places: Places) -> GroupCluster:
    world = GroupCluster()
    world.logs[:] = [Log() for _ in world.logs]
    for log in world.logs:
        log.places = places  # type: ignore[attr-defined]
    world.persister = States()
    world.persister.places = places
    world.role = world._role()
    return world


async def _first_try(world: GroupCluster, story: Story, places: Places) -> None:
    """Run the command until it ends or the process dies; in that case another process takes over."""
    await story.before(world)
    await asyncio.sleep(0.01)
    places.armed = True
    call = asyncio.ensure_future(story.command(world))
    died = asyncio.ensure_future(places.crashed.wait())
    await asyncio.wait([call, died], return_when=asyncio.FIRST_COMPLETED)
    if places.crashed.is_set():
        await world.restart()
    died.cancel()
    [code] = await asyncio.gather(call, return_exceptions=True)
    assert code == 0 or (places.crashed.is_set() and (code in AGAIN or isinstance(code, TransportError))), code
    places.armed = False


async def _repeated(world: GroupCluster, story: Story) -> None:
    for _ in range(10):
        if (code := await story.command(world)) not in AGAIN:
            assert code == 0
            return
        await asyncio.sleep(1)
    raise AssertionError("ten repeated commands were all refused with a retriable error")


@pytest.mark.parametrize("name", STORIES)
def test_undisturbed_each_command_passes_these_places_and_ends_so(name: str) -> None:
    story, places = STORIES[name], Places()

    async def body(world: GroupCluster) -> None:
        await _first_try(world, story, places)
        assert _end(world) == story.end

    play(body, _world(places))
    assert places.names == story.places


CRASHES = [
    pytest.param(name, at, kind, id=f"{name}, {kind} {place} {at}")
    for name, story in STORIES.items()
    for at, place in enumerate(story.places, 1)
    for kind in KINDS
]


@pytest.mark.rule("GC-94", "GC-98", "GC-103", "GC-69d")
@pytest.mark.parametrize(("name", "at", "kind"), CRASHES)
def test_the_repeated_command_ends_as_if_nothing_had_happened(name: str, at: int, kind: str) -> None:
    story, places = STORIES[name], Places(at, kind)

    async def body(world: GroupCluster) -> None:
        await _first_try(world, story, places)
        assert places.crashed.is_set()
        await _repeated(world, story)
        assert _end(world) == story.end
        for arrives in places.late:
            arrives()
        assert _end(world) == story.end, "a call of the process that died, arriving now, changes nothing"
        await asyncio.sleep(65)
        assert _end(world) == story.end

    play(body, _world(places))


@pytest.mark.rule("OP-6", "GC-94", "GC-107")
@pytest.mark.parametrize(
    ("name", "at", "kind"), [crash for crash in CRASHES if str(crash.values[0]).startswith("delete")]
)
def test_a_deletion_ends_without_being_repeated_once_its_first_write_is_there(name: str, at: int, kind: str) -> None:
    story, places = STORIES[name], Places(at, kind)
    begun = (at, kind) not in ((1, "before"), (1, "late"))

    async def body(world: GroupCluster) -> None:
        await _first_try(world, story, places)
        untouched = _end(world)
        await asyncio.sleep(65)
        assert _end(world) == (story.end if begun else untouched)
        assert begun or "grp" in groups_of(world)

    play(body, _world(places))
