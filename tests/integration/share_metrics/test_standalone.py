"""The same job on a Spark cluster: one master and two workers, each a separate process (PM-71)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kip932.ids import topic_id_text
from share_metrics.ingest.writing import stored
from share_metrics.reader import Kind
from tests.support.pipeline_entries import TOPIC, snapshot, update

from .kills import PART, STREAMS, Ledger, ends, kill_amid
from .standalone import HERE, SETTINGS, Standalone, environment, standalone
from .world import SHAREGROUPS, Log, World


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as made:
        yield made


@pytest.mark.rule("PM-71")
def test_a_standalone_cluster_runs_the_same_job(
    spark: SparkSession, world: World, cluster: Standalone, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=len(STREAMS))
    for stream in STREAMS:
        Log(world, stream).state(snapshot(0), *(update(number) for number in range(1, 30)))
    data = tmp_path / "data"
    command = [SHAREGROUPS, "metrics", "ingest", "--store", world.url, "--data", str(data)]
    command += ["--master", cluster.url, "--output", "json", *SETTINGS, *HERE]
    before = [cluster.executors_of(number) for number in range(2)]
    assert json.loads(ends(command, env=environment())[0])["rows"] == {"share_state": 31 * len(STREAMS), "group": 0}
    found = stored(spark, data, Kind.SHARE_STATE).select("stream", "entry_id").collect()
    expected = sorted((stream, key.decode()) for stream in STREAMS for key, _ in world.redis.xrange(stream))
    assert sorted((row.stream, row.entry_id) for row in found) == expected
    assert [cluster.executors_of(number) for number in range(2)] == [before[0] + 1, before[1] + 1]


@pytest.mark.rule("PM-71", "PM-36")
def test_by_spark_submit_with_executors_killed_amid_it_every_row_is_there_once(
    spark: SparkSession, world: World, cluster: Standalone, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=len(STREAMS))
    ledger, data = Ledger(world), tmp_path / "data"
    words = ("ingest", "--store", world.url, "--data", str(data), "--output", "json")
    sent, package = cluster.sent(tmp_path, *words)
    # The process that plans a stream runs next to the driver, and Spark does not pass --py-files on to it.
    jobs = [(cluster.submitted(*words), environment()), (sent, environment() | {"PYTHONPATH": str(package)})]
    for part, (job, env) in enumerate(jobs, start=1):
        ledger.write()
        reported, said = ends(job, lambda job: kill_amid(job, world, cluster.busy_executor), env)
        assert "ExecutorLostFailure" in said, said[-4000:]  # a task was lost, and repeated
        rows = len(STREAMS) * (2 + part * PART)
        assert json.loads(reported.splitlines()[-1]) == {
            "data": str(data), "rows": {"share_state": rows, "group": 0}, "lost": 0
        }  # fmt: skip
    entries, accepted, released = ledger.totals()
    table = stored(spark, data, Kind.SHARE_STATE)
    assert Counter((row.stream, row.entry_id) for row in table.select("stream", "entry_id").collect()) == entries
    sums: Any = table.agg({"n_accept": "sum", "n_release": "sum"}).collect()[0].asDict()
    assert sums == {"sum(n_accept)": accepted, "sum(n_release)": released}
    assert accepted == len(STREAMS) * ledger.finished

    page = tmp_path / "page.html"
    reported, _ = ends(
        cluster.submitted("report", "--data", str(data), "--out", str(page), "--output", "json"), env=environment()
    )
    found = json.loads(reported.splitlines()[-1])
    assert {name: found[name] for name in ("share_partitions", "finished", "accepted", "released", "lost")} == {
        "share_partitions": len(STREAMS), "finished": accepted, "accepted": accepted, "released": released, "lost": 0
    }  # fmt: skip
    assert page.read_text().startswith("<!doctype html>")

    asked = ("--group", "G1", "--topic", topic_id_text(TOPIC), "--partition", "2")
    reported, _ = ends(cluster.submitted("replay", "--data", str(data), *asked), env=environment())
    state = json.loads(reported[reported.index("{") :])
    assert (state["start_offset"], state["source"]) == (ledger.finished, "data")
