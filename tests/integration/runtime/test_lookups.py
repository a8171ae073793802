"""FindCoordinator and Metadata over the in-memory transport, on a cluster of one process."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.ids import NULL_TOPIC_ID
from shard_runtime.cluster import lookups
from shard_runtime.record_log.protocol import ShardKind
from shard_runtime.rpc.bounds import Turns
from tests.integration.runtime.cluster_wire import Wire
from tests.integration.runtime.harness import CLUSTER_ID, until

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CM-22")
async def test_a_partition_without_a_live_owner_has_no_leader(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire.process.node.registry, "node", lambda node_id: None)
    monkeypatch.setattr(wire.process.node.owners, "_node", lambda node_id: None)
    await wire.create("t", 2)
    asked = {"values": [{"name": "t"}]}
    for topics in ({}, {"topics": asked}):
        (topic,) = (await wire.call("Metadata", **topics)).topics
        reported = [(part.error_code, part.leader_id, part.leader_epoch) for part in topic.partitions]
        assert (topic.error_code, reported) == (0, [(errors.LeaderNotAvailableError.code, -1, -1)] * 2)
    assert errors.LeaderNotAvailableError.code == 5


@pytest.mark.rule("CM-22")
async def test_metadata_shows_leaders_once_they_own_their_partitions(wire: Wire) -> None:
    created = await wire.create("t", 2)
    leaders = wire.process.leaders
    await until(lambda: len(leaders) == 2 and all(leader.lease for leader in leaders.values()))
    for _ in range(200):
        metadata = await wire.call("Metadata")
        if all(partition.leader_id == 1 for partition in metadata.topics[0].partitions):
            break
    topic = metadata.topics[0]
    assert (topic.name, topic.topic_id, metadata.cluster_id) == ("t", created.topic_id, CLUSTER_ID)
    assert [p.leader_epoch > 0 for p in topic.partitions] == [True, True]
    assert [(node.node_id, node.host, node.port) for node in metadata.brokers] == [(1, "127.0.0.1", 1)]
    asked = {"values": [{"name": "none"}, {"topic_id": bytes(range(16))}, {"topic_id": created.topic_id}]}
    metadata = await wire.call("Metadata", topics=asked)
    assert [topic.error_code for topic in metadata.topics] == [3, 100, 0]
    assert metadata.topics[0].topic_id == NULL_TOPIC_ID
    assert list((await wire.call("Metadata", topics={"values": []})).topics) == []
    cluster = await wire.call("DescribeCluster")
    assert (cluster.controller_id, len(cluster.brokers)) == (-1, 1)


@pytest.mark.rule("CM-22")
@pytest.mark.parametrize("moment", ["it comes while the hints are read", "it goes while the topics are written"])
async def test_each_leader_that_metadata_names_has_its_address_there(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    await wire.create("t", 2)
    leaders, registry = wire.process.leaders, wire.process.node.registry
    await until(lambda: len(leaders) == 2 and all(leader.lease for leader in leaders.values()))
    for _ in range(200):
        if all(part.leader_id == 1 for part in (await wire.call("Metadata")).topics[0].partitions):
            break
    listed, refresh = registry._nodes, wire.process.node.owners.refresh

    async def comes(kind: ShardKind) -> None:
        await refresh(kind)
        registry._nodes = listed

    class Goes(Turns):
        async def step(self, cost: int = 1) -> None:
            await super().step(cost)
            steps.append(cost)
            if len(steps) == 2:  # the first partition has been written, the second is next
                registry._nodes = ()

    steps: list[int] = []
    if "comes" in moment:
        registry._nodes = ()
        monkeypatch.setattr(wire.process.node.owners, "refresh", comes)
    else:
        monkeypatch.setattr(lookups, "Turns", Goes)
    metadata = await wire.call("Metadata", topics={"values": [{"name": "t"}]})
    registry._nodes = listed
    named = [part.leader_id for part in metadata.topics[0].partitions if part.error_code == 0]
    assert named[:1] == [1]
    assert [(node.node_id, node.host, node.port) for node in metadata.brokers] == [(1, "127.0.0.1", 1)]


@pytest.mark.scenario("S-097")
@pytest.mark.rule("GC-130", "GC-131", "GC-132", "SC-4", "CM-14", "SC-2")
async def test_find_coordinator(wire: Wire) -> None:
    await until(lambda: len(wire.process.serving()) == 10)
    for _ in range(200):
        answer = await wire.call("FindCoordinator", key_type=0, coordinator_keys=["g1", "g2"])
        if all(found.error_code == 0 for found in answer.coordinators):
            break
    assert [(found.key, found.node_id, found.port) for found in answer.coordinators] == [("g1", 1, 1), ("g2", 1, 1)]
    keys = ["g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:short:0", "nothing"]
    answer = await wire.call("FindCoordinator", key_type=2, coordinator_keys=keys)
    assert [found.error_code for found in answer.coordinators] == [15, 42, 42]
    answer = await wire.call("FindCoordinator", key_type=1, coordinator_keys=["tx"])
    assert (answer.coordinators[0].error_code, answer.coordinators[0].node_id) == (42, -1)
