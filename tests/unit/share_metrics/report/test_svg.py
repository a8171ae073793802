"""Charts and bars, as text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from share_metrics.report.svg import HATCH, Dot, Overlay, bar, chart

LEAST = "≥\N{NO-BREAK SPACE}"


@pytest.mark.rule("PM-37")
def test_a_bar_shows_how_acknowledgements_are_made_up() -> None:
    drawn = bar([30, 0, 1_000], ["accepted", "released", "<rejected>"])
    assert re.findall(r'class="k(\d)" x="([\d.]+)" y="0" width="([\d.]+)"', drawn) == [
        ("0", "0.0", "10.5"),
        ("2", "10.5", "349.5"),
    ]
    assert 'aria-label="30 accepted, 1,000 &lt;rejected&gt;"' in drawn


def test_a_chart_breaks_where_nothing_is_known() -> None:
    drawn = chart("lag", [Dot(0, 1.0), Dot(60, 2.0), Dot(120, None), Dot(180, 4.0)])
    assert [len(points.split()) for points in re.findall(r'points="([^"]+)"', drawn)] == [2, 2]
    assert drawn.count('class="area"') == 2
    assert 'aria-label="lag: 4 at the end, 4 at most, unknown in 1 of 4 windows"' in drawn
    assert ">lag, at most 4<" in drawn
    assert chart("lag", [Dot(0, None)]) == '<p class="none">lag: nothing known</p>'
    assert "<polyline" in chart("lag", [Dot(0, 0.0)])


@pytest.mark.rule("PM-37")
def test_a_chart_of_very_many_points_keeps_its_peaks() -> None:
    """An hour with one point per second: forty such charts fit on a page of less than 2 MB (PM-37)."""
    points = [Dot(at, 7.0 if at == 1801 else 1.0) for at in range(3_600)]
    drawn = chart("lag", points)
    (line,) = re.findall(r'points="([^"]+)"', drawn)
    heights = [point.partition(",")[2] for point in line.split()]
    assert len(heights) == 720
    assert heights.count(min(heights, key=float)) == 1
    assert ">lag, at most 7<" in drawn
    assert len(drawn) * 40 < 1_500_000


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("begin_s", "end_s", "shown"),
    [
        (36_000, 39_600, ["1970-01-01 10:00:00", "1970-01-01 11:00:00"]),
        (36_001, 36_000 + 86_400, ["1970-01-01 10:00:01", "1970-01-02 10:00:00"]),
    ],
)
def test_the_ends_of_a_chart_are_times_like_all_others(begin_s: int, end_s: int, shown: list[str]) -> None:
    assert re.findall(r">([\d: -]+)</text>", chart("lag", [Dot(begin_s, 1.0), Dot(end_s, 2.0)])) == shown


@pytest.mark.rule("PM-102")
def test_lower_bounds_are_dashed_and_marked() -> None:
    """A line to or from a lower bound is dashed; the runs meet, so that the line has no holes."""
    dots = [Dot(0, 1.0), Dot(60, 2.0), Dot(120, 9.0, True), Dot(180, 9.0, True), Dot(240, 4.0), Dot(300, 2.0)]
    drawn = chart("lag", dots)
    runs = re.findall(r'<polyline( class="least")? points="([^"]+)"', drawn)
    assert [(bool(dashed), len(points.split())) for dashed, points in runs] == [(False, 2), (True, 4), (False, 2)]
    ends = [(points.split()[0], points.split()[-1]) for _, points in runs]
    assert [end for _, end in ends[:-1]] == [begin for begin, _ in ends[1:]]
    assert f'aria-label="lag: 2 at the end, highest {LEAST}9"' in drawn
    assert f">lag, highest {LEAST}9<" in drawn


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("dots", "shown"),
    [
        ([Dot(0, 0.0), Dot(60, 0.0)], "lag: 0"),
        ([Dot(0, 0.0), Dot(60, None)], "lag: 0 where it is known"),
        ([Dot(0, 0.0), Dot(60, 0.0, True)], "lag: 0 where it is known"),
    ],
)
def test_a_value_that_is_not_known_is_not_said_to_be_0(dots: list[Dot], shown: str) -> None:
    assert f">{shown}</text>" in chart("lag", dots)


@pytest.mark.rule("PM-102")
@pytest.mark.parametrize(
    ("end", "words"),
    [
        (Dot(60, 1_446.0), "lag: 1,446 at the end, 1,446 at most"),
        (Dot(60, 1_446.0, True), f"lag: {LEAST}1,446 at the end, highest {LEAST}1,446"),
        (Dot(60, 3.0), "lag: 3 at the end, 900 at most"),
        (Dot(60, None), "lag: unknown at the end, 900 at most"),
        (None, "lag: 900 at the end, 900 at most"),
    ],
)
def test_the_value_at_the_end_is_the_one_of_the_table(end: Dot | None, words: str) -> None:
    drawn = chart("lag", [Dot(0, 0.0), Dot(60, 900.0)], end=end)
    assert f'aria-label="{words}"' in drawn


@pytest.mark.rule("PM-104")
def test_outages_are_hatched_within_the_time_of_the_chart() -> None:
    spans = [(-60, 60), (180, 240), (300, 999), (400, 500), (-9, -1)]
    drawn = chart("lag", [Dot(0, 1.0), Dot(360, 2.0)], Overlay(outages=spans))
    found = re.findall(r'<rect class="outage" x="([\d.]+)" y="18" width="([\d.]+)"', drawn)
    assert found == [("0.0", "60.0"), ("180.0", "60.0"), ("300.0", "60.0")]
    assert drawn.count("nothing was ingested from") == 6, "a title and the label"
    assert ET.fromstring(HATCH).find(".//pattern[@id='hatch']") is not None


@pytest.mark.rule("PM-37")
def test_a_chart_is_well_formed_whatever_its_words_are() -> None:
    overlay = Overlay([(0, 1, '<b>\x1b&"')], [(0, 60)])
    drawn = ET.fromstring(chart('</svg>"<&\x00', [Dot(0, 1.0), Dot(60, 2.0, True)], overlay))
    assert drawn.attrib["aria-label"].startswith('</svg>"<&\\x00: ')
