"""Draws line charts and bars as inline SVG (PM-37). Pure: equal points give equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from share_metrics.report.words import bounded, instant, text

_WIDTH: Final = 360
_HEIGHT: Final = 84
_TOP: Final = 18
_BASE: Final = 68
#: Longer series are thinned to this many points: a page has forty charts, and a screen shows no more points.
_POINTS_MAX: Final = 720
#: The pattern of the spans in which nothing was ingested. A page has it once, for all of its charts.
HATCH: Final = (
    '<svg class="defs" width="0" height="0" aria-hidden="true"><defs><pattern id="hatch" width="6" height="6" '
    'patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="stripe" width="2" height="6"/></pattern>'
    "</defs></svg>"
)


class Dot(NamedTuple):
    """A point of a chart: s since 1970, and the value or None; `least`: the value is only a lower bound."""

    time_s: int
    value: float | None
    least: bool = False


class Overlay(NamedTuple):
    """What is drawn over a chart's time.

    `marks` are vertical lines: the time, the number n of the class `m<n>`, and the text that is shown when the pointer
    is on it. `outages` are the spans in which nothing was ingested, which are hatched (PM-104). `gone`: there is
    nothing at the end, since the share-partition was deleted.
    """

    marks: Sequence[tuple[int, int, str]] = ()
    outages: Sequence[tuple[int, int]] = ()
    gone: bool = False


_PLAIN: Final = Overlay()


def chart(label: str, points: Sequence[Dot], overlay: Overlay = _PLAIN, end: Dot | None = None) -> str:
    """A line over time, broken where a value is None, dashed where it is a lower bound, labelled with its maximum.

    `end`: the value at the end of the page, if a table shows one; without it, that of the last point.
    """
    known = [point for point in points if point.value is not None]
    if not known:
        return f'<p class="none">{text(label)}: nothing known</p>'
    last = end or points[-1]
    top, least = _highest([*known, last])
    lines = [line for line in _lines(_thinned(points), top) if line.at]
    areas = "".join(f'<path class="area" d="M{line.at[0].partition(",")[0]},{_BASE}L{" ".join(line.at)} '
                    f'{line.at[-1].partition(",")[0]},{_BASE}Z"/>' for line in lines)  # fmt: skip
    dashed = ("", ' class="least"')
    paths = "".join(f'<polyline{dashed[line.least]} points="{" ".join(line.at)}"/>' for line in lines)
    spans = _spans(overlay.outages, points)
    ending = "deleted" if overlay.gone else bounded(last.value, last.least)
    words = _words(f"{label}: {ending} at the end", points, bounded(top, least), spans)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(words)}">'
        f'{_hatched(spans, points)}<line class="axis" x1="0" y1="{_TOP}" x2="{_WIDTH}" y2="{_TOP}"/>{areas}'
        f'<line class="axis" x1="0" y1="{_BASE}" x2="{_WIDTH}" y2="{_BASE}"/>{paths}{_upright(overlay.marks, points)}'
        f'<text x="0" y="{_TOP - 6}">{text(_shown(label, points, top, least))}</text>'
        f'<text x="0" y="{_HEIGHT - 4}">{instant(points[0].time_s)}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{instant(points[-1].time_s)}</text></svg>'
    )


def _highest(points: Iterable[Dot]) -> tuple[float, bool]:
    """The largest value, and whether it is only a lower bound of the largest."""
    values = [point for point in points if point.value is not None]
    return max(point.value or 0 for point in values), any(point.least for point in values)


def _shown(label: str, points: Sequence[Dot], top: float, least: bool) -> str:
    """The text above a chart. That a value was 0 is not said of windows for which it is not known."""
    if top > 0:
        return f"{label}, at most {bounded(top, False)}" if not least else f"{label}, highest {bounded(top, True)}"
    return f"{label}: 0" + (" where it is known" if least or any(point.value is None for point in points) else "")


def _words(begin: str, points: Sequence[Dot], top: str, spans: Sequence[tuple[int, int]]) -> str:
    """The chart in words, for screen readers."""
    unknown = sum(point.value is None for point in points)
    parts = [
        begin,
        f"{top} at most" if not top.startswith("≥") else f"highest {top}",
        *([f"unknown in {unknown:,} of {len(points):,} windows"] if unknown else ()),
        *(f"nothing was ingested from {instant(since)} to {instant(until)}" for since, until in spans),
    ]
    return ", ".join(parts)


def _spans(outages: Sequence[tuple[int, int]], points: Sequence[Dot]) -> list[tuple[int, int]]:
    """The outages in the chart's time."""
    begin, end = points[0].time_s, points[-1].time_s
    return [(since, until) for since, until in outages if since < end and until > begin]


