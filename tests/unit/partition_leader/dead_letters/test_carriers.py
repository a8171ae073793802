"""Carriers of dead letters to other nodes: bounded, with one request in flight, and each response is matched to its own
request."""

from __future__ import annotations

import asyncio

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportStatus
from partition_leader.dead_letters.carriers import ROUNDS_MAX, NodeSenders
from partition_leader.dead_letters.letter_codec import Packed
from partition_leader.topic_log.core.batch import NewBatch
from tests.unit.partition_leader.share_partition.letter_facts import DLQ
from tests.unit.partition_leader.share_partition.worlds import World, run, settle

PACKED = Packed((NewBatch(b"x", 1, 0),), 1)


def made(world: World) -> NodeSenders:
    world.facts.topics[DLQ] = 100
    return NodeSenders(world.leader.led, world.elsewhere, world.elsewhere.leader_of)


@pytest.mark.rule("PL-912")
def test_a_node_that_does_not_answer_holds_so_many_rounds_and_no_more() -> None:
    async def scenario(world: World) -> None:
        carriers, world.elsewhere.held = made(world), asyncio.Event()
        tasks = []
        for number in range(ROUNDS_MAX):
            tasks.append(asyncio.ensure_future(carriers.carry(TopicIdPartition(DLQ, number), PACKED)))
            await settle()
        with pytest.raises(errors.ThrottlingQuotaExceededError, match="other:1"):
            await carriers.carry(TopicIdPartition(DLQ, 50), PACKED)
        world.elsewhere.held.set()
        await asyncio.gather(*tasks)
        assert [len(request.topic_data[0].partition_data) for request in world.elsewhere.requests] == [1, 15]
        await carriers.carry(TopicIdPartition(DLQ, 50), PACKED)
        await carriers.close()

    run(scenario)


def test_a_partition_is_in_a_request_once_and_those_who_have_gone_are_left_out() -> None:
    async def scenario(world: World) -> None:
        carriers, world.elsewhere.held = made(world), asyncio.Event()
        tasks = [asyncio.ensure_future(carriers.carry(TopicIdPartition(DLQ, 7), PACKED)) for _ in range(4)]
        await settle()
        tasks[2].cancel()
        world.elsewhere.held.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [len(request.topic_data[0].partition_data) for request in world.elsewhere.requests] == [1, 1, 1]

    run(scenario)


def test_what_is_not_stored_raises_what_the_leader_said() -> None:
    async def scenario(world: World) -> None:
        carriers = made(world)
        world.elsewhere.answers.extend([errors.MessageTooLargeError.code, TransportStatus.UNIMPLEMENTED])
        with pytest.raises(errors.MessageTooLargeError):
            await carriers.carry(TopicIdPartition(DLQ, 0), PACKED)
        with pytest.raises(errors.NetworkError, match="UNIMPLEMENTED"):
            await carriers.carry(TopicIdPartition(DLQ, 0), PACKED)
        world.elsewhere.address = None
        with pytest.raises(errors.LeaderNotAvailableError):
            await carriers.carry(TopicIdPartition(DLQ, 0), PACKED)

    run(scenario)


def test_the_end_of_the_process_ends_those_who_wait() -> None:
    async def scenario(world: World) -> None:
        carriers, world.elsewhere.held = made(world), asyncio.Event()
        tasks = [asyncio.ensure_future(carriers.carry(TopicIdPartition(DLQ, number), PACKED)) for number in range(3)]
        await settle()
        await carriers.close()
        done, pending = await asyncio.wait(tasks, timeout=1)
        assert not pending
        assert all(isinstance(task.exception(), errors.NetworkError) for task in done)

    run(scenario)
