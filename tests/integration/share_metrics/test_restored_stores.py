"""An ingest whose store is restored from a backup, with the same cluster id or another, between its runs and while it
runs: no row is doubled, and what is counted as lost is what the backup does not have."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from share_metrics.archive.folders import FolderError
from share_metrics.ingest.job import Cluster, Exposition, Ingested, Job, run
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.writing import Source, stored
from share_metrics.reader import Kind, StoreUnreachableError
from share_metrics.reader.streams import cluster_id
from tests.support.pipeline_entries import snapshot, update

from .world import SHAREGROUPS, Log, World, running

S0 = "{sgs:0}:log"
BOUND_S = 240


@pytest.fixture
def own_world() -> Iterator[World]:
    """A server that the test may stop and empty."""
    with running() as world:
        world.make_cluster(state_shards=1)
        world.redis.set("{meta}:cluster", "one")
        world.make_topic("orders", b"t" * 16, 1, 1)
        yield world


def command(*words: str) -> None:
    done = subprocess.run([SHAREGROUPS, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def saved(world: World, folder: Path) -> Path:
    command("backup", str(folder), "--store", world.url, "--quiet")
    return folder


def emptied(world: World) -> None:
    """Lose the store for good, and start an empty one at the same address."""
    world.server.stop()
    for left in Path(world.server.folder).iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    asyncio.run(world.server.start())


def emptied_and_marked(world: World, backup: Path) -> None:
    """Replace what the store holds by the mark of a restore, at once. A restore of the same backup goes on from it."""
    mark = {"backup": json.loads((backup / "manifest.json").read_text())["backup_id"], "cluster": "one"}
    with world.redis.pipeline(transaction=True) as pipe:
        pipe.flushall()
        pipe.hset("{meta}:cluster", mapping=mark)
        pipe.execute()


def restored(world: World, backup: Path, *options: str) -> None:
    command("restore", str(backup), "--store", world.url, "--quiet", *options)


def ingest(world: World, data: Path) -> Ingested:
    return run(Job(Source(world.url), data), Exposition(), Cluster("local[1]"), print)


def ids(spark: SparkSession, data: Path) -> list[str]:
    rows = stored(spark, data, Kind.SHARE_STATE).where("record_type != 'gap'").select("entry_id").collect()
    return [row.entry_id for row in rows]


def trimmed_and_saved(world: World, folder: Path) -> tuple[Log, Path]:
    """Entries 0 to 20, of which 0 to 9 are trimmed before the backup, and 21 to 24 written after it."""
    log = Log(world, S0)
    log.state(*(update(number) for number in range(1, 10)), snapshot(10), *(update(number) for number in range(11, 21)))
    world.redis.xtrim(S0, minid="1-10", approximate=False)
    backup = saved(world, folder)
    log.state(*(update(number) for number in range(21, 25)))
    return log, backup


@pytest.mark.rule("PM-11", "PM-108", "PM-120")
def test_a_store_restored_between_two_runs_has_lost_what_the_backup_does_not_have(
    spark: SparkSession, own_world: World, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    log, backup = trimmed_and_saved(own_world, tmp_path / "backup")
    first = ingest(own_world, data)
    assert (first.rows[Kind.SHARE_STATE], first.lost) == (15, 0)
    emptied(own_world)
    restored(own_world, backup, "--keep-cluster-id")
    Log(own_world, S0, epoch=log.epoch + 1).state(update(31), update(32))
    again = ingest(own_world, data)
    assert again.lost == 4, "and not the ten that had been trimmed before the backup, too"
    found = ids(spark, data)
    assert len(found) == len(set(found)) == 15 + 3
    emptied(own_world)
    restored(own_world, backup)
    with pytest.raises(FolderError, match="of cluster one"):
        ingest(own_world, data)
    with own_world.store() as store:
        assert cluster_id(store) not in {"", "one"}


@pytest.mark.rule("PM-108", "PM-120")
def test_a_store_is_waited_for_while_a_backup_is_restored_into_it(own_world: World) -> None:
    own_world.redis.delete("{meta}:cluster")
    own_world.redis.hset("{meta}:cluster", mapping={"backup": "b", "cluster": "one"})
    with own_world.store() as store, pytest.raises(StoreUnreachableError, match="a backup is being restored into"):
        cluster_id(store)


@pytest.mark.rule("PM-36", "PM-120")
def test_a_store_restored_while_the_ingest_runs_is_read_on(
    spark: SparkSession, own_world: World, tmp_path: Path
) -> None:
    data, stop = tmp_path / "data", Stop()
    reported: list[str] = []
    log, backup = trimmed_and_saved(own_world, tmp_path / "backup")

    def switch() -> None:
        try:
            until(reported, "share_state: batch 0 is written")
            emptied_and_marked(own_world, backup)
            until(reported, "a backup is being restored into the store")
            restored(own_world, backup, "--keep-cluster-id")
            Log(own_world, S0, epoch=log.epoch + 1).state(update(31), update(32))
            until(reported, "share_state: batch 1 is written")
        finally:
            stop.signal = signal.SIGTERM

    switching = threading.Thread(target=switch)
    switching.start()
    job = Job(Source(own_world.url), data, once=False, trigger_s=0.5)
    done = run(job, Exposition(), Cluster("local[1]"), reported.append, stop)
    switching.join()
    assert done.lost == 4
    found = ids(spark, data)
    assert len(found) == len(set(found)) == 15 + 3


def until(reported: list[str], words: str) -> None:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        if any(words in line for line in reported):
            return
        time.sleep(0.05)
    raise AssertionError(f"{words!r} is not in {reported}")
