"""Runs pipeline/examples unchanged on a small real store and on the rows ingested from it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import share_metrics.spark
from group_coordinator.core import records as r
from kip932.state_batches import WriteStats
from share_metrics.commands import metrics
from share_metrics.questions import QUESTIONS
from tests.support.pipeline_entries import snapshot, update

from .conftest import small_session
from .world import Log, World

EXAMPLES: Final = Path(__file__).parents[3] / "pipeline" / "examples"


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.suffix} == {"history.py"}


@pytest.fixture
def data(spark: SparkSession, world: World, tmp_path: Path) -> Path:
    """Of ten records, 6 are accepted in one minute and 3 in the next; one is left."""
    world.make_cluster(state_shards=1)
    log = Log(world, "{sgs:0}:log")
    log.wall_ms = 60_000_000
    log.state(snapshot(0, stats=WriteStats(hwm=10)))
    log.state(update(6, stats=WriteStats(1, n_accept=6, max_dc=1, sum_dc=6, hwm=10, write_id=1)))
    log.wall_ms += 60_000
    log.state(update(9, stats=WriteStats(1, n_accept=3, max_dc=1, sum_dc=3, hwm=10, write_id=2)))
    Log(world, "{gc:0}:log").group(r.MemberMetadata("G1", "m", None, "c", "h", ("t",)))
    done = CliRunner().invoke(metrics, ["ingest", "--store", world.url, "--data", str(tmp_path / "history")])
    assert done.exit_code == 0, done.output
    (tmp_path / "history" / "read-up-to").write_text("1970-01-01T16:45:00+00:00")  # a time among those of the rows
    return tmp_path / "history"


@pytest.mark.rule("PM-89")
def test_a_summary_of_history(
    world: World, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(share_metrics.spark, "build_session", small_session)
    monkeypatch.setattr(sys, "argv", ["history.py", world.url, str(data)])
    runpy.run_path(str(EXAMPLES / "history.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert all(question.asks in said for question in QUESTIONS)
    for line in (
        "|{sgs:0}:log|     update|    2|",  # read from the store itself
        "1970-01-01 15:45:00 to 16:45:00 UTC",
        "|G1      |1               |1  |0      |true    |0      |",  # share_lag: the log's end was last seen at 16:41
        "|1970-01-01 16:40:00|   NULL|       6|  4|",  # the number of arrivals in the first window is not known
        "|1970-01-01 16:41:00|      0|       3|  1|",
    ):
        assert line in said, said
