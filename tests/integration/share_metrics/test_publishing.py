"""A reader publishes its positions to owners of streams, which keep unread entries for it; it writes nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from shard_runtime.clock import SystemClock
from shard_runtime.hosting.compaction_plan import CompactionLimits
from shard_runtime.hosting.shard_host import HostOptions, ShardHost
from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import StreamId
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from shard_runtime.record_log.redis.topology import open_store
from share_metrics.archive.folders import checkpoints
from share_metrics.ingest import job
from share_metrics.ingest.writing import Source, Step, Watch, start
from share_metrics.reader import Kind
from share_metrics.spark.options import read_options
from share_metrics.spark.source import StreamReader
from tests.support.claims import claim
from tests.support.clocks import HandClock
from tests.support.pipeline_entries import snapshot, update
from tests.support.toy_shard import SHARD, STREAM, Put, Record, ToyCodec, ToyShard

from .world import Log, World, finish

S0, S1 = "{sgs:0}:log", "{sgs:1}:log"
R0 = "{sgs:0}:readers"
DAY_MS = 86_400_000


def reader(world: World, **options: str) -> StreamReader:
    return StreamReader(read_options({"url": world.url, "kind": "share_state", "readerName": "r", **options}))


def now_ms(world: World) -> int:
    seconds, micros = world.redis.time()
    return int(seconds) * 1_000 + int(micros) // 1_000


def contents(world: World) -> dict[bytes, bytes]:
    """Return every key and its value, except readers' notes."""
    return {key: world.redis.dump(key) for key in world.redis.keys("*") if not key.endswith(b":readers")}


@pytest.mark.rule("PM-12", "SR-29", "SR-1")
def test_a_plan_shows_where_the_last_batch_has_ended(world: World) -> None:
    world.make_cluster(state_shards=2)
    log = Log(world, S0)
    log.state(snapshot(0), update(1))
    source = reader(world)
    at = source.initialOffset()
    before_ms = now_ms(world)
    at = source.latestOffset(at, ReadMaxRows(100))
    assert world.redis.keys("*:readers") == []  # nothing was read yet
    log.state(update(2))
    source.latestOffset(at, ReadMaxRows(100))
    read, written_ms = world.redis.hget(R0, "r").decode().split(" ")
    assert read == at[S0]["id"] == "1-2"
    assert before_ms <= int(written_ms) <= now_ms(world)
    assert world.redis.keys("*:readers") == [R0.encode()]  # the other stream does not exist
    assert DAY_MS - 60_000 < world.redis.pttl(R0) <= DAY_MS
    source.commit(source.latestOffset(at, ReadMaxRows(100)))
    assert world.redis.hget(R0, "r").startswith(b"1-3 ")


@pytest.mark.rule("PM-12", "SR-29")
def test_readers_of_long_ago_are_forgotten_and_strangers_left_alone(world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0))
    then = now_ms(world) - DAY_MS
    written = {"gone": f"1-1 {then - 1}", "late": f"1-1 {then + 60_000}", "foreign": "hello"}
    world.redis.hset(R0, mapping=written)
    reader(world).commit({S0: {"id": "1-1", "n": 2}})
    found = world.redis.hgetall(R0)
    assert set(found) == {b"late", b"foreign", b"r"}


@pytest.mark.rule("PM-5", "PM-12")
def test_of_two_readers_of_one_name_the_last_word_counts(world: World) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0), update(1), update(2))
    slow, fast = reader(world), reader(world)
    slow.commit({S0: {"id": "1-1", "n": 2}})
    fast.commit({S0: {"id": "1-3", "n": 4}})
    assert [note.split(b" ")[0] for note in world.redis.hvals(R0)] == [b"1-3"]


@pytest.mark.rule("PM-6", "PM-12")
def test_a_reader_without_a_name_and_one_of_topics_write_nothing(world: World) -> None:
    world.make_cluster(state_shards=1)
    world.make_topic("orders", b"\0" * 15 + b"\1", 1, 1)
    Log(world, S0).state(snapshot(0))
    Log(world, "{tp:AAAAAAAAAAAAAAAAAAAAAQ:0}:log").batch(0, 10)
    for source in (reader(world, readerName=""), reader(world, kind="log_meta")):
        at = source.latestOffset(source.initialOffset(), ReadMaxRows(100))
        assert at != source.initialOffset()
        source.latestOffset(at, ReadMaxRows(100))
        source.commit(at)
    assert world.redis.keys("*:readers") == []


#: The permissions that the docs give a pipeline's user: to read, and to write notes.
CHECKS = ("%R~*", "+@read", "+@connection", "+eval_ro")
NOTES = ("%RW~*:readers", "+eval", "+time", "+hset", "+hdel", "+pexpire")


@pytest.mark.rule("PM-12", "PM-6")
@pytest.mark.parametrize("notes", [False, True])
def test_a_user_that_may_only_read_ingests_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, notes: bool
) -> None:
    caplog.set_level(logging.WARNING)
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0), update(1))
    world.redis.execute_command("ACL", "SETUSER", "looker", "on", ">secret", *CHECKS, *(NOTES if notes else ()))
    monkeypatch.setenv("LOOKER", "secret")
    url = world.url.replace("unix://", "unix://looker@")
    try:
        source = reader(world, url=url, passwordEnv="LOOKER")
        at = source.latestOffset(source.initialOffset(), ReadMaxRows(100))
        for _ in range(2):
            assert source.latestOffset(at, ReadMaxRows(100)) == at
        source.commit(at)
    finally:
        world.redis.execute_command("ACL", "DELUSER", "looker")
    assert world.redis.keys("*:readers") == ([R0.encode()] if notes else [])
    reported = [record.getMessage() for record in caplog.records]
    assert [R0 in words and "no permissions" in words for words in reported] == ([] if notes else [True])


