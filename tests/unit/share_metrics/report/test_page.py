"""The page and its charts, made from plain values."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from share_metrics.report.model import Counts, Pace, PartitionLine, Point, Report, totals
from share_metrics.report.page import render
from share_metrics.report.svg import bar, chart


def line(name: str, lag: int | None = 5, points: int = 60, anomalies: int = 0) -> PartitionLine:
    series = tuple(Point(36_000 + 60 * at, at, None if at == 7 else at * 2) for at in range(points))
    return PartitionLine(name, 100, lag, 40, 38, 2, None, 0, 0, 3, 0.075, 0, anomalies, series)


def report(**fields: object) -> Report:
    given: dict[str, object] = {"partitions": [line("g · orders-0")], **fields}
    return Report("2026-11-22 10:00", "2026-11-22 11:00", 60, **given)  # type: ignore[arg-type] # as given


class Balance(HTMLParser):
    """Raises AssertionError if a tag is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.rule("PM-37", "PM-68")
def test_the_page_stands_alone_and_is_the_same_every_time() -> None:
    page = render(report())
    assert page == render(report())
    assert "http" not in page
    assert "<script" not in page
    assert "prefers-color-scheme:dark" in page
    assert 'name="viewport"' in page
    parser = Balance()
    parser.feed(page)
    assert parser.open == []


@pytest.mark.rule("PM-37")
def test_fifty_share_partitions_fit_and_most_are_folded() -> None:
    page = render(report(partitions=[line(f"g · orders-{number}", points=1440) for number in range(50)]))
    assert len(page.encode()) < 2_000_000
    assert "30 more share-partitions" in page
    assert page.count("<svg") == 3 * 20


@pytest.mark.rule("PM-37")
def test_the_page_has_its_sections_and_says_what_is_a_lower_bound() -> None:
    page = render(report(poison=[POISON], stalls=[STALL], groups=[GROUP], skew=[SKEW], quality=[QUALITY], gaps=[GAP]))
    assert re.findall(r"<h2>([^<]+)</h2>", page) == [
        "Groups", "Beside the time before", "From append to end", "Share-partitions", "Lag and progress",
        "Acknowledgements", "Why records were given up", "Failed records and poison candidates", "Stalls", "Members",
        "Rebalances", "Shard skew", "Data quality",
    ]  # fmt: skip
    assert page.index('class="light red"') < page.index("<h2>")
    heads = re.findall(r"<th>([^<]+)</th>", page)
    redelivered = [head for head in heads if "redelivered" in head or "of finished" in head]
    assert [head[-1] for head in redelivered] == ["≥"] * 3
    assert "“≥” marks lower bounds." in page
    assert "at least 3 finished after redelivery" in page


@pytest.mark.rule("PM-90")
@pytest.mark.parametrize(
    ("lag", "pace", "shown"),
    [(0, None, "nothing left"), (5, None, "–"), (5, Pace(1, 1, 60.0), "never, at this pace"),
     (5, Pace(0, 60, 60.0), "5 s"), (1, Pace(0, 600, 60.0), "1 s"), (150, Pace(0, 60, 60.0), "2 min 30 s"),
     (7_290, Pace(0, 60, 60.0), "2 h 1 min"), (10**6, Pace(60, 120, 60.0), "11 d 13 h")],
)  # fmt: skip
def test_a_group_shows_how_long_its_lag_takes(lag: int, pace: Pace | None, shown: str) -> None:
    page = render(report(partitions=[replace(line("g · orders-0", lag), group_id="g", pace=pace)]))
    (row,) = re.findall(r"<tr><td>g</td>(.*?)</tr>", page)
    assert re.findall(r"<td>([^<]*)</td>", row)[-1] == shown


@pytest.mark.rule("PM-90")
def test_two_hundred_groups_have_a_line_and_the_rest_is_reported() -> None:
    page = render(report(partitions=[replace(line("x", 5), group_id=f"group-{number}") for number in range(203)]))
    assert page.count("<td>group-") == 200
    assert "200 of 203 are shown." in page


