"""A group's backlog in a real leader's ListOffsets: loaded share-partitions are counted, and none is loaded for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.api.v1 import list_offsets_pb2 as pb
from kip932.ids import ACK_RELEASE, OFFSET_LATEST
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.topic_rpc import fetch_and_offsets
from shard_runtime.rpc.binding import NO_CALLER
from tests.unit.partition_leader.share_partition.worlds import GROUP, TOPIC, World, run
from tests.unit.partition_leader.topic_log.harness import batch

CONTEXT = NO_CALLER
Reported = tuple[int | None, int | None, int | None]


async def backlogs(world: World, start: int | None, *partitions: int, group: str | None = GROUP) -> list[Reported]:
    request = pb.ListOffsetsRequest()
    topic = request.topics.add(topic_id=TOPIC)
    for number in partitions or (0,):
        topic.partitions.add(partition_index=number, timestamp=OFFSET_LATEST, holes_from=start, share_group_id=group)
    response = await world.leader.service.list_offsets(request, CONTEXT)
    names = ("group_in_flight", "group_waiting", "group_oldest_age_ms")
    (answered,) = response.topics
    assert [one.error_code for one in answered.partitions] == [0] * len(answered.partitions)
    found: list[Any] = list(answered.partitions)
    return [
        (held, waiting, age)
        for one in found
        for held, waiting, age in [[getattr(one, name) if one.HasField(name) else None for name in names]]
    ]


@pytest.mark.rule("PL-827")
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_held_waiting_and_oldest_of_what_is_loaded_and_of_what_is_not(cache_bytes: int) -> None:
    async def scenario(world: World) -> None:
        await world.produce(3)
        await asyncio.sleep(20)
        await world.produce(4)
        await asyncio.sleep(10)
        ((held, waiting, age),) = await backlogs(world, 0)
        assert (held, waiting) == (0, None), "nothing is loaded"
        assert age is not None
        assert 29_900 <= age <= 30_100
        ((_, _, younger),) = await backlogs(world, 4)
        assert younger is not None
        assert 9_900 <= younger <= 10_100
        assert await backlogs(world, 7) == [(0, None, None)], "all is finished"
        assert await backlogs(world, None) == [(0, None, None)], "where the group begins is not known"
        assert await backlogs(world, 0, group=None) == [(None, None, None)], "not asked for"
        assert len(world.leader.share_partitions) == 0
        assert world.persister.calls == []
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100, max_records=3).ranges() == [(0, 2, 1)]
        assert await member.accept(0, 2).ack_error() is None
        ((held, waiting, age),) = await backlogs(world, 0)
        assert (held, waiting) == (0, 4)
        assert age is not None
        assert age < 11_000, "of the leader's own start offset, not of the stored one"

    run(scenario, tail_cache_bytes=cache_bytes)


@pytest.mark.rule("PL-938", "PL-827")
def test_delayed_records_of_what_is_loaded_are_reported_and_wait_for_no_member() -> None:
    async def scenario(world: World) -> None:
        async def reported() -> tuple[int, int | None, int | None]:
            request = pb.ListOffsetsRequest()
            asked = request.topics.add(topic_id=TOPIC).partitions
            asked.add(partition_index=0, timestamp=OFFSET_LATEST, holes_from=0, share_group_id=GROUP)
            one: Any = (await world.leader.service.list_offsets(request, CONTEXT)).topics[0].partitions[0]
            waiting, delayed = (
                getattr(one, name) if one.HasField(name) else None for name in ("group_waiting", "group_delayed")
            )
            return one.group_in_flight, waiting, delayed

        await world.produce(6)
        assert await reported() == (0, None, None), "nothing is loaded: the share coordinator knows"
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100, max_records=6).ranges() == [(0, 5, 1)]
        assert await reported() == (6, 0, 0)
        await member.acknowledge(
            {0: [AckBatch(1, 3, (ACK_RELEASE,), (30_000,)), AckBatch(4, 4, (ACK_RELEASE,))]}
        ).answer()
        assert await reported() == (2, 1, 3)
        await asyncio.sleep(31)
        held, waiting, delayed = await reported()
        assert (held + (waiting or 0), delayed) == (6, 0)

    run(scenario)


@pytest.mark.rule("PL-827")
@pytest.mark.parametrize(("read_committed", "waiting"), [(True, 1), (False, 7)])
def test_an_aborted_tail_waits_for_no_reader_in_a_group_that_reads_committed_records(
    read_committed: bool, waiting: int
) -> None:
    async def empty(world: World, start: int, group: str) -> int | None:
        request = pb.ListOffsetsRequest()
        asked = request.topics.add(topic_id=TOPIC).partitions
        asked.add(partition_index=0, timestamp=OFFSET_LATEST, holes_from=start, share_group_id=group)
        one = (await world.leader.service.list_offsets(request, CONTEXT)).topics[0].partitions[0]
        return one.group_empty if one.HasField("group_empty") else None

    async def scenario(world: World) -> None:
        world.configure(read_committed=read_committed)
        await world.produce(2)
        member = world.member()
        assert await member.fetch(0, max_wait_ms=100).ranges() == [(0, 1, 1)]
        assert await member.accept(0, 1).ack_error() is None
        log = world.log()
        log.transactions.join(71, 0)
        inside = batch(6, producer=71, epoch=0, sequence=0)
        await log.append([inside._replace(is_transactional=True, transactional_id="t")], 1_000)
        await log.transactions.end(71, 0, commit=False)
        await world.produce(1)
        assert [found[:2] for found in await backlogs(world, 2)] == [(0, waiting)], "loaded"
        assert [found[:2] for found in await backlogs(world, 2, group="other")] == [(0, None)]
        assert await empty(world, 2, "other") == 8 - waiting
        assert await empty(world, -1, "other") is None

    run(scenario)


@pytest.mark.rule("PL-827")
def test_of_one_request_only_some_ages_are_read_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch_and_offsets.OLDEST_READS_MAX == 200
    monkeypatch.setattr(fetch_and_offsets, "OLDEST_READS_MAX", 2)

    async def scenario(world: World) -> None:
        for number in range(4):
            await world.produce(1, number)
        found = await backlogs(world, 0, 0, 1, 2, 3)
        assert [age is not None for _, _, age in found] == [True, True, False, False]
        assert [held for held, _, _ in found] == [0] * 4

    run(scenario, tail_cache_bytes=0)


def test_others_have_their_turn_while_many_loaded_share_partitions_are_counted() -> None:
    """Counting a window of 2,000 locks takes up to 5 ms, and a request may name 10,000 partitions (CM-94)."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scenario(world: World) -> None:
        await world.produce(3)
        assert await world.member().fetch(0, max_wait_ms=100).ranges() == [(0, 2, 1)]
        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        assert [held for held, _, _ in await backlogs(world, 0, *[0] * 40)] == [3] * 40
        assert turns - before >= 20, "one for every two of them"
        task.cancel()

    run(scenario)
