"""Renders the page as one self-contained HTML file, for light and dark themes, desktop and phone (PM-37). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from kip932.printable import printable
from share_metrics.report.model import (
    BEHIND_S,
    ROWS_MAX,
    SHOWN_MAX,
    Ends,
    Event,
    PartitionLine,
    Report,
    Row,
    totals,
)
from share_metrics.report.svg import bar, chart

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1c2127;--dim:#5c6670;--paper:#fff;--line:#d8dee4;--mark:#1f6feb}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaee;--dim:#9aa4ae;--paper:#14181c;--line:#333b43;--mark:#6ea8fe}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{margin:0 auto;max-width:70rem;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}h3{font-size:1rem;margin:1rem 0 0}
.dim,.none,caption{color:var(--dim)}caption{text-align:left}
.light{display:inline-block;padding:.1rem .7rem;border-radius:1rem;color:#fff;font-weight:600}
.red{background:#b42318}.amber{background:#9a6700}.green{background:#1a7f37}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
.tiles div{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .8rem;color:var(--dim);font-size:13px}
.tiles b{display:block;font-size:1.5rem;line-height:1.2;color:var(--ink);font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .38rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{white-space:normal;overflow-wrap:normal;vertical-align:bottom;line-height:1.25;color:var(--dim);font-weight:600}
th:first-child,td:first-child{text-align:left;padding-left:0}td:first-child{white-space:normal;min-width:11rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(16rem,1fr));gap:.5rem 1.5rem}
svg{width:100%;height:auto}svg text{font-size:10px;fill:var(--dim)}
svg polyline{fill:none;stroke:var(--mark);stroke-width:1.5;stroke-linejoin:round}svg .axis{stroke:var(--line)}
svg .area{fill:var(--mark);opacity:.14}
.mix td:nth-child(2){min-width:10rem;width:99%}.mix th:nth-child(2){text-align:left}.mix svg{height:.9rem;display:block}
.key{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 .6rem;border-radius:.2rem}
.key:first-child{margin-left:0}
.k0{fill:#2da44e;background:#2da44e}.k1{fill:#1f6feb;background:#1f6feb}.k2{fill:#cf222e;background:#cf222e}
svg .m0,svg .m1,svg .m2{stroke-width:1.5;stroke-dasharray:3 2}
.m0{stroke:#8250df;background:#8250df}.m1{stroke:#cf222e;background:#cf222e}.m2{stroke:#9a6700;background:#9a6700}
.k3{fill:#d4a72c;background:#d4a72c}.k4{fill:#8250df;background:#8250df}
"""
_WELL: Final = "Nothing stands still, nothing was lost, nothing odd was found."
_REDELIVERED: Final = "redelivered\N{NO-BREAK SPACE}≥"  # so that the sign is never alone on a line
_LINE_HEAD: Final = (
    "share-partition", "start offset", "lag", "delayed", "lag in\N{NO-BREAK SPACE}s", "finished", "accepted",
    "released", "rejected", "timed out", "over limit", _REDELIVERED, "of finished\N{NO-BREAK SPACE}≥",
    "resets", "anomalies",
)  # fmt: skip
_WINDOWS: Final = {1: "second", 60: "minute", 3_600: "hour"}
_SIZES: Final = {"s": 1, "min": 60, "h": 3_600}
_GROUPS_HINT: Final = (
    "<p class='dim'>Arrived and finished are records a second over this page, of the windows at both of whose ends the "
    "lag is known; drained in: how long the lag takes at this pace.</p>"
)
_ENDS_HINT: Final = (
    "<p class='dim'>Of records that were finished or given up on this page: how long from their append until then. A "
    "record was appended after the last write of its share-partition that did not have it yet, and no later than the "
    "first one that had it; so each figure lies between two. Not known: appended before anything that was read.</p>"
)
_REASONS_HINT: Final = (
    "<p class='dim'>What members said when they released or rejected records, by kind of error: each failed delivery "
    "counts once. A member that gives no reason, as older clients do, is not counted.</p>"
)
_RATES: Final = (
    ("finished", "finished"), ("accepted", "accepted"), ("released", "released"), ("rejected", "rejected"),
    ("timed out", "timed_out"), ("over limit", "limited"), (_REDELIVERED, "redelivered_lb"),
)  # fmt: skip
_QUALITY: Final = ("stream", "entries", "claims", "noops", "quarantined", "unknown", "gaps", "lost")


