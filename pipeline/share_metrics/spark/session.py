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
from .submitted import check_submitted, is_submitted, submitted_conf

#: Where Spark runs when nobody says it.
LOCAL: Final = "local[2]"
_PYTHON: Final = "spark.pyspark.python"


def build_session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session in UTC with the source `redis_streams`. Raises SparkStartError, of which NoJavaError is one.

    Without a `master` it is that of spark-submit, if that has started this program, else `local[2]`. With a local one
    (`local[…]`) it uses only the loopback; with a cluster, the address that SPARK_LOCAL_IP or the machine's name gives
    (PM-71). `settings` override what is set here, and so does what spark-submit was given.
    """
    given = dict(settings or {})
    with starting():
        try:
            told = submitted_conf() if is_submitted() else {}
            if told:
                master = check_submitted(told, master)
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            else:
                master = master or LOCAL
                _before_java(master, given)
            builder = SparkSession.builder.appName(name).master(master)
            for key, value in {**defaults(master), **told, **given}.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
        except SparkStartError:
            raise
        except Exception as error:
            raise SparkStartError(f"Spark did not start with master {master}: {cause(str(error))}") from error
    own_source(session)
    return session


def _before_java(master: str, given: Mapping[str, str]) -> None:
    """Check what can be checked, and set what Java and Python processes must find when they start."""
    check_master(master)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Otherwise workers may run a Python without this package; on other machines it may lie elsewhere.
    os.environ["PYSPARK_PYTHON"] = given.get(_PYTHON, sys.executable)
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def is_local(master: str) -> bool:
    """Whether Spark runs in this machine's own Java process alone."""
    return master == "local" or master.startswith("local[")


def defaults(master: str) -> dict[str, str]:
    """What is set unless somebody sets it otherwise."""
    return {**_SETTINGS, **_ON_ONE_MACHINE} if is_local(master) else dict(_SETTINGS)


def tasks_wanted(session: SparkSession) -> int:
    """Into how many tasks a trigger should be cut: two for each core that Spark has now, so that all end together.

    On a cluster an empty job comes first: Spark begins it when there are executors, as many as the setting
    `spark.scheduler.minRegisteredResourcesRatio` says. `spark.default.parallelism`, if it is set, stands for the cores.
    """
    if not is_local(session.sparkContext.master or LOCAL):
        session.range(1).count()
    return 2 * session.sparkContext.defaultParallelism


def own_source(session: SparkSession) -> None:
    """Register the source again, so that the next query does not share it with another query.

    Spark keeps one map of environment variables for each registration. It changes the map when a streaming query
    begins, and serialises it for each task. If two queries begin at once, one may change the map while a task of the
    other is serialised; that task cannot be read then (OptionalDataException).
    """
    session.dataSource.register(RedisStreams)


#: The Java option that silences Spark's logs, except for what `spark.log.level` asks for.
QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # When a query is stopped in the middle of a batch, Spark searches the error's text with a regular expression that
    # recurses for each character. With the default stack size the thread overflows for long texts. (Behind spark-submit
    # this comes too late: its Java runs already.)
    "spark.driver.extraJavaOptions": f"-Xss4m {QUIET}",
    # By default Spark waits without end for a query that does not stop.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    # Each function of a column would ask Java five times for where in Python it was called, which errors then name.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A reader with pushFilters fails while this is off, which is the default (PM-15).
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    # With a limit of bytes for a batch that goes to Python, Spark adds up the sizes of all columns at each row, which
    # takes 18 of 22 µs for a row of this package. At this value it does not; a batch has 10,000 rows at most in any
    # case.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647b",
}
#: The loopback; and Spark's default of 200 is for a cluster: here most of these tasks would have nothing to do.
_ON_ONE_MACHINE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
