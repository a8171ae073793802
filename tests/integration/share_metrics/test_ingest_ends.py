"""A job that is ended at any point and started again stores every entry once, as if it had never been ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadMaxRows

from share_metrics.archive.commits import Written, commit
from share_metrics.archive.folders import FolderError, in_step
from share_metrics.ingest.writing import Source, Step, Watch, start, stored, write_batch
from share_metrics.reader import Kind
from share_metrics.spark.options import read_options
from share_metrics.spark.source import StreamReader
from tests.support.pipeline_entries import snapshot, update

from .account import PROPERTY, account
from .world import Log, World, finish

Note = Callable[[str, object], None]

S0, S1 = "{sgs:0}:log", "{sgs:1}:log"
STATE: Final = [Kind.SHARE_STATE]
#: How many times Spark's queries are ended, each at the cost of a query's start; `make ingest-kills` uses twenty.
ENDS: Final = int(os.environ.get("INGEST_ENDS", "4"))


class EndedError(Exception):
    """Raised to end the job."""


class Fault:
    """Ends a job after a given step of its first or its second batch."""

    def __init__(self, at: Step, batches_before: int) -> None:
        self.at = at
        self._left = batches_before

    def __call__(self, kind: Kind, number: int, step: Step) -> None:
        if step is self.at:
            self._left -= 1
            if self._left < 0:
                raise EndedError


def run(spark: SparkSession, world: World, data: Path, watch: Watch | None = None) -> None:
    finish(start(spark, Source(world.url, max_rows_per_trigger=7), data, STATE, watch=watch))


def rows(spark: SparkSession, data: Path) -> list[str]:
    return sorted(str(row) for row in stored(spark, data, Kind.SHARE_STATE).collect())


def entries(world: World, *streams: str) -> list[tuple[str, str]]:
    return sorted((stream, key.decode()) for stream in streams for key, _ in world.redis.xrange(stream))


def ids(spark: SparkSession, data: Path) -> list[tuple[str, str]]:
    found = stored(spark, data, Kind.SHARE_STATE).select("stream", "entry_id").collect()
    return sorted((row.stream, row.entry_id) for row in found)


def once(spark: SparkSession, world: World, data: Path, ends: int, note: Note) -> None:
    """Assert that every entry is stored once; records the account as the test's property."""
    found = account(spark, world, data, ends=ends)
    note(PROPERTY, list(found))
    assert (found.lost, found.doubled) == (0, 0), found
    assert found.rows == found.entries > 0


def fill(logs: list[Log], random: Random) -> None:
    for log in logs:
        log.state(snapshot(0), *(update(number) for number in range(random.randrange(6))))


def struck(error: Exception) -> None:
    """Raise the error unless the test itself caused it."""
    if "EndedError" not in str(error):
        raise error