class Owner:
    """A host of the shard on the real store, with a clock that the test sets."""

    limits = CompactionLimits(entries_min=20, entries_per_key=1, history_ms=1_000, readers_max_lag_ms=10_000)

    def __init__(self, url: str, clock: HandClock, number: int) -> None:
        self.number = number
        self.clock = clock
        self.log = StoreRecordLog(open_store(url), StoreSettings(), SystemClock(), Random(number))
        options = HostOptions(compaction=self.limits)
        self.host: ShardHost[object, Record] = ShardHost(
            SHARD, ToyShard, ToyCodec(), self.log, self.clock, options=options
        )

    async def claim(self) -> None:
        claimed = await claim(self.log, SHARD, self.number, lease_ms=60_000, dead=frozenset({self.number - 1}))
        self.epoch = claimed.epoch
        lease = Lease(SHARD, self.number, self.epoch, deadline_ms=10**12, clock=self.clock, give_up=self._give_up)
        await self.host.gained(claimed, lease)

    @staticmethod
    def _give_up(reason: str, above: int) -> None:
        pytest.fail(reason)

    async def write(self, entries: int) -> None:
        """Write an entry every 100 ms, so that the history that is kept for readers is ten entries."""
        for n in range(entries):
            self.clock.ms += 100
            await self.host.submit(Put("k", n))

    async def compact(self) -> StreamId:
        """Write until the stream has been compacted once more; returns its first entry."""
        before = self.replayed_from
        for _ in range(100):
            await self.write(1)
            if self.replayed_from != before:
                break
        tip = await self.log.tip(STREAM)
        assert tip is not None
        assert self.replayed_from != before
        return tip.first

    @property
    def replayed_from(self) -> int:
        holding = self.host._tenure
        assert holding is not None
        return holding.positions._start


def read_on(source: StreamReader, at: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Run one micro-batch and the next plan, which publishes the position; returns the end and the types of the
    rows."""
    end = source.latestOffset(at, ReadMaxRows(1_000))
    rows = [row for task in source.partitions(at, end) for made in source.read(task) for row in made.to_pylist()]
    assert source.latestOffset(end, ReadMaxRows(1_000)) == end
    return end, [row["record_type"] for row in rows]


async def story(world: World) -> None:
    clock = HandClock()
    owner, second = Owner(world.url, clock, 1), Owner(world.url, clock, 2)
    try:
        await _story(world, owner, second)
    finally:
        await owner.log.close()
        await second.log.close()


async def _story(world: World, owner: Owner, second: Owner) -> None:
    await owner.claim()
    epoch = owner.epoch
    await owner.write(5)
    source = reader(world)
    at, _ = read_on(source, source.initialOffset())
    assert at[STREAM]["id"] == f"{epoch}-5"
    assert await owner.compact() == (epoch, 5)
    await second.claim()  # another owner reads the same notes
    assert await second.compact() == (epoch, 5)
    at, types = read_on(source, at)
    assert "gap" not in types
    assert len(types) > 20
    first = await second.compact()
    assert str(first) == at[STREAM]["id"]  # entries that were read are removed, the others stay
    lag_ms = Owner.limits.readers_max_lag_ms
    world.redis.hset(SHARD.readers_key, "r", f"{first} {now_ms(world) - lag_ms - 60_000}")  # the note is too old
    assert await second.compact() > first
    _, types = read_on(source, at)
    assert types[0] == "gap"


@pytest.mark.rule("PM-12", "SR-29", "PM-11")
def test_an_owner_keeps_what_a_live_reader_has_not_read_and_no_more(world: World) -> None:
    world.make_cluster(state_shards=8)
    asyncio.run(story(world))


@pytest.mark.rule("PM-12", "PM-6", "PM-39")
def test_an_ingest_leaves_the_positions_of_its_checkpoint_and_nothing_else(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "KINDS", (Kind.SHARE_STATE,))  # one query is enough to show it
    world.make_cluster(state_shards=2)
    Log(world, S0).state(snapshot(0), *(update(number) for number in range(1, 10)))
    Log(world, S1).state(snapshot(0))
    before = contents(world)
    monkeypatch.setattr(job.Cluster, "session", lambda self, name: spark)
    job.run(job.Job(Source(world.url), tmp_path), job.Exposition(), job.Cluster(), lambda words: None)
    assert contents(world) == before
    name = (tmp_path / "reader-name").read_bytes()
    notes = {key.decode(): world.redis.hgetall(key) for key in world.redis.keys("*:readers")}
    offsets = (checkpoints(tmp_path, Kind.SHARE_STATE) / "offsets" / "0").read_text().splitlines()[-1]
    kept = {stream.replace(":log", ":readers"): at["id"] for stream, at in json.loads(offsets).items()}
    assert kept == {R0: "1-10", "{sgs:1}:readers": "1-1"}
    assert {key: [name, *fields] for key, fields in notes.items()} == {key: [name, name] for key in kept}
    assert {key: fields[name].decode().split(" ")[0] for key, fields in notes.items()} == kept


@pytest.mark.rule("PM-12", "PM-36")
def test_a_batch_that_was_not_confirmed_is_not_reported(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(*(update(number) for number in range(1, 10)))

    def step(kind: Kind, number: int, step: Step) -> None:
        if number == 1 and step is Step.SHOWN:
            raise OSError("the disk is full")

    source = Source(world.url, max_rows_per_trigger=4, reader_name="r")
    with pytest.raises(PySparkException, match="the disk is full"):
        finish(start(spark, source, tmp_path, [Kind.SHARE_STATE], watch=Watch(step)))
    assert world.redis.hget(R0, "r").startswith(b"1-3 ")
