"""The notes that readers keep beside a stream: read as stored, timed by the store's clock, whatever else is there
(SR-29)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from shard_runtime.config.kafka_configs import GROUP_SHARDS, STATE_SHARDS
from shard_runtime.config.process_settings import load_settings
from shard_runtime.hosting.shard_tenure import Retention
from shard_runtime.record_log.protocol import LogError, ReaderNotes, StreamId
from shard_runtime.record_log.redis.keys import slot_of
from share_metrics.reader import EntryId, Position, Store
from share_metrics.reader.publishing import Publisher
from tests.support.cluster_nodes import ClusterNodes
from tests.support.stores import Valkey

from .conftest import deploy
from .redis_cluster import RedisCluster
from .world import GROUP, OTHER, TOPIC, World, flush, in_time, records

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("SR-1", "SR-29", "CM-10")
async def test_notes_are_beside_the_stream() -> None:
    assert OTHER.readers_key == "{sgs:3}:readers"
    assert GROUP.readers_key == "{gc:7}:readers"
    assert {slot_of(key) for key in (OTHER.readers_key, OTHER.owner_key)} == {slot_of(OTHER.streams[0])}
    assert OTHER.streams == ("{sgs:3}:log",)
    assert TOPIC.streams == (f"{{tp:{TOPIC.name}}}:log", f"{{tp:{TOPIC.name}}}:ctl")
    for shard in (GROUP, OTHER, TOPIC):
        keys = (*shard.streams, shard.owner_key, shard.readers_key, shard.skip_key)
        assert {key.partition("}")[0] + "}" for key in keys} == {shard.tag}
    settings = load_settings({})
    assert (settings[GROUP_SHARDS], settings[STATE_SHARDS]) == (50, 50)


@pytest.mark.rule("SR-29", "PM-12")
async def test_notes_are_read_as_they_are_stored(world: World) -> None:
    a = await world.process("a")
    assert (await in_time(lambda: a.log.readers(GROUP))).values == {}
    await world.store.raw(("HSET", GROUP.readers_key, "r", "5-6 700", b"\xff", b"\x00\xfe"))
    found = await in_time(lambda: a.log.readers(GROUP))
    assert found.values == {"r": b"5-6 700", "\N{REPLACEMENT CHARACTER}": b"\x00\xfe"}
    assert (await in_time(lambda: a.log.readers(OTHER))).values == {}


@pytest.mark.rule("SR-29")
async def test_the_clock_is_the_stores(world: World) -> None:
    a = await world.process("a")
    before_ms = time.time_ns() // 1_000_000
    found = await in_time(lambda: a.log.readers(GROUP))
    assert before_ms <= found.now_ms <= time.time_ns() // 1_000_000


@pytest.mark.rule("SR-29")
async def test_a_key_that_is_no_hash_is_reported_and_hinders_nothing(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await world.store.raw(("SET", GROUP.readers_key, "foreign"))
    with pytest.raises(LogError, match="WRONGTYPE"):
        await in_time(lambda: a.log.readers(GROUP))
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    assert await records(a, GROUP.streams[0]) == [b"1"]


@pytest.mark.rule("SR-29")
async def test_very_many_fields_are_not_all_read(world: World) -> None:
    a = await world.process("a")
    fields = [word for number in range(20_000) for word in (f"r{number}", f"1-{number} 1")]
    await world.store.raw(("HSET", GROUP.readers_key, *fields))
    found = await in_time(lambda: a.log.readers(GROUP))
    assert 0 < len(found.values) < 20_000


@pytest.mark.rule("SR-29", "CM-18")
async def test_the_trim_stops_where_it_is_asked_to(world: World) -> None:
    a = await world.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, *(b"%d" % n for n in range(1, 10))))
    stream = GROUP.streams[0]
    assert await a.log.compact(GROUP, a.incarnation, e, stream, StreamId(e, 8), keep_from=StreamId(e, 4))
    assert await records(a, stream) == [b"%d" % n for n in range(4, 10)]
    assert (await world.owner())["replay_from"] == f"{e}-8"
    assert await a.log.compact(GROUP, a.incarnation, e, stream, StreamId(e, 8), keep_from=StreamId(e + 9, 0))
    assert await records(a, stream) == [b"8", b"9"]


@pytest.mark.rule("SR-29", "SR-22")
async def test_notes_of_a_lost_past_are_gone_and_no_owner_minds(replicated: World) -> None:
    a = await replicated.process("a")
    e = (await a.claim()).epoch
    await a.log.append(GROUP, e, flush(GROUP, e, 1, b"1"))
    await a.log.renew([a.renewal(e)])  # its WAIT shows that the replica has all of it
    await replicated.store.freeze_replica()
    await replicated.store.raw(("HSET", GROUP.readers_key, "r", "5-6 700"))
    await replicated.store.fail_over()
    found = await in_time(lambda: a.log.readers(GROUP))
    assert found == ReaderNotes({}, found.now_ms)


@pytest_asyncio.fixture(params=["valkey", "cluster"])
async def served(request: pytest.FixtureRequest, nodes: ClusterNodes) -> AsyncIterator[tuple[World, str]]:
    """Yields a store that may have other users, and its URL."""
    store = await deploy(request.param, 0, nodes)
    world = World(store)
    if isinstance(store, RedisCluster):
        yield world, "redis+cluster://" + ",".join(f"127.0.0.1:{pair.master.port}" for pair in store.nodes.pairs)
    else:
        assert isinstance(store, Valkey)
        yield world, f"unix://{store.servers[0].folder}/s"
    await world.close()


@pytest.mark.rule("PM-12", "SR-29", "CM-10")
async def test_what_a_pipeline_notes_is_what_owners_read(served: tuple[World, str]) -> None:
    world, url = served
    a = await world.process("a")
    shards = [GROUP, OTHER]
    for shard in shards:
        epoch = (await a.claim(shard)).epoch
        await a.log.append(shard, epoch, flush(shard, epoch, 1, b"1", b"2"))
    at = {shard.streams[0]: Position(EntryId(1_000, 40 + index), 9) for index, shard in enumerate(shards)}

    def publish() -> None:
        with Store(url) as store:
            Publisher("ingest-1").publish(store, at)

    await asyncio.to_thread(publish)
    for index, shard in enumerate(shards):
        found = await in_time(partial(a.log.readers, shard))
        assert list(found.values) == ["ingest-1"]
        retention = Retention(0, 60_000)
        assert retention.keep_from(0, found).keep_from == StreamId(1_000, 40 + index)
        assert retention.keep_from(0, found).malformed == ()
        assert await records(a, shard.streams[0]) == [b"1", b"2"]
