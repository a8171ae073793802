"""One server and one Spark session for all tests of the pipeline; every test starts with an empty store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from pyspark.sql import SparkSession

from share_metrics.ingest import job
from share_metrics.java import NoJavaError, java_home
from share_metrics.spark import build_session
from share_metrics.spark.session import QUIET

from .spark_home import unpacked_home
from .world import World, running

#: The garbage collector and compiler that suit short-lived processes.
SHORT_LIVED: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# As small as Spark gets (PM-66): one worker, no adaptive plans, no generated code.
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.driver.memory": "700m",
    "spark.driver.extraJavaOptions": f"{SHORT_LIVED} -Xss2m {QUIET}",
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


def small_session(name: str, master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Call `build_session` and keep the session as small as it is.

    A command that finds a session reuses it and applies its own settings to it, which would last for all later tests.
    """
    return build_session(name, master or "local[1]", {**(settings or {}), **SMALL})


@pytest.fixture(scope="session", autouse=True)
def _small_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The settings that every Spark of these tests starts with, in this process and in others."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_HOME", str(unpacked_home(tmp_path_factory.mktemp("spark"))))
        patched.setenv("SPARK_SUBMIT_OPTS", SHORT_LIVED)
        yield


@pytest.fixture(scope="session")
def spark(_small_spark: None) -> Iterator[SparkSession]:
    """The only session; no test stops or replaces it, and commands in this process run in it."""
    try:
        java_home()
    except NoJavaError as error:
        pytest.skip(str(error))
    session = small_session("share-metrics-tests")
    session.range(1).collect()  # the first query is slow; the fixture runs it so that no test pays for it
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(job, "build_session", small_session)
        yield session
    session.stop()
