"""`sharegroups metrics`: its defaults, error messages and exit statuses."""

from __future__ import annotations

import json
import logging
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkValueError

from share_metrics.commands import ingest, metrics, moment, query_failure, report, time_of
from share_metrics.ingest import job
from share_metrics.ingest.job import Cluster, Ingested, Job
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.writing import TRIGGER_S, Source
from share_metrics.java import SparkStartError
from share_metrics.reader import EntryId
from share_metrics.report import Report
from share_metrics.spark.session import LOCAL
from tests.support.ports import free_port

REPLAY = ("replay", "--group", "g", "--topic", "t", "--partition", "0")


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize("command", ["ingest", "report", "replay"])
def test_a_command_without_its_options_is_a_mistake_of_usage(command: str) -> None:
    result = CliRunner().invoke(metrics, [command])
    assert result.exit_code == 2
    assert "Missing option" in result.output


@pytest.mark.rule("PM-39")
def test_a_store_that_is_not_there_ends_with_4(tmp_path: Path) -> None:
    store = f"redis://127.0.0.1:{free_port()}"
    for command in ([*REPLAY, "--store", store], ["ingest", "--store", store, "--data", str(tmp_path)]):
        result = CliRunner().invoke(metrics, command)
        assert result.exit_code == 4
        assert "does not answer" in result.output


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*REPLAY, "--store", "redis://:secret@h:1"], "holds a password"),
        ([*REPLAY, "--store", "redis://h:1", "--password-env", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE"),
        (["report", "--data", "d", "--out", "o", "--from", "2026-01-02", "--to", "2026-01-01"], "is not before"),
        (["report", "--data", "d", "--out", "o", "--to", "noon"], "'noon' is neither an ISO time"),
        (["ingest", "--store", "redis://h:1", "--data", "d", "--trigger", "-1"], "-1.0 is not in the range x>=0"),
        (["report", "--data", "d", "--out", "o", "--window", "5"], "'5' is not one of '1', '10', '60', '3600'"),
    ],
)
def test_a_mistake_in_the_options_ends_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(metrics, arguments)
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--textfile", "none/gauges.prom"], "there is no directory none to write gauges.prom into; make it, or give"),
        (["--metrics-port", "65536"], "65536 is not in the range"),
    ],
)
def test_where_gauges_cannot_be_shown_is_reported_before_the_store_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"redis://127.0.0.1:{free_port()}"
    result = CliRunner().invoke(metrics, ["ingest", "--store", store, "--data", "data", *options])
    assert result.exit_code in {1, 2}
    assert words in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Py4JError("An error occurred while trying to connect to the Java server"), "trying to connect to the Java"),
        (
            PySparkException("[X] x\n\tat org.apache.spark\nCaused by: java.io.EOFException: short"),
            "EOFException: short",
        ),
        (PySparkValueError("no such master"), "no such master"),
        (
            SparkStartError("Spark did not start with master local[2]: no"),
            "Spark did not start with master local[2]: no",
        ),
        (PermissionError(13, "Permission denied", "data/metrics"), "data/metrics cannot be used: Permission denied"),
    ],
)
def test_a_report_that_spark_fails_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(job, "collected", fail)
    result = CliRunner().invoke(
        metrics, ["report", "--engine", "spark", "--data", str(tmp_path), "--out", str(tmp_path / "report.html")]
    )
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert words in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.rule("PM-39")
def test_a_page_that_cannot_be_written_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "collected", lambda *_: Report("2026-11-22 08:00", "2026-11-22 09:00", 60, ()))
    result = CliRunner().invoke(metrics, ["report", "--engine", "spark", "--data", "data", "--out", "/dev/full"])
    assert result.exit_code == 1
    assert (
        result.output == "Error: /dev/full cannot be written: No space left on device; give another file with --out\n"
    )


@pytest.mark.rule("PM-39", "CM-73")
def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("share_metrics.") and "commands" not in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = CliRunner().invoke(metrics, [*REPLAY, "--store", "redis://h:1"])
    assert result.exit_code == 1
    assert result.output == "Error: 'metrics' needs the package 'pyarrow': in a clone, pip install '.[metrics]'\n"


