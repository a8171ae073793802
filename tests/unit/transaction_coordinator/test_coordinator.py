"""A node's transactions over the in-memory store: decisions, markers, nodes that die, leaders that do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kip932.api.v1.write_txn_markers_pb2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kip932.errors import (
    ConcurrentTransactionsError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaStorageError,
    ProducerFencedError,
)
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import ConnectionLostError, StoreSettings
from tests.support.clocks import LoopClock
from tests.support.virtual_time import now_s, virtual
from tests.twin import FaultPoint, MemoryStore, Stage, memory_cluster_store
from transaction_coordinator.coordinator import FINISH_S, TransactionCoordinator
from transaction_coordinator.core.transaction import Cause, Fate, Identity, State, Transaction
from transaction_coordinator.markers import MarkerCalls
from transaction_coordinator.records import TransactionRecords

ID = "orders"
P, Q = TopicIdPartition(b"p" * 16, 0), TopicIdPartition(b"q" * 16, 3)
WEEK_MS = 604_800_000


class Leaders:
    """The leaders of P and Q, each on its own node: the markers that they wrote, and whether they respond."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.deleted: set[TopicIdPartition] = set()
        self.written: list[tuple[TopicIdPartition, int, bool]] = []
        self.before_write: Any = None

    def address(self, partition: TopicIdPartition) -> str | None:
        return {P: "p:1", Q: "q:1"}[partition]

    def gone(self, partition: TopicIdPartition) -> bool:
        return partition in self.deleted

    async def call(self, address: str, _method: object, request: WriteTxnMarkersRequest, _timeout_s: float) -> Any:
        if self.before_write is not None:
            await self.before_write(request)
        if address in self.silent:
            raise TransportError(TransportStatus.UNAVAILABLE, address)
        response = WriteTxnMarkersResponse()
        for marker in request.markers:
            topics = response.markers.add(producer_id=marker.producer_id).topics
            for topic in marker.topics:
                parts = topics.add(topic_id=topic.topic_id).partitions
                for index in topic.partition_indexes:
                    parts.add(partition_index=index)
                    partition = TopicIdPartition(topic.topic_id, index)
                    self.written.append((partition, marker.producer_epoch, marker.transaction_result))
        return response


class World:
    """A store, its leaders, and nodes with their coordinators."""

    def __init__(self) -> None:
        self.store = MemoryStore(LoopClock(), Random(3))
        self.leaders = Leaders()
        self._stores: list[StoreClusterStore] = []
        self._nodes: list[TransactionCoordinator] = []

    def node(
        self, name: str = "a", judged: Callable[[int], tuple[int, bool]] = lambda store_ms: (store_ms, True)
    ) -> TransactionCoordinator:
        made = memory_cluster_store(self.store, name, StoreSettings(call_ms=500))
        self._stores.append(made)
        markers = MarkerCalls(self.leaders, self.leaders)  # type: ignore[arg-type]
        records = TransactionRecords(made.transactions, Random(5), WEEK_MS)
        node = TransactionCoordinator(
            records, markers, Random(6), new_id=lambda: 77, max_timeout_ms=60_000, judged=judged
        )
        self._nodes.append(node)
        return node

    async def record(self) -> Transaction:
        found = (await self._nodes[0].read(ID)).transaction
        assert found is not None
        return found

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self._nodes:
            await node.stop()
        for store in self._stores:
            await store.close()
        await self.store.close()


async def opened(node: TransactionCoordinator, *partitions: TopicIdPartition, timeout_ms: int = 10_000) -> Identity:
    identity = await node.begin(ID, None, timeout_ms)
    await node.join(ID, identity, partitions or (P, Q))
    return identity


@pytest.mark.rule("CM-152", "CM-153", "CM-154", "CM-155")
@virtual
async def test_a_transaction_ends_on_every_partition_and_the_next_has_an_epoch_of_its_own() -> None:
    async with World() as world:
        node = world.node()
        identity = await opened(node)
        following = await node.end(ID, identity, [P, Q], commit=True)
        assert following == Identity(77, identity.epoch + 1)
        assert sorted(world.leaders.written) == [(P, 0, True), (Q, 0, True)]
        assert await node.end(ID, identity, [P, Q], commit=True) == following
        assert len(world.leaders.written) == 2
        await node.join(ID, following, [P])
        assert await node.end(ID, following, [P], commit=False) == Identity(77, 2)
        with pytest.raises(InvalidTxnStateError, match="was committed; it cannot be aborted"):
            await node.end(ID, identity, [], commit=False)


