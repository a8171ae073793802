"""Coordinator processes are killed at each write of a group's change, and the outcome is the same as without a kill.

Group coordinator, share coordinator and Valkey are processes; each coordinator connects to the store through a proxy in
the test. The proxy holds the pipeline with the group's record before the store gets it, or drops the reply to it; then
the process is killed, and its successor starts with the same data directory. `tests/scenarios/crashes` covers more
places, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pytest
import pytest_asyncio

from kip932 import errors
from kip932.rpc.transport import TransportError
from tests.integration.scenarios.group_changes import (
    alter,
    altered,
    delete_groups,
    delete_offsets,
    deleted,
    described,
    emptied,
    leave,
)
from tests.integration.scenarios.wire import Wire, attempts
from tests.scenarios.crashes.stored import Stored, stored
from tests.support.node import QUICK, Cluster, StartedProcess, unique
from tests.support.store_proxy import Fault, Proxy
from tests.support.stores import Server
from tests.twin.data import Data, Stream

pytestmark = pytest.mark.asyncio(loop_scope="module")

GROUPS, STATES = "group_coordinator", "share_coordinator"
#: A proxy's faults for a pipeline: stop it in the middle of the record, or execute it and drop the reply.
HOLD, LOSE_REPLY = "hold", "lose_reply"
NONE: Final = 0
GONE: Final = (NONE, errors.GroupIdNotFoundError.code, errors.UnknownTopicOrPartitionError.code)
BOUND_S: Final = 30
#: A deletion whose call has failed is resumed by a sweep within 30 s; if that fails too, by the next sweep.
ALONE_S: Final = 90


Change = Callable[[Wire, str, str], Coroutine[Any, Any, bool]]


class Role:
    """A coordinator as a separate process, connected to the store through a proxy."""

    def __init__(self, role: str, cluster: Cluster, proxy: Proxy) -> None:
        self.proxy = proxy
        self._cluster = cluster
        settings = {
            **QUICK,
            "persister.operation.timeout.ms": "5000",
            "node.name": role,
            "data.dir": str(cluster.folder / role),
            "internal.listen.port": "0",
            "store.url": f"redis://127.0.0.1:{proxy.port}",
            "store.fsync.always": "true",
        }
        self._words = ["share_node", "serve", role, *(f"{name}={value}" for name, value in settings.items())]

    async def start(self) -> None:
        """Start the process; the proxy keeps running in this process meanwhile."""

        def ready() -> StartedProcess:
            process = StartedProcess(self._words, self._cluster.folder)
            assert process.first_line().startswith("ready")
            return process

        self._process = await asyncio.to_thread(ready)

    async def die(self, fault: Fault) -> None:
        """Kill the process, drop what the proxy still holds, and start a new process."""
        self._process.kill()
        self.proxy.cut()
        fault.resume.set()
        await self.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._process.stop)


@dataclass
class Stage:
    """The processes, and the store that they share."""

    server: Server
    cluster: Cluster
    roles: dict[str, Role] = field(default_factory=dict)

    async def stored(self, group: str, names: dict[bytes, str]) -> Stored:
        """Return the state that the store has of one group, under the id `g`, so that groups can be compared."""
        data = Data()
        for prefix in ("gc", "sgs"):
            for shard in range(4):
                key = f"{{{prefix}:{shard}}}:log"
                (entries,) = await self.server.run(("XRANGE", key, "-", "+"))
                data.streams[key] = Stream(fields=[tuple(fields) for _, fields in entries])
        everything = stored(data, names)
        states = {key.removeprefix(group): found for key, found in everything.states.items() if key.startswith(group)}
        groups = {"g": everything.groups[group]} if group in everything.groups else {}
        dead = {"g": everything.deleted[group]} if group in everything.deleted else {}
        return Stored(groups, dead, states).without_epochs()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    server = Server()
    await server.start()
    settings = {**QUICK, "node.roles": "partition_leader"}
    proxies = {role: Proxy(server.port) for role in (GROUPS, STATES)}
    url = f"redis://127.0.0.1:{server.port}"
    try:
        with Cluster(settings, "--store", url, "--init") as cluster:
            made = Stage(server, cluster)
            for role, proxy in proxies.items():
                await proxy.start()
                made.roles[role] = Role(role, cluster, proxy)
                await made.roles[role].start()
            yield made
            for each in made.roles.values():
                await each.stop()
    finally:
        for proxy in proxies.values():
            await proxy.close()
        server.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def wire(stage: Stage) -> AsyncIterator[Wire]:
    async with Wire(stage.cluster.bootstrap, stage.cluster.internal) as made:
        await made.coordinator("any")
        yield made


# ---- the changes


async def _delete_group(wire: Wire, group: str, _topic: str) -> bool:
    return (await delete_groups(wire, group))[group] in GONE


async def _delete_offsets(wire: Wire, group: str, topic: str) -> bool:
    return deleted(await delete_offsets(wire, group, [topic]))[topic] in GONE


async def _alter(wire: Wire, group: str, topic: str) -> bool:
    return altered(await alter(wire, group, {topic: [(0, 2), (1, 3)]})) == {topic: [(0, NONE), (1, NONE)]}


async def _use(wire: Wire, group: str, topic: str) -> bool:
    """Let a member join, wait until it has been assigned the initialised partitions, and let it leave."""
    member = unique("m")
    epoch = 0
    async for _ in attempts():
        try:
            answer = await wire.heartbeat(group, member, epoch, None if epoch else [topic])
        except TransportError:
            continue
        epoch = 0 if answer.error_code else answer.member_epoch
        if sum(len(found.partitions) for found in answer.assignment.topic_partitions) == 2:
            await leave(wire, group, member)
            return True
    return False


async def _done(change: Change, wire: Wire, group: str, topic: str) -> None:
    """Repeat the change until a response says that it is done."""
    async for _ in attempts():
        if await change(wire, group, topic):
            return
    raise AssertionError("the change was refused again and again")


class Story(NamedTuple):
    """A change to a group, and whether the group exists beforehand."""

    there: bool
    change: Change


STORIES: Final = {
    "delete group": Story(True, _delete_group),
    "delete offsets": Story(True, _delete_offsets),
    "alter": Story(True, _alter),
    "initialise": Story(False, _use),
}


class Place(NamedTuple):
    """The nth write of a role, and whether it reaches the store before the process dies."""

    role: str
    nth: int
    kind: str


PLACES: Final = [
    Place(GROUPS, 1, HOLD),
    Place(GROUPS, 1, LOSE_REPLY),
    Place(STATES, 1, HOLD),
    Place(STATES, 1, LOSE_REPLY),
    Place(GROUPS, 2, HOLD),
    Place(GROUPS, 2, LOSE_REPLY),
]


#: Deletions also complete without a repeated call: at each place one of the two is tested so, the other with repeats.
ALONE: Final = [("delete group", PLACES[at]) for at in (1, 3, 5)] + [("delete offsets", PLACES[at]) for at in (2, 4)]
REPEATED: Final = [(name, place) for name in STORIES for place in PLACES if (name, place) not in ALONE]


def _named(name: str, place: Place) -> Any:
    when = "before" if place.kind == HOLD else "after"
    return pytest.param(name, place, id=f"{name}: {place.role} dies {when} its write {place.nth}")


async def _ordered(proxy: Proxy, group: str, place: Place) -> Fault:
    """Schedule the fault once the process has reached the write before it; returns the fault once it has occurred."""
    if place.nth == 2:
        first = proxy.add(group, HOLD)
        await first.struck.wait()
        fault = proxy.add(group, place.kind)
        first.resume.set()
    else:
        fault = proxy.add(group, place.kind)
    await fault.struck.wait()
    return fault


#: Names for comparison: every topic is called t.
_topics: dict[bytes, str] = {}
_ends: dict[str, Stored] = {}


async def _prepared(wire: Wire, story: Story) -> tuple[str, str]:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic, 2)
    _topics[topic_id] = "t"
    await described(wire, group)  # the previous test may have ended before the next coordinator serves the group
    if story.there:
        for partition in (0, 1):
            await wire.produce(topic_id, 5, partition)
        await emptied(wire, group, topic)
    return group, topic


async def _undisturbed(stage: Stage, wire: Wire, name: str) -> Stored:
    """Return the state that the change leaves when no process dies."""
    if name not in _ends:
        group, topic = await _prepared(wire, STORIES[name])
        await _done(STORIES[name].change, wire, group, topic)
        _ends[name] = await stage.stored(group, _topics)
    return _ends[name]


async def _begun(stage: Stage, wire: Wire, name: str, place: Place) -> tuple[str, asyncio.Task[None], Fault]:
    """Start the change of a group; returns when the process has reached the place."""
    group, topic = await _prepared(wire, STORIES[name])
    fault = asyncio.ensure_future(_ordered(stage.roles[place.role].proxy, group, place))
    await asyncio.sleep(0)
    change = asyncio.ensure_future(_done(STORIES[name].change, wire, group, topic))
    async with asyncio.timeout(BOUND_S):
        return group, change, await fault


@pytest.mark.rule("GC-94", "GC-103", "GC-69d")
@pytest.mark.parametrize(("name", "place"), [_named(*case) for case in REPEATED])
async def test_a_change_that_is_repeated_ends_as_an_undisturbed_one(
    stage: Stage, wire: Wire, name: str, place: Place
) -> None:
    end = await _undisturbed(stage, wire, name)
    group, change, fault = await _begun(stage, wire, name, place)
    await stage.roles[place.role].die(fault)
    await change
    assert await stage.stored(group, _topics) == end


@pytest.mark.rule("OP-6", "GC-94")
@pytest.mark.parametrize(("name", "place"), [_named(*case) for case in ALONE])
async def test_a_deletion_that_is_not_repeated_ends_by_itself(
    stage: Stage, wire: Wire, name: str, place: Place
) -> None:
    end = await _undisturbed(stage, wire, name)
    group, change, fault = await _begun(stage, wire, name, place)
    change.cancel()
    await asyncio.gather(change, return_exceptions=True)
    await stage.roles[place.role].die(fault)
    deadline = asyncio.get_running_loop().time() + ALONE_S
    while (found := await stage.stored(group, _topics)) != end:
        assert asyncio.get_running_loop().time() < deadline, f"{found} has not become {end}"
        await asyncio.sleep(0.05)