@pytest.mark.rule("PM-3", "PM-35")
def test_a_job_runs_on_two_cores_of_this_machine_once_a_minute() -> None:
    """If spark-submit starts the job, it may set the master itself."""
    assert (Cluster().master, LOCAL) == (None, "local[2]")
    assert Job(Source("redis://h:1"), Path("data")).trigger_s == TRIGGER_S == 60
    given = ingest.make_context("ingest", ["--data", "d", "--store", "redis://h:1"]).params
    assert (given["master"], given["trigger"]) == (None, 60)
    assert report.make_context("report", ["--data", "d", "--out", "o"]).params["master"] is None


@pytest.mark.rule("PM-37")
def test_a_page_is_of_minutes_unless_set_otherwise() -> None:
    words = ("--data", "d", "--out", "o")
    assert report.make_context("report", list(words)).params["window"] == "60"
    for window in ("1", "10", "60", "3600"):
        assert report.make_context("report", [*words, "--window", window]).params["window"] == window


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_ingest_that_was_asked_to_end_says_what_is_there_and_that_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, status: int
) -> None:
    def run(*reported: object) -> Ingested:
        stop = reported[-1]
        assert isinstance(stop, Stop)
        stop.signal = number
        return Ingested({"group": 7}, 3)

    monkeypatch.setattr(job, "run", run)
    result = CliRunner().invoke(metrics, ["ingest", "--store", "redis://h:1", "--data", str(tmp_path)])
    assert result.exit_code == status
    assert result.stdout == f"group: 7 rows in {tmp_path}\n"
    assert result.stderr.startswith(f"3 entries of all that belongs into {tmp_path} were lost")


@pytest.mark.rule("PM-39")
def test_a_moment_is_a_time_or_an_entry() -> None:
    assert moment("17-3") == EntryId(17, 3)
    assert moment("2026-11-22T10:00") == datetime(2026, 11, 22, 10, tzinfo=UTC)
    assert time_of("2026-11-22T12:00+02:00").isoformat() == "2026-11-22T10:00:00+00:00"  # pages show times in UTC
    assert moment(None) is None


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("[X]\n  pkg.DataLossError: s lost entries: {}\nmore", 3, "s lost entries: {}"),
        ("\npkg.StoreUnreachableError: the store is away", 4, "the store is away"),
        ("\npkg.StoreReplyError: s: NOPERM no permission", 4, "s: NOPERM no permission"),
        (
            "\npkg.FolderError: d holds rows; restore those checkpoints\nmore",
            1,
            "d holds rows; restore those checkpoints",
        ),
        ("\npkg.NoClusterError: no cluster was made in it", 4, "no cluster was made in it"),
        (
            "\n  Python worker failed\n at x",
            1,
            "Spark says: Python worker failed (--conf spark.log.level=ERROR shows its stacks)",
        ),
    ],
)
def test_a_query_that_ends_is_one_line_and_an_exit_status(words: str, status: int, message: str) -> None:
    failure = query_failure(RuntimeError(words))
    assert failure.exit_code == status
    assert failure.message.endswith(message)
    assert failure.message.startswith("a query ended; ") or failure.message == message


@pytest.mark.rule("CM-218")
def test_warnings_have_the_form_of_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def warn() -> None:
        logging.getLogger("share_metrics.reader.store").warning("waiting up to %d s: %s", 5, "LOADING\x1b")

    monkeypatch.setitem(metrics.commands, "warn", click.Command("warn", callback=warn))
    monkeypatch.delenv("SHAREGROUPS_LOG_FORMAT", raising=False)
    entry = json.loads(CliRunner().invoke(metrics, ["warn"]).stderr)
    assert list(entry) == ["timestamp", "level", "event", "service", "logger"]
    assert entry["event"] == "waiting up to 5 s: LOADING\x1b"
    monkeypatch.setenv("SHAREGROUPS_LOG_FORMAT", "console")
    assert CliRunner().invoke(metrics, ["warn"]).stderr.endswith("Z WARNING waiting up to 5 s: LOADING\\x1b\n")
    monkeypatch.setenv("SHAREGROUPS_LOG_FORMAT", "xml")
    refused = CliRunner().invoke(metrics, ["warn"]).stderr
    assert "SHAREGROUPS_LOG_FORMAT is 'xml'; expected one of auto, json, text, console" in refused
    assert logging.getLogger("share_metrics").handlers == []