class GroupLine(NamedTuple):
    """A group at the end of the page. Unknown values are None.

    `lag_least`: the lag may be greater, since that of some share-partition is unknown or a lower bound. Rates are in
    records a second, from the share-partitions and windows for which both rates are known. `drain_s`: seconds until the
    lag is 0 at these rates; infinite if the group does not gain on the producers.
    """

    group_id: str
    state: str | None
    members: int | None
    share_partitions: int
    lag: int | None
    lag_least: bool
    arrived_per_s: float | None
    finished_per_s: float | None
    drain_s: float | None


def render(report: Report) -> str:
    """The whole page. Equal reports give equal bytes."""
    shown, folded = report.partitions[:SHOWN_MAX], report.partitions[SHOWN_MAX:]
    body = [
        "<h1>Share groups</h1>",
        f'<p class="dim">{escape(report.begin)} to {escape(report.end)}, UTC, windows of {report.window_s:,} s</p>',
        _summary(report),
        "<h2>Groups</h2>",
        _GROUPS_HINT,
        _groups(report),
        "<h2>Beside the time before</h2>",
        _comparison(report),
        "<h2>From append to end</h2>",
        _ENDS_HINT,
        _ends(report.ends),
        "<h2>Share-partitions</h2>",
        "<p class='dim'>Largest lag first. Lag is high watermark less finished records at the end of this page, by "
        "what leaders wrote and by where the ingest saw the logs end; of them, delayed ones wait until their delay "
        "ends, and no member could take them then. Unknown: no member has fetched from it yet, so that its start is "
        "not set, or the end of its log was never seen. A dash: there is none, or it is not known. “≥” marks lower "
        "bounds.</p>",
        _partitions(shown),
        _fold(f"{len(folded)} more share-partitions", _partitions(folded)) if folded else "",
        "<h2>Lag and progress</h2>",
        _mark_key(shown),
        *(charts(line, report.window_s) for line in shown),
        "<h2>Acknowledgements</h2>",
        mix(shown),
        "<h2>Why records were given up</h2>",
        _REASONS_HINT,
        _reasons(report.reasons),
        "<h2>Failed records and poison candidates</h2>",
        "<p class='dim'>Rejected ones, those at the group's delivery limit, and released ones with one delivery left: "
        "the newest 100 of each share-partition.</p>",
        _of_more(report.poison, report.found.poison),
        _table(("offset", "share-partition", "state", "why", "deliveries", "first seen", "last seen", "released"),
               ((row["offset"], row["name"], row["state"], row["reason"], row["delivery_count"], row["first_seen"],
                 row["last_seen"], row["times_released"]) for row in report.poison)),
        "<h2>Stalls</h2>",
        _stalls(report),
        "<h2>Members</h2>",
        "<p class='dim'>Those at the end of this page, and the partitions that each was given.</p>",
        _of_more(report.members, sum(row["members"] or 0 for row in report.standing)),
        _table(("group", "client id", "host", "member", "epoch", "has"),
               ((row["group_id"], row["client_id"], row["client_host"], row["member_id"], row["member_epoch"],
                 row["has"]) for row in report.members)),
        "<h2>Rebalances</h2>",
        _table(("group", "state", "members", "joins", "leaves", "rebalances", "epochs", "flapping"),
               ((row["group_id"], row["state"], row["members"], row["joins"], row["leaves"], row["rebalances"],
                 row["epoch_bumps"], row["flapping"]) for row in report.groups)),
        "<h2>Shard skew</h2>",
        _table(("stream", "entries", "bytes", "keys", "skew", "Gini"),
               ((row["stream"], row["entries"], row["bytes"], row["keys"], row["skew"], row["gini"])
                for row in report.skew)),
        "<h2>Data quality</h2>",
        _quality(report),
    ]  # fmt: skip
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><title>Share groups</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _summary(report: Report) -> str:
    sums = totals(report)
    done = (
        f"{sums['accepted']:,} accepted, {sums['released']:,} released, {sums['rejected']:,} rejected, "
        f"{sums['timed_out']:,} timed out, {sums['limited']:,} over the limit; "
        f"at least {sums['redelivered_lb']:,} finished after redelivery."
    )
    tiles = (
        ("records finished", sums["finished"]), ("records of lag", sums["lag"]),
        ("share-partitions", sums["share_partitions"]), ("standing still", report.found.standing),
        ("failed or poison", sums["poison"]), ("entries lost", sums["lost"]),
    )  # fmt: skip
    least = {"failed or poison"} if report.found.poison_least else ()
    shown = "".join(f"<div><b>{'≥ ' * (words in least)}{number:,}</b> {words}</div>" for words, number in tiles)
    findings = "; ".join(report.findings)
    words = f"{findings[0].upper()}{findings[1:]}." if findings else _WELL
    light = f'<p><span class="light {report.light}">{report.light}</span> {words}</p>'
    notes = _late(report.behind_s) + _unknown_lag(sums["lag_unknown"])
    return f'{light}{notes}<div class="tiles">{shown}</div><p class="dim">{done}</p>'


