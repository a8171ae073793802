"""A job that is ended at any point, and started again, leaves every entry once: as if it had never been ended."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from share_metrics.ingest import Source, Step, Watch, start, stored
from share_metrics.reader import Kind
from tests.unit.share_metrics.worlds import snapshot, update

from .world import SHAREGROUPS, Log, World, finish

S0, S1 = "{sgs:0}:log", "{sgs:1}:log"
STATE: Final = [Kind.SHARE_STATE]
CRASHES: Final = 20
#: Processes killed with SIGKILL: each costs a start of Spark. The long run takes INGEST_KILLS=20.
KILLS: Final = int(os.environ.get("INGEST_KILLS", "2"))
BOUND_S: Final = 120


class EndedError(Exception):
    """The job ends here."""


class Fault:
    """Ends a job behind some step of a batch: of its first, or of its second."""

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


@pytest.mark.rule("PM-35", "PM-36", "PM-68")
def test_twenty_ends_at_random_steps_leave_what_an_unbroken_run_leaves(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=2)
    logs = [Log(world, S0), Log(world, S1)]
    random = Random(68)
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    struck: list[Step] = []
    for _ in range(8 * CRASHES):
        if len(struck) == CRASHES:
            break
        for log in logs:
            log.state(snapshot(0), *(update(number) for number in range(random.randrange(6))))
        fault = Fault(random.choice(list(Step)), random.randrange(2))
        try:
            run(spark, world, broken, Watch(step=fault))
        except StreamingQueryException as error:
            if "EndedError" not in str(error):
                raise
            struck.append(fault.at)
    assert len(struck) == CRASHES
    assert set(struck) == set(Step)
    (broken / "raw" / "share_state" / ".unfinished.batch=00000099.x").mkdir()  # half a batch of a job killed by force
    run(spark, world, broken)
    run(spark, world, whole)
    assert rows(spark, broken) == rows(spark, whole)
    assert ids(spark, broken) == entries(world, S0, S1)


class Process:
    """`sharegroups metrics ingest --continuous` as a process, from its start to SIGKILL."""

    def __init__(self, world: World, data: Path, log: Any) -> None:
        command = [SHAREGROUPS, "metrics", "ingest", "--store", world.url, "--data", str(data)]
        self.process = subprocess.Popen(
            [*command, "--continuous", "--trigger", "0.05"], stderr=subprocess.PIPE, stdout=log, text=True
        )

    def live_for(self, batches: int) -> None:
        """Until it has told of so many batches."""
        assert self.process.stderr is not None
        seen = 0
        for line in self.process.stderr:
            seen += "is written" in line
            if seen == batches:
                return
        raise AssertionError(f"the job ended by itself, with {self.process.wait(BOUND_S)}")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(BOUND_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.mark.rule("PM-36", "PM-68", "PM-71")
def test_a_killed_process_leaves_every_entry_once(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=2)
    logs = [Log(world, S0), Log(world, S1)]
    random = Random(36)
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            logs[random.randrange(2)].state(*(update(number) for number in range(1, 4)))

    writer = threading.Thread(target=work)
    writer.start()
    try:
        with (tmp_path / "out").open("w") as out:
            for number in range(KILLS):
                job = Process(world, tmp_path / "data", out)
                try:
                    job.live_for(Random(number).randrange(1, 6))
                    # A moment by chance within the next batch: this is when the fault strikes, nothing waits for it.
                    over.wait(Random(number).random())
                finally:
                    job.kill()
    finally:
        over.set()
        writer.join(BOUND_S)
    run(spark, world, tmp_path / "data")
    assert ids(spark, tmp_path / "data") == entries(world, S0, S1)
