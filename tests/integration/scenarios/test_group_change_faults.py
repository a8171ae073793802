"""S-083, S-085, and coordinators that die during a change: state calls are slow or refused, between real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import pytest_asyncio

from kip932 import errors
from tests.integration.scenarios.group_changes import (
    alter,
    altered,
    delete_groups,
    delete_offsets,
    deleted,
    described,
    emptied,
    leave,
    starts,
)
from tests.integration.scenarios.state_edge import DELETE, INITIALIZE, StateEdge, cluster_with_an_edge
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import QUICK, Cluster, StartedProcess, unique

pytestmark = pytest.mark.asyncio(loop_scope="module")

NONE = 0
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
UNKNOWN = errors.UnknownServerError.code
NOT_THERE = errors.GroupIdNotFoundError.code


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def edged() -> AsyncIterator[tuple[Cluster, StateEdge]]:
    """The coordinators of groups run as separate processes, so that one can be killed."""
    async with cluster_with_an_edge(roles="partition_leader") as made:
        yield made


@pytest.fixture
def edge(edged: tuple[Cluster, StateEdge]) -> StateEdge:
    return edged[1]


@pytest_asyncio.fixture(loop_scope="module")
async def wire(edged: tuple[Cluster, StateEdge]) -> AsyncIterator[Wire]:
    async with Wire(edged[0].bootstrap, edged[0].internal) as made:
        yield made


class Coordinators:
    """The process that coordinates all groups; `next` kills it and starts another one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._process = self._start()

    def _start(self) -> StartedProcess:
        own = {
            **QUICK,
            "persister.operation.timeout.ms": "3000",
            "node.name": unique("groups"),
            "internal.listen.port": "0",
            "store.url": self._cluster.store_url,
            "store.fsync.always": "true",
        }
        words = [f"{name}={value}" for name, value in own.items()]
        process = StartedProcess(["share_node", "serve", "group_coordinator", *words], self._cluster.folder)
        assert process.first_line().startswith("ready")
        return process

    def next(self) -> None:
        """Kill the process; another one takes over its shards."""
        self._process.kill()
        self._process = self._start()

    def stop(self) -> None:
        self._process.stop()


@pytest.fixture(scope="module")
def coordinators(edged: tuple[Cluster, StateEdge]) -> Any:
    made = Coordinators(edged[0])
    yield made
    made.stop()


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def coordinated(wire: Wire, coordinators: Coordinators) -> None:
    await wire.coordinator("any")


async def _left_initializing(wire: Wire, edge: StateEdge, group: str, topic: str) -> Any:
    """Make a member subscribe to the topic and leave before its state exists; returns the held call."""
    held = edge.hold(group, INITIALIZE)
    member = unique("m")
    assert (await wire.heartbeat(group, member, 0, [topic])).error_code == NONE
    async with asyncio.timeout(30):
        await held.came.wait()
    await leave(wire, group, member)
    return held


@pytest.mark.rule("GC-97", "GC-99")
@pytest.mark.scenario("S-083")
async def test_offsets_of_partitions_that_initialise_are_left_alone(wire: Wire, edge: StateEdge) -> None:
    one, two, group = unique("topic-1"), unique("topic-2"), unique("g")
    one_id = await wire.create_topic(one, 3)
    await wire.create_topic(two, 2)
    await emptied(wire, group, one)
    await _left_initializing(wire, edge, group, two)
    epoch = (await described(wire, group)).group_epoch
    answer = await delete_offsets(wire, group, [one, two, "topic-3"])
    assert deleted(answer) == {one: NONE, two: NO_TOPIC, "topic-3": NO_TOPIC}
    assert answer.responses[0].topic_id == one_id
    assert "there is nothing to delete" in answer.responses[1].error_message
    assert [(await wire.summary(group, one_id, index)).state_epoch for index in range(3)] == [0, 0, 0]
    assert (await described(wire, group)).group_epoch == epoch
    assert await starts(wire, group) == {}
    edge.release(group, INITIALIZE)