@pytest.mark.rule("PM-90")
def test_a_lag_that_is_not_known_is_never_0() -> None:
    page = render(report(partitions=[replace(line("g · orders-0", None), group_id="g")]))
    assert "<tr><td>g</td><td>–</td><td>–</td><td>1</td><td>unknown</td>" in page


@pytest.mark.rule("PM-90")
def test_a_standstill_is_one_line_and_its_windows_are_folded() -> None:
    episode = {"name": "g · t-0", "kind": "stalled", "since": "10:00:00", "until": "10:09:00", "lag": 1_200}
    page = render(report(stalls=[STALL], episodes=[episode]))
    line_of_it = "<td>g · t-0</td><td>stalled</td><td>10:00:00</td><td>10:09:00</td><td>1,200</td>"
    assert page.index(line_of_it) < page.index("<summary>Window by window</summary>")
    assert "Window by window" not in render(report())


@pytest.mark.rule("PM-90")
def test_more_members_than_there_is_room_for_are_reported() -> None:
    member = {
        "group_id": "g",
        "client_id": "<c>",
        "client_host": "h",
        "member_id": "m",
        "member_epoch": 3,
        "has": "t: 0",
    }
    page = render(report(members=[member], standing=[{"group_id": "g", "state": "Stable", "members": 201}]))
    assert "<td>g</td><td>&lt;c&gt;</td><td>h</td><td>m</td><td>3</td><td>t: 0</td>" in page
    assert "1 of 201 are shown." in page


@pytest.mark.rule("PM-37")
def test_names_are_text_whatever_they_hold() -> None:
    page = render(report(partitions=[line("<script>alert(1)</script> & co · t-0")]))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.rule("PM-37")
def test_an_empty_report_is_a_page_too() -> None:
    page = render(report(partitions=[]))
    assert "<b>0</b> share-partitions" in page
    assert "None." in page


POISON = {
    "offset": 9, "name": "g · t-0", "state": "Available", "reason": "one delivery left", "delivery_count": 4,
    "first_seen": "f", "last_seen": "l", "times_released": 1,
}  # fmt: skip
GROUP = {
    "group_id": "g", "state": "Stable", "members": 1, "joins": 1, "leaves": 0, "rebalances": 1, "epoch_bumps": 1,
    "flapping": 0,
}  # fmt: skip
SKEW = {"stream": "s", "entries": 9, "bytes": 90, "keys": 1, "skew": 1.0, "gini": 0.0}
GAP = {"stream": "s", "from_id": "1-0", "to_id": "1-5", "lost": 4, "reason": "trimmed"}
STALL = {"name": "g · t-0", "window": "w", "lag": 5, "still_s": 300, "kind": "stalled"}
QUALITY = {
    "stream": "s", "entries": 9, "claims": 1, "noops": 0, "quarantined": 0, "unknown": 0, "gaps": 0, "lost": 0,
}  # fmt: skip


@pytest.mark.rule("PM-37", "PM-64")
@pytest.mark.parametrize(
    ("fields", "light", "why"),
    [
        ({"quality": [QUALITY]}, "green", "Nothing stands still, nothing was lost, nothing odd was found."),
        ({"gaps": [GAP]}, "red", f"Entries lost: {GAP['lost']}."),
        ({"stalls": [STALL]}, "red", "Share-partitions that stood still: 1."),
        ({"stalls": [STALL | {"kind": "abandoned"}]}, "amber", "Share-partitions with records and without members: 1."),
        (
            {"stalls": [STALL, STALL | {"kind": "abandoned"}]},
            "red",
            "Share-partitions that stood still, or have records and no members: 1.",
        ),
        ({"incomplete": 1}, "amber", "Windows without a state to begin with: 1."),
        ({"quality": [QUALITY | {"quarantined": 1}]}, "amber", "Entries that are not records: 1."),
        ({"partitions": [line("g · t-0", anomalies=1)]}, "amber", "Writes that do not fit those before them: 1."),
        ({"behind_s": 299}, "green", "Nothing stands still"),
        ({"behind_s": 300}, "amber", "Minutes that were not read yet: 5."),
        (
            {"behind_s": 300, "incomplete": 2},
            "amber",
            "Minutes that were not read yet: 5; windows without a state to begin with: 2.",
        ),
    ],
)
def test_the_light_says_how_things_are_and_why(fields: dict[str, object], light: str, why: str) -> None:
    made = report(**fields)
    assert made.light == light
    assert f'<p><span class="light {light}">{light}</span> {why}' in render(made)


