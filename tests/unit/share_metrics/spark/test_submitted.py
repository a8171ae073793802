"""The settings of a session when spark-submit has started the program, on a cluster, and on one machine."""

from __future__ import annotations

import pytest

from share_metrics.ingest.writing import Source
from share_metrics.java import SparkStartError, is_submitted
from share_metrics.reader import Kind
from share_metrics.spark.options import read_options
from share_metrics.spark.session import check_submitted, defaults, is_local

REPORTED = {"spark.master": "spark://h:7077", "spark.app.name": "night"}


def test_a_program_that_was_not_submitted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    assert is_submitted()


@pytest.mark.parametrize("master", [None, "spark://h:7077"])
def test_the_master_is_that_of_spark_submit(master: str | None) -> None:
    assert check_submitted(REPORTED, master) == "spark://h:7077"


def test_a_command_that_names_another_master_is_refused() -> None:
    with pytest.raises(
        SparkStartError, match=r"runs this with master spark://h:7077, .* --master local\[2\]; leave out"
    ):
        check_submitted(REPORTED, "local[2]")


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[4]", True),
        ("local-cluster[2,1,512]", False),
        ("spark://h:1", False),
        ("k8s://h", False),
    ],
)
def test_settings_of_one_machine_are_set_on_one_machine_alone(master: str, local: bool) -> None:
    assert is_local(master) == local
    one_machine = {"spark.driver.host", "spark.driver.bindAddress", "spark.sql.shuffle.partitions"}
    assert one_machine & defaults(master).keys() == (one_machine if local else set())
    assert defaults(master)["spark.sql.session.timeZone"] == "UTC"
    assert defaults(master)["spark.sql.python.filterPushdown.enabled"] == "true"


@pytest.mark.parametrize(("tasks", "rows"), [(2, 300_000), (4, 300_000), (80, 6_000_000)])
def test_a_full_trigger_has_work_for_every_task(tasks: int, rows: int) -> None:
    """The same holds for a single long stream, which is cut into as many ranges."""
    reported = read_options(Source("redis://h:1", reader_name="").split_into(tasks).options(Kind.SHARE_STATE))
    assert (reported.num_partitions, reported.max_rows_per_trigger) == (tasks, rows)
    assert reported.split_entries * tasks == rows


def test_a_limit_of_rows_that_a_user_has_set_stays() -> None:
    assert Source("redis://h:1", max_rows_per_trigger=100).split_into(80).max_rows_per_trigger == 100


def test_who_says_nothing_leaves_that_to_the_source() -> None:
    assert {"numPartitions", "splitEntries"} & Source("redis://h:1").options(Kind.GROUP).keys() == set()