@pytest.mark.rule("CM-154")
@virtual
async def test_a_decision_is_durable_before_its_first_marker() -> None:
    async with World() as world:
        node, other = world.node(), world.node("b")
        seen: list[State] = []

        async def read(_: object) -> None:
            found = (await other.read(ID)).transaction
            assert found is not None
            seen.append(found.state)

        world.leaders.before_write = read
        await node.end(ID, await opened(node), [P], commit=True)
        assert seen == [State.PREPARE_COMMIT, State.PREPARE_COMMIT]


@pytest.mark.rule("CM-154", "CM-155")
@virtual
async def test_a_leader_that_does_not_answer_holds_up_no_other_and_gets_its_marker_later() -> None:
    async with World() as world:
        node = world.node()
        identity = await opened(node)
        world.leaders.silent.add("q:1")
        began = now_s()
        assert await node.end(ID, identity, [P], commit=True) is None
        assert now_s() - began < 5
        assert (await world.record()).state is State.PREPARE_COMMIT
        with pytest.raises(ConcurrentTransactionsError):
            await node.begin(ID, identity, 10_000)
        world.leaders.silent.clear()
        await asyncio.sleep(5)
        assert {each[0] for each in world.leaders.written} == {P, Q}
        assert await node.begin(ID, identity, 10_000) == Identity(77, 1)


@pytest.mark.rule("CM-155")
@pytest.mark.parametrize("asks", ["leader", "producer", "successor"])
def test_what_a_node_decided_and_did_not_finish_is_finished_when_another_node_is_asked(asks: str) -> None:
    @virtual
    async def played() -> None:
        async with World() as world:
            node, other = world.node(), world.node("b")
            identity = await opened(node)
            world.leaders.silent |= {"p:1", "q:1"}
            ending = asyncio.ensure_future(node.end(ID, identity, [P], commit=True))
            await asyncio.sleep(0.5)
            ending.cancel()
            await node.stop()  # as when it is killed: none of its tasks continues
            await asyncio.sleep(FINISH_S)
            world.leaders.silent.clear()
            assert world.leaders.written == []
            if asks == "leader":
                assert await other.resolve(ID, identity) == (Fate.COMMITTED, 0)
                await asyncio.sleep(1)
            elif asks == "producer":
                assert await other.end(ID, identity, [P], commit=True) == Identity(77, 1)
            else:
                assert await other.begin(ID, None, 10_000) == Identity(77, 2)
            assert {each[0] for each in world.leaders.written} == {P, Q}
            assert (await world.record()).state is State.EMPTY

    played()


@pytest.mark.rule("CM-156")
@virtual
async def test_what_is_open_past_its_time_out_is_aborted_when_a_leader_asks() -> None:
    async with World() as world:
        node, other = world.node(), world.node("b")
        identity = await opened(node, timeout_ms=3_000)
        fate, left_ms = await other.resolve(ID, identity)
        assert (fate, 2_000 < left_ms <= 3_000) == (Fate.WAITS, True)
        await asyncio.sleep(4)
        assert await other.resolve(ID, identity) == (Fate.ABORTED, 0)
        with pytest.raises(InvalidTxnStateError, match="cannot be committed"):
            await node.end(ID, identity, [P], commit=True)
        await asyncio.sleep(1)
        assert {each[2] for each in world.leaders.written} == {False}
        with pytest.raises(InvalidProducerEpochError, match="begin a new transaction"):
            await node.join(ID, identity, [P])
        assert await node.begin(ID, identity, 3_000) == Identity(77, 1)


@pytest.mark.rule("CM-156")
@virtual
async def test_while_clocks_may_be_wrong_a_transaction_is_as_old_as_its_leader_has_seen_it() -> None:
    """Earlier, all open transactions were aborted at once when the store's clock was set a week ahead."""
    async with World() as world:
        node, ahead = world.node(), world.node("b", lambda store_ms: (store_ms, False))
        identity = await opened(node, P, timeout_ms=3_000)
        await asyncio.sleep(WEEK_MS / 1_000)
        await ahead.join(ID, identity, [Q])
        assert await ahead.resolve(ID, identity) == (Fate.WAITS, 3_000), "no node has seen it for long"
        assert await ahead.resolve(ID, identity, 2_999) == (Fate.WAITS, 1)
        assert await ahead.resolve(ID, identity, 3_000) == (Fate.ABORTED, 0)


