"""The imports allowed to each layer of the pipeline: no Spark in the reader core, no store and no file in the
metrics."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import share_metrics
from kip932 import state_batches
from share_coordinator.core import share_state
from share_metrics.replay import replay, time_travel
from share_metrics.spark.source import RedisStreams
from tests.packaging.source_imports import imports, modules

SOURCE = Path(share_metrics.__file__).parent
#: Reads a stream and imports the read-back, in a process without Spark; prints the number of rows.
ALONE = """
import sys
sys.modules["pyspark"] = None  # as where it is not installed: an import fails
import share_metrics.replay.time_travel
from share_metrics.reader import EntryId, Kind, Position, Reader
from tests.support.pipeline_entries import STREAM, MemoryStream, epochs
from tests.unit.share_metrics.reader.memory_store import MemoryStore
reader = Reader(MemoryStore(MemoryStream(epochs(5))), Kind.SHARE_STATE)
plan = reader.plan({STREAM: Position(EntryId(0, 0), 0)}, reader.tips([STREAM]))[STREAM]
print(sum(batch.num_rows for batch in reader.read(plan.ranges)))
"""


def imported(*packages: str) -> Iterator[str]:
    """The names that the modules of these packages import, except from their own package."""
    for name, path in modules():
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            yield from (one for _, one in imports(name, path))


def called() -> set[str]:
    """The names of all methods called in the pipeline."""
    nodes = (node for path in SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}


@pytest.mark.rule("PM-1", "PM-3")
def test_the_reader_core_reads_where_there_is_no_spark() -> None:
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=False, cwd=root
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert not [one for one in imported("share_metrics.reader") if one.startswith("pyspark")]


@pytest.mark.rule("PM-1")
def test_metrics_know_no_store_and_no_file() -> None:
    """From the reader they use only names of columns and types."""
    allowed = (
        "__future__.", "collections.abc.", "datetime.", "typing.", "pyarrow", "pyspark.sql.", "share_metrics.metrics.",
        "share_metrics.reader.schemas.", "share_metrics.replay.replay.", "share_metrics.replay.measuring.",
        "share_metrics.replay.progress_rows.", "share_metrics.replay.tally_rows.",
        "share_metrics.replay.write_columns.",
    )  # fmt: skip
    found = set(imported("share_metrics.metrics"))
    assert found
    assert sorted(one for one in found if not one.startswith(allowed)) == []
    reads = {"read", "readStream", "write", "writeStream", "collect", "toPandas"}
    nodes = (node for path in SOURCE.glob("metrics/*.py") for node in ast.walk(ast.parse(path.read_text())))
    assert not {node.attr for node in nodes if isinstance(node, ast.Attribute)} & reads


@pytest.mark.rule("PM-2", "PM-33")
def test_no_window_is_made_of_a_stream_with_a_watermark() -> None:
    assert "foreachBatch" in called()
    assert not {"withWatermark", "dropDuplicatesWithinWatermark"} & called()
    assert not {"applyInPandasWithState", "transformWithState", "transformWithStateInPandas"} & called()


@pytest.mark.rule("PM-4")
def test_tables_are_arrows_and_not_those_of_pandas() -> None:
    found = {one for one in imported("share_metrics") if one.partition(".")[0] == "pandas"}
    assert found == set()
    assert not {"toPandas", "to_pandas", "applyInPandas", "mapInPandas", "pandas_udf"} & called()
    assert {"mapInArrow", "applyInArrow"} <= called()


@pytest.mark.rule("PM-32", "SR-31")
def test_a_replay_combines_as_the_share_coordinator_does() -> None:
    for module in (replay, time_travel, share_state):
        assert module.combine is state_batches.combine
        assert module.merge_into is state_batches.merge_into


@pytest.mark.rule("PM-67")
def test_neither_the_pipeline_nor_its_tests_use_spark_connect_or_helpers_for_spark() -> None:
    tests = Path(__file__).parents[2]
    ours = [path for kind in ("unit", "integration") for path in (tests / kind / "share_metrics").rglob("*.py")]
    assert len(ours) > 40
    found = {one for path in ours for _, one in imports("tests.of.share_metrics", path)} | set(
        imported("share_metrics")
    )
    strange = ("pyspark.sql.connect", "pyspark.pandas", "chispa", "pytest_spark", "pandas", "great_expectations")
    assert sorted(one for one in found if one.startswith(strange)) == []
    assert "pyspark.testing.assertDataFrameEqual" in found


@pytest.mark.rule("PM-71")
def test_the_source_lies_in_an_installed_package() -> None:
    """Worker processes cannot import a class of `__main__`."""
    assert RedisStreams.__module__ == "share_metrics.spark.source"


def found_in(folder: Path) -> Iterator[tuple[str, bool]]:
    """Each test below a folder, and whether it uses the Spark session."""
    for path in folder.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marked = any("'spark'" in ast.unparse(one) for one in node.decorator_list)
                asked = {argument.arg for argument in node.args.args}
                yield f"{path.name}::{node.name}", marked or bool({"spark", "ran", "ingested", "reported"} & asked)


@pytest.mark.rule("PM-66")
def test_most_tests_start_no_spark() -> None:
    tests = Path(__file__).parents[2]
    near = dict(found_in(tests / "unit" / "share_metrics"))
    far = dict(found_in(tests / "integration" / "share_metrics"))
    assert not any(near.values())
    with_spark = [name for name, asks in far.items() if asks]
    assert 50 < len(with_spark) < len(near) + len(far) - len(with_spark)
    batches = [name for name in with_spark if name.startswith(("test_source.py", "test_stream_reader.py"))]
    assert 0 < len(batches) < 10
    assert "test_demo_report.py::test_the_page_has_the_numbers_of_the_demos_own_account" in with_spark
    image = dict(found_in(tests / "image"))
    assert [name for name in image if name.endswith("test_it_keeps_every_entry_once_and_writes_a_page")]
