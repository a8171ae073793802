"""A backup's reads and a restore's writes, on the twin, on a server and on a Redis Cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shard_runtime.record_log.cluster_store import IncompleteRestoreError
from shard_runtime.record_log.protocol import LogError, StreamId
from shard_runtime.record_log.redis.restored_streams import RestoredStreams, StoreNotEmptyError
from shard_runtime.record_log.redis.stream_copies import HistoryChangedError, RawEntry, StreamCopies

from .world import GROUP, OTHER, TOPIC, World, flush

pytestmark = pytest.mark.asyncio

STREAM = GROUP.streams[0]
END = StreamId(2**40, 0)


async def copies_of(world: World) -> StreamCopies:
    made = StreamCopies(await world.store.client("copies"), world.settings)
    await made.begin()
    return made


async def restored_on(world: World, **settings: int) -> RestoredStreams:
    return RestoredStreams(await world.store.client("restore"), replace(world.settings, **settings))  # type: ignore[arg-type]


def plain(*seqs: int) -> list[RawEntry]:
    return [RawEntry(StreamId(4, seq), (b"t", b"S", b"r", b"\0\xff%d" % seq)) for seq in seqs]


@pytest.mark.rule("CM-140")
async def test_every_field_of_every_entry_is_read_as_it_is_stored(world: World) -> None:
    owner = await world.process()
    epoch = (await owner.claim()).epoch
    await owner.log.append(GROUP, epoch, flush(GROUP, epoch, 1, b"one", b"two"))
    await world.store.raw(("XADD", STREAM, f"{epoch}-9", "t", "S", "r", "nine", "c", "bad!", "later", b"\0\xff"))
    copies = await copies_of(world)
    page = await copies.page(STREAM, StreamId(epoch, 0), END, 10)
    assert page is not None
    assert [str(entry.id) for entry in page.entries] == [f"{epoch}-1", f"{epoch}-2", f"{epoch}-9"]
    assert page.entries[0].fields[:4] == (b"t", b"S", b"r", b"one")
    assert page.entries[2].fields == (b"t", b"S", b"r", b"nine", b"c", b"bad!", b"later", b"\0\xff")
    assert [at for at, _ in page.damaged] == [StreamId(epoch, 9)]
    assert page.size == sum(len(word) for entry in page.entries for word in entry.fields)
    assert page.first == StreamId(epoch, 0)
    limited = await copies.page(STREAM, StreamId(epoch, 0), StreamId(epoch, 2), 1)
    assert limited is not None
    assert [entry.id for entry in limited.entries] == [StreamId(epoch, 1)]
    await copies.close()


@pytest.mark.rule("CM-141")
async def test_the_oldest_id_after_a_page_shows_a_trim(world: World) -> None:
    owner = await world.process()
    epoch = (await owner.claim()).epoch
    await owner.log.append(GROUP, epoch, flush(GROUP, epoch, 1, b"one", b"two"))
    copies = await copies_of(world)
    assert await copies.replay_from(GROUP) == StreamId(0, 0)
    assert await owner.log.compact(GROUP, owner.incarnation, epoch, STREAM, StreamId(epoch, 2))
    assert await copies.replay_from(GROUP) == StreamId(epoch, 2)
    page = await copies.page(STREAM, StreamId(epoch, 0), END, 10)
    assert page is not None
    assert (page.first, len(page.entries)) == (StreamId(epoch, 2), 1)
    tip = await copies.tip(STREAM)
    assert tip is not None
    assert (tip.first, tip.last, tip.length) == (StreamId(epoch, 2), StreamId(epoch, 2), 1)
    assert await copies.page(OTHER.streams[0], StreamId(0, 0), END, 10) is None
    assert await copies.tip(OTHER.streams[0]) is None
    assert await copies.replay_from(OTHER) == StreamId(0, 0)
    await copies.close()


async def test_small_keys_are_read_whole(world: World) -> None:
    await world.store.raw(("HSET", "{nodes}:names", "a", "1", "b", "2"), ("SET", "gc:config", "8"))
    copies = await copies_of(world)
    assert await copies.hash_of("{nodes}:names") == {b"a": b"1", b"b": b"2"}
    assert (await copies.hash_of("{meta}:skip"), await copies.string_of("sgs:config")) == ({}, None)
    assert await copies.string_of("gc:config") == b"8"
    with pytest.raises(LogError, match="WRONGTYPE"):
        await copies.string_of("{nodes}:names")
    await copies.close()


@pytest.mark.rule("CM-141")
async def test_a_restarted_store_ends_the_copy(world: World) -> None:
    owner = await world.process()
    await owner.claim()
    copies = await copies_of(world)
    assert await copies.tip(STREAM) is not None
    await world.store.restart()
    with pytest.raises(HistoryChangedError, match="begin again"):
        await copies.tip(STREAM)
    await copies.close()


@pytest.mark.rule("CM-143")
async def test_a_marked_store_has_no_cluster_for_anybody_until_the_restore_ends(world: World) -> None:
    streams, cluster = await restored_on(world), await world.cluster_store()
    assert await streams.begin("b1", "c9") == "c9"
    assert await streams.begin("b1", "other") == "c9", "a restore that is run again keeps the id"
    for ask in (cluster.cluster_id, lambda: cluster.init_cluster("mine")):
        with pytest.raises(IncompleteRestoreError):
            await ask()
    with pytest.raises(StoreNotEmptyError, match="incomplete restore of another backup, b1"):
        await streams.begin("b2", "c9")
    await streams.finish("b1", "c9")
    assert await cluster.cluster_id() == "c9"
    with pytest.raises(StoreNotEmptyError, match="holds cluster c9"):
        await streams.begin("b1", "c9")
    with pytest.raises(LogError, match="the mark of this restore is gone"):
        await streams.finish("b1", "c9")
    await streams.close()


@pytest.mark.rule("CM-143")
async def test_a_node_does_not_write_to_a_marked_store(world: World) -> None:
    streams = await restored_on(world)
    await streams.begin("b1", "cluster-1")
    with pytest.raises(LogError, match="holds part of a backup"):
        await world.process(call_ms=300)
    await streams.finish("b1", "cluster-1")
    assert (await (await world.process("b")).claim()).epoch > 0
    await streams.close()


@pytest.mark.rule("CM-143")
async def test_a_key_on_any_node_of_the_store_makes_it_not_empty(world: World) -> None:
    for shard in (GROUP, OTHER, TOPIC):
        await world.store.raw(("XADD", shard.streams[0], "1-0", "t", "C"))
        streams = await restored_on(world)
        with pytest.raises(StoreNotEmptyError, match="the store is not empty: it holds "):
            await streams.begin("b1", "c9")
        assert await world.store.raw(("TYPE", "{meta}:cluster")) == [b"none"]
        await world.store.raw(("DEL", shard.streams[0]))
        await streams.close()


@pytest.mark.rule("CM-143")
@pytest.mark.parametrize("kind", ["lose_request", "lose_reply"])
async def test_entries_whose_answer_is_lost_are_there_once(world: World, kind: str) -> None:
    streams = await restored_on(world)
    await streams.begin("b1", "c9")
    await streams.append(STREAM, plain(0, 1))
    await world.store.order("restore", STREAM, kind)
    await streams.append(STREAM, plain(2, 3))
    await streams.append(STREAM, plain(1, 2, 3, 4))
    (found,) = await world.store.raw(("XRANGE", STREAM, "-", "+"))
    assert [at for at, _ in found] == [b"4-0", b"4-1", b"4-2", b"4-3", b"4-4"]
    assert found[4][1] == [b"t", b"S", b"r", b"\0\xff4"]
    tip = await streams.tip(STREAM)
    assert tip is not None
    assert (tip.last, tip.length) == (StreamId(4, 4), 5)
    await streams.close()


@pytest.mark.rule("CM-143")
async def test_a_refused_page_leaves_nothing_of_it(world: World) -> None:
    streams = await restored_on(world)
    await streams.begin("b1", "c9")
    await streams.append(STREAM, plain(0))
    await world.store.refuse("OOM")
    with pytest.raises(LogError, match="OOM"):
        await streams.append(STREAM, plain(1, 2))
    await world.store.refuse(None)
    tip = await streams.tip(STREAM)
    assert tip is not None
    assert tip.length == 1
    await streams.close()


async def test_a_claim_on_restored_entries_is_above_them(world: World) -> None:
    streams = await restored_on(world)
    await streams.begin("b1", "cluster-1")
    far = 2**31 - 10
    await streams.append(STREAM, [RawEntry(StreamId(far, 3), (b"t", b"S", b"r", b""))])
    await streams.finish("b1", "cluster-1")
    assert (await (await world.process()).claim()).epoch == far + 1
    await streams.close()


async def test_a_replica_that_is_late_is_not_waited_for_again(replicated: World) -> None:
    streams = await restored_on(replicated)
    await streams.begin("b1", "c9")
    await streams.append(STREAM, plain(0))
    assert not streams.unreplicated
    await streams.close()