def _groups(report: Report) -> str:
    lines = group_lines(report.partitions, report.standing)
    shown = lines[:ROWS_MAX]
    return _of_more(shown, len(lines)) + _table(
        ("group", "state", "members", "share-partitions", "lag", "arrived a second", "finished a second", "drained in"),
        (
            (
                line.group_id, line.state, line.members, line.share_partitions, _group_lag(line),
                _rate(line.arrived_per_s), _rate(line.finished_per_s), _drained(line.drain_s),
            )
            for line in shown
        ),
    )  # fmt: skip


def group_lines(partitions: Iterable[PartitionLine], standing: Iterable[Mapping[str, Any]]) -> list[GroupLine]:
    """The groups with share-partitions or a state other than Dead, largest lag first; unknown lags before all others
    (PM-89).

    `standing`: rows with `group_id`, `state` and `members` at the end.
    """
    by_group: dict[str, list[PartitionLine]] = {}
    for line in partitions:
        if not line.gone:
            by_group.setdefault(line.group_id, []).append(line)
    states = {row["group_id"]: row for row in standing}
    there = by_group.keys() | {group for group, row in states.items() if row["state"] != "Dead"}
    found = [_group_line(group, by_group.get(group, ()), states.get(group, {})) for group in there]
    return sorted(found, key=lambda one: (one.lag is not None, -(one.lag or 0), one.group_id))


def _group_line(group: str, lines: Sequence[PartitionLine], state: Mapping[str, Any]) -> GroupLine:
    lags = [line.lag for line in lines if line.lag is not None]
    lag = sum(lags) if lags or not lines else None
    paces = [line.pace for line in lines if line.pace is not None]
    arrived = sum(pace.arrived / pace.seconds for pace in paces) if paces else None
    finished = sum(pace.finished / pace.seconds for pace in paces) if paces else None
    return GroupLine(
        group,
        state.get("state"),
        state.get("members"),
        len(lines),
        lag,
        any(line.lag is None or line.lag_least for line in lines),
        arrived,
        finished,
        drain_s(lag, arrived, finished, state.get("members")),
    )


def drain_s(
    lag: int | None, arrived_per_s: float | None, finished_per_s: float | None, members: int | None
) -> float | None:
    """Seconds until the lag is 0 at these rates; None if unknown.

    Infinite if the lag does not shrink, or if the group has no members.
    """
    if lag == 0:
        return 0.0
    if lag and members == 0:
        return float("inf")
    if lag is None or arrived_per_s is None or finished_per_s is None:
        return None
    gained = finished_per_s - arrived_per_s
    return lag / gained if gained > 0 else float("inf")


