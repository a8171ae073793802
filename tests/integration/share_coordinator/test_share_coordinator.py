"""The whole share coordinator: persister, gRPC, hosts and a store in memory; then a second node takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Self

import pytest
import pytest_asyncio

from kip932.failures import FAILURES_MAX, Failure
from kip932.ids import SharePartitionKey, TopicIdPartition, state_shard
from kip932.internal.v1 import share_coordinator_service_pb2 as service_pb
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.state_batches import StateBatch
from kip932.state_values import ReadState, StoredState, WriteState
from shard_runtime.clock import SystemClock
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.host_options import HostOptions
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import STREAM_START, ShardId, ShardKind
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.rpc.server import RpcServer
from share_coordinator.codec import ShareStateCodec
from share_coordinator.config import ShareCoordinatorConfig
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareUpdate
from share_coordinator.role import ShareCoordinator
from share_persister import PersisterClient, PersisterError
from tests.support.claims import claim
from tests.support.share_state import TOPIC, Metadata
from tests.twin.store import MemoryStore

pytestmark = pytest.mark.asyncio

SHARDS = 3
LEASE_MS = 60_000
KEY = SharePartitionKey("g", TOPIC, 0)
NAME = TopicIdPartition(TOPIC, 0)


class Node:
    """A process with the share coordinator's role, whose claims are made by the test."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number = number
        self.clock = SystemClock()
        self.log = StoreRecordLog(cluster.store.client(f"node{number}"), StoreSettings(), self.clock, Random(number))
        config = ShareCoordinatorConfig(state_topic_num_partitions=SHARDS, snapshot_update_records_per_snapshot=3)
        options = HostOptions(compaction=CompactionLimits(entries_min=30, entries_per_key=4, history_ms=0))
        self.coordinator = ShareCoordinator(
            config, cluster.metadata, self.log, self.clock, cluster.owner, host_options=options
        )
        self.server = RpcServer("127.0.0.1")
        self.server.add(service_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"], self.coordinator.service)
        self.epochs: dict[ShardId, int] = {}

    async def start(self) -> Self:
        await self.server.start()
        self.coordinator.start()
        return self

    async def own_everything(self) -> None:
        for host in self.coordinator.hosts:
            claimed = await claim(self.log, host.shard_id, self.number, address=self.server.address, lease_ms=LEASE_MS)
            self.epochs[host.shard_id] = claimed.epoch
            lease = Lease(
                host.shard_id,
                self.number,
                claimed.epoch,
                deadline_ms=claimed.sent_ms + LEASE_MS,
                clock=self.clock,
                give_up=lambda reason, above: None,
            )
            await host.gained(claimed, lease)

    async def give_everything_up(self) -> None:
        for host in self.coordinator.hosts:
            await host.releasing()
            assert await self.log.release(host.shard_id, self.number, self.epochs[host.shard_id])

    async def records(self, key: SharePartitionKey = KEY) -> list[ShareRecord]:
        """Return the records in the store for the key's shard, without claims."""
        stream = ShardId(ShardKind.SHARE_STATE, str(state_shard(key, SHARDS))).streams[0]
        entries = await self.log.read(stream, STREAM_START, None, 100)
        decoded = [ShareStateCodec().decode(entry.kind, entry.record) for entry in entries]
        return [record for record in decoded if record is not None]


class Cluster:
    """Nodes on one store, and a persister that talks to them over gRPC."""

    def __init__(self) -> None:
        self.store = MemoryStore(SystemClock())
        self.metadata = Metadata()
        self.nodes: list[Node] = []
        self.believed = ""
        self.transport = GrpcTransport()
        self.persister = PersisterClient(
            self.transport, SystemClock(), Random(3), lambda: (), shards=SHARDS, resolve=lambda shard: self.believed
        )

    def owner(self, shard_index: int) -> OwnerAddress | None:
        host, _, port = self.nodes[-1].server.address.rpartition(":")
        return OwnerAddress(self.nodes[-1].number, host, int(port))

    async def add(self) -> Node:
        self.nodes.append(await Node(self, len(self.nodes) + 1).start())
        return self.nodes[-1]

    async def close(self) -> None:
        await self.persister.close()
        await self.transport.close()
        for node in self.nodes:
            await node.server.drain(0)
            for host in node.coordinator.hosts:
                host.lost("the test is over")
            await node.log.close()
        await self.store.close()


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    node = await cluster.add()
    await node.own_everything()
    cluster.believed = node.server.address
    yield cluster
    await cluster.close()


def _write(
    *batches: tuple[int, int, int, int],
    start: int = 0,
    leader: int = 50_000,
    generation: int = 0,
    of: SharePartitionKey = KEY,
) -> WriteState:
    return WriteState(of, 50_000, leader, generation, start, 0, tuple(StateBatch(*batch) for batch in batches))


@pytest.mark.scenario("S-087", "S-088")
@pytest.mark.rule("SC-52", "CM-16", "P-4", "PL-706")
async def test_state_is_in_the_store_before_the_answer(cluster: Cluster) -> None:
    (node,) = cluster.nodes
    assert await cluster.persister.initialize("g", 5, {NAME: 0}) == {NAME: None}
    (snapshot,) = await node.records()
    assert isinstance(snapshot, ShareSnapshot)
    assert (snapshot.snapshot_epoch, snapshot.state_epoch, snapshot.start_offset) == (0, 5, 0)
    await cluster.persister.write(_write((0, 10, 0, 1)))
    await cluster.persister.write(_write((11, 20, 0, 1)))
    _, first, second = await node.records()
    assert isinstance(first, ShareUpdate)
    assert isinstance(second, ShareUpdate)
    assert (first.batches, second.batches) == ((StateBatch(0, 10, 0, 1),), (StateBatch(11, 20, 0, 1),))
    assert await cluster.persister.read(ReadState(KEY, 0, 0)) == StoredState(5, 0, (StateBatch(0, 20, 0, 1),))


@pytest.mark.scenario("S-089", "S-090")
@pytest.mark.rule("SC-29a", "PL-602", "PL-733")
async def test_a_read_fences_older_leaders_durably(cluster: Cluster) -> None:
    (node,) = cluster.nodes
    await cluster.persister.initialize("g", 0, {NAME: -1})
    await cluster.persister.read(ReadState(KEY, 2, 1))
    _, update = await node.records()
    assert isinstance(update, ShareUpdate)
    assert (update.leader_epoch, update.generation) == (2, 1)
    for leader, generation in ((1, 5), (2, 0)):
        with pytest.raises(PersisterError) as fenced:
            await cluster.persister.write(_write((0, 1, 2, 1), leader=leader, generation=generation))
        assert (fenced.value.error.name, fenced.value.leader_epoch) == ("FENCED_LEADER_EPOCH", 2)
        assert not fenced.value.outcome_unknown
    with pytest.raises(PersisterError, match="FENCED_LEADER_EPOCH"):
        await cluster.persister.read(ReadState(KEY, 1, 0))
    assert len(await node.records()) == 2


@pytest.mark.rule("SC-59", "SC-77", "CM-13", "CM-14")
async def test_another_node_takes_over_and_the_persister_follows(cluster: Cluster) -> None:
    names = {TopicIdPartition(TOPIC, partition): 0 for partition in range(6)}
    assert set((await cluster.persister.initialize("g", 1, names)).values()) == {None}
    await asyncio.gather(
        *(
            cluster.persister.write(_write((index, index + 5, 2, 1), start=index, of=SharePartitionKey("g", *name)))
            for name in names
            for index in range(1, 6)
        )
    )
    before = await cluster.persister.read(ReadState(KEY, 7, 0))
    summaries = await cluster.persister.summary("g", names)
    old = cluster.nodes[0]
    new = await cluster.add()
    await old.give_everything_up()
    await new.own_everything()
    assert await cluster.persister.summary("g", names) == summaries
    assert await cluster.persister.read(ReadState(KEY, 7, 0)) == before
    with pytest.raises(PersisterError, match="FENCED_LEADER_EPOCH"):
        await cluster.persister.write(_write(leader=6))
    assert not old.coordinator.dispatcher.served()
    assert list(new.coordinator.dispatcher.served()) == [0, 1, 2]


@pytest.mark.rule("SC-117", "PL-942")
async def test_a_node_that_takes_over_has_every_reason_even_beyond_the_limit(cluster: Cluster) -> None:
    await cluster.persister.initialize("g", 1, {NAME: 0})
    first = tuple(Failure(at, at, 1, f"{at:04}\n" + "ä" * 500) for at in range(FAILURES_MAX // 20))
    await cluster.persister.write(_write((0, 5, 0, 1))._replace(failures=first))
    whole = await cluster.persister.read(ReadState(KEY, 7, 0))
    assert whole.failures == first
    more = tuple(Failure(at, at, 2, f"KeyError: {at}" + "x" * 900) for at in range(100, 1_000))
    for at in range(0, len(more), 150):
        await cluster.persister.write(_write((6, 6, 0, 1), start=2)._replace(failures=more[at : at + 150]))
    before = await cluster.persister.read(ReadState(KEY, 7, 0))
    assert [one.first_offset for one in before.failures] == list(range(2, 1_000))
    assert before.failures[0] == Failure(2, 2, 1, "0002"), "its first line"
    assert {len(one.reason.encode()) for one in before.failures[98:]} == {200}
    records = await cluster.nodes[0].records()
    assert {type(record) for record in records} == {ShareSnapshot, ShareUpdate}, "both kinds are replayed"
    new = await cluster.add()
    await cluster.nodes[0].give_everything_up()
    await new.own_everything()
    assert await cluster.persister.read(ReadState(KEY, 7, 0)) == before


@pytest.mark.rule("SC-71", "SC-73", "CM-18", "SR-13")
async def test_the_log_stays_short_and_a_take_over_loses_nothing_to_trimming(cluster: Cluster) -> None:
    idle = SharePartitionKey("idle", TOPIC, 0)
    while state_shard(idle, SHARDS) != state_shard(KEY, SHARDS):
        idle = idle._replace(group_id=idle.group_id + "x")
    for key in (KEY, idle):
        assert await cluster.persister.initialize(key.group_id, 1, {NAME: 0}) == {NAME: None}
    await cluster.persister.write(_write((3, 9, 2, 1), of=idle))
    for index in range(200):
        await cluster.persister.write(_write((index * 2 + 1, index * 2 + 1, 2, 1), start=index))
    old = cluster.nodes[0]
    stored = [await cluster.persister.read(ReadState(key, 2, 1)) for key in (KEY, idle)]
    assert len(await old.records()) < 60
    new = await cluster.add()
    await old.give_everything_up()
    await new.own_everything()
    assert [await cluster.persister.read(ReadState(key, 2, 1)) for key in (KEY, idle)] == stored
    assert stored[1].batches == (StateBatch(3, 9, 2, 1),)


@pytest.mark.rule("SC-80")
async def test_a_deleted_topic_leaves_no_state(cluster: Cluster) -> None:
    (node,) = cluster.nodes
    names = {TopicIdPartition(TOPIC, partition): 0 for partition in range(6)}
    await cluster.persister.initialize("g", 1, names)
    assert await node.coordinator.topics_deleted(frozenset({TOPIC})) == 6
    summaries = await cluster.persister.summary("g", names)
    assert {summary.start_offset for summary in summaries.values() if not isinstance(summary, PersisterError)} == {-1}


@pytest.mark.rule("SC-5")
async def test_a_stopped_coordinator_is_not_available(cluster: Cluster) -> None:
    cluster.nodes[0].coordinator.stop()
    task = asyncio.create_task(cluster.persister.initialize("g", 1, {NAME: 0}))
    await asyncio.sleep(0.05)
    assert not task.done()
    cluster.nodes[0].coordinator.start()
    assert await task == {NAME: None}
