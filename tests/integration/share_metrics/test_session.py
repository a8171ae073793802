"""One session for all tests, as small as Spark gets; it stays so whichever commands run in it (PM-66)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from share_metrics.ingest.job import Cluster
from share_metrics.ingest.writing import Source, start
from share_metrics.reader import Kind

from .world import World, finish

OPTIONS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
FLAGS = {"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"}


def options(spark: SparkSession) -> dict[str, str]:
    return {name: spark.conf.get(name) or "" for name in OPTIONS}


@pytest.mark.rule("PM-66")
def test_the_session_of_all_tests_is_as_small_as_spark_gets(spark: SparkSession) -> None:
    """This includes the Java process, on which flags have no effect once it runs."""
    assert options(spark) == OPTIONS
    assert spark.sparkContext.master == "local[1]"
    assert spark.sparkContext.uiWebUrl is None
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr] # it runs
    assert set(java.getRuntimeMXBean().getInputArguments()) >= FLAGS
    rows = spark.range(100).repartition(3).groupBy("id").count()
    assert rows.rdd.getNumPartitions() == 1


@pytest.mark.rule("PM-66")
def test_commands_take_that_session_and_leave_it_so(spark: SparkSession) -> None:
    """A command applies its own settings to a session that already exists."""
    command = Cluster(settings=(("spark.sql.shuffle.partitions", "7"),)).session("sharegroups metrics report")
    assert command.sparkContext is spark.sparkContext
    assert command.sparkContext.master == "local[1]"
    assert options(spark) == OPTIONS


@pytest.mark.rule("PM-76")
def test_each_query_has_a_source_of_its_own(spark: SparkSession, world: World, tmp_path: Path) -> None:
    """Values that Spark puts into a source's environment when a query begins must not reach another query's task."""
    world.make_cluster(state_shards=1)

    manager: Any = spark._jsparkSession.sessionState().dataSourceManager()
    identity: Any = spark.sparkContext._jvm.java.lang.System.identityHashCode  # type: ignore[union-attr] # it runs
    maps = []
    for number in range(2):
        finish(start(spark, Source(world.url), tmp_path / str(number), [Kind.SHARE_STATE]))
        maps.append(manager.lookupDataSource("redis_streams").dataSourceCls().envVars())
    assert dict(maps[0]) == dict(maps[1])
    assert identity(maps[0]) != identity(maps[1])
