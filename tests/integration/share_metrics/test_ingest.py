"""From a store to Parquet, a report and a read-back: each entry once, however the job ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from group_coordinator.core import records as r
from kip932.ids import shard_index
from kip932.state_batches import StateBatch, WriteStats
from share_coordinator.core.records import ShareTombstone
from share_metrics.commands import metrics
from share_metrics.ingest.writing import stored
from share_metrics.reader import Kind
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, update

from .world import Log, World

S0 = "{sgs:0}:log"
STATE = [Kind.SHARE_STATE]


def test_nothing_is_stored_before_the_first_batch(spark: SparkSession, tmp_path: Path) -> None:
    assert stored(spark, tmp_path, Kind.GROUP).count() == 0


class Ingested:
    """The output of the command `ingest` on a small cluster, and the directory of its rows."""

    def __init__(self, world: World, data: Path) -> None:
        world.clear()
        world.make_cluster(state_shards=1)
        log = Log(world, S0)
        stats = WriteStats(1, n_accept=10, max_dc=1, sum_dc=10, hwm=40)
        log.state(snapshot(0), update(10, stats=stats), update(batches=[StateBatch(12, 12, 0, 4)]))
        member = r.MemberMetadata("G1", "m", None, "c", "h", ("t",))
        Log(world, "{gc:0}:log").group(r.GroupMetadata("G1", 1, 0, 1), member)
        self.data = data
        result = CliRunner().invoke(metrics, ["ingest", "--store", world.url, "--data", str(data)])
        assert result.exit_code == 0, result.output
        self.said = result.stdout

    def report(self, out: Path) -> bytes:
        """Run the report; returns the page."""
        times = ["--from", "1970-01-01T00:00", "--to", "1970-01-01T00:30"]
        result = CliRunner().invoke(metrics, ["report", "--data", str(self.data), *times, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert result.stdout == (  # 13 minutes with lag
            "amber: 1 share-partition; 1 share-partition stands still, for 13 min; 1 share-partition of unknown lag; "
            f"1 record failed, or has one delivery left\n{out}\n"
        )
        return out.read_bytes()


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, server: World, tmp_path_factory: pytest.TempPathFactory) -> Ingested:
    return Ingested(server, tmp_path_factory.mktemp("ingested") / "data")


@pytest.fixture(scope="module")
def reported(ingested: Ingested) -> bytes:
    return ingested.report(ingested.data.with_name("report.html"))


@pytest.mark.rule("PM-39")
def test_ingest_from_the_command_line(ingested: Ingested) -> None:
    assert ingested.said == f"share_state: 4 rows in {ingested.data}\ngroup: 3 rows in {ingested.data}\n"


@pytest.mark.rule("PM-37", "PM-39")
def test_equal_data_gives_equal_bytes(ingested: Ingested, reported: bytes, tmp_path: Path) -> None:
    assert ingested.report(tmp_path / "again.html") == reported


@pytest.mark.rule("PM-1", "PM-37", "PM-39")
def test_a_report_from_the_command_line(reported: bytes) -> None:
    page = reported.decode()
    lag = "≥\N{NO-BREAK SPACE}30"  # the end of the log has not been sampled for a quarter of an hour
    line = f"G1 · AAAAAAAAAAAAAAAAAAAAAQ-0</td><td>{lag}</td><td>0</td><td>–</td><td>10</td><td>10</td>"
    assert line in page
    assert "<b>1</b> failed or poison" in page


@pytest.mark.rule("PM-38", "PM-39")
def test_a_loss_ends_the_command_with_3(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make_cluster(state_shards=1)
    log = Log(world, S0)
    log.state(snapshot(0))
    command = ["ingest", "--store", world.url, "--data", str(tmp_path), "--fail-on-data-loss"]
    command += ["--textfile", str(tmp_path / "gauges")]
    assert CliRunner().invoke(metrics, command).exit_code == 0
    log.state(update(1), update(2))
    world.redis.xtrim(S0, maxlen=1, approximate=False)
    result = CliRunner().invoke(metrics, command)
    assert result.exit_code == 3
    assert "Error: {sgs:0}:log lost entries:" in result.output
    # That run has processed no batch: the value is the one that the first run stored.
    assert (
        'sharegroups_ingest_share_group_start_offset{group="G1",partition="0",topic="AAAAAAAAAAAAAAAAAAAAAQ"} 0.0'
        in ((tmp_path / "gauges").read_text())
    )


@pytest.mark.rule("PM-1", "PM-39")
def test_a_state_is_read_back_as_of_an_entry_or_a_time(world: World) -> None:
    world.make_cluster(state_shards=4)
    world.make_topic("orders", TOPIC, 1, 1)
    log = Log(world, f"{{sgs:{shard_index(KEY.text, 4)}}}:log")
    waits, until = StateBatch(107, 107, 0, 1, 1_764_000_000_250), "2025-11-24T16:00:00.250000+00:00"
    log.state(snapshot(100), update(batches=[StateBatch(105, 106, 0, 1), waits]))
    log.state(snapshot(5, key=KEY._replace(partition=3)))
    log.state(update(103, 2), ShareTombstone(KEY), snapshot(7))
    base = ["replay", "--store", world.url, "--group", "G1", "--topic", "orders", "--partition", "0"]

    def at(*moment: str) -> dict[str, object]:
        result = CliRunner().invoke(metrics, [*base, *moment])
        assert result.exit_code == 0, result.output
        found: dict[str, object] = json.loads(result.output)
        return found

    assert at()["start_offset"] == 7
    second = at("--at", "1-2")
    assert (second["entry_id"], second["start_offset"], second["complete"]) == ("1-2", 100, True)
    assert second["state_batches"] == [
        {"first_offset": 105, "last_offset": 106, "delivery_state": 0, "delivery_count": 1, "not_before": None},
        {"first_offset": 107, "last_offset": 107, "delivery_state": 0, "delivery_count": 1, "not_before": until},
    ]
    third = datetime.fromtimestamp(1_000.002, UTC).isoformat()  # after the third entry, of another partition
    assert at("--at", third)["entry_id"] == "1-2"
    fourth = at("--at", "1-4")
    assert (fourth["start_offset"], fourth["delivery_complete_count"], fourth["state_epoch"]) == (103, 2, 1)
    gone = CliRunner().invoke(metrics, [*base, "--at", "1-5"])
    assert (gone.exit_code, "had no state of orders-0 then" in gone.output) == (1, True)
    unknown = CliRunner().invoke(metrics, [*base[:-3], "invoices", "--partition", "0"])
    assert (unknown.exit_code, "it has: orders" in unknown.output) == (2, True)


def test_without_a_snapshot_a_state_says_that_it_is_not_complete(world: World) -> None:
    world.make_cluster(state_shards=1)
    world.make_topic("orders", TOPIC, 1, 1)
    Log(world, S0).state(update(4))
    base = ["replay", "--store", world.url, "--group", "G1", "--topic", "orders", "--partition", "0"]
    assert json.loads(CliRunner().invoke(metrics, base).output)["complete"] is False