@pytest.mark.rule("PM-37", "PM-64")
def test_what_was_counted_is_reported_however_few_rows_are_shown() -> None:
    counts = Counts(lost=300, stalls=2_311, stalled=1, standing=211, poison=7, quarantined=2, unknown=3)
    shown = [STALL | {"kind": "abandoned"}]
    made = report(gaps=[GAP], stalls=shown, quality=[QUALITY], counts=counts)
    assert made.light == "red"
    named = {name: totals(made)[name] for name in ("lost", "stalls", "poison", "quarantined", "unknown")}
    assert named == {"lost": 300, "stalls": 2_311, "poison": 7, "quarantined": 2, "unknown": 3}
    page = render(made)
    assert "<b>211</b> standing still" in page
    assert "<b>300</b> entries lost" in page
    assert "1 of 2,311 are shown." in page
    assert "are shown" not in render(report(stalls=shown))


@pytest.mark.rule("PM-37")
@pytest.mark.parametrize(
    ("behind_s", "words"), [(299, None), (300, "the last 5 min"), (3_599, "59 min"), (7_860, "2 h 11 min")]
)
def test_a_page_says_that_its_ingest_is_far_behind(behind_s: int, words: str | None) -> None:
    page = render(report(behind_s=behind_s))
    assert ("has been read yet" in page) == (words is not None)
    assert words is None or words in page


@pytest.mark.rule("PM-37")
def test_a_bar_shows_how_acknowledgements_are_made_up() -> None:
    drawn = bar([30, 0, 10])
    assert re.findall(r'class="k(\d)" x="([\d.]+)" y="0" width="([\d.]+)"', drawn) == [
        ("0", "0.0", "270.0"),
        ("2", "270.0", "90.0"),
    ]
    assert 'aria-label="30 + 0 + 10"' in drawn
    page = render(report(partitions=[line("g · orders-0")]))
    assert "records by type of acknowledgement" in page


@pytest.mark.rule("PM-37", "PM-42")
def test_a_lag_that_is_not_known_is_no_lag_of_0() -> None:
    """A lag that is only a lower bound is shown as one; a deleted share-partition has no lag."""
    unknown, least, gone = line("g · t-1", None), line("g · t-2", 1_200), line("g · t-3", None)
    made = report(partitions=[line("g · t-0", 0), unknown, replace(least, lag_least=True), replace(gone, gone=True)])
    page = render(made)
    cells = re.findall(r"<tr><td>(g · t-\d)</td><td>100</td><td>([^<]+)</td>", page)
    assert [shown for _, shown in cells] == ["0", "unknown", "≥\N{NO-BREAK SPACE}1,200", "–"]
    assert "The lag of 2 share-partitions is unknown" in page
    assert (made.light, totals(made)["lag"], totals(made)["lag_unknown"]) == ("amber", 1_200, 2)
    known = report(partitions=[line("g · t-0", 0), replace(gone, gone=True)])
    assert (known.light, totals(known)["lag_unknown"], "is unknown</b>" in render(known)) == ("green", 0, False)


@pytest.mark.rule("PM-37", "PM-64")
def test_totals_count_what_is_no_record() -> None:
    found = totals(report(quality=[{"quarantined": 2, "unknown": 1}, {"quarantined": 3, "unknown": 0}]))
    assert (found["quarantined"], found["unknown"]) == (5, 1)


