"""A continuous ingest behind a Sentinel whose master is killed: its replica takes over without the newest entries."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip932.ids import topic_id_text
from share_metrics.ingest import outages
from share_metrics.ingest.job import Cluster, Exposition, Job, run
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.writing import Source, stored
from share_metrics.reader import Kind
from tests.support.cluster_nodes import ran
from tests.support.pipeline_entries import TOPIC, snapshot, update
from tests.support.stores import Server

from .test_sentinel import Watched
from .world import Log, World

S0 = "{sgs:0}:log"
BOUND_S = 240
TRIGGER_S = 0.5
SEVERAL_TRIGGERS_S = 4
LAG = re.compile(r"^sharegroups_ingest_share_group_lag\{.*\} (\S+)$", re.MULTILINE)
UNKNOWN = re.compile(r"^sharegroups_ingest_share_group_lag_unknown\{.*\} (\S+)$", re.MULTILINE)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    try:
        asyncio.run(made.start())
        asyncio.run(ran(made.sentinel, ("SENTINEL", "SET", "main", "down-after-milliseconds", 1_000)))
        yield made
    finally:
        made.close()


class Scrapes:
    """What the gauges of a job show, by what it reported."""

    def __init__(self, reported: list[str]) -> None:
        self.reported = reported
        self.shown: list[float | None] = []

    def scrape(self) -> tuple[float | None, float | None] | None:
        served = re.search(r"http://\S+", " ".join(self.reported))
        if served is None:
            return None
        text = urllib.request.urlopen(served.group(), timeout=60).read().decode()
        lag, unknown = (found and float(found.group(1)) for found in (LAG.search(text), UNKNOWN.search(text)))
        self.shown.append(lag)
        return lag, unknown

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + BOUND_S
        while time.monotonic() < end:
            self.scrape()
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(f"in vain, after {self.shown[-5:]}: {self.reported[-10:]}")

    def until_lag(self, lag: float | None, unknown: float) -> None:
        self.until(lambda: self.scrape() == (lag, unknown))


def without_replica(master: Server) -> None:
    """End the link to the replica, which may not come back."""
    asyncio.run(ran(master, ("ACL", "SETUSER", "default", "-psync", "-sync"), ("CLIENT", "KILL", "TYPE", "replica")))


def play(watched: Watched, log: Log, scrapes: Scrapes) -> None:
    """Kill the master, whose newest entries the replica does not have; write to the replica in its place."""
    scrapes.until_lag(38, 0)
    assert set(scrapes.shown) == {None, 38}
    without_replica(watched.master)
    log.state(update(20), update(21), update(22))  # confirmed by the master alone
    scrapes.until_lag(28, 0)
    scrapes.shown.clear()
    assert watched.master.process is not None
    watched.master.process.kill()
    scrapes.until(lambda: "which Sentinel" in " ".join(scrapes.reported))
    assert scrapes.scrape() == (None, 1)
    scrapes.until(lambda: any("read from" in words for words in scrapes.reported))
    scrapes.shown.clear()
    again = time.monotonic()
    scrapes.until(lambda: time.monotonic() - again > SEVERAL_TRIGGERS_S)
    assert set(scrapes.shown) == {None}, "28 is that of the entries that are lost"
    after = World(watched.replica)
    Log(after, S0, epoch=2).state(snapshot(12), update(14))
    after.redis.close()
    scrapes.until_lag(36, 0)
    assert set(scrapes.shown) == {None, 36}


@pytest.mark.rule("PM-11", "PM-36", "PM-105", "PM-106", "PM-122", "PM-123")
def test_a_fail_over_that_loses_a_tail_doubles_nothing_and_no_wrong_lag_is_shown(
    spark: SparkSession, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "_LEAST_MS", 1_000)
    data, began, stop = tmp_path / "data", datetime.now(UTC), Stop()
    reported: list[str] = []
    world = World(watched.master)
    world.make_cluster(state_shards=1)
    world.redis.set("{meta}:cluster", "one")
    world.make_topic("orders", TOPIC, 1, 1)
    Log(world, f"{{tp:{topic_id_text(TOPIC)}:0}}:log").batch(0, 50)
    log = Log(world, S0)
    log.state(snapshot(10), update(12))

    failed: list[BaseException] = []

    def played() -> None:
        try:
            play(watched, log, Scrapes(reported))
        except BaseException as error:
            failed.append(error)
        finally:
            stop.signal = signal.SIGTERM

    playing = threading.Thread(target=played)
    playing.start()
    url = f"redis+sentinel://127.0.0.1:{watched.sentinel.port}/main"
    job = Job(Source(url), data, once=False, trigger_s=TRIGGER_S)
    done = run(job, Exposition(port=0), Cluster("local[1]"), reported.append, stop)
    playing.join()
    assert not failed, failed
    assert done.lost == 3
    rows = stored(spark, data, Kind.SHARE_STATE).where("record_type != 'gap'").select("entry_id").collect()
    found = sorted(row.entry_id for row in rows)
    assert found == [*(f"1-{seq}" for seq in range(6)), *(f"2-{seq}" for seq in range(3))]
    assert outages.spans(data, began, datetime.now(UTC) + timedelta(hours=1)), "the record has the outage"
