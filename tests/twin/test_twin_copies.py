"""Which data the twin's replicas, former masters and subscribers have, and when they get it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shard_runtime.record_log.redis import scripts
from shard_runtime.record_log.redis.connection import ErrorReply, StoreConnection
from tests.support.clocks import HandClock
from tests.twin import ConnectionLostError, MemoryStore

pytestmark = pytest.mark.asyncio


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(HandClock(), replicas=2)


async def connect(store: MemoryStore, name: str = "a") -> StoreConnection:
    return await store.client(name).connect("")


async def test_functions_are_not_there_after_a_fail_over_unless_the_same_node_came_back(store: MemoryStore) -> None:
    load = ("SCRIPT", "LOAD", scripts.STREAM_TIP.source)
    call = ("EVALSHA", scripts.STREAM_TIP.digest, 1, "s")
    connection = await connect(store)
    assert (await connection.run([load, call], 1_000))[1] is None
    store.fail_over(keep_connections=True)
    assert await connection.run([call], 1_000) == [None]
    store.fail_over()
    (refusal,) = await (await connect(store)).run([call], 1_000)
    assert isinstance(refusal, ErrorReply)
    assert refusal.code == "NOSCRIPT"


async def test_replicas_and_subscribers_are_reached_by_the_servers_own_road(store: MemoryStore) -> None:
    under_way: list[Callable[[], None]] = []
    store.master.carry = under_way.append
    writer, listener = await connect(store), await connect(store)
    await listener.run([("SUBSCRIBE", "ch")], 1_000)
    await writer.run([("SET", "k", "1"), ("PUBLISH", "ch", "hi")], 1_000)
    heard = asyncio.ensure_future(listener.message())
    assert await writer.run([("WAIT", 2, 1)], 1_000) == [0]
    assert not heard.done()
    for arrive in under_way:
        arrive()
    assert await writer.run([("WAIT", 2, 1)], 1_000) == [2]
    assert await heard == [b"message", b"ch", b"hi"]
    assert [follower.data.strings for follower in store.master.followers] == [{"k": b"1"}] * 2


async def test_a_wait_ends_as_soon_as_enough_replicas_have_the_write(store: MemoryStore) -> None:
    for follower in store.master.followers:
        follower.paused = True
    connection = await connect(store)
    call = asyncio.ensure_future(connection.run([("SET", "k", "1"), ("WAIT", 2, 60_000), ("GET", "k")], 60_000))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not call.done()
    store.master.release_replicas()
    assert await call == [b"OK", 2, b"1"]


async def test_a_wait_ends_with_its_connection(store: MemoryStore) -> None:
    for follower in store.master.followers:
        follower.paused = True
    connection = await connect(store)
    call = asyncio.ensure_future(connection.run([("SET", "k", "1"), ("WAIT", 2, 60_000), ("SET", "k", "2")], 60_000))
    for _ in range(5):
        await asyncio.sleep(0)
    store.cut_all()
    with pytest.raises(ConnectionLostError):
        await call
    assert store.master.data.strings == {"k": b"1"}, "the server forgot the rest of the pipeline"


async def test_a_replica_that_lags_keeps_what_it_had(store: MemoryStore) -> None:
    connection = await connect(store)
    await connection.run([("SET", "k", "0")], 1_000)
    store.master.followers[0].paused = True
    for number in range(2_000):
        await connection.run([("SET", "k", str(number))], 1_000)
    slow, quick = store.master.followers
    assert (slow.data.strings["k"], quick.data.strings["k"]) == (b"0", b"1999")
    store.fail_over(0)
    assert store.master.data.strings["k"] == b"0"
    assert [follower.data.strings["k"] for follower in store.master.followers] == [b"0", b"0"]


async def test_every_former_master_is_left_when_splits_heal(store: MemoryStore) -> None:
    first = await connect(store, "a")
    store.split("a")
    second = await connect(store, "b")
    store.split("a", "b")
    for connection, value in ((first, "old"), (second, "older")):
        assert await connection.run([("SET", "k", value), ("WAIT", 1, 1)], 1_000) == [b"OK", 0]
    assert store.master.data.strings == {}
    store.heal()
    for connection in (first, second):
        with pytest.raises(ConnectionLostError):
            await connection.run([("GET", "k")], 1_000)
    assert await (await connect(store, "a")).run([("GET", "k")], 1_000) == [None]


async def test_a_wait_stays_with_the_former_master_and_hears_of_no_replica_there(store: MemoryStore) -> None:
    """The write reached no replica; the new master's replicas, which are in step with that master, must not count."""
    for follower in store.master.followers:
        follower.paused = True
    connection = await connect(store)
    call = asyncio.ensure_future(connection.run([("SET", "k", "1"), ("WAIT", 1, 50)], 60_000))
    for _ in range(5):
        await asyncio.sleep(0)
    store.split("a")
    await (await connect(store, "b")).run([("SET", "other", "1"), ("WAIT", 2, 50)], 60_000)
    assert not call.done()
    assert await call == [b"OK", 0]
    assert "k" not in store.master.data.strings


async def test_a_client_that_is_cut_off_comes_back_alone(store: MemoryStore) -> None:
    for name in ("a", "b"):
        store.cut_off(name)
    store.mend("a")
    await connect(store, "a")
    with pytest.raises(ConnectionLostError):
        await connect(store, "b")