def _hatched(spans: Sequence[tuple[int, int]], points: Sequence[Dot]) -> str:
    drawn = []
    for since, until in spans:
        left, right = (_x(time_s, points) for time_s in (since, until))
        title = f"nothing was ingested from {instant(since)} to {instant(until)}"
        at = f'x="{left:.1f}" y="{_TOP}" width="{max(right - left, 1):.1f}" height="{_BASE - _TOP}"'
        drawn.append(f'<rect class="outage" {at} fill="url(#hatch)"><title>{title}</title></rect>')
    return "".join(drawn)


def _upright(marks: Sequence[tuple[int, int, str]], points: Sequence[Dot]) -> str:
    drawn = []
    for time_s, number, words in marks:
        x = _x(time_s, points)
        at = f'x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_BASE}"'
        drawn.append(f'<line class="m{number}" {at}><title>{text(f"{instant(time_s)} {words}")}</title></line>')
    return "".join(drawn)


def _x(time_s: int, points: Sequence[Dot]) -> float:
    """Where a time is drawn; times outside the chart's are drawn at its edges."""
    begin, span = points[0].time_s, max(points[-1].time_s - points[0].time_s, 1)
    return min(max(time_s - begin, 0), span) * _WIDTH / span


def bar(counts: Sequence[int], kinds: Sequence[str]) -> str:
    """One bar that shows the parts of a total, which must not be 0; part n has the class `k<n>`. `kinds` names them."""
    total = sum(counts)
    parts, x = [], 0.0
    for number, count in enumerate(counts):
        width = count * _WIDTH / total
        if count:
            parts.append(f'<rect class="k{number}" x="{x:.1f}" y="0" width="{width:.1f}" height="10"/>')
        x += width
    words = ", ".join(f"{count:,} {kind}" for count, kind in zip(counts, kinds, strict=True) if count)
    return (
        f'<svg viewBox="0 0 {_WIDTH} 10" preserveAspectRatio="none" role="img" aria-label="{text(words)}">'
        f"{''.join(parts)}</svg>"
    )


def _thinned(points: Sequence[Dot]) -> Sequence[Dot]:
    """At most _POINTS_MAX points: the highest of each run of points, so that no peak is lost."""
    size = -(-len(points) // _POINTS_MAX)
    if size <= 1:
        return points
    runs = (points[at : at + size] for at in range(0, len(points), size))
    return [max(run, key=lambda dot: -1 if dot.value is None else dot.value)._replace(time_s=run[0].time_s)
            for run in runs]  # fmt: skip


class _Line(NamedTuple):
    """An unbroken run of points as drawn, all of them lower bounds or none."""

    least: bool
    at: list[str]


def _lines(points: Sequence[Dot], top: float) -> list[_Line]:
    """The runs of points. A line to or from a lower bound is one of a lower bound."""
    lines: list[_Line] = [_Line(False, [])]
    before: Dot | None = None
    for dot in points:
        if dot.value is None:
            lines.append(_Line(False, []))
            before = None
            continue
        y = _BASE - (dot.value / top if top > 0 else 0) * (_BASE - _TOP)
        here = f"{_x(dot.time_s, points):.1f},{y:.1f}"
        least = dot.least or (before is not None and before.least)
        if before is None or least != lines[-1].least:
            lines.append(_Line(least, lines[-1].at[-1:] if before is not None else []))
        lines[-1].at.append(here)
        before = dot
    # A single point is drawn as a short stroke, because a point would not be visible.
    return [
        line if len(line.at) > 1 else line._replace(at=[*line.at, _nudged(line.at[0])]) for line in lines if line.at
    ]


def _nudged(point: str) -> str:
    x, _, y = point.partition(",")
    return f"{float(x) + 2:.1f},{y}"
