"""A continuous ingest whose store hangs, or whose master is killed, with a replica that lacks the newest entries."""

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
from share_metrics.ingest.job import Cluster, Exposition, Ingested, Job, run
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.writing import Source, stored
from share_metrics.reader import Kind
from share_metrics.reader import store as reader_store
from tests.support.cluster_nodes import ran
from tests.support.pipeline_entries import TOPIC, snapshot, update
from tests.support.stores import Server

from .test_sentinel import Watched
from .world import Log, World, running

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
        self.text = ""

    def scrape(self) -> tuple[float | None, float | None] | None:
        served = re.search(r"http://\S+", " ".join(self.reported))
        if served is None:
            return None
        self.text = urllib.request.urlopen(served.group(), timeout=60).read().decode()
        lag, unknown = (found and float(found.group(1)) for found in (LAG.search(self.text), UNKNOWN.search(self.text)))
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


def begun(world: World) -> Log:
    """Write a topic of 50 records, of which a group has finished 12. Returns the log of its state."""
    world.make_cluster(state_shards=1)
    world.redis.set("{meta}:cluster", "one")
    world.make_topic("orders", TOPIC, 1, 1)
    Log(world, f"{{tp:{topic_id_text(TOPIC)}:0}}:log").batch(0, 50)
    log = Log(world, S0)
    log.state(snapshot(10), update(12))
    return log


def played(url: str, data: Path, play: Callable[[Scrapes], None]) -> Ingested:
    """Run a continuous ingest while `play` runs; returns what it has ingested."""
    reported: list[str] = []
    failed: list[BaseException] = []
    stop = Stop()

    def run_play() -> None:
        try:
            play(Scrapes(reported))
        except BaseException as error:
            failed.append(error)
        finally:
            stop.signal = signal.SIGTERM

    playing = threading.Thread(target=run_play)
    playing.start()
    job = Job(Source(url), data, once=False, trigger_s=TRIGGER_S)
    done = run(job, Exposition(port=0), Cluster("local[1]"), reported.append, stop)
    playing.join()
    assert not failed, failed
    return done


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
    data, began = tmp_path / "data", datetime.now(UTC)
    log = begun(World(watched.master))
    url = f"redis+sentinel://127.0.0.1:{watched.sentinel.port}/main"
    done = played(url, data, lambda scrapes: play(watched, log, scrapes))
    assert done.lost == 3
    rows = stored(spark, data, Kind.SHARE_STATE).where("record_type != 'gap'").select("entry_id").collect()
    found = sorted(row.entry_id for row in rows)
    assert found == [*(f"1-{seq}" for seq in range(6)), *(f"2-{seq}" for seq in range(3))]
    assert outages.spans(data, began, datetime.now(UTC) + timedelta(hours=1)), "the record has the outage"


@pytest.mark.rule("PM-106", "PM-121", "CM-242")
def test_while_a_store_hangs_no_lag_is_shown_and_then_the_right_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver waits a fifth of a second for each answer; the queries' own processes wait as long as they do."""
    monkeypatch.setattr(reader_store, "_ANSWER_S", 0.2)
    with running() as world:
        log = begun(world)
        process = world.server.process
        assert process is not None

        def hang(scrapes: Scrapes) -> None:
            scrapes.until_lag(38, 0)
            assert "\nprocess_resident_memory_bytes " in scrapes.text
            assert "\nsharegroups_ingest_java_resident_memory_bytes " in scrapes.text
            process.send_signal(signal.SIGSTOP)
            try:
                scrapes.until_lag(None, 1)
                scrapes.shown.clear()
                again = time.monotonic()
                scrapes.until(lambda: time.monotonic() - again > SEVERAL_TRIGGERS_S)
                assert set(scrapes.shown) == {None}
                said = [words for words in scrapes.reported if "where logs end was not sampled" in words]
                assert len(said) == 1
                assert "does not answer" in said[0]
            finally:
                process.send_signal(signal.SIGCONT)
            log.state(update(20))
            scrapes.until_lag(30, 0)
            assert set(scrapes.shown) == {None, 30}

        assert played(world.url, tmp_path / "data", hang).lost == 0
