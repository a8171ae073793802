"""The code blocks of docs/pipeline.md, run on a real store as written, except for the store's address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

import share_metrics.spark
from tests.support.pipeline_entries import snapshot, update

from .conftest import small_session
from .world import Log, World

PAGE: Final = Path(__file__).parents[3] / "docs" / "pipeline.md"
STORE: Final = "redis://127.0.0.1:6379"


def code(heading: str, world: World) -> list[str]:
    """Return the Python blocks in a section of the page, with the address of this store."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [block.replace(STORE, world.url) for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL)]


@pytest.fixture
def filled(world: World) -> World:
    """A store with two share-state streams and an update in each."""
    world.make_cluster(state_shards=2)
    for number in range(2):
        Log(world, f"{{sgs:{number}}}:log").state(snapshot(0), update(5))
    return world


def test_reading_without_spark(filled: World, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = code("Reading without Spark", filled)
    exec(compile(block, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.count("'record_type': 'update'") == 2


def test_reading_in_spark(
    spark: SparkSession, filled: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`build_session` reuses the existing session, and leaves it as small as it is."""
    monkeypatch.setattr(share_metrics.spark, "build_session", small_session)
    exec(compile(code("In Spark", filled)[0], str(PAGE), "exec"), {})
    assert "|      G1|    2|" in capsys.readouterr().out


@pytest.fixture
def own(spark: SparkSession) -> Iterator[Any]:
    """An active session that `build_session` did not make, such as a notebook's.

    Spark looks for a source of that name in the active session before it registers one.
    """
    sessions: Any = spark.sparkContext._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    made = spark.newSession()
    made.conf.set("spark.sql.python.filterPushdown.enabled", "false")  # Spark's default
    sessions.setActiveSession(made._jsparkSession)
    yield made
    sessions.setActiveSession(spark._jsparkSession)


@pytest.mark.rule("PM-15")
def test_the_source_in_a_session_of_ones_own(own: Any, filled: World) -> None:
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        own.read.format("redis_streams").options(url=filled.url, kind="share_state").load()
    exec(compile(code("In Spark", filled)[1], str(PAGE), "exec"), {"spark": own})
    rows = own.read.format("redis_streams").options(url=filled.url, kind="share_state").load()
    assert rows.where("stream = '{sgs:1}:log'").count() == 3
