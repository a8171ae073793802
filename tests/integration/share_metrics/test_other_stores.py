"""An ingest whose store was replaced, emptied or restored, and one on a machine with a wrong clock."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from share_metrics.commands import query_failure
from share_metrics.ingest.job import Cluster, Exposition, Job, QueryError, run
from share_metrics.ingest.log_samples import Sampler, newest_sample
from share_metrics.ingest.store_clock import StoreClock
from share_metrics.ingest.writing import Source, stored
from share_metrics.reader import Kind
from tests.support.pipeline_entries import update

from .world import Log, World

S0 = "{sgs:0}:log"
BOUND_S = 240


def fill(world: World, cluster: str, entries: int) -> None:
    world.clear()
    world.make_cluster(state_shards=1)
    world.redis.set("{meta}:cluster", cluster)
    Log(world, S0).state(*(update(number) for number in range(entries)))


@pytest.mark.rule("PM-108")
def test_a_store_that_is_replaced_under_way_ends_a_continuous_ingest_and_adds_no_row(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    fill(world, "one", 5)
    reported: list[str] = []

    def replace() -> None:
        end = time.monotonic() + BOUND_S
        while time.monotonic() < end and not any("share_state: batch 0 is written" in words for words in reported):
            time.sleep(0.1)
        fill(world, "two", 9)

    replacing = threading.Thread(target=replace)
    replacing.start()
    job = Job(Source(world.url), tmp_path / "data", once=False, trigger_s=0.5)
    with pytest.raises(QueryError) as ended:
        run(job, Exposition(), Cluster("local[1]"), reported.append)
    replacing.join()
    failure = query_failure(ended.value)
    assert failure.exit_code == 4
    assert "is of cluster two, but positions and rows so far are of cluster one" in failure.message
    assert stored(spark, tmp_path / "data", Kind.SHARE_STATE).count() == 6


@pytest.mark.rule("PM-110")
@pytest.mark.parametrize("hours", [1, -1])
def test_samples_have_the_stores_time_where_this_machines_is_wrong(world: World, tmp_path: Path, hours: int) -> None:
    world.make_cluster(state_shards=1)
    world.make_topic("orders", b"t" * 16, 1, 1)
    reported: list[str] = []
    clock = StoreClock(reported.append, lambda: time.time() + 3_600 * hours)
    before = datetime.now(UTC)
    Sampler(world.store, tmp_path, clock)()
    found = newest_sample(tmp_path, datetime.now(UTC) + timedelta(days=1))
    assert found is not None
    assert abs(found[0] - before) < timedelta(minutes=5), "and not an hour"
    assert [words.split(" by ")[0] for words in reported] == [
        f"this machine's clock is 3600 s {'fast' if hours > 0 else 'slow'}"
    ]
