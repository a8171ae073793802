"""Spans in which an ingest read nothing: what counts as one, who records it, and what a reader of the record gets."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from share_metrics.ingest.outages import SPANS_MAX, LastRead, Outages, Span, added, spans

NOON = datetime(2025, 11, 22, 12, tzinfo=UTC)
NOON_S = round(NOON.timestamp())
DAY = timedelta(days=1)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def between(since_s: int, until_s: int) -> Span:
    return NOON_S + since_s, NOON_S + until_s


def progress(seconds: float) -> dict[str, object]:
    return {"timestamp": f"{at(seconds):%Y-%m-%dT%H:%M:%S}.000Z"}


def seen(data: Path, now_s: float) -> list[Span]:
    return spans(data, NOON - DAY, NOON + DAY, at(now_s))


class Reads:
    """A job of a directory; reports are collected."""

    def __init__(self, data: Path, trigger_s: float | None = 60.0) -> None:
        self.data = data
        self.reported: list[str] = []
        self.record = Outages(data, trigger_s, self.reported.append)

    def read(self, *seconds: float, full: bool = False) -> list[Span]:
        """Read at these times, and return the outages as of the last of them."""
        for one in seconds:
            self.record.read(at(one), full=full)
        return seen(self.data, seconds[-1])


@pytest.mark.rule("PM-105")
def test_a_read_after_more_than_two_triggers_ends_an_outage(tmp_path: Path) -> None:
    job = Reads(tmp_path)
    assert job.read(0, 60, 180) == [], "two triggers"
    assert job.read(301) == [between(180, 301)]
    assert job.record.read(at(361)) is None
    assert job.record.read(at(500)) == ((NOON_S + 361) * 1000, (NOON_S + 500) * 1000), "for the log"
    assert seen(tmp_path, 500) == [between(180, 301), between(361, 500)]


@pytest.mark.rule("PM-105")
def test_short_triggers_need_a_minute_without_a_read(tmp_path: Path) -> None:
    assert Reads(tmp_path, 1).read(0, 60) == []
    assert Reads(tmp_path, 1).read(121) == [between(60, 121)]


@pytest.mark.rule("PM-105")
def test_a_job_that_was_killed_or_hangs_is_in_an_outage_until_the_present(tmp_path: Path) -> None:
    job = Reads(tmp_path)
    job.read(0, 60)
    assert seen(tmp_path, 180) == []
    assert seen(tmp_path, 400) == [between(60, 400)]
    assert Reads(tmp_path).read(430) == [between(60, 430)], "the next job"


@pytest.mark.rule("PM-105")
def test_a_job_that_reads_as_much_as_it_can_is_busy_and_not_down(tmp_path: Path) -> None:
    job = Reads(tmp_path)
    job.read(0, full=True)
    assert job.read(500) == []
    job.read(560, full=True)
    assert seen(tmp_path, 1_100) == []
    assert seen(tmp_path, 1_200) == [between(560, 1_200)], "ten triggers are too many"
    assert Reads(tmp_path).read(800) == [between(560, 800)], "a new process was not busy before it began"


@pytest.mark.rule("PM-105")
def test_jobs_that_run_once_are_expected_as_often_as_they_ran(tmp_path: Path) -> None:
    for seconds in (0, 600, 1_300):
        assert Reads(tmp_path, None).read(seconds) == []
    assert seen(tmp_path, 2_800) == [between(1_300, 2_800)], "more than twice 700 s"
    assert Reads(tmp_path, None).read(2_900) == [between(1_300, 2_900)]
    assert Reads(tmp_path, None).read(4_200) == [between(1_300, 2_900)], "it still runs about every 700 s"
    assert Reads(tmp_path, 60).read(5_000, 5_060) == [between(1_300, 2_900)]
    assert Reads(tmp_path, None).read(5_300) == [between(1_300, 2_900), between(5_060, 5_300)], "after a continuous one"
    assert seen(tmp_path, 9_000) == [between(1_300, 2_900), between(5_060, 5_300)], "no next one is known of"


@pytest.mark.rule("PM-105")
def test_the_slowest_query_counts(tmp_path: Path) -> None:
    job = Reads(tmp_path)
    for queries in ([progress(0), progress(0)], [progress(60), None], [progress(300), progress(0)]):
        assert job.record.read_by(queries) is None
    assert seen(tmp_path, 300) == [between(0, 300)]
    assert job.record.read_by([progress(360), progress(350)]) is not None
    assert seen(tmp_path, 360) == [between(0, 350)]
    job.record.read_by([progress(420), progress(420)], full=True)
    assert seen(tmp_path, 800) == [between(0, 350)], "a full trigger"
    assert job.record.read_by([]) is None


@pytest.mark.rule("PM-105", "PM-110")
def test_times_are_corrected_where_this_machines_clock_is_wrong(tmp_path: Path) -> None:
    record = Outages(tmp_path, 60, print, lambda at: at - timedelta(hours=1))
    for seconds in (3_600, 3_900):
        record.read_by([progress(seconds)])
    assert seen(tmp_path, 300) == [between(0, 300)]


@pytest.mark.rule("PM-105")
def test_a_clock_that_is_put_back_ends_no_outage(tmp_path: Path) -> None:
    job = Reads(tmp_path)
    assert job.read(0, -3_600, -3_540) == []
    assert job.read(-3_300) == [between(-3_540, -3_300)]


@pytest.mark.rule("PM-105")
def test_spans_are_merged_bounded_and_clipped(tmp_path: Path) -> None:
    assert added([(0, 5), (10, 20)], (5, 10)) == [(0, 20)]
    assert added([(0, 5)], (7, 9)) == [(0, 5), (7, 9)]
    assert added([(10, 20)], (12, 15)) == [(10, 20)]
    many = [(2 * one, 2 * one + 1) for one in range(SPANS_MAX)]
    assert added(many, (5_000, 5_001)) == [*many[1:], (5_000, 5_001)]
    Reads(tmp_path).read(0, 600)
    assert spans(tmp_path, at(100), at(200), at(600)) == [between(100, 200)]
    assert spans(tmp_path, at(600), at(700), at(600)) == []
    assert spans(tmp_path, at(-9), at(0), at(600)) == []


@pytest.mark.rule("PM-105")
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"spans": [[1]], "last": null}', '{"spans": [], "last": {"at_ms": "x"}}']
)
def test_a_file_that_cannot_be_read_has_no_spans_and_is_replaced(tmp_path: Path, text: str) -> None:
    assert seen(tmp_path, 0) == []
    (tmp_path / "outages.json").write_text(text)
    assert seen(tmp_path, 0) == []
    assert Reads(tmp_path).read(0, 200) == [between(0, 200)]


@pytest.mark.rule("PM-105")
def test_a_record_that_cannot_be_written_is_reported_once(tmp_path: Path) -> None:
    job = Reads(tmp_path / "absent")
    job.read(0, 60)
    (words,) = job.reported
    assert "which is retried" in words
    job.data.mkdir()
    assert job.read(300) == [between(60, 300)]
    assert (
        json.loads((job.data / "outages.json").read_text())["last"] == LastRead((NOON_S + 300) * 1000, 60_000)._asdict()
    )
