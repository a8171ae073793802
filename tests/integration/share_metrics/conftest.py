"""One server and one Spark session for all tests of the pipeline; every test begins with an empty store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from share_metrics.java import NoJavaError, java_home
from share_metrics.spark import build_session

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
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss2m",
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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The only session; no test stops or replaces it."""
    try:
        java_home()
    except NoJavaError as error:
        pytest.skip(str(error))
    session = build_session("share-metrics-tests", "local[1]", SMALL)
    session.range(1).collect()  # the first query is slow; that is the session's cost, not some test's
    yield session
    session.stop()
