"""Any process may die around a deletion: everything that the deleted topic had in the store is still removed
(CM-21)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

import pytest

from kip932.errors import UnknownTopicIdError, UnknownTopicOrPartitionError, error_for
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.cluster.deleted_topics import PASSES
from shard_runtime.ownership.placement import ROLES
from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.connection import ConnectionLostError
from shard_runtime.record_log.redis.keys import META_LOG, owners_key
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer
from tests.simulation import determinism
from tests.simulation.world import Shape, World
from tests.twin import FaultPoint, Stage

LEASE_S = 3
PARTITIONS = 8
#: A fixed id, so that the partitions always belong to the same nodes.
TOPIC_ID = bytes(range(1, 17))
#: The time until the last pass, plus that for its note in the metadata and for a poll of the metadata.
FORGOTTEN_S = (PASSES[-1] + 2) * LEASE_S


def left(world: World) -> list[str]:
    """Return the keys of topic-partitions in the store, and their hints."""
    data = world.store.master.data
    hints = data.hashes.get(owners_key(ShardKind.TOPIC), {})
    return sorted([*(key for key in (*data.hashes, *data.streams) if "{tp:" in key), *map(str, hints)])


def remembered(world: World) -> list[str]:
    """Return what processes still keep of deleted topics."""
    return [
        f"{name}: {what}"
        for name, node in world.processes.items()
        for what in (
            *node.node.metadata.image.remains,
            *(shard.name for shard in node.node._owned if shard.kind is ShardKind.TOPIC),
        )
    ]


async def with_topic(world: World) -> None:
    """Start the nodes and create a topic whose partitions are led and hold records."""
    await world.open()
    for name in ("a", "b"):
        await world.start(name)
    settings = {"bootstrap.servers": world.bootstrap()}
    async with Admin(settings, transport=world.transport("admin")) as admin:
        with mock.patch("shard_runtime.cluster.topic_admin.new_topic_id", return_value=TOPIC_ID):
            assert await admin.create_topics([NewTopic("t", PARTITIONS)]) == {"t": None}
    await world.settled()
    async with Producer(settings, transport=world.transport("p")) as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number)
        await producer.flush()
    assert len([key for key in left(world) if key.endswith(":log")]) == PARTITIONS


async def delete(world: World, node: str) -> None:
    """Delete the topic through one node; its streams may still exist afterwards."""
    transport, settings = world.transport("admin"), {"bootstrap.servers": world.processes[node].address}
    with mock.patch.object(transport, "call", _only(node, transport.call)):
        async with Admin(settings, transport=transport) as admin:
            assert await admin.delete_topics(["t"]) == {"t": None}


def _only(node: str, call: Callable[..., Any]) -> Callable[..., Any]:
    async def through(address: str, *arguments: Any, **named: Any) -> Any:
        return await call(f"{node}:9000", *arguments, **named)

    return through


def story(report: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in a new world of two nodes."""

    async def main() -> None:
        world = World(3, Shape.two())
        await with_topic(world)
        await report(world)
        await world.close()

    determinism.run(3, main)


@pytest.mark.rule("CL-156")
def test_an_attempt_that_arrives_late_does_not_delete_the_next_topic_of_that_name() -> None:
    async def report(world: World) -> None:
        transport, settings = world.transport("admin"), {"bootstrap.servers": world.bootstrap()}
        call, lost = transport.call, list[Any]()

        async def first_lost(address: str, method: Any, request: Any, timeout_s: float) -> Any:
            if method.name == "DeleteTopics" and not lost:
                lost.append((address, method, request, timeout_s))
                raise TransportError(TransportStatus.UNAVAILABLE, address, "it will arrive later")
            return await call(address, method, request, timeout_s)

        with mock.patch.object(transport, "call", first_lost):
            async with Admin(settings, transport=transport) as admin:
                assert await admin.delete_topics(["t"]) == {"t": None}
                assert await admin.create_topics(["t"]) == {"t": None}
                (result,) = (await call(*lost[0])).responses
                assert isinstance(error_for(result.error_code), UnknownTopicIdError)
                await world.settled()
                assert (await admin.list_topics(["t"]))["t"].error is None

    story(report)


@pytest.mark.rule("CL-156")
def test_a_topic_that_an_attempt_without_an_answer_deleted_is_reported_as_unknown_by_its_name() -> None:
    async def report(world: World) -> None:
        transport, settings = world.transport("admin"), {"bootstrap.servers": world.bootstrap()}
        call, answered = transport.call, list[Any]()

        async def no_first_answer(address: str, method: Any, *rest: Any) -> Any:
            response = await call(address, method, *rest)
            if method.name == "DeleteTopics" and not answered:
                answered.append(response)
                raise TransportError(TransportStatus.UNAVAILABLE, address, "the answer is lost")
            return response

        with mock.patch.object(transport, "call", no_first_answer):
            async with Admin(settings, transport=transport) as admin:
                errors = await admin.delete_topics(["t", "nowhere"])
        assert {name: type(error) for name, error in errors.items()} == dict.fromkeys(
            ("t", "nowhere"), UnknownTopicOrPartitionError
        )

    story(report)


