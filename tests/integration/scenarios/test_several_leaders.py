"""S-025, S-027: several partition leaders on one store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip932 import errors
from kip932.ids import TopicIdPartition
from partition_leader.partition_owners import topic_shard
from shard_runtime.ownership.placement import target
from tests.integration.scenarios.sessions import ACCEPT, Session, acquired, part
from tests.integration.scenarios.wire import Leader, Wire, attempts
from tests.support.node import QUICK, Cluster

PARTITIONS = 12


@pytest.fixture(scope="module")
def growing() -> Iterator[Cluster]:
    """A cluster of one node; the first test adds a second node, the next test a third."""
    with Cluster(QUICK) as cluster:
        yield cluster


async def until_leaders(wire: Wire, topic: str, topic_id: bytes, count: int) -> dict[int, Leader]:
    """Wait until `count` nodes lead the topic's partitions and each partition is where placement puts it, so that none
    will move again."""
    async for _ in attempts():
        leaders = await wire.leaders(topic, PARTITIONS)
        nodes = {leader.node_id for leader in leaders.values()}
        if len(nodes) == count and all(
            leader.node_id == target(topic_shard(TopicIdPartition(topic_id, partition)), nodes)
            for partition, leader in leaders.items()
        ):
            return leaders
    raise AssertionError(f"{topic} is led by {leaders}")


@pytest.mark.scenario("S-025")
@pytest.mark.rule("PL-255", "CM-11", "PL-402", "PL-601", "PL-633", "PL-424")
@pytest.mark.asyncio
async def test_fetch_and_acknowledge_at_a_node_that_does_not_lead(growing: Cluster) -> None:
    async with Wire(growing.bootstrap, growing.internal) as wire:
        topic_id = await wire.create_topic("moved", PARTITIONS)
        old = await until_leaders(wire, "moved", topic_id, 1)
        member = await wire.join("g", ["moved"])
        sessions = {
            partition: Session(
                wire, "g", f"{member[:30]}-{partition}", topic_id, partitions=(partition,), address=leader.address
            )
            for partition, leader in old.items()
        }
        for partition, session in sessions.items():
            await wire.produce(topic_id, 21, partition)
            await session.open_with_records()
        address = growing.add_leader("second")
        new = await until_leaders(wire, "moved", topic_id, 2)
        moved = next(partition for partition, leader in new.items() if leader.address == address)
        stayed = next(partition for partition, leader in new.items() if leader.address != address)

        stranger = Session(wire, "g", member, topic_id, partitions=(stayed,), address=address)
        fetched = await stranger.fetch(epoch=0, wait_ms=500)
        assert (fetched.error_code, fetched.acquisition_lock_timeout_ms, fetched.throttle_time_ms) == (0, 30_000, 0)
        _not_leader(fetched, part(fetched).error_code, new[stayed])

        late = await sessions[moved].acknowledge((10, 20, [ACCEPT]), partition=moved)
        assert late.error_code == 0
        _not_leader(late, part(late).error_code, new[moved])
        assert new[moved].epoch > old[moved].epoch

        # The new leader does not know the session.
        gone = Session(wire, "g", sessions[moved].member, topic_id, partitions=(moved,), address=address)
        gone.epoch, gone.session_id = sessions[moved].epoch, sessions[moved].session_id
        refused = await gone.acknowledge((10, 20, [ACCEPT]), partition=moved)
        assert (refused.error_code, list(refused.responses)) == (errors.ShareSessionNotFoundError.code, [])

        # Nothing was applied: the new leader delivers the whole partition again.
        follower = Session(wire, "g", "follower", topic_id, partitions=(moved,), address=address)
        await follower.fetch(epoch=0, wait_ms=0)
        assert [found[:2] for found in await follower.acquire()] == [(0, 20)]


def _not_leader(answer: object, code: int, leader: Leader) -> None:
    """Assert that the partition's error names the leader, and that the response has the leader's address."""
    found = part(answer)
    assert code == errors.NotLeaderOrFollowerError.code
    assert found.error_message
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (leader.node_id, leader.epoch)
    (endpoint,) = answer.node_endpoints  # type: ignore[attr-defined]
    assert (endpoint.node_id, f"{endpoint.host}:{endpoint.port}") == (leader.node_id, leader.address)


@pytest.mark.scenario("S-027")
@pytest.mark.asyncio
async def test_one_share_session_per_leader(growing: Cluster) -> None:
    while growing.leaders < 3:  # another test may have added one
        growing.add_leader(f"leader {growing.leaders + 1}")
    async with Wire(growing.bootstrap, growing.internal) as wire:
        for number in range(20):  # one in forty topics leaves a node without partitions, depending on its random id
            topic_id = await wire.create_topic(f"spread{number}", PARTITIONS)
            shards = [topic_shard(TopicIdPartition(topic_id, partition)) for partition in range(PARTITIONS)]
            if len({target(shard, {1, 2, 3}) for shard in shards}) == 3:
                break
        topic = f"spread{number}"
        leaders = await until_leaders(wire, topic, topic_id, 3)
        one_each = {leader.node_id: partition for partition, leader in leaders.items()}
        member = await wire.join("g3", [topic])
        sessions = [
            Session(wire, "g3", member, topic_id, partitions=(partition,), address=leaders[partition].address)
            for partition in one_each.values()
        ]
        for session in sessions:
            await session.open()
        for session in sessions:
            (partition,) = session.partitions
            await wire.produce(topic_id, 10, partition, session.address)
        for session in sessions:
            answer = await session.fetch(epoch=1)
            assert part(answer).partition_index == session.partitions[0]
            assert acquired(answer) == [(0, 9, 1)]
        # Each leader counts separately: one session's progress does not move the others' epochs.
        ahead, *behind = sessions
        for _ in range(3):
            assert (await ahead.fetch(wait_ms=0)).error_code == 0
        assert [(await session.fetch(epoch=2, wait_ms=0)).error_code for session in behind] == [0, 0]
