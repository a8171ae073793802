"""The exact figures of `perf`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from sharegroups.cli.perf_rows import HEADER, Consumed, DateFormat, Sent, metric_lines

START_MS = 1_795_396_541_621


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    if before is None:
        monkeypatch.delenv("TZ")
    time.tzset()


@pytest.mark.rule("CT-33", "CT-34")
def test_a_row_is_kafkas() -> None:
    row = Consumed(START_MS, START_MS + 5_591, records=30, size=210).row(DateFormat("yyyy-MM-dd HH:mm:ss:SSS"))
    assert HEADER.split(", ") == [
        "start.time", "end.time", "data.consumed.in.MB", "MB.sec", "nMsg.sec", "data.consumed.in.nMsg", "fetch.time.ms",
    ]  # fmt: skip
    assert row == "2026-11-23 01:15:41:621, 2026-11-23 01:15:47:212, 0.0002, 0.0000, 5.3658, 30, 5591"
    megabyte = Consumed(0, 500, records=4, size=2**20).row(DateFormat("ss"))
    assert megabyte == "00, 00, 1.0000, 2.0000, 8.0000, 4, 500"


def test_without_any_time_no_figure_is_infinite() -> None:
    assert Consumed(0, 0, records=1, size=1).row(DateFormat("ss")) == "00, 00, 0.0000, 0.0010, 1000.0000, 1, 0"
    assert Sent().line(0.0, with_percentiles=True).startswith("0 records sent, 0.0 records/sec")


def test_the_time_until_the_first_record_is_reported_separately() -> None:
    assert Consumed(0, 6_000, records=100, size=2**20, first_ms=5_000).from_the_first() == (
        "The first record came after 5000 ms; from then on 1.0000 MB and 100.0000 records per second."
    )


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("yy/MM/dd", "26/11/23"), ("HH'h'mm", "01h15"), ("ss.SSS", "41.621"), ("yyyy-MM-dd'T'HH:mm", "2026-11-23T01:15")],
)
def test_dates_are_written_as_java_writes_them(pattern: str, text: str) -> None:
    assert DateFormat(pattern).text(START_MS) == text


@pytest.mark.parametrize("pattern", ["EEE", "yyyy z", "h:mm", "y", "'open"])
def test_letters_that_are_not_known_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not made of yyyy, MM, dd"):
        DateFormat(pattern)


def test_latencies_have_their_average_their_maximum_and_percentiles() -> None:
    sent = Sent.of(1_000)
    for number in range(1_000):
        sent.add(1_048, float(number))
    assert sent.line(2.0, with_percentiles=False) == (
        "1000 records sent, 500.0 records/sec (0.50 MB/sec), 499.5 ms avg latency, 999.0 ms max latency."
    )
    assert sent.line(2.0, with_percentiles=True).endswith(
        " ms max latency, 500 ms 50th, 950 ms 95th, 990 ms 99th, 999 ms 99.9th."
    )


def test_of_many_latencies_a_bounded_number_is_kept() -> None:
    sent = Sent.of(2_000_000)
    for _ in range(1_000):
        sent.add(1, 1.0)
    assert (sent.records, len(sent.samples)) == (1_000, 250)


def test_metrics_stand_in_columns() -> None:
    assert metric_lines({("g", "long-name"): 1.5, ("g", "a"): 2}) == [
        "",
        "Metric Name   Value",
        "g:a         : 2.000",
        "g:long-name : 1.500",
    ]
    assert metric_lines({}) == ["", "Metric Name   Value"]
