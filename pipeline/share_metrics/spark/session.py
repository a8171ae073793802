"""A Spark session on this machine, set up for this package: one place for what was learned by trying (PM-66, PM-70)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from share_metrics.java import java_home

from .source import RedisStreams


def build_session(name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session in UTC with the source `redis_streams`. Raises NoJavaError.

    On this machine (`local[…]`) it talks over the loopback only; for a cluster of `master` it takes the address that
    SPARK_LOCAL_IP or the machine's name says (PM-71). `settings` override what is set here.
    """
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run another Python, without this package
    local = _LOOPBACK if master.startswith("local") else {}
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(RedisStreams)
    return session


_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # A query that is stopped amid a batch looks for its cause with a regular expression, in a long text: with the usual
    # stack its thread overflows and prints a thousand lines.
    "spark.driver.extraJavaOptions": "-Xss4m",
    "spark.sql.session.timeZone": "UTC",
    # A reader with pushFilters fails while this is off, as it is by default (PM-15).
    "spark.sql.python.filterPushdown.enabled": "true",
    # Spark's 200 are for a cluster: here each is a task that does nothing, many times over.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
}
