"""Starts a Spark session with the settings that this package needs, found by experiment (PM-66, PM-70).

It finds causes of failure before Spark starts, and takes the options of a spark-submit that started this program.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from share_metrics.causes import cause
from share_metrics.java import SparkStartError, is_submitted, java_home
from share_metrics.spark.source import RedisStreams

#: Where Spark runs by default.
LOCAL: Final = "local[2]"
_PYTHON: Final = "spark.pyspark.python"
_MASTER: Final = "spark.master"
_APP_NAME: Final = "spark.app.name"
#: The masters that Spark supports.
_MASTERS: Final = re.compile(r"local(?:\[(?:\d+|\*)(?:,\d+)?\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")
_STANDALONE: Final = "spark://"
#: How long, in seconds, a standalone master may take to accept a connection.
_MASTER_ANSWER_S: Final = 5.0
#: The Java option that silences Spark's logs, except for what `spark.log.level` asks for.
QUIET: Final = f'"-Dlog4j2.configurationFile={Path(__file__).with_name("log4j2.properties")}"'
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # When a query is stopped in the middle of a batch, Spark searches the error's text with a regular expression that
    # recurses for each character. With the default stack size the thread overflows for long texts. (With spark-submit
    # this comes too late, since its Java is already running.)
    "spark.driver.extraJavaOptions": f"-Xss4m {QUIET}",
    # By default Spark waits forever for a query that does not stop.
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.session.timeZone": "UTC",
    # If enabled, each column function calls Java five times to record its call site in Python, so that errors can name
    # it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A reader with pushFilters fails while this is off, which is the default (PM-15).
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    # With a byte limit for the batches sent to Python, Spark adds up the sizes of all columns at each row, which takes
    # 18 of the 22 µs for one of our rows. With this value it does not. A batch has at most 10,000 rows anyway.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647b",
}
#: Use the loopback, and fewer shuffle tasks: Spark's default of 200 is for a cluster, and most would be empty here.
_ON_ONE_MACHINE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
#: Settings that this package needs regardless of a cluster's defaults: windows and hours are UTC.
_REQUIRED: Final = frozenset({"spark.sql.session.timeZone", "spark.sql.python.filterPushdown.enabled"})


def build_session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session in UTC with the source `redis_streams`. Raises SparkStartError or its subclass NoJavaError.

    Without a `master`, the master is that of spark-submit if it started this program, else `local[2]`. With a local
    master (`local[…]`) the session uses only the loopback; with a cluster, the address that SPARK_LOCAL_IP or the
    machine's name gives (PM-71). `settings` override the defaults set here and the options of spark-submit, which
    override the defaults too.
    """
    given = dict(settings or {})
    with spark_starting():
        try:
            submitted = submitted_conf() if is_submitted() else {}
            if submitted:
                master = check_submitted(submitted, master)
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            else:
                master = master or LOCAL
                _before_java(master, given)
            builder = SparkSession.builder.appName(name).master(master)
            for key, value in {**defaults(master), **submitted, **given}.items():
                builder = builder.config(key, value)
            session = builder.getOrCreate()
        except SparkStartError:
            raise
        except Exception as error:
            raise SparkStartError(f"Spark did not start with master {master}: {cause(str(error))}") from error
    own_source(session)
    return session


def _before_java(master: str, given: Mapping[str, str]) -> None:
    """Check the master, find Java, and set the environment variables for the Java and Python processes to start."""
    check_master(master)
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    # Otherwise workers may run a Python without this package. If its path differs on other machines, `given` has it.
    os.environ["PYSPARK_PYTHON"] = given.get(_PYTHON, sys.executable)
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def submitted_conf() -> dict[str, str]:
    """The settings of spark-submit: its options, `--conf`, and the cluster's own defaults; none that are _REQUIRED."""
    SparkContext._ensure_initialized()
    submitted = {key: value for key, value in SparkConf().getAll() if key not in _REQUIRED}
    if submitted.get(_APP_NAME, "").endswith(".py"):  # no name was given, so Spark uses the file's
        del submitted[_APP_NAME]
    return submitted


def check_submitted(submitted: Mapping[str, str], master: str | None) -> str:
    """The master that spark-submit has chosen. Raises SparkStartError if the command names another one."""
    chosen = submitted[_MASTER]
    if master not in {None, chosen}:
        raise SparkStartError(
            f"spark-submit runs this with master {chosen}, but the command says --master {master}; leave out the "
            f"latter, or give it to spark-submit instead"
        )
    return chosen


def check_master(master: str) -> None:
    """Raise SparkStartError for a master that Spark does not support, or a standalone master that does not answer.

    Spark itself would retry for more than a minute, and fail with a stack trace that does not name the address.
    """
    if not _MASTERS.fullmatch(master):
        raise SparkStartError(f"{master!r} is not a master that Spark supports; try local[2] or spark://HOST:7077")
    if not master.startswith(_STANDALONE):
        return
    reasons = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not (host and port.isdecimal()):
            raise SparkStartError(f"{master!r} does not say where the master is; try spark://HOST:7077")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_MASTER_ANSWER_S).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise SparkStartError(f"no master of Spark answers at {', '.join(reasons)}; is it started, is --master right?")


def is_local(master: str) -> bool:
    """Return whether Spark runs in a single Java process on this machine."""
    return master == "local" or master.startswith("local[")


def defaults(master: str) -> dict[str, str]:
    """The default settings for a master."""
    return {**_SETTINGS, **_ON_ONE_MACHINE} if is_local(master) else dict(_SETTINGS)


@contextmanager
def spark_starting() -> Iterator[None]:
    """Start Spark inside the block. On failure, ends the processes that it started. Restores the handler of Ctrl-C.

    A Java process that is abandoned while it starts would never end. Spark's own handler of Ctrl-C calls Java in the
    middle of another call, which breaks the connection to Java and prints tracebacks.
    """
    before, main = _children(), threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main else None  # also None if the handler was not set from Python
    try:
        yield
    except BaseException:
        for pid in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _children() -> set[int]:
    """The live processes that this thread has started; empty where the system does not show them."""
    try:
        return {int(pid) for pid in Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()}
    except OSError:
        return set()


def tasks_wanted(session: SparkSession) -> int:
    """How many tasks a trigger should have: two for each core that Spark has now, so that all end together.

    On a cluster it first runs a trivial job, which Spark starts once there are as many executors as the setting
    `spark.scheduler.minRegisteredResourcesRatio` says. If `spark.default.parallelism` is set, it is used as the number
    of cores.
    """
    if not is_local(session.sparkContext.master or LOCAL):
        session.range(1).count()
    return 2 * session.sparkContext.defaultParallelism


def java_pid(session: SparkSession) -> int:
    """The id of the Java process that the session runs in."""
    java: Any = session.sparkContext._jvm  # Spark has no public name for its bridge
    return int(java.java.lang.ProcessHandle.current().pid())


def own_source(session: SparkSession) -> None:
    """Register the source again, so that the next query does not share it with another query.

    Spark keeps one map of environment variables for each registration. It changes the map when a streaming query
    starts, and serialises it for each task. If two queries start at once, one may change the map while a task of the
    other is serialised, and that task then cannot be read (OptionalDataException).
    """
    session.dataSource.register(RedisStreams)