@pytest.mark.rule("CM-156")
@virtual
async def test_a_transaction_begins_by_the_time_that_is_believed() -> None:
    async with World() as world:
        behind, node = world.node("a", lambda store_ms: (store_ms + WEEK_MS, False)), world.node("b")
        identity = await opened(behind, timeout_ms=3_000)
        await asyncio.sleep(10)
        assert await node.resolve(ID, identity, 2_000) == (Fate.WAITS, 1_000), "it began in the future"
        assert await node.resolve(ID, identity, 3_000) == (Fate.ABORTED, 0)


@pytest.mark.rule("CM-156")
@virtual
async def test_a_time_out_has_bounds() -> None:
    async with World() as world:
        for timeout_ms in (0, -1, 60_001):
            with pytest.raises(InvalidTransactionTimeoutError, match="expected 1 to 60000"):
                await world.node().begin(ID, None, timeout_ms)


@pytest.mark.rule("CM-152")
@virtual
async def test_a_new_instance_aborts_the_open_transaction_of_the_former_and_fences_it() -> None:
    async with World() as world:
        node, other = world.node(), world.node("b")
        former = await opened(node)
        present = await other.begin(ID, None, 10_000)
        assert sorted(world.leaders.written) == [(P, 0, False), (Q, 0, False)]
        with pytest.raises(ProducerFencedError):
            await node.join(ID, former, [P])
        assert await node.end(ID, former, [], commit=False) is None, "the next epoch is the other's"
        with pytest.raises(ProducerFencedError):
            await node.begin(ID, former, 10_000)
        await other.join(ID, present, [P])
        assert (await world.record()).partitions == (P,)


@pytest.mark.rule("CM-154")
@virtual
async def test_of_two_who_decide_one_wins_and_both_get_the_same() -> None:
    async with World() as world:
        node, other = world.node(), world.node("b")
        identity = await opened(node)
        ends = await asyncio.gather(
            node.end(ID, identity, [P], commit=True),
            other.end(ID, identity, [], commit=False, cause=Cause.OPERATOR),
            return_exceptions=True,
        )
        refused = [one for one in ends if isinstance(one, InvalidTxnStateError)]
        assert len(refused) == 1
        (commits,) = {each[2] for each in world.leaders.written}
        assert isinstance(ends[0], InvalidTxnStateError) is not commits


@pytest.mark.rule("CM-153")
@virtual
async def test_partitions_that_join_from_many_leaders_at_once_are_all_in_the_record() -> None:
    async with World() as world:
        nodes = [world.node(name) for name in "abcdef"]
        identity = await nodes[0].begin(ID, None, 10_000)
        partitions = [TopicIdPartition(b"p" * 16, number) for number in range(12)]
        await asyncio.gather(*(nodes[n % 6].join(ID, identity, [each]) for n, each in enumerate(partitions)))
        assert set((await world.record()).partitions) == set(partitions)


@pytest.mark.rule("CM-155", "CM-21")
@virtual
async def test_a_deleted_partition_needs_no_marker() -> None:
    async with World() as world:
        node = world.node()
        identity = await opened(node)
        world.leaders.deleted.add(Q)
        assert await node.end(ID, identity, [P], commit=True) == Identity(77, 1)
        assert world.leaders.written == [(P, 0, True)]


@pytest.mark.rule("CM-151", "CM-154")
@virtual
async def test_a_decision_whose_answer_the_store_lost_is_asked_for_again_and_stands() -> None:
    async with World() as world:
        node, other = world.node(), world.node("b")
        identity = await opened(node)

        async def lose(point: FaultPoint) -> None:
            if point.client == "a" and point.stage is Stage.REPLY and point.has(scripts.TRANSACTION_CHANGE.digest):
                raise ConnectionLostError("lost")

        world.store.hook = lose
        with pytest.raises(CoordinatorNotAvailableError, match="try again"):
            await node.end(ID, identity, [P], commit=True)
        assert world.leaders.written == []
        assert await other.end(ID, identity, [P], commit=True) == Identity(77, 1)
        assert {each[2] for each in world.leaders.written} == {True}


@pytest.mark.rule("CM-151", "CM-102")
@virtual
async def test_a_damaged_record_is_not_used() -> None:
    async with World() as world:
        node = world.node()
        identity = await opened(node)
        for key, fields in world.store.master.data.hashes.items():
            if key.startswith("{txn:"):
                fields[b"r"] = b"\x08\x01"
        with pytest.raises(KafkaStorageError, match="cannot be used"):
            await node.end(ID, identity, [P], commit=True)
        assert world.leaders.written == []
