"""How a job ends: the cause of a query's end gives the exit status, whatever fails afterwards. Without Spark and
store."""

from __future__ import annotations

import shutil
import signal
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from share_metrics.archive.folders import FolderError, checkpoints
from share_metrics.commands import query_failure
from share_metrics.gauges.gauges import Gauges
from share_metrics.ingest import job
from share_metrics.ingest.job import Cluster, Job, QueryError
from share_metrics.ingest.read_up_to import Note, read_up_to
from share_metrics.ingest.stopping import Stop
from share_metrics.ingest.store_clock import StoreClock
from share_metrics.ingest.writing import KINDS, Running, Source
from share_metrics.reader import Kind
from tests.unit.share_metrics.ingest.test_read_up_to import NOON, progress

from .test_running import Begin, Query

LOST = "\npkg.DataLossError: s lost 7 entries"


class Stuck(Query):
    """A query that cannot be stopped."""

    def stop(self) -> None:
        raise Py4JError("Answer from Java side is empty")


class Streams:
    """A reader of existing streams."""

    def __init__(self, *_: object) -> None: ...

    def streams(self) -> None: ...


def nothing(*_: object) -> Any:
    return None


class Ending:
    """A job of one query, during which the directory of its text file is removed."""

    def __init__(self, patched: pytest.MonkeyPatch, folder: Path, query: Query, *more: Query) -> None:
        self.reported: list[str] = []
        self.begun: datetime | None = None
        self._queries = dict(zip(KINDS, (query, *more), strict=False))
        self._folder = folder
        self._gauges = folder / "gauges"
        self._gauges.mkdir()
        for name in ("build_session", "java_pid", "compact", "note_topics", "note_group_configs", "note_store_memory"):
            patched.setattr(job, name, nothing)
        patched.setattr(Source, "store", lambda *_: nullcontext())
        patched.setattr(job, "Reader", Streams)
        patched.setattr(job, "tasks_wanted", lambda _: 4)
        patched.setattr(job, "Sampler", lambda *_: nothing)
        patched.setattr(job, "cluster_id", lambda _: "c")
        patched.setattr(StoreClock, "ask", nothing)
        patched.setattr(job, "start", self._start)

    def _start(self, *_: object, **__: object) -> Running:
        shutil.rmtree(self._gauges)
        self.begun = datetime.now(UTC)
        return Running([*self._queries], Begin(*self._queries.values()), lambda kind, pause_s, why: None)

    def run(self, *, once: bool = True, stopped: bool = False) -> None:
        asked = Job(Source("redis://h:1", reader_name="", max_rows_per_trigger=100), self._folder / "data", once)
        stop = Stop()
        stop.signal = signal.SIGTERM if stopped else None
        job.run(asked, job.Exposition(textfile=self._gauges / "gauges.prom"), Cluster(), self.reported.append, stop)


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("query", "lines"),
    [
        (Query(LOST), ["gauges.prom cannot be written: No such file or directory; give another file"]),
        (
            Stuck(LOST),
            [f"{Kind.SHARE_STATE} could not be stopped: Answer from Java side is empty", "gauges.prom cannot"],
        ),
    ],
    ids=["text-file", "stop"],
)
def test_what_ended_a_query_is_not_hidden_by_what_fails_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Query, lines: list[str]
) -> None:
    ending = Ending(monkeypatch, tmp_path, query)
    with pytest.raises(QueryError) as error:
        ending.run()
    assert query_failure(error.value).exit_code == 3
    for words, line in zip(lines, ending.reported[-len(lines) :], strict=True):
        assert words in line


class Endless(Query):
    """Never ends; its last batch was small, and planned this many seconds after noon."""

    def __init__(self, seconds: float) -> None:
        super().__init__(progress=progress(seconds, (7, 9)))

    def awaitTermination(self, _seconds: int) -> bool:  # noqa: N802 - Spark's name
        return False


def noted(folder: Path) -> datetime | None:
    return read_up_to(folder / "data", datetime.now(UTC))


@pytest.mark.rule("PM-37")
def test_a_job_that_ended_with_all_there_was_notes_the_time_before_its_queries_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = datetime.now(UTC)
    ending = Ending(monkeypatch, tmp_path, Query(progress=progress(60, (7, 9))), Query(progress=progress(60)))
    with pytest.raises(FolderError):  # from the text file, after everything else
        ending.run()
    at = noted(tmp_path)
    assert at is not None
    assert ending.begun is not None
    assert before <= at <= ending.begun


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize(
    ("queries", "stopped", "error"),
    [([Query(LOST)], False, QueryError), ([Endless(60), Endless(50)], True, FolderError)],
    ids=["lost", "stopped"],
)
def test_a_job_that_was_to_end_and_did_not_notes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: list[Query], stopped: bool, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Ending(monkeypatch, tmp_path, *queries).run(stopped=stopped)
    assert noted(tmp_path) is None


@pytest.mark.rule("PM-37")
def test_a_job_that_goes_on_notes_what_its_slowest_query_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FolderError):
        Ending(monkeypatch, tmp_path, Endless(60), Endless(50)).run(once=False, stopped=True)
    assert noted(tmp_path) == NOON + timedelta(seconds=50)


@pytest.mark.rule("PM-36", "PM-37")
@pytest.mark.parametrize("done", [KINDS, KINDS[:1]], ids=["all there", "one removed"])
def test_what_was_noted_of_rows_that_a_user_has_removed_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: tuple[Kind, ...]
) -> None:
    for kind in done:
        commits = checkpoints(tmp_path / "data", kind) / "commits"
        commits.mkdir(parents=True)
        (commits / "0").touch()
    Note(tmp_path / "data", 100, print).move(NOON)
    with pytest.raises(QueryError):
        Ending(monkeypatch, tmp_path, Query(LOST)).run()
    assert noted(tmp_path) == (NOON if done == KINDS else None)


@pytest.mark.rule("PM-107")
@pytest.mark.parametrize(
    ("query", "error"), [(Query(progress=progress(60)), FolderError), (Query(LOST), QueryError)], ids=["idle", "lost"]
)
def test_rows_of_earlier_runs_are_read_for_gauges_once_the_queries_have_begun_even_if_one_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Query, error: type[Exception]
) -> None:
    ending = Ending(monkeypatch, tmp_path, query, Query(progress=progress(60)))
    taken: list[tuple[Kind, bool]] = []
    monkeypatch.setattr(job, "visible", lambda *_: ["rows"])
    monkeypatch.setattr(
        Gauges, "take", lambda _, kind, rows, *, kept: taken.append((kind, kept and ending.begun is not None))
    )
    monkeypatch.setattr(job, "stored", nothing)
    with pytest.raises(error):
        ending.run(once=False, stopped=True)
    assert taken == [(kind, True) for kind in KINDS]


@pytest.mark.rule("PM-38", "PM-39")
def test_a_text_file_that_cannot_be_written_ends_a_job_that_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FolderError, match="give another file with --textfile"):
        Ending(monkeypatch, tmp_path, Query()).run()