@pytest.mark.rule("CL-156")
def test_a_topic_that_was_made_again_is_deleted_even_if_the_node_that_is_asked_still_knows_the_former_one() -> None:
    async def report(world: World) -> None:
        transport, settings = world.transport("admin"), {"bootstrap.servers": world.bootstrap()}
        call = transport.call
        behind = mock.patch.object(world.processes["b"].node.metadata, "wake")  # it polls the metadata once a second

        async def through(address: str, method: Any, *arguments: Any, **named: Any) -> Any:
            node = "b" if method.name == "Metadata" else "a"
            return await call(f"{node}:9000", method, *arguments, **named)

        with behind, mock.patch.object(transport, "call", through):
            async with Admin(settings, transport=transport) as admin:
                assert await admin.delete_topics(["t"]) == {"t": None}
                assert await admin.create_topics(["t"]) == {"t": None}
                assert await admin.delete_topics(["t"]) == {"t": None}
                await world.settled()
                await asyncio.sleep(2)
                assert isinstance((await admin.list_topics(["t"]))["t"].error, UnknownTopicOrPartitionError)

    story(report)


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize("after_s", [0.0, 0.05, 1.0, 2 * LEASE_S - 0.1])
def test_the_streams_go_when_every_process_dies_right_after_the_deletion(after_s: float) -> None:
    async def report(world: World) -> None:
        async def no_removal(point: FaultPoint) -> None:
            if point.stage is Stage.SEND and point.has("DEL"):
                raise ConnectionLostError("what owners remove never arrives")

        world.store.hook = no_removal
        await delete(world, "a")
        await asyncio.sleep(after_s)
        for name in ("a", "b"):
            await world.kill(name)
        world.store.hook = None
        assert left(world)
        await world.start("c", roles=ROLES)  # other nodes, which never knew the topic
        await world.start("d", roles=ROLES)
        await asyncio.sleep(LEASE_S)
        assert left(world) == [], "any process that starts must remove what earlier ones left"
        await asyncio.sleep(FORGOTTEN_S)
        assert remembered(world) == []

    story(report)


@pytest.mark.rule("CM-21")
def test_processes_that_restart_again_and_again_still_forget_a_deleted_topic_in_the_end() -> None:
    async def report(world: World) -> None:
        await delete(world, "a")
        for _ in range(4):
            for name in ("a", "b"):
                await world.kill(name)
                await world.start(name)
            await asyncio.sleep(LEASE_S)
            assert left(world) == []
        assert remembered(world)
        await asyncio.sleep(FORGOTTEN_S)
        assert remembered(world) == []

    story(report)


@pytest.mark.rule("CM-21", "CM-12")
def test_what_a_claim_made_behind_the_first_removal_goes_with_the_last_though_the_claimant_died() -> None:
    async def report(world: World) -> None:
        claimed = asyncio.Event()

        async def knows_nothing(point: FaultPoint) -> None:
            if point.client != "b" or point.stage is Stage.COMMAND:
                return
            if point.has(META_LOG):
                raise ConnectionLostError("it cannot read the metadata")
            if point.stage is Stage.REPLY and point.has(scripts.CLAIM.digest) and point.has("{tp:"):
                claimed.set()

        await world.kill("a")  # so that all partitions belong to the node that misses the deletion
        await asyncio.sleep(2 * LEASE_S)
        await world.settled()
        world.store.cut_off("b")
        await world.start("c", roles=ROLES)
        await delete(world, "c")
        await asyncio.sleep(PASSES[0] * LEASE_S + 1)
        assert left(world) == []
        world.store.hook = knows_nothing
        world.store.heal()
        await asyncio.wait_for(claimed.wait(), 60)
        await world.kill("b")
        world.store.hook = None
        assert left(world), "a claim makes streams"
        await asyncio.sleep(FORGOTTEN_S)
        assert left(world) == []
        assert remembered(world) == []

    story(report)


@pytest.mark.rule("CM-21")
@pytest.mark.parametrize("claiming", [False, True], ids=["while it is led", "while it is claimed"])
def test_no_process_keeps_the_owner_of_a_deleted_partition(claiming: bool) -> None:
    async def report(world: World) -> None:
        answer, asked = asyncio.Event(), asyncio.Event()

        async def late(point: FaultPoint) -> None:
            if point.stage is Stage.REPLY and point.has(scripts.CLAIM.digest) and point.has("{tp:"):
                asked.set()
                await answer.wait()

        if claiming:
            await world.kill("b")
            world.store.hook = late
            await asyncio.wait_for(asked.wait(), 60)
        await delete(world, "a")
        answer.set()
        await asyncio.sleep(FORGOTTEN_S)
        assert left(world) == []
        assert remembered(world) == []

    story(report)
