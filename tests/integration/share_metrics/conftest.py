"""One server and one Spark session for all tests of the pipeline; every test begins with an empty store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from pyspark.sql import SparkSession

from share_metrics import job
from share_metrics.java import NoJavaError, java_home
from share_metrics.spark import build_session
from share_metrics.spark.session import QUIET

from .world import World, running

# As small as Spark gets (PM-66): one worker, no adaptive plans, no generated code, and a garbage collector
# and a compiler for short lives.
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m {QUIET}",
}


@pytest.fixture(scope="session")
def server() -> Iterator[World]:
    """The server that all tests share."""
    with running() as world:
        yield world


@pytest.fixture
def world(server: World) -> World:
    """An empty store."""
    server.clear()
    return server


def small_session(name: str, master: str = "local[1]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """`build_session` that leaves the session as small as it is.

    A command that finds a session takes it, and sets in it what the command would begin one with: for all tests behind
    it too.
    """
    return build_session(name, master, {**(settings or {}), **SMALL})


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The only session; no test stops or replaces it, and commands in this process run in it."""
    try:
        java_home()
    except NoJavaError as error:
        pytest.skip(str(error))
    session = small_session("share-metrics-tests")
    session.range(1).collect()  # the first query is slow; that is the session's cost, not some test's
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(job, "build_session", small_session)
        yield session
    session.stop()