def _group_lag(line: GroupLine) -> str | int:
    if line.lag is None:
        return "unknown"
    return f"≥\N{NO-BREAK SPACE}{line.lag:,}" if line.lag_least else line.lag


def _comparison(report: Report) -> str:
    """The sums of the page next to those of the period before it (PM-93)."""
    before, sums = report.before, totals(report)
    if before is None:
        return '<p class="none">Nothing was read.</p>'
    now = [_fine(sums[name] / report.read_s) if report.read_s else None for _, name in _RATES]
    then = [_fine(getattr(before, name) / before.seconds) for _, name in _RATES]
    heading = (
        f"Lag at the end of each, and records a second; before: {_drained(before.seconds)} up to the page's begin."
    )
    rows = (
        ("this page", _at_least(sums["lag"], sums["lag_unknown"]), *now),
        ("before", _at_least(before.lag, before.lag_unknown), *then),
    )
    return f"<p class='dim'>{heading}</p>" + _table(("", "lag", *(words for words, _ in _RATES)), rows)


def _fine(per_s: float) -> str:
    return f"{per_s:,.1f}" if per_s >= 10 or not per_s else f"{per_s:.3f}"


def _at_least(lag: int, unknown: int) -> str:
    return f"≥\N{NO-BREAK SPACE}{lag:,}" if unknown else f"{lag:,}"


def _ends(ends: Sequence[Ends]) -> str:
    shown = ends[:ROWS_MAX]
    return _of_more(shown, len(ends)) + _table(
        ("group", "half took", "95 of 100", "99 of 100", "records", "not known"),
        ((one.group_id, *map(_range, (one.p50_ms, one.p95_ms, one.p99_ms)), one.records, one.unknown) for one in shown),
    )


def _range(bounds: tuple[int, int] | None) -> str | None:
    """Two bounds as text, or a single text if both are the same."""
    if bounds is None:
        return None
    low, high = map(_took, bounds)
    return low if low == high else f"{low} – {high}"


def _took(ms: int) -> str:
    if ms < 1_000:
        return f"{ms} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else str(_drained(ms / 1_000))


def _mark_key(lines: Sequence[PartitionLine]) -> str:
    """The key to the vertical lines of the charts (PM-92)."""
    if not any(line.marks for line in lines):
        return ""
    words = "".join(f'<span class="key m{number}"></span>{event.value} ' for number, event in enumerate(Event))
    return f'<p class="dim">Upright lines: {words}</p>'


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:,.1f}"


def _drained(seconds: float | None) -> str | None:
    """A time to drain as text. It is an estimate, so two units are enough."""
    if seconds is None or seconds == 0:
        return None if seconds is None else "nothing left"
    if seconds == float("inf"):
        return "never, at this pace"
    whole = round(seconds)
    for unit, size, smaller in (("d", 86_400, "h"), ("h", 3_600, "min"), ("min", 60, "s")):
        if whole >= size:
            return f"{whole // size:,} {unit} {whole % size // _SIZES[smaller]} {smaller}"
    return f"{max(whole, 1)} s"


def _unknown_lag(share_partitions: int) -> str:
    if not share_partitions:
        return ""
    return (
        f"<p><b>The lag of {share_partitions:,} share-partitions is unknown</b>, or only what it is at least: "
        "records may wait there. Did a member ever fetch from them, and does <code>sharegroups metrics ingest</code> "
        "say that it cannot sample where logs end?</p>"
    )


