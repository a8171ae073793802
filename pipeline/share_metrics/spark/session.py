"""A Spark session set up for this package; all settings that trials have shown to be needed are here (PM-66, PM-70)."""

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

    With a local `master` (`local[…]`) it uses only the loopback; with a cluster, the address that SPARK_LOCAL_IP or the
    machine's name gives (PM-71). `settings` override what is set here.
    """
    check_master(master)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise workers may run a Python without this package
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
    """Register the source again, so that the next query does not share it with another query.

    Spark keeps one map of environment variables for each registration. It changes the map when a streaming query
    begins, and serialises it for each task. If two queries begin at once, one may change the map while a task of the
    other is serialised; that task cannot be read then (OptionalDataException).
    """
    session.dataSource.register(RedisStreams)


#: The Java option that silences Spark's logs, except for what `spark.log.level` asks for.
QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # When a query is stopped in the middle of a batch, Spark searches the error's text with a regular expression that
    # recurses for each character. With the default stack size the thread overflows for long texts.
    "spark.driver.extraJavaOptions": f"-Xss4m {QUIET}",
    # By default Spark waits without end for a query that does not stop.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    # A reader with pushFilters fails while this is off, which is the default (PM-15).
    "spark.sql.python.filterPushdown.enabled": "true",
    # Spark's default of 200 is for a cluster: here most of these tasks would have nothing to do.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
}
