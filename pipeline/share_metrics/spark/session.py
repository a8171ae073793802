"""A Spark session on this machine, set up for this package: one place for what was learned by trying (PM-66, PM-70)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from share_metrics.causes import cause
from share_metrics.java import SparkStartError, java_home

from .source import RedisStreams
from .starting import check_master, starting


def build_session(name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session in UTC with the source `redis_streams`. Raises SparkStartError, of which NoJavaError is one.

    On this machine (`local[…]`) it talks over the loopback only; for a cluster of `master` it takes the address that
    SPARK_LOCAL_IP or the machine's name says (PM-71). `settings` override what is set here.
    """
    check_master(master)
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
    with starting():
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise SparkStartError(f"Spark did not start with master {master}: {cause(str(error))}") from error
    own_source(session)
    return session


def own_source(session: SparkSession) -> None:
    """Register the source anew, so that a query that is planned next shares it with no other.

    Spark keeps one map of environment variables for what was registered once, puts into it when a streaming query
    begins, and writes it out for each task. Of two queries that begin at once, a task of the one may find the map
    changed under its hands by the other, and cannot be read then (OptionalDataException).
    """
    session.dataSource.register(RedisStreams)


#: Of Java: what Spark says by itself, which is nothing but what is asked for with `spark.log.level`.
QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A query that is stopped amid a batch looks for its cause with a regular expression that recurs for each character
    # of the text: with the usual stack its thread overflows where the text is not our own.
    "spark.driver.extraJavaOptions": f"-Xss4m {QUIET}",
    # Spark waits without end for a query that does not stop.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    # A reader with pushFilters fails while this is off, as it is by default (PM-15).
    "spark.sql.python.filterPushdown.enabled": "true",
    # Spark's 200 are for a cluster: here each is a task that does nothing, many times over.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
}