@pytest.mark.rule("PM-35", "PM-36", "PM-68")
@pytest.mark.parametrize("steps", [(Step.BEGUN, Step.WRITTEN), (Step.SHOWN, Step.SHOWN)], ids=str)
def test_a_query_that_ends_leaves_what_an_unbroken_one_leaves(
    spark: SparkSession, world: World, tmp_path: Path, steps: tuple[Step, ...], record_property: Note
) -> None:
    """Real Spark queries are ended in their first batch and again when they repeat it, and then at random."""
    world.make_cluster(state_shards=2)
    logs = [Log(world, S0), Log(world, S1)]
    random = Random(str(steps))
    fill(logs, random)
    more = [random.choice([Step.BEGUN, Step.WRITTEN, Step.SHOWN]) for _ in range(ENDS // 2 - len(steps))]
    for step in (*steps, *more):
        fault = Fault(step, 0 if step in steps else random.randrange(2))
        for _ in range(8):
            try:
                run(spark, world, tmp_path, Watch(step=fault))
            except StreamingQueryException as error:
                struck(error)
                break
            fill(logs, random)
        else:
            raise AssertionError(f"no query came to {step}")
    halves = [tmp_path / "raw" / "share_state" / name for name in ("batch=00000099.x", ".unfinished.batch=00000099.x")]
    for half in halves:  # left by a job that was killed by force, and by one of an earlier build
        half.mkdir()
    run(spark, world, tmp_path)
    assert not any(half.exists() for half in halves)
    whole = spark.read.format("redis_streams").options(url=world.url, kind="share_state").load()
    assert rows(spark, tmp_path) == sorted(map(str, whole.collect()))
    once(spark, world, tmp_path, len(steps) + len(more), record_property)


@pytest.mark.rule("PM-36", "PM-68")
def test_an_end_that_a_dying_job_noted_meanwhile_is_taken_over(
    spark: SparkSession, world: World, tmp_path: Path, record_property: Note
) -> None:
    """The Java process of a killed job lives on for a moment without its lock, and so the next job finds one more
    batch."""
    world.make_cluster(state_shards=1)
    Log(world, S0).state(*(update(number) for number in range(20)))
    noted = tmp_path / "checkpoints" / "share_state" / "offsets"

    def note(_kind: Kind, number: int, step: Step) -> None:
        if (number, step) == (0, Step.BEGUN) and not (noted / "1").exists():
            shutil.copy(noted / "0", noted / "1")

    run(spark, world, tmp_path, Watch(step=note))
    once(spark, world, tmp_path, 1, record_property)


@pytest.mark.rule("PM-36", "PM-68")
def test_a_batch_that_comes_again_keeps_what_the_store_has_trimmed_since(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(*(update(number) for number in range(5)))
    before = entries(world, S0)
    with pytest.raises(StreamingQueryException, match="EndedError"):
        run(spark, world, tmp_path, Watch(step=Fault(Step.SHOWN, 0)))
    world.redis.xtrim(S0, maxlen=1, approximate=False)
    again: list[int] = []
    run(spark, world, tmp_path, Watch(rows=lambda _kind, batch, _number: again.append(batch.count())))
    assert ids(spark, tmp_path) == before
    assert again == [len(before)]  # the gauges, which read a batch's rows, get all of them again


@pytest.mark.rule("PM-36")
def test_rows_whose_positions_are_gone_are_not_ingested_once_more(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(*(update(number) for number in range(5)))
    run(spark, world, tmp_path)
    in_step(tmp_path, Kind.SHARE_STATE)
    shutil.rmtree(tmp_path / "checkpoints")
    log.state(update(5))
    with pytest.raises(StreamingQueryException, match="restore those checkpoints"):
        run(spark, world, tmp_path)
    for number in (1, 2):
        commit(tmp_path, Kind.SHARE_STATE, (number, number), Written("batch=x", []), "")
    with pytest.raises(FolderError, match="knows of 0 that are done"):
        in_step(tmp_path, Kind.SHARE_STATE)


class Engine:
    """Does for a query what Spark does: notes where a batch ends, has it written, and then notes that it is done."""

    def __init__(self, spark: SparkSession, world: World, data: Path) -> None:
        self._spark = spark
        self._data = data
        self._source = StreamReader(read_options({"url": world.url, "kind": "share_state", "numPartitions": "2"}))
        self._ends = [self._source.initialOffset()]
        self._done = 0

    def run(self, watch: Watch) -> None:
        """Run batches of at most 7 rows until nothing more is stored."""
        while True:
            begin = self._ends[self._done]
            if len(self._ends) == self._done + 1:
                end = self._source.latestOffset(begin, ReadMaxRows(7))
                if end == begin:
                    return
                self._ends.append(end)
            tasks = self._source.partitions(begin, self._ends[self._done + 1])
            table = pa.Table.from_batches([batch for task in tasks for batch in self._source.read(task)])
            batch = self._spark.createDataFrame(table)
            write_batch(self._spark, self._data, Kind.SHARE_STATE, batch, self._done, watch)
            self._done += 1


@pytest.mark.rule("PM-35", "PM-36", "PM-68")
def test_twenty_ends_at_random_steps_leave_every_entry_once(
    spark: SparkSession, world: World, tmp_path: Path, record_property: Note
) -> None:
    """The same without starting a query, which costs seconds: `Engine` takes Spark's place."""
    world.make_cluster(state_shards=2)
    logs = [Log(world, S0), Log(world, S1)]
    random = Random(68)
    engine = Engine(spark, world, tmp_path)
    seen: list[Step] = []
    while len(seen) < 20:
        fill(logs, random)
        fault = Fault(random.choice(list(Step)), random.randrange(2))
        try:
            engine.run(Watch(step=fault))
        except EndedError:
            seen.append(fault.at)
    assert set(seen) == set(Step)
    engine.run(Watch())
    once(spark, world, tmp_path, len(seen), record_property)
