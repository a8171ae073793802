"""S-039: one fetch of three partitions, one of them led elsewhere and one with unreadable state."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kip932 import errors
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from tests.integration.scenarios.sessions import Session, acquired
from tests.integration.scenarios.state_edge import READ, REFUSED, StateEdge, cluster_with_an_edge
from tests.integration.scenarios.test_several_leaders import PARTITIONS, until_leaders
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

NOT_LEADER = errors.NotLeaderOrFollowerError.code


class _Reported(NamedTuple):
    """The part of the response about one partition."""

    error: int
    ranges: list[tuple[int, int, int]]
    message: str


def _reported(answer: ShareFetchResponse) -> dict[int, _Reported]:
    assert answer.error_code == 0, answer.error_message
    return {
        part.partition_index: _Reported(
            int(part.error_code),
            [(one.first_offset, one.last_offset, one.delivery_count) for one in part.acquired_records],
            part.error_message,
        )
        for topic in answer.responses
        for part in topic.partitions
    }


@pytest.mark.scenario("S-039")
@pytest.mark.asyncio
async def test_each_partition_of_a_fetch_has_its_own_answer() -> None:
    async with cluster_with_an_edge() as (cluster, edge), Wire(cluster.bootstrap, cluster.internal) as wire:
        topic, group = unique("t"), unique("g")
        topic_id = await wire.create_topic(topic, PARTITIONS)
        here = next(iter((await until_leaders(wire, topic, topic_id, 1)).values())).address
        cluster.add_leader("second")
        leaders = await until_leaders(wire, topic, topic_id, 2)
        away = next(partition for partition, leader in leaders.items() if leader.address != here)
        healthy, failing = [partition for partition, leader in leaders.items() if leader.address == here][:2]
        for partition in (away, healthy, failing):
            await wire.produce(topic_id, 10, partition, leaders[partition].address)
        member = await wire.join(group, [topic])
        edge.refuse(group, errors.FencedLeaderEpochError.code, READ, failing)
        session = Session(wire, group, member, topic_id, partitions=(away, healthy, failing), address=here)
        reported: dict[int, _Reported] = {}
        async for turn in attempts():  # a share-partition whose state is still being read is omitted, or empty
            answer = _reported(await session.fetch(epoch=0 if turn == 0 else None, wait_ms=300))
            for partition, found in answer.items():
                if found.error or found.ranges:
                    reported.setdefault(partition, found)
            if len(reported) == len(session.partitions):
                break
        assert (reported[away].error, reported[away].ranges) == (NOT_LEADER, [])
        assert reported[healthy] == (0, [(0, 9, 1)], "")
        assert (reported[failing].error, reported[failing].ranges) == (NOT_LEADER, [])
        assert REFUSED in reported[failing].message
        await _is_read_again(edge, session, failing)


async def _is_read_again(edge: StateEdge, session: Session, failing: int) -> None:
    """Assert that the failing partition was dropped from memory: fetches read its state again until that succeeds, and
    its records arrive."""
    reads = edge.refused(session.group, READ)
    async for _ in attempts():
        found = _reported(await session.fetch(wait_ms=300)).get(failing)
        assert found is None or not found.ranges
        if edge.refused(session.group, READ) > reads:
            break
    assert edge.refused(session.group, READ) > reads
    edge.repair(session.group, READ)
    async for _ in attempts():
        found = _reported(await session.fetch(wait_ms=300)).get(failing)
        if found is not None and found.ranges:
            break
    assert found == (0, [(0, 9, 1)], "")


@pytest.mark.scenario("S-039")
@pytest.mark.asyncio
async def test_what_is_not_initialised_yet_is_empty_and_no_error(wire: Wire) -> None:
    topic_id = await wire.create_topic(unique("t"))
    await wire.produce(topic_id, 10)
    session = Session(wire, unique("g"), "member", topic_id)
    for epoch in (0, None):
        assert acquired(await session.fetch(epoch=epoch, wait_ms=300)) == []
