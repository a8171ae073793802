"""A page says why records were given up, from rows as they are ingested, and reads rows that have no reasons yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from kip932.failures import Failure
from kip932.ids import SharePartitionKey
from share_coordinator.core.records import ShareUpdate
from share_metrics.reader import Kind, schema_of
from share_metrics.report import collect, render
from share_metrics.report.model import REASONS_MAX
from tests.support.pipeline_entries import KEY, TOPIC, snapshot, update

from .frames import groups, states
from .story import at_time

OTHER = SharePartitionKey("G2", TOPIC, 0)


def saying(key: SharePartitionKey, *failures: Failure) -> ShareUpdate:
    return update(0, key=key)._replace(failures=failures)


@pytest.mark.rule("PM-94", "X11")
def test_the_most_frequent_kinds_are_listed_by_group_and_topic_and_all_others_summed(
    spark: SparkSession, tmp_path: Path
) -> None:
    rare = [Failure(100 + at, 100 + at, 1, f"Error{at}: <b>{at}</b>") for at in range(30)]
    rows = states(
        spark,
        [
            (1, snapshot(0)),
            (2, snapshot(0, key=OTHER)),
            (3, saying(KEY, Failure(0, 9, 1, "LookupError: no price\n  in pay"))),
            (4, saying(KEY, Failure(0, 4, 2, "LookupError: no\x1b[31m price\n  in pay"))),
            (5, saying(OTHER, Failure(0, 6, 1, "LookupError: of another group"))),
            (70, saying(OTHER, *rare)),
        ],
    )
    archived = str(tmp_path / "rows")
    rows.write.parquet(archived)
    again = spark.read.schema(from_arrow_schema(schema_of(Kind.SHARE_STATE))).parquet(archived)
    found = collect(again, groups(spark, []), at_time(0), at_time(120))
    first, second, *others, last = found.reasons
    assert (first["kind"], first["group_id"], first["records"]) == ("LookupError", "G1", 15)
    assert first["example"] == "LookupError: no\x1b[31m price"
    assert (second["kind"], second["group_id"], second["records"]) == ("LookupError", "G2", 7)
    assert len(others) == REASONS_MAX - 2
    assert (last["kind"], last["records"]) == (None, 30 - len(others))
    page = render(found)
    assert "LookupError: no\\x1b[31m price" in page
    assert "Error0: &lt;b&gt;0&lt;/b&gt;" in page


@pytest.mark.rule("PM-94", "PM-20")
def test_rows_of_an_earlier_build_have_no_reasons_and_a_page(spark: SparkSession, tmp_path: Path) -> None:
    older = str(tmp_path / "rows")
    states(spark, [(1, snapshot(0)), (2, saying(KEY, Failure(0, 9, 1, "LookupError")))]).drop("failures").write.parquet(
        older
    )
    rows = spark.read.schema(from_arrow_schema(schema_of(Kind.SHARE_STATE))).parquet(older)
    found = collect(rows, groups(spark, []), at_time(0), at_time(60))
    assert found.reasons == []
    assert "<h2>Why records were given up</h2>" in render(found)
