"""One session for all tests, as small as Spark gets, and it stays so whatever runs in it (PM-66)."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from share_metrics.job import Cluster

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
    """Of the Java process itself too: flags that come too late, in a process that runs, are no flags."""
    assert options(spark) == OPTIONS
    assert spark.sparkContext.master == "local[1]"
    assert spark.sparkContext.uiWebUrl is None
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr] # it runs
    assert set(java.getRuntimeMXBean().getInputArguments()) >= FLAGS
    rows = spark.range(100).repartition(3).groupBy("id").count()
    assert rows.rdd.getNumPartitions() == 1


@pytest.mark.rule("PM-66")
def test_commands_take_that_session_and_leave_it_so(spark: SparkSession) -> None:
    """What a command would begin a session with, it sets in one that is there."""
    command = Cluster(settings=(("spark.sql.shuffle.partitions", "7"),)).session("sharegroups metrics report")
    assert command.sparkContext is spark.sparkContext
    assert command.sparkContext.master == "local[1]"
    assert options(spark) == OPTIONS
