"""A page's parts on records from append to end, take-overs and the time before; and that the page fits a phone."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from share_metrics.report.model import MARKS_MAX, Before, Ends, Event, Mark, PartitionLine
from share_metrics.report.page import render
from share_metrics.report.partition_lines import marks_of
from share_metrics.report.style import NARROW, STYLE
from share_metrics.report.sums import ends_by_group

from .test_page import line, report

BEFORE = Before(3600, 1200, 0, 7200, 3600, 36, 0, 0, 0, 18)
PHONE_PX = 390


def marked(*marks: Mark) -> PartitionLine:
    return replace(line("g · orders-0"), marks=marks)


def cells(page: str) -> list[list[str]]:
    return [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]


@pytest.mark.rule("PM-91")
def test_the_percentiles_of_a_group_are_those_of_its_least_and_its_most_times() -> None:
    rows = [
        {"group_id": "g", "bound": bound, "ms": ms, "records": records}
        for bound, counts in (("least", {0: 90, 100: 6, 1000: 4}), ("most", {10: 50, 200: 46, 4000: 4}))
        for ms, records in counts.items()
    ]
    rows += [{"group_id": "g", "bound": "unknown", "ms": None, "records": 7}]
    rows += [{"group_id": "a", "bound": "unknown", "ms": None, "records": 1}]
    assert ends_by_group(rows) == [
        Ends("a", 0, 1, None, None, None),
        Ends("g", 100, 7, (0, 10), (100, 200), (1000, 4000)),
    ]


@pytest.mark.rule("PM-91")
def test_the_page_shows_both_bounds() -> None:
    page = render(
        report(ends=[Ends("g", 100, 7, (0, 0), (100, 1200), (59_000, 3_600_000)), Ends("h", 0, 2, *[None] * 3)])
    )
    assert ["g", "0 s", "100 ms – 1.2 s", "59 s – 1 h", "100", "7"] in cells(page)
    assert ["h", "–", "–", "–", "0", "2"] in cells(page)


@pytest.mark.rule("PM-92")
def test_an_upright_line_stands_where_something_happened_and_says_what() -> None:
    page = render(report(partitions=[marked(Mark(36_000, Event.OWNER), Mark(36_000 + 59 * 30, Event.LEADER))]))
    found = re.findall(r'<line class="m(\d)" x1="([\d.]+)" [^>]*><title>([^<]+)</title>', page)
    once = [
        ("2", "0.0", "1970-01-01 10:00:00 new owner of its state"),
        ("0", "180.0", "1970-01-01 10:29:30 new leader"),
    ]
    assert found == once * 2, "on the chart of lag, and on that of what was finished"
    assert "Upright lines: " in page
    assert "Upright lines: " not in render(report())


@pytest.mark.rule("PM-92")
def test_the_newest_fifty_marks_are_kept() -> None:
    events = [
        {"at": 60 * minute, "leader_epoch_changes": 1, "state_epoch_resets": minute == 59} for minute in range(60)
    ]
    row = {"group_id": "g", "topic_id": "t", "partition": 0, "events": events[::-1]}
    found = marks_of(row, {("g", "t", 0): [Mark(59 * 60 + 30, Event.OWNER)], ("g", "t", 1): [Mark(0, Event.OWNER)]})
    assert len(found) == MARKS_MAX
    assert found[-3:] == (
        Mark(59 * 60, Event.LEADER), Mark(59 * 60, Event.RESET), Mark(59 * 60 + 30, Event.OWNER)
    )  # fmt: skip
    assert found[0] == Mark(12 * 60, Event.LEADER)


@pytest.mark.rule("PM-93")
def test_the_time_before_stands_beside_the_page() -> None:
    page = render(report(before=BEFORE, read_s=10))
    assert ["this page", "5", "4.000", "3.800", "0.200", "0", "0", "0", "0.300"] in with_zeros(page)
    assert ["before", "1,200", "2.000", "1.000", "0.010", "0", "0", "0", "0.005"] in with_zeros(page)
    assert "before: 1 h up to the page's begin" in page
    unread = cells(render(report(before=BEFORE._replace(lag_unknown=2, finished=360_000), read_s=0)))
    assert ["this page", "5", *["–"] * 7] in unread, "of nothing that was read there is no rate"
    assert ["before", "≥\N{NO-BREAK SPACE}1,200", "100.0"] in [row[:3] for row in unread]


def with_zeros(page: str) -> list[list[str]]:
    return [["0" if cell == "0.0" else cell for cell in row] for row in cells(page)]


class Tables(HTMLParser):
    """Collects the element that surrounds each table."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.around: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.around.append(self.open[-1])
        if tag != "meta":
            self.open.append(dict(attrs).get("class") or tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()


def test_a_phone_scrolls_tables_and_never_the_page() -> None:
    """As far as this is visible without a browser; `test_page_in_browser` uses one."""
    parser = Tables()
    parser.feed(render(report(partitions=[marked(Mark(36_000, Event.RESET))], before=BEFORE, read_s=10)))
    assert len(parser.around) > 3
    assert set(parser.around) == {"wide"}
    assert ".wide{overflow-x:auto}" in STYLE
    widths = [
        float(number) * (16 if unit == "rem" else 1)
        for name, number, unit in re.findall(r"(?<!-)\b(width|min-width|minmax\()[:(]?([\d.]+)(px|rem)", STYLE + NARROW)
    ]
    assert widths
    assert max(widths) < PHONE_PX