@pytest.mark.rule("GC-90", "GC-91", "GC-92", "GC-93", "GC-95")
@pytest.mark.scenario("S-085")
async def test_groups_are_deleted_one_by_one(wire: Wire, edge: StateEdge) -> None:
    t1, t2, t3, t4 = (unique(name) for name in ("t1", "t2", "t3", "t4"))
    g1, g2, g3 = (unique(name) for name in ("g1", "g2", "g3"))
    ids = {name: await wire.create_topic(name) for name in (t1, t2, t3, t4)}
    await emptied(wire, g1, t2, t3)
    edge.refuse(g1, UNKNOWN, DELETE)
    assert deleted(await delete_offsets(wire, g1, [t3])) == {t3: UNKNOWN}  # t3 remains marked as deleting
    edge.repair(g1, DELETE)
    await wire.join(g2, [t4])
    await emptied(wire, g3, t4)
    await _left_initializing(wire, edge, g1, t1)  # last, since calls of other groups queue up after the held one
    edge.refuse(g3, UNKNOWN, DELETE)
    assert await delete_groups(wire, g1, g2, g3) == {
        g1: NONE,
        g2: errors.NonEmptyGroupError.code,
        g3: UNKNOWN,
    }
    assert (await described(wire, g1)).error_code == NOT_THERE
    assert [(await wire.summary(g1, ids[name])).state_epoch for name in (t2, t3)] == [0, 0]
    assert (await described(wire, g2)).group_state == "Stable"
    assert (await described(wire, g3)).group_state == "Empty"
    edge.repair(g3, DELETE)
    edge.release(g1, INITIALIZE)


Change = Callable[[Wire, str, str], Coroutine[Any, Any, object]]
#: The change, the state call during which the coordinator dies, and the final start offsets, or None for no group.
Case = tuple[Change, str, dict[int, int] | None]


async def _delete_group(wire: Wire, group: str, topic: str) -> object:
    return (await delete_groups(wire, group))[group] in (NONE, NOT_THERE)


async def _delete_topic(wire: Wire, group: str, topic: str) -> object:
    return deleted(await delete_offsets(wire, group, [topic]))[topic] in (NONE, NO_TOPIC)


async def _alter(wire: Wire, group: str, topic: str) -> object:
    return altered(await alter(wire, group, {topic: [(0, 2)]})) == {topic: [(0, NONE)]}


@pytest.mark.rule("GC-94", "GC-103", "OP-6")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param((_delete_group, DELETE, None), id="delete the group"),
        pytest.param((_delete_topic, DELETE, {}), id="delete a topic's offsets"),
        pytest.param((_alter, INITIALIZE, {0: 2, 1: -1}), id="alter an offset"),
    ],
)
async def test_a_change_whose_coordinator_dies_ends_when_it_is_repeated(
    wire: Wire, edge: StateEdge, coordinators: Coordinators, case: Case
) -> None:
    change, rpc, end = case
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic, 2)
    await wire.produce(topic_id, 5)
    await emptied(wire, group, topic)
    held = edge.hold(group, rpc)
    first = asyncio.ensure_future(change(wire, group, topic))
    async with asyncio.timeout(30):
        await held.came.wait()
    coordinators.next()
    edge.release(group, rpc)
    await asyncio.gather(first, return_exceptions=True)
    assert await change(wire, group, topic)
    if end is None:
        assert (await described(wire, group)).error_code == NOT_THERE
    else:
        assert (await starts(wire, group)).get(topic, {}) == end


@pytest.mark.rule("OP-6", "GC-94")
async def test_a_deletion_whose_coordinator_dies_ends_without_being_repeated(
    wire: Wire, edge: StateEdge, coordinators: Coordinators
) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic, 2)
    await emptied(wire, group, topic)
    held = edge.hold(group, DELETE)
    request = asyncio.ensure_future(delete_groups(wire, group))
    async with asyncio.timeout(30):
        await held.came.wait()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    coordinators.next()
    edge.release(group, DELETE)
    async for _ in attempts():
        if (await described(wire, group)).error_code == NOT_THERE:
            break
    else:
        raise AssertionError(f"group {group} is still there")
    assert [(await wire.summary(group, topic_id, index)).state_epoch for index in (0, 1)] == [0, 0]
