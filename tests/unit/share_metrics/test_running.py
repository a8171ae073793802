"""Queries that end for a temporary reason are restarted, a few times; others are not."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from share_metrics.archive.row_files import RowFiles
from share_metrics.ingest import writing
from share_metrics.ingest.writing import Running
from share_metrics.reader import Kind

KIND = Kind.SHARE_STATE


class Time:
    """A clock that advances only by pauses."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def running_of(begin: Begin, *more: Kind, reported: list[str] | None = None, away_max_s: float = 0.0) -> Running:
    def again(kind: Kind, pause_s: float, why: str) -> None:
        if reported is not None:
            reported.append(f"{kind} {pause_s:g} {why}")

    time = Time()
    return Running([KIND, *more], begin, again, away_max_s, time, time.pause)


AWAY = "StoreUnreachableError: the store at h:1 does not answer"
LATE = "Python worker failed to connect back: for an unknown reason"
TWO = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7."


class Query:
    """A query that ends as specified: with or without an error, before or after any progress."""

    def __init__(self, error: str = "", progress: dict[str, Any] | None = None) -> None:
        self._error = error
        self.lastProgress = progress
        self.stopped = False

    def awaitTermination(self, _seconds: int) -> bool:  # noqa: N802 - Spark's name
        if self._error:
            raise StreamingQueryException(self._error)
        return True

    def stop(self) -> None:
        self.stopped = True


class Begin:
    """Starts queries from a list; a string in it is an error that the start itself raises."""

    def __init__(self, *made: Query | str) -> None:
        self.left = list(made)

    def __call__(self, _kind: Kind) -> Any:
        found = self.left.pop(0)
        if isinstance(found, str):
            raise PySparkException(found)
        return found


@pytest.mark.rule("PM-2")
def test_each_kind_of_record_has_a_query_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Kind] = []

    def query(*reported: Any) -> Query:
        begun.append(reported[3])
        return Query()

    monkeypatch.setattr(RowFiles, "sweep", lambda *_: None)
    monkeypatch.setattr(writing, "_query", query)
    nothing: Any = None
    running = writing.start(nothing, writing.Source("redis://h:1"), tmp_path, list(Kind))
    assert begun == list(running.queries) == list(Kind)
    assert len({id(query) for query in running.queries.values()}) == len(Kind)


@pytest.mark.rule("PM-36")
def test_what_passes_is_waited_for_wherever_it_came_up() -> None:
    begin = Begin(LATE, Query(LATE), LATE, Query(TWO), Query())
    reported: list[str] = []
    running = running_of(begin, reported=reported)
    assert not running.wait(1)
    assert not running.wait(1)
    assert running.wait(1)
    assert begin.left == []
    assert reported == [f"{KIND} 0 {words}" for words in (LATE, LATE, LATE, TWO)]


@pytest.mark.rule("PM-36")
def test_a_store_that_is_away_is_waited_for_between_two_checks_of_the_job() -> None:
    other = Query()
    begin = Begin(Query(AWAY), other, Query(AWAY, {"batchId": 7}), Query(AWAY), Query())
    reported: list[str] = []
    running = running_of(begin, Kind.GROUP, reported=reported, away_max_s=300)
    for left in (3, 2, 2, 1, 1, 1, 0):  # ended; restarted after 1 s, ended; after 1 s again, since it progressed; 2 s
        assert not running.wait(1)
        assert len(begin.left) == left
    assert not other.stopped
    assert running.wait(1)
    assert reported == [f"{KIND} {pause_s} the store at h:1 does not answer" for pause_s in (1, 1, 2)]


@pytest.mark.rule("PM-36")
@pytest.mark.parametrize(("once", "pauses"), [(False, [*(1, 2, 4, 8, 16), *[30] * 8, 29]), (True, [])])
def test_a_continuous_ingest_waits_five_minutes_and_one_that_is_to_end_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool, pauses: list[int]
) -> None:
    time = Time()
    reported: list[float] = []
    monkeypatch.setattr(RowFiles, "sweep", lambda *_: None)
    monkeypatch.setattr(writing, "_query", lambda *_: Query(AWAY))
    monkeypatch.setattr(writing, "Running", partial(Running, clock=time, pause=time.pause))
    nothing: Any = None
    watch = writing.Watch(again=lambda kind, pause_s, why: reported.append(pause_s))
    running = writing.start(nothing, writing.Source("redis://h:1"), tmp_path, [KIND], once=once, watch=watch)
    with pytest.raises(StreamingQueryException, match="does not answer"):
        assert not any(running.wait(1) for _ in range(1_000))
    assert reported == pauses
    assert time.now_s == 50 + sum(pauses)


@pytest.mark.rule("PM-39")
def test_a_store_that_stays_away_ends_the_job() -> None:
    running = running_of(Begin(*[Query(AWAY) for _ in range(4)]), away_max_s=5)
    for _ in range(8):
        assert not running.wait(1)
    with pytest.raises(StreamingQueryException, match="does not answer"):
        running.wait(1)


def test_no_worker_is_waited_for_for_ever() -> None:
    with pytest.raises(PySparkException, match="failed to connect back"):
        running_of(Begin(*[LATE] * 5))
    begin = Begin(*[Query(LATE) for _ in range(6)])
    running = running_of(begin)
    for _ in range(4):
        assert not running.wait(1)
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        running.wait(1)
    assert len(begin.left) == 1


def test_a_query_that_gets_somewhere_may_be_late_as_often_as_it_likes() -> None:
    begin = Begin(*[Query(LATE, {"batchId": number}) for number in range(9)], Query())
    running = running_of(begin)
    for _ in range(9):
        assert not running.wait(1)
    assert running.wait(1)


def test_what_ends_a_query_otherwise_is_raised_and_the_others_are_stopped() -> None:
    first = Query()
    with pytest.raises(PySparkException, match="no such source"):
        running_of(Begin(first, "no such source"), Kind.GROUP)
    assert first.stopped
    with pytest.raises(StreamingQueryException, match="disk full"):
        running_of(Begin(Query("disk full"))).wait(1)


@pytest.mark.rule("PM-39")
def test_a_query_that_cannot_be_stopped_hides_nothing_and_the_others_are_stopped() -> None:
    class Stuck(Query):
        def stop(self) -> None:
            raise Py4JError("Answer from Java side is empty")

    other = Query()
    running = running_of(Begin(Stuck(), other), Kind.GROUP)
    assert running.stop() == [f"{KIND} could not be stopped: Answer from Java side is empty"]
    assert other.stopped
