"""A leader loses ownership of a partition, or the topic is deleted."""

from __future__ import annotations

import asyncio

import pytest

from partition_leader.partition_owners import topic_shard
from tests.support.virtual_time import now_s

from .persister import Fault
from .worlds import Member, World, code, key, part, run, settle


async def holding(world: World, records: int = 4, name: str = "m", connection: int | None = None) -> Member:
    """A member that has acquired offsets 0 … records − 1 of partition 0."""
    await world.produce(records)
    member = world.member(name, connection=connection)
    assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, records - 1, 1)]
    return member


@pytest.mark.rule("CM-4", "CM-12", "PL-412")
def test_a_hand_over_finishes_the_state_writes_under_way_and_refuses_what_is_new() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.faults["write"].append(slow(1.0))
        acknowledged = member.accept(0, 3)
        parked = world.member("n").fetch(0, max_wait_ms=60_000)
        await settle()
        handing = asyncio.get_running_loop().create_task(world.leader.owner(topic_shard(part())).releasing())
        await settle()
        assert code(await parked.error()) == "NOT_LEADER_OR_FOLLOWER"
        assert code(await member.accept(0, 3).ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        await handing
        assert await acknowledged.ack_error() is None
        assert world.persister.stored[key()].start == 4
        assert len(world.leader.share_partitions) == 0

    run(scenario)


@pytest.mark.rule("CM-4", "CM-12")
def test_a_hand_over_does_not_wait_for_ever_and_leaves_no_call_behind() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        acknowledged = member.accept(0, 3)
        await settle()
        await world.leader.owner(topic_shard(part())).releasing()
        await settle()
        assert now_s() <= 5
        assert code(await acknowledged.ack_error()) == "NOT_LEADER_OR_FOLLOWER"
        assert world.persister.running == 0
        world.persister.let_go("write")

    run(scenario)


@pytest.mark.rule("CM-12")
def test_a_hand_over_cut_short_still_ends_the_log() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        world.persister.hold("write")
        member.accept(0, 3)
        await settle()
        topic_log = world.log()
        handing = asyncio.get_running_loop().create_task(world.leader.owner(topic_shard(part())).releasing())
        await settle()
        handing.cancel()
        await settle()
        assert topic_log.closed
        assert len(world.leader.share_partitions) == 0
        world.persister.let_go("write")

    run(scenario)


@pytest.mark.rule("PL-632")
def test_a_deleted_topic_is_led_no_more_at_once_and_its_log_ends_with_its_shard() -> None:
    async def scenario(world: World) -> None:
        member = await holding(world)
        topic_log = world.log()
        parked = member.fetch(max_wait_ms=60_000)
        await settle()
        topics, world.facts.topics = world.facts.topics, {}
        world.leader.topics_changed(frozenset(topics))
        await settle()
        assert code(await parked.error()) == "UNKNOWN_TOPIC_ID"
        assert len(world.leader.share_partitions) == 0
        for number in range(4):
            await world.leader.owner(topic_shard(part(number))).releasing()
        assert topic_log.closed
        assert world.leader.owners._owners == {}
        assert world.leader.led._demand == {}

    run(scenario)


@pytest.mark.rule("PL-602")
def test_generations_are_remembered_for_each_partition_and_not_for_each_group() -> None:
    async def scenario(world: World) -> None:
        for number in range(20):
            member = world.member("m", group=f"g{number}")
            await member.fetch(0, max_wait_ms=0).answer()
            member.acknowledge({}, epoch=-1)
            await settle()
        assert len(world.leader.share_partitions._generations) == 1
        world.lose()
        assert world.leader.share_partitions._generations == {}

    run(scenario)


def slow(delay_s: float) -> Fault:
    return Fault(delay_s=delay_s)
