"""How a job ends: what ended a query gives the exit status, whatever fails behind it. Without Spark and a store."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError

from share_metrics import job
from share_metrics.commands import query_failure
from share_metrics.folders import FolderError
from share_metrics.ingest import Running, Source
from share_metrics.job import Cluster, Job, QueryError
from share_metrics.read_up_to import read_up_to
from share_metrics.reader import Kind

from .test_running import Begin, Query

LOST = "\npkg.DataLossError: s lost 7 entries"


class Stuck(Query):
    """Cannot be stopped."""

    def stop(self) -> None:
        raise Py4JError("Answer from Java side is empty")


class Streams:
    """A store's that are there."""

    def __init__(self, *_: object) -> None: ...

    def streams(self) -> None: ...


def nothing(*_: object) -> Any:
    return None


class Ending:
    """A job of one query; its text file's directory goes away meanwhile."""

    def __init__(self, patched: pytest.MonkeyPatch, folder: Path, query: Query) -> None:
        self.told: list[str] = []
        self._query = query
        self._folder = folder
        self._gauges = folder / "gauges"
        self._gauges.mkdir()
        for name in ("build_session", "compact"):
            patched.setattr(job, name, nothing)
        patched.setattr(job, "Store", lambda *_: nullcontext())
        patched.setattr(job, "Reader", Streams)
        patched.setattr(job, "cluster_id", lambda _: "c")
        patched.setattr(job, "start", self._start)

    def _start(self, *_: object, **__: object) -> Running:
        shutil.rmtree(self._gauges)
        return Running([Kind.SHARE_STATE], Begin(self._query), lambda kind, pause_s, why: None)

    def run(self) -> None:
        asked = Job(Source("redis://h:1", reader_name=""), self._folder / "data")
        job.run(asked, job.Exposition(textfile=self._gauges / "gauges.prom"), Cluster(), self.told.append)


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize(
    ("query", "told"),
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: Query, told: list[str]
) -> None:
    ending = Ending(monkeypatch, tmp_path, query)
    with pytest.raises(QueryError) as error:
        ending.run()
    assert query_failure(error.value).exit_code == 3
    for words, line in zip(told, ending.told[-len(told) :], strict=True):
        assert words in line


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize("lost", [False, True], ids=["all", "not all"])
def test_a_job_that_ended_with_all_there_was_notes_up_to_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    begun = datetime.now(UTC)
    with pytest.raises(QueryError if lost else FolderError):  # of the text file, behind everything else
        Ending(monkeypatch, tmp_path, Query(LOST if lost else "")).run()
    at = read_up_to(tmp_path / "data", datetime.now(UTC))
    assert at is None if lost else at is not None and begun <= at


@pytest.mark.rule("PM-38", "PM-39")
def test_a_text_file_that_cannot_be_written_ends_a_job_that_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FolderError, match="give another file with --textfile"):
        Ending(monkeypatch, tmp_path, Query()).run()