@pytest.mark.rule("PM-37", "PM-44")
def test_totals_are_sums_over_all_share_partitions() -> None:
    found = totals(report(partitions=[line("g · t-0"), line("g · t-1", lag=None)], gaps=[GAP]))
    assert found == {
        "share_partitions": 2, "finished": 80, "accepted": 76, "released": 4, "rejected": 0, "timed_out": 0,
        "limited": 0, "redelivered_lb": 6, "lag": 5, "poison": 0, "stalls": 0, "lost": 4,
        "quarantined": 0, "unknown": 0, "lag_unknown": 1, "behind_s": 0,
    }  # fmt: skip


def test_a_chart_breaks_where_nothing_is_known() -> None:
    drawn = chart("lag", [(0, 1.0), (60, 2.0), (120, None), (180, 4.0)])
    assert [len(points.split()) for points in re.findall(r'points="([^"]+)"', drawn)] == [2, 2]
    assert drawn.count('class="area"') == 2
    assert 'aria-label="lag: 4 at the end, 4 at most"' in drawn
    assert ">lag, at most 4<" in drawn
    assert chart("lag", [(0, None)]) == '<p class="none">lag: nothing known</p>'
    assert "<polyline" in chart("lag", [(0, 0.0)])


@pytest.mark.rule("PM-37")
def test_a_chart_of_very_many_points_keeps_its_peaks() -> None:
    """An hour with one point per second: forty such charts fit on a page of less than 2 MB (PM-37)."""
    points = [(at, 7.0 if at == 1801 else 1.0) for at in range(3_600)]
    drawn = chart("lag", points)
    (line,) = re.findall(r'points="([^"]+)"', drawn)
    heights = [point.partition(",")[2] for point in line.split()]
    assert len(heights) == 720
    assert heights.count(min(heights, key=float)) == 1
    assert ">lag, at most 7<" in drawn
    assert len(drawn) * 40 < 1_500_000


@pytest.mark.parametrize(
    ("begin_s", "end_s", "shown"),
    [
        (36_000, 39_600, ["10:00", "11:00"]),
        (36_001, 36_048, ["10:00:01", "10:00:48"]),
        (36_000, 36_000 + 86_400, ["1970-01-01 10:00", "1970-01-02 10:00"]),
    ],
)
def test_the_ends_of_a_chart_are_shown_as_finely_as_they_need(begin_s: int, end_s: int, shown: list[str]) -> None:
    assert re.findall(r">([\d: -]+)</text>", chart("lag", [(begin_s, 1.0), (end_s, 2.0)])) == shown


@pytest.mark.rule("PM-37")
def test_the_numbers_that_matter_most_stand_first_and_large() -> None:
    page = render(report(partitions=[line("g · t-0"), line("g · t-1", lag=1_995)], stalls=[STALL], gaps=[GAP]))
    tiles = re.findall(r"<div><b>([\d,]+)</b> ([^<]+)</div>", page)
    assert tiles == [
        ("80", "records finished"), ("2,000", "records of lag"), ("2", "share-partitions"), ("1", "standing still"),
        ("0", "failed or poison"), ("4", "entries lost"),
    ]  # fmt: skip
    assert "<td>7.5 %</td>" in page


def why(kind: str | None, example: str | None, records: int = 3, group: str | None = "g") -> dict[str, object]:
    return {"kind": kind, "group_id": group, "topic": group and "orders", "records": records, "example": example}


@pytest.mark.rule("PM-94")
def test_the_page_says_why_records_were_given_up() -> None:
    page = render(report(reasons=[why("LookupError", "LookupError: no price"), why(None, None, 1_234, None)]))
    assert "<td>LookupError</td><td>g</td><td>orders</td><td>3</td><td>LookupError: no price</td>" in page
    assert "<td>all others</td><td>–</td><td>–</td><td>1,234</td><td>–</td>" in page


@pytest.mark.rule("PM-94")
def test_no_reason_breaks_the_page_or_turns_its_text_around() -> None:
    evil = "</td><script>alert(1)</script>\x1b[31m\u202etxt\u2066\u2028 \x00 & \"'" + "\u05d0" * 400
    page = render(report(reasons=[why(evil[:60], evil)]))
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert "<script" not in page
    assert not {"\x1b", "\x00", "\u202e", "\u2066", "\u2028"} & set(page)
    assert "\\x1b[31m\\u202etxt" in page
