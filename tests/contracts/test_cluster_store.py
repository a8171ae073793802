"""The cluster-wide keys: constants, nodes, the metadata log, hints and wake-ups."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from shard_runtime.record_log.cluster_store import NO_ENTRY, LiveNodes, NodeRecord, metadata_digest
from shard_runtime.record_log.protocol import LogError, ShardKind, StoreUnavailableError
from shard_runtime.record_log.redis import scripts

from .world import CLUSTER, GROUP, World, in_time

pytestmark = pytest.mark.asyncio
TTL_MS = 60_000
ONE, TWO = metadata_digest(b"one"), metadata_digest(b"two")


def node(incarnation: int, state: str = "live") -> NodeRecord:
    return NodeRecord(0, incarnation, "n", "host:9000", frozenset({"group_coordinator"}), "rack 1", state, "host:9001")


@pytest.mark.rule("CM-20", "SR-2")
async def test_a_constant_is_set_once(world: World) -> None:
    store = await world.cluster_store()
    assert await store.cluster_id() is None
    assert await store.init_cluster(CLUSTER) == CLUSTER
    assert await store.init_cluster("another") == CLUSTER
    assert await store.cluster_id() == CLUSTER
    assert [await store.constant("{meta}:n", value) for value in ("50", "60")] == ["50", "50"]


@pytest.mark.rule("CM-1", "CM-2")
async def test_a_name_keeps_its_node_id_and_a_second_incarnation_is_turned_away(world: World) -> None:
    store = await world.cluster_store()
    first = await store.register_node("n", 2**64 - 1, frozenset(), node(2**64 - 1), TTL_MS)
    other = await store.register_node("m", 5, frozenset(), replace(node(5), name="m"), TTL_MS)
    assert first.node_id != other.node_id
    with pytest.raises(LogError, match="held by incarnation 18446744073709551615"):
        await store.register_node("n", 2, frozenset(), node(2), TTL_MS)
    again = await store.register_node("n", 2, frozenset({2**64 - 1}), node(2), TTL_MS)
    assert again.node_id == first.node_id
    with pytest.raises(LogError, match="held by incarnation 2"):
        await store.renew_node(first, TTL_MS)


@pytest.mark.rule("CM-2", "KL-7")
async def test_an_entry_says_where_kafkas_clients_connect_if_they_may(world: World) -> None:
    store = await world.cluster_store()
    entries = (node(1), replace(node(2), name="k", kafka_address="host:9092"))
    for entry in entries:
        await store.register_node(entry.name, entry.incarnation, frozenset(), entry, TTL_MS)
    me = await store.register_node("me", 3, frozenset(), replace(node(3), name="me"), TTL_MS)
    found, _ = await store.renew_node(me, TTL_MS)
    assert {each.name: each.kafka_address for each in found} == {"n": "", "k": "host:9092", "me": ""}


@pytest.mark.rule("CM-237")
async def test_an_entry_says_where_clients_from_elsewhere_connect(world: World) -> None:
    store = await world.cluster_store()
    entry = replace(node(2), name="x", external_address="out:1", kafka_external_address="out:2")
    await store.register_node(entry.name, entry.incarnation, frozenset(), entry, TTL_MS)
    me = await store.register_node("me", 3, frozenset(), replace(node(3), name="me"), TTL_MS)
    found, _ = await store.renew_node(me, TTL_MS)
    assert {each.name: (each.external_address, each.kafka_external_address) for each in found} == {
        "x": ("out:1", "out:2"),
        "me": ("", ""),
    }


@pytest.mark.rule("CM-1")
async def test_nodes_that_start_together_take_the_next_free_numbers(world: World) -> None:
    stores = [await world.cluster_store(name) for name in "ab"]
    names = [f"n{number}" for number in range(8)]
    made = await asyncio.gather(
        *(
            stores[number % 2].register_node(name, 1, frozenset(), replace(node(1), name=name), TTL_MS)
            for number, name in enumerate(names)
        )
    )
    assert sorted(record.node_id for record in made) == list(range(1, 9))
    assert {(record.rack, record.roles) for record in made} == {("rack 1", frozenset({"group_coordinator"}))}


@pytest.mark.rule("CM-2", "CM-4")
async def test_a_renewal_answers_the_live_nodes_and_a_leaver_is_gone(world: World) -> None:
    store = await world.cluster_store()
    a = await store.register_node("a", 1, frozenset(), node(1), TTL_MS)
    b = await store.register_node("b", 2, frozenset(), node(2), TTL_MS)
    leaving = replace(a, state="leaving")
    assert sorted((await store.renew_node(leaving, TTL_MS)).nodes, key=lambda n: n.node_id) == [leaving, b]
    await store.remove_node(leaving)
    alone = LiveNodes((b,), 0)
    assert await store.renew_node(b, TTL_MS) == alone
    await store.remove_node(replace(b, incarnation=9))
    assert await store.renew_node(b, TTL_MS) == alone
    await world.store.raw(("HSET", "{nodes}", str(a.node_id), "1 1 {}"))
    assert await store.renew_node(b, TTL_MS) == alone


@pytest.mark.rule("CM-2", "CM-4")
async def test_a_renewal_returns_when_the_first_of_the_others_is_overdue(world: World) -> None:
    store = await world.cluster_store()
    records = [await store.register_node(name, 1, frozenset(), node(1), TTL_MS) for name in "abc"]
    for record, ttl_ms in zip(records, (TTL_MS, 2 * TTL_MS, 3 * TTL_MS), strict=True):
        await store.renew_node(record, ttl_ms)
    me = await store.renew_node(records[2], TTL_MS)
    assert 0 < me.overdue_ms <= TTL_MS  # node a's expiry
    await store.remove_node(records[0])
    me = await store.renew_node(records[2], 4 * TTL_MS)
    assert TTL_MS < me.overdue_ms <= 2 * TTL_MS  # node b's; this node's own expiry is ignored


@pytest.mark.rule("CM-20")
async def test_a_metadata_version_is_written_once(world: World) -> None:
    store = await world.cluster_store()
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    assert not await store.append_metadata(1, b"other", NO_ENTRY)
    assert await store.append_metadata(1, b"one", NO_ENTRY)  # the same change, retried
    assert await store.append_metadata(2, b"two", ONE)
    assert await store.read_metadata(0, 10) == [(1, b"one", ""), (2, b"two", "")]
    assert await store.read_metadata(1, 10) == [(2, b"two", "")]
    await store.trim_metadata(2)
    assert await store.read_metadata(0, 10) == [(2, b"two", "")]


@pytest.mark.rule("CM-20", "SR-9")
@pytest.mark.parametrize("kind", ["lose_reply", "lose_request"])
async def test_a_metadata_change_whose_reply_was_lost_is_in_the_log_once(world: World, kind: str) -> None:
    store = await world.cluster_store("a")
    fault = await world.store.order("a", scripts.METADATA_APPEND.digest, kind)
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    assert fault.struck.is_set()
    assert await store.read_metadata(0, 10) == [(1, b"one", "")]


@pytest.mark.rule("CM-20")
async def test_a_metadata_version_is_written_only_right_after_the_one_before(world: World) -> None:
    store = await world.cluster_store()
    assert not await store.append_metadata(2, b"two", ONE)
    assert not await store.append_metadata(1, b"one", ONE)
    assert await store.append_metadata(1, b"one", NO_ENTRY)
    assert not await store.append_metadata(2, b"two", NO_ENTRY)
    assert not await store.append_metadata(3, b"three", TWO)  # as after a fail-over that lost the second
    assert await store.read_metadata(0, 10) == [(1, b"one", "")]
    assert await store.append_metadata(2, b"two", ONE)
    assert await store.append_metadata(3, b"three", TWO)
    await store.trim_metadata(3)
    assert await store.append_metadata(4, b"four", metadata_digest(b"three"))
    assert await store.read_metadata(0, 10) == [(3, b"three", ""), (4, b"four", "")]


@pytest.mark.rule("CM-20", "SR-22")
async def test_a_metadata_version_is_not_written_after_another_entry_of_the_version_before(
    replicated: World,
) -> None:
    """A fail-over lost the entry from which a change was computed, and another entry of that version took its place."""
    a, b = await replicated.cluster_store("a"), await replicated.cluster_store("b")
    assert await a.append_metadata(1, b"one", NO_ENTRY)
    await replicated.store.freeze_replica()
    assert await a.append_metadata(2, b"two", ONE)
    await replicated.store.fail_over()
    assert await in_time(partial(b.append_metadata, 2, b"other", ONE))
    assert not await in_time(partial(a.append_metadata, 3, b"three", TWO))
    assert await in_time(partial(b.read_metadata, 0, 10)) == [(1, b"one", ""), (2, b"other", "")]
    assert await b.append_metadata(3, b"three", metadata_digest(b"other"))


@pytest.mark.rule("CM-20", "SR-21")
async def test_a_metadata_change_that_too_few_replicas_have_is_not_answered_true(synced: World) -> None:
    synced.settings = replace(synced.settings, call_ms=700, wait_ms=50)
    store = await synced.cluster_store()
    await synced.store.freeze_replica()
    with pytest.raises(StoreUnavailableError, match="may be in force"):
        await store.append_metadata(1, b"one", NO_ENTRY)
    with pytest.raises(StoreUnavailableError, match="not on 1 replicas as yet"):
        await store.confirm_metadata(1, b"one")
    await synced.store.thaw_replica()
    assert await in_time(partial(store.append_metadata, 1, b"one", NO_ENTRY))
    assert await store.confirm_metadata(1, b"one")
    assert not await store.confirm_metadata(1, b"other")
    assert not await store.confirm_metadata(2, b"two")


@pytest.mark.rule("CM-14")
async def test_hints_are_remembered_per_kind(world: World) -> None:
    store = await world.cluster_store()
    await store.put_hints(ShardKind.GROUP, {"7": (1, 44), "8": (2, 45)})
    await store.put_hints(ShardKind.GROUP, {"7": (2, 46)})
    await store.put_hints(ShardKind.TOPIC, {})
    assert await store.hints(ShardKind.GROUP) == {"7": (2, 46), "8": (2, 45)}
    assert await store.hints(ShardKind.TOPIC) == {}
    assert await store.hints_of(ShardKind.GROUP, ["9", "8"]) == {"8": (2, 45)}
    assert await store.hints_of(ShardKind.GROUP, []) == {}
    assert await store.hints_of(ShardKind.TOPIC, ["7"]) == {}
    await store.remove_hints(ShardKind.GROUP, ["7", "9"])
    await store.remove_hints(ShardKind.GROUP, [])
    assert await store.hints(ShardKind.GROUP) == {"8": (2, 45)}


@pytest.mark.rule("CM-4", "CM-12")
async def test_a_release_and_a_wake_are_heard_also_after_a_reconnect(world: World) -> None:
    process = await world.process("b")
    claimed = await process.claim()
    store = await world.cluster_store("a")
    fault = await world.store.order("a", "SUBSCRIBE", "lose_reply")
    wakes = store.wakes()
    assert await asyncio.wait_for(anext(wakes), 10) == "subscribed"
    assert fault.struck.is_set()
    await process.log.release(GROUP, process.incarnation, claimed.epoch)
    assert await asyncio.wait_for(anext(wakes), 10) == "released {gc:7}"
    waiting = asyncio.ensure_future(anext(wakes))
    await asyncio.sleep(0)
    await store.wake("metadata")
    assert await asyncio.wait_for(waiting, 10) == "metadata"
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await anext(wakes)
