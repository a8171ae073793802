"""The records of transactional ids: compare-and-set, reads that count, expiry, faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from shard_runtime.record_log.protocol import StoreUnavailableError
from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.keys import transaction_key
from shard_runtime.record_log.transaction_store import BadCursorError

from .world import World, in_time

pytestmark = pytest.mark.asyncio
ID = "orders {1} ü"


@pytest.mark.rule("CM-151")
async def test_a_record_is_replaced_only_by_what_was_computed_from_it(world: World) -> None:
    one, two = [(await world.cluster_store(name)).transactions for name in "ab"]
    assert (await one.read(ID)).record is None
    assert await one.change(ID, b"ghost", b"first", 0) is None
    made = await one.change(ID, None, b"first", 0)
    assert made is not None
    found = await two.read(ID)
    assert (found.record, found.damage) == (b"first", "")
    assert found.now_ms >= made.now_ms > 0
    assert await two.change(ID, None, b"other", 0) is None
    assert await two.change(ID, b"first", b"second", 0) is not None
    assert await one.change(ID, b"first", b"third", 0) is None
    assert (await one.read(ID)).record == b"second"
    assert (await one.read("another id")).record is None


@pytest.mark.rule("CM-151")
async def test_of_changes_made_together_one_comes_first(world: World) -> None:
    stores = [(await world.cluster_store(name)).transactions for name in "ab"]
    made = await asyncio.gather(*(stores[n % 2].change(ID, None, b"%d" % n, 0) for n in range(8)))
    (winner,) = [n for n, answer in enumerate(made) if answer is not None]
    assert (await stores[0].read(ID)).record == b"%d" % winner


@pytest.mark.rule("CM-151")
async def test_a_change_that_is_repeated_is_in_force_once(world: World) -> None:
    store = (await world.cluster_store()).transactions
    assert await store.change(ID, None, b"first", 0) is not None
    assert await store.change(ID, None, b"first", 0) is not None
    assert await store.change(ID, b"first", b"second", 0) is not None
    assert await store.change(ID, None, b"first", 0) is None


@pytest.mark.rule("CM-151")
@pytest.mark.parametrize("kind", ["lose_reply", "lose_request"])
async def test_a_change_whose_reply_was_lost_is_in_force_once(world: World, kind: str) -> None:
    store = (await world.cluster_store("a")).transactions
    fault = await world.store.order("a", scripts.TRANSACTION_CHANGE.digest, kind)
    assert await store.change(ID, None, b"first", 0) is not None
    assert fault.struck.is_set()
    assert (await store.read(ID)).record == b"first"


@pytest.mark.rule("CM-151")
async def test_a_record_that_has_expired_counts_as_none(world: World) -> None:
    store, key = (await world.cluster_store()).transactions, transaction_key(ID)
    await store.change(ID, None, b"first", 3_600_000)
    (left,) = await world.store.raw(("HMGET", key, "x"))
    assert int(left[0]) > 0
    await world.store.raw(("HSET", key, "x", 1))
    assert (await store.read(ID)).record is None
    await store.change(ID, None, b"second", 3_600_000)
    await world.store.raw(("HSET", key, "x", 1))
    assert await store.change(ID, b"second", b"third", 0) is None
    assert await store.change(ID, None, b"third", 0) is not None
    (kept,) = await world.store.raw(("HMGET", key, "x"))
    assert kept == [b"0"]


@pytest.mark.rule("CM-151")
async def test_what_too_few_replicas_have_is_neither_changed_nor_read(synced: World) -> None:
    synced.settings = replace(synced.settings, call_ms=700, wait_ms=50)
    store = (await synced.cluster_store()).transactions
    await store.change(ID, None, b"first", 0)
    await synced.store.freeze_replica()
    with pytest.raises(StoreUnavailableError, match="may be in force"):
        await store.change(ID, b"first", b"second", 0)
    with pytest.raises(StoreUnavailableError, match="not on 1 replicas as yet"):
        await store.read(ID)
    await synced.store.thaw_replica()
    assert (await in_time(partial(store.read, ID))).record == b"second"


@pytest.mark.rule("CM-151")
async def test_a_change_computed_from_a_record_that_a_fail_over_lost_is_refused(replicated: World) -> None:
    store = (await replicated.cluster_store()).transactions
    await store.change(ID, None, b"first", 0)
    await replicated.store.freeze_replica()
    await store.change(ID, b"first", b"second", 0)
    await replicated.store.fail_over()
    assert await in_time(partial(store.change, ID, b"second", b"third", 0)) is None
    assert (await in_time(partial(store.read, ID))).record in {b"first", None}


@pytest.mark.rule("CM-151", "CM-100")
async def test_a_damaged_record_is_reported(world: World) -> None:
    store = (await world.cluster_store()).transactions
    await store.change(ID, None, b"first", 0)
    await world.store.raw(("HSET", transaction_key(ID), "r", b"f1rst"))
    assert (await store.read(ID)).damage


@pytest.mark.rule("CM-157")
async def test_pages_have_every_record_and_nothing_else(world: World) -> None:
    store = (await world.cluster_store()).transactions
    ids = [ID, *(f"id-{n}" for n in range(600))]
    for one in ids:
        await store.change(one, None, one.encode(), 0)
    await store.change("expired", None, b"x", 3_600_000)
    await world.store.raw(("HSET", transaction_key("expired"), "x", 1), ("SET", "{txn:foreign", "x"))
    await world.store.raw(("HSET", transaction_key("damaged"), "r", b"f1rst", "c", b"", "x", 0))
    found: dict[str, bytes | None] = {}
    damaged: set[str] = set()
    cursor, pages = "", 0
    while cursor or not pages:
        page = await store.page(cursor)
        cursor, pages = page.next_cursor, pages + 1
        found |= {one: stored.record for one, stored in page.records}
        damaged |= {one for one, stored in page.records if stored.damage}
        assert page.now_ms > 0
        assert pages < 20
    assert found == {one: one.encode() for one in ids} | {"damaged": b"f1rst"}
    assert damaged == {"damaged"}


@pytest.mark.rule("CM-157")
@pytest.mark.parametrize("cursor", ["0", "nowhere|0", "|", "x|-1", "\u0661|\u0661", "a" * 1_000])
async def test_a_cursor_that_no_page_named_is_refused(world: World, cursor: str) -> None:
    store = (await world.cluster_store()).transactions
    with pytest.raises(BadCursorError):
        await store.page(cursor)
