"""Draws line charts and bars as inline SVG (PM-37). Pure: equal points give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

_WIDTH: Final = 360
_HEIGHT: Final = 84
_TOP: Final = 18
_BASE: Final = 68
#: Longer series are thinned to this many points: a page has forty charts, and a screen shows no more points.
_POINTS_MAX: Final = 720


def chart(label: str, points: Sequence[tuple[int, float | None]], marks: Sequence[tuple[int, int, str]] = ()) -> str:
    """A line over time (seconds since 1970), broken where a value is None, labelled with its maximum and its times.

    `marks` are vertical lines: the time, the number n of the class `m<n>`, and the text that is shown when the pointer
    is on it.
    """
    known = [value for _, value in points if value is not None]
    if not known:
        return f'<p class="none">{escape(label)}: nothing known</p>'
    top = max(known)
    words = f"{label}: {_number(known[-1])} at the end, {_number(top)} at most"
    shown = f"{label}, at most {_number(top)}" if top > 0 else f"{label}: 0 all the time"
    lines = _lines(_thinned(points), top)
    areas = "".join(f'<path class="area" d="M{line[0].partition(",")[0]},{_BASE}L{" ".join(line)} '
                    f'{line[-1].partition(",")[0]},{_BASE}Z"/>' for line in lines)  # fmt: skip
    paths = "".join(f'<polyline points="{" ".join(line)}"/>' for line in lines)
    begin, end = _clocks(points[0][0], points[-1][0])
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(words)}">'
        f'<line class="axis" x1="0" y1="{_TOP}" x2="{_WIDTH}" y2="{_TOP}"/>{areas}'
        f'<line class="axis" x1="0" y1="{_BASE}" x2="{_WIDTH}" y2="{_BASE}"/>{paths}{_upright(marks, points)}'
        f'<text x="0" y="{_TOP - 6}">{escape(shown)}</text>'
        f'<text x="0" y="{_HEIGHT - 4}">{begin}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{end}</text></svg>'
    )


def _upright(marks: Sequence[tuple[int, int, str]], points: Sequence[tuple[int, float | None]]) -> str:
    begin, span = points[0][0], max(points[-1][0] - points[0][0], 1)
    drawn = []
    for time_s, number, words in marks:
        x = min(max(time_s - begin, 0), span) * _WIDTH / span
        title = escape(f"{datetime.fromtimestamp(time_s, UTC):%H:%M:%S} {words}")
        at = f'x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_BASE}"'
        drawn.append(f'<line class="m{number}" {at}><title>{title}</title></line>')
    return "".join(drawn)


def bar(counts: Sequence[int]) -> str:
    """One bar that shows the parts of a total, which must not be 0; part n has the class `k<n>`."""
    total = sum(counts)
    parts, x = [], 0.0
    for number, count in enumerate(counts):
        width = count * _WIDTH / total
        if count:
            parts.append(f'<rect class="k{number}" x="{x:.1f}" y="0" width="{width:.1f}" height="10"/>')
        x += width
    words = " + ".join(f"{count:,}" for count in counts)
    return (
        f'<svg viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" role="img" aria-label="{words}">'
        f"{''.join(parts)}</svg>"
    )


def _thinned(points: Sequence[tuple[int, float | None]]) -> Sequence[tuple[int, float | None]]:
    """At most _POINTS_MAX points: the highest of each run of points, so that no peak is lost."""
    size = -(-len(points) // _POINTS_MAX)
    if size <= 1:
        return points
    runs = (points[at : at + size] for at in range(0, len(points), size))
    return [(run[0][0], max((value for _, value in run if value is not None), default=None)) for run in runs]


def _lines(points: Sequence[tuple[int, float | None]], top: float) -> list[list[str]]:
    begin, span = points[0][0], max(points[-1][0] - points[0][0], 1)
    lines: list[list[str]] = [[]]
    for time_s, value in points:
        if value is None:
            lines.append([])
            continue
        x = (time_s - begin) * _WIDTH / span
        y = _BASE - (value / top if top > 0 else 0) * (_BASE - _TOP)
        lines[-1].append(f"{x:.1f},{y:.1f}")
    # A single point is drawn as a short stroke, because a point would not be visible.
    return [line if len(line) > 1 else [*line, _nudged(line[0])] for line in lines if line]


def _nudged(point: str) -> str:
    x, _, y = point.partition(",")
    return f"{float(x) + 2:.1f},{y}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2f}"


def _clocks(begin_s: int, end_s: int) -> tuple[str, str]:
    """Both times as text: with the date if their days differ, with seconds if one of them is not a full minute."""
    begin, end = (datetime.fromtimestamp(time_s, UTC) for time_s in (begin_s, end_s))
    day = "" if begin.date() == end.date() else "%Y-%m-%d "
    form = f"{day}%H:%M" + (":%S" if begin_s % 60 or end_s % 60 else "")
    return begin.strftime(form), end.strftime(form)