def _late(behind_s: int) -> str:
    if behind_s < BEHIND_S:
        return ""
    hours, minutes = divmod(behind_s // 60, 60)
    span = f"{hours:,} h {minutes} min" if hours else f"{minutes} min"
    running = "Is <code>sharegroups metrics ingest</code> running, and does it keep up?"
    return f"<p><b>Not everything from the last {span} has been read yet.</b> {running}</p>"


def _partitions(lines: Sequence[PartitionLine]) -> str:
    return _table(
        _LINE_HEAD,
        (
            (
                line.name, line.spso, _lag(line), line.delayed, line.lag_s, line.finished, line.accepted, line.released,
                line.rejected, line.timed_out, line.limited, line.redelivered_lb, _percent(line.redelivery_ratio),
                line.resets, line.anomalies,
            )
            for line in lines
        ),
    )  # fmt: skip


def _lag(line: PartitionLine) -> str | int | None:
    if line.lag_unknown:
        return "unknown"
    return f"≥\N{NO-BREAK SPACE}{line.lag:,}" if line.lag_least else line.lag


def charts(line: PartitionLine, window_s: int) -> str:
    """Lag and progress of a share-partition over the page's time, with its marks."""
    events = list(Event)
    marks = [(mark.time_s, events.index(mark.event), mark.event.value) for mark in line.marks]
    lag = chart("lag", [(point.time_s, point.lag) for point in line.points], marks) if line.points else ""
    each = f"finished in each {_WINDOWS.get(window_s, f'{window_s} s')}"
    done = chart(each, [(point.time_s, point.finished) for point in line.points], marks) if line.points else ""
    return f'<h3>{escape(line.name)}</h3><div class="charts">{lag}{done}</div>'


def _reasons(reasons: Sequence[Row]) -> str:
    """A table of reasons. Their texts come from other people: control characters and marks of direction are escaped."""
    return _table(
        ("why", "group", "topic", "failed deliveries", "newest"),
        (
            (
                "all others" if row["kind"] is None else printable(row["kind"]), row["group_id"], row["topic"],
                row["records"], None if row["example"] is None else printable(row["example"]),
            )
            for row in reasons
        ),
    )  # fmt: skip


def _stalls(report: Report) -> str:
    """A table of standstills, and a folded table of their windows."""
    runs = _table(
        ("share-partition", "kind", "nothing finished since", "until", "lag at most"),
        ((row["name"], row["kind"], row["since"], row["until"], row["lag"]) for row in report.episodes),
    )
    if not report.stalls:
        return runs
    windows = _table(
        ("share-partition", "window", "lag", "still for s", "kind"),
        ((row["name"], row["window"], row["lag"], row["still_s"], row["kind"]) for row in report.stalls),
    )
    return runs + _fold("Window by window", _of_more(report.stalls, report.found.stalls) + windows)


def mix(lines: Sequence[PartitionLine]) -> str:
    """A bar for each share-partition, and the key to its colours."""
    kinds = ("accepted", "released", "rejected", "timed out", "over limit")
    key = "".join(f'<span class="key k{number}"></span>{kind} ' for number, kind in enumerate(kinds))
    bars = "".join(
        f"<tr><td>{escape(line.name)}</td><td>{bar(counts)}</td><td>{_percent(line.redelivery_ratio)}</td></tr>"
        for line in lines
        if sum(counts := [line.accepted or 0, line.released or 0, line.rejected or 0, line.timed_out or 0,
                          line.limited or 0])
    )  # fmt: skip
    if not bars:
        return '<p class="none">None.</p>'
    names = ("share-partition", "records by type of acknowledgement", _REDELIVERED)
    head = f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>"
    return f'<p class="dim">{key}</p><div class="wide"><table class="mix"><thead>{head}</thead>{bars}</table></div>'


def _quality(report: Report) -> str:
    counts = _table(
        _QUALITY,
        (tuple(row[name] for name in _QUALITY) for row in report.quality),
    )  # fmt: skip
    gaps = _table(
        ("stream", "after", "to", "lost", "why"),
        (tuple(row[name] for name in ("stream", "from_id", "to_id", "lost", "reason")) for row in report.gaps),
    )
    return (
        f"<p>{report.incomplete:,} windows of share-partitions are incomplete: a replay had no snapshot there.</p>"
        f"<h3>Gaps</h3>{gaps}{_fold('Counts by stream', counts)}"
    )


def _of_more(rows: Sequence[Any], found: int) -> str:
    return f'<p class="dim">{len(rows):,} of {found:,} are shown.</p>' if found > len(rows) else ""


def _fold(words: str, inner: str) -> str:
    return f"<details><summary>{escape(words)}</summary>{inner}</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    if not body:
        return '<p class="none">None.</p>'
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.1%}".replace("%", " %")


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
