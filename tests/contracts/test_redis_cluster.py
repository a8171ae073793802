"""Behaviour that only a Redis Cluster has: shards on several nodes, moving slots, nodes that fail while others go
on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
import pytest_asyncio

from shard_runtime.clock import SystemClock
from shard_runtime.record_log.cluster_store import NO_ENTRY, metadata_digest
from shard_runtime.record_log.protocol import (
    Appended,
    Entry,
    OwnedElsewhere,
    ShardId,
    ShardKind,
    StreamId,
    TailLostError,
)
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import Store
from shard_runtime.record_log.redis.keys import META_CLUSTER_ID, META_LOG, WAKE_CHANNEL, slot_of
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from tests.support.cluster_nodes import ClusterNodes, ran, until_true
from tests.support.stores import until

from .redis_cluster import RedisCluster
from .world import CLUSTER, GROUP, TOPIC, Process, World, flush, records

pytestmark = pytest.mark.asyncio
SHARDS = [ShardId(ShardKind.GROUP, str(i)) for i in range(12)]
LOG = GROUP.streams[0]
SLOT = slot_of(LOG)


@pytest_asyncio.fixture
async def world(nodes: ClusterNodes) -> AsyncIterator[World]:
    """Yields the cluster; two copies commit a flush."""
    store = RedisCluster(nodes)
    await store.start()
    made = World(store, replicas=1, min_insync_replicas=2)
    yield made
    await made.close()


def by_url(nodes: ClusterNodes) -> Store:
    """Return the cluster as a process discovers it, from the address of one node."""
    return open_store(f"redis+cluster://127.0.0.1:{nodes.pairs[1].master.port}")


@pytest.mark.rule("CM-10", "CM-3", "CM-19")
async def test_shards_are_spread_over_nodes_and_each_node_has_its_writer(world: World, nodes: ClusterNodes) -> None:
    await world.store.raw(("SET", META_CLUSTER_ID, CLUSTER))
    log = StoreRecordLog(by_url(nodes), world.settings, SystemClock())
    try:
        await log.open()
        a = Process(log, 1, 1000)
        epochs = {shard: (await a.claim(shard)).epoch for shard in SHARDS}
        assert len({log.history_of(shard) for shard in SHARDS}) == 3
        answers = await asyncio.gather(
            *(log.append(shard, epoch, flush(shard, epoch, 1, shard.name.encode())) for shard, epoch in epochs.items())
        )
        assert answers == [Appended(StreamId(epoch, 1), 0) for epoch in epochs.values()]
        renewed = await log.renew([a.renewal(epoch, shard) for shard, epoch in epochs.items()])
        assert [answer is not None and answer.ok for answer in renewed] == [True] * len(SHARDS)
        assert log.available
        for shard, epoch in epochs.items():
            assert await records(a, shard.streams[0]) == [shard.name.encode()]
            assert await log.release(shard, a.incarnation, epoch)
    finally:
        await log.close()


@pytest.mark.rule("CM-20", "CM-10")
async def test_cluster_wide_keys_work_on_their_nodes(world: World, nodes: ClusterNodes) -> None:
    store = StoreClusterStore(by_url(nodes), world.settings)
    try:
        assert await store.init_cluster(CLUSTER) == CLUSTER
        assert await store.append_metadata(1, b"one", NO_ENTRY)
        await store.put_hints(ShardKind.TOPIC, {"t:0": (1, 2)})
        assert await store.hints(ShardKind.TOPIC) == {"t:0": (1, 2)}
    finally:
        await store.close()


@pytest.mark.rule("CM-19", "CM-10", "CM-13")
async def test_a_shard_is_followed_when_its_slot_moves(world: World, nodes: ClusterNodes) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    before = a.log.history_of(GROUP)
    await nodes.move_slot(SLOT, nodes.pair_of(TOPIC.owner_key))
    appended = await a.log.append(GROUP, e, flush(GROUP, e, 1, b"after the move"))
    assert appended.tip == StreamId(e, 1 + appended.noops)
    assert a.log.history_of(GROUP) != before
    assert (await a.log.read(LOG, StreamId(e, 0), None, 10))[0] == Entry(StreamId(e, 1), "S", b"after the move")
    (renewed,) = await a.log.renew([a.renewal(e)])
    assert renewed is not None
    assert renewed.ok


@pytest.mark.rule("CM-19", "CM-13", "CM-15")
async def test_a_flush_in_the_midst_of_a_move_waits_and_lands_once(world: World, nodes: ClusterNodes) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    target = nodes.pair_of(TOPIC.owner_key)
    await nodes.begin_move(SLOT, target)
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 2, b"2")))
    await until(lambda: not a.log.available_for(GROUP), "a writer in trouble")
    assert not pending.done()
    await nodes.end_move(SLOT, target)
    assert (await pending).tip.epoch == e
    assert await records(a, LOG) == [b"1", b"2"]


@pytest.mark.rule("CM-19", "CM-11a", "CM-12")
async def test_a_planned_fail_over_of_one_node_changes_nothing_for_shards_of_others(
    world: World, nodes: ClusterNodes
) -> None:
    a = await world.process("a")
    group, topic = (await a.claim(GROUP)).epoch, (await a.claim(TOPIC)).epoch
    before = [a.log.history_of(GROUP), a.log.history_of(TOPIC), a.log.history]
    pair = nodes.pair_of(GROUP.owner_key)
    for seq in (1, 3):  # there and back
        await nodes.hand_over([pair])
        await a.log.append(GROUP, group, flush(GROUP, group, seq, b"g"))
        await a.log.append(TOPIC, topic, flush(TOPIC, topic, seq, b"t", stream=1))
    assert a.log.history_of(GROUP) != before[0]
    assert [a.log.history_of(TOPIC), a.log.history] == before[1:]
    renewed = await a.log.renew([a.renewal(group, GROUP), a.renewal(topic, TOPIC)])
    assert [answer is not None and answer.ok for answer in renewed] == [True, True]
    assert await records(a, LOG) == [b"g", b"g"]
    assert await records(a, TOPIC.streams[1]) == [b"t", b"t"]


@pytest.mark.rule("CM-19", "CM-15", "SR-21", "SR-22")
async def test_a_master_that_dies_is_followed_to_its_replica_and_a_flush_waits_for_its_return(
    world: World, nodes: ClusterNodes
) -> None:
    a = await world.process("a", wait_ms=50)
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    pair = nodes.pair_of(GROUP.owner_key)
    await nodes.crash(pair)
    pending = asyncio.ensure_future(a.log.append(GROUP, e, flush(GROUP, e, 2, b"2")))

    async def flushed() -> bool:
        return bool((await ran(pair.master, ("EXISTS", LOG), ("XLEN", LOG)))[1] == 3)

    await until_true(flushed, "the flush stands on the new master")
    assert not pending.done()
    await nodes.revive()
    appended = await pending
    await nodes.in_step()
    await nodes.hand_over([pair])
    await a.log.append(GROUP, e, flush(GROUP, e, appended.tip.seq + 1, b"3"))
    assert await records(a, LOG) == [b"1", b"2", b"3"]


@pytest.mark.rule("CM-19", "CM-15")
async def test_a_master_that_has_lost_the_other_nodes_is_not_believed(world: World, nodes: ClusterNodes) -> None:
    a = await world.process("a", min_insync_replicas=1)
    pair = nodes.pairs[0]  # a client asks known masters in slot order, so this one first
    shard = next(shard for shard in SHARDS if nodes.pair_of(shard.owner_key) is pair)
    e = (await a.claim(shard)).epoch
    alone = pair.master
    await nodes.isolate(alone)
    await nodes.take_over([pair])
    await until_true(partial(nodes.is_down, alone), "the lonely master notices")
    appended = await asyncio.wait_for(a.log.append(shard, e, flush(shard, e, 1, b"1")), 10)
    assert appended == Appended(StreamId(e, 1), 0)
    assert await records(a, shard.streams[0]) == [b"1"]


@pytest.mark.rule("CM-19", "SR-22", "CM-47")
async def test_a_tail_lost_on_one_node_is_no_loss_on_others(world: World, nodes: ClusterNodes) -> None:
    a = await world.process("a", min_insync_replicas=1)
    group, topic = (await a.claim(GROUP)).epoch, (await a.claim(TOPIC)).epoch
    await nodes.let_replicate(False)
    await a.log.append(GROUP, group, flush(GROUP, group, 1, b"lost"))
    await a.log.append(TOPIC, topic, flush(TOPIC, topic, 1, b"kept", stream=1))
    pair = nodes.pair_of(GROUP.owner_key)
    await nodes.crash(pair)
    with pytest.raises(TailLostError):
        await a.log.append(GROUP, group, flush(GROUP, group, 2, b"after"))
    await a.log.append(TOPIC, topic, flush(TOPIC, topic, 2, b"after", stream=1))
    assert a.log.lost(TOPIC) is None
    assert await records(a, TOPIC.streams[1]) == [b"kept", b"after"]


@pytest.mark.rule("CM-19", "CM-20")
async def test_shards_go_on_while_the_node_of_the_cluster_id_restarts(world: World, nodes: ClusterNodes) -> None:
    a, b = await world.process("a"), await world.process("b")
    e = (await a.claim()).epoch
    await nodes.restart([nodes.pair_of(META_CLUSTER_ID)])
    claiming = asyncio.ensure_future(b.try_claim())
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    (renewed,) = await a.log.renew([a.renewal(e)])
    assert renewed is not None
    assert renewed.ok
    assert not claiming.done()  # a new connection has to read the cluster id, which it cannot yet
    assert isinstance(await claiming, OwnedElsewhere)


@pytest.mark.rule("CM-20", "CM-10")
@pytest.mark.parametrize("planned", [True, False])
async def test_a_metadata_change_follows_its_node(world: World, nodes: ClusterNodes, planned: bool) -> None:
    world.settings = replace(world.settings, min_insync_replicas=1)
    store = await world.cluster_store()
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    await (nodes.hand_over([nodes.pair_of(META_LOG)]) if planned else nodes.crash(nodes.pair_of(META_LOG)))
    assert await store.append_metadata(2, b"two", metadata_digest(b"one"))
    assert await store.read_metadata(0, 10) == [(1, b"one", ""), (2, b"two", "")]


@pytest.mark.rule("CM-4")
async def test_wakes_are_heard_again_when_their_node_has_died(world: World, nodes: ClusterNodes) -> None:
    store, other = await world.cluster_store("a"), await world.cluster_store("b")
    wakes = store.wakes()
    assert await asyncio.wait_for(anext(wakes), 10) == "subscribed"
    await other.wake("first")
    assert await asyncio.wait_for(anext(wakes), 10) == "first"
    await nodes.crash(nodes.pair_of(WAKE_CHANNEL))
    assert await asyncio.wait_for(anext(wakes), 10) == "subscribed"
    await other.wake("second")
    assert await asyncio.wait_for(anext(wakes), 10) == "second"
    await store.close()


@pytest.mark.rule("CM-157")
async def test_records_of_transactions_are_listed_from_every_node(world: World) -> None:
    store = (await world.cluster_store()).transactions
    ids = {f"id-{number}" for number in range(24)}
    for one in ids:
        await store.change(one, None, one.encode(), 0)
    found: list[str] = []
    nodes: set[str] = set()
    cursor, first = "", True
    while cursor or first:
        page = await store.page(cursor)
        found += [one for one, _ in page.records]
        cursor, first = page.next_cursor, False
        nodes.add(cursor.rpartition("|")[0])
    assert sorted(found) == sorted(ids)
    assert len(nodes - {""}) == 2, "the cursor goes from the first of three masters to the others"
