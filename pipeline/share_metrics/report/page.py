"""Renders the page as one self-contained HTML file, for light and dark themes, desktop and phone (PM-37). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kip932.sizes import size_text
from share_metrics.report.groups import COLUMNS as GROUPS
from share_metrics.report.groups import group_lines, groups
from share_metrics.report.model import BEHIND_S, ROWS_MAX, SHOWN_MAX, Ends, Event, PartitionLine, Report, Row, totals
from share_metrics.report.still import RUNS, STILL, UNREAD, WINDOWS, outages, standstills, still, unread
from share_metrics.report.style import NARROW, STYLE
from share_metrics.report.svg import HATCH, Dot, Overlay, bar, chart
from share_metrics.report.tables import EMPTY, Columns, cell, dim, fold, framed, labels, of_more, percent, table
from share_metrics.report.words import bounded, counted, duration, instant, listed, plural, text

_WELL: Final = "Nothing stands still, nothing was lost, nothing odd was found."
_REDELIVERED: Final = "redelivered\N{NO-BREAK SPACE}≥"  # so that the sign is never alone on a line
_LINES: Final = Columns(
    "lines",
    (
        "share-partition", "lag", "delayed", "oldest waits for", "finished", "accepted", "released", "rejected",
        "timed out", "over limit", _REDELIVERED,
    ),
)  # fmt: skip
_STATES: Final = Columns(
    "states",
    ("share-partition", "start offset", "given back", "of finished\N{NO-BREAK SPACE}≥", "resets", "anomalies"),
)
_RATES: Final = (
    ("finished", "finished"), ("accepted", "accepted"), ("released", "released"), ("rejected", "rejected"),
    ("timed out", "timed_out"), ("over limit", "limited"), (_REDELIVERED, "redelivered_lb"),
)  # fmt: skip
_BEFORE: Final = Columns("before", ("", "lag", *(words for words, _ in _RATES)))
_ENDS: Final = Columns("ends", ("group", "half took", "95 of 100", "99 of 100", "records", "not known"))
_REASONS: Final = Columns("reasons", ("why", "failed deliveries", "group", "topic", "newest"))
_FAILED: Final = Columns(
    "failed", ("share-partition", "offset", "state", "why", "deliveries", "first seen", "last seen", "came back")
)
_LETTERS: Final = Columns("letters", ("topic", "records"))
_MEMBERS: Final = Columns("members", ("group", "client id", "host", "member", "epoch", "has"))
_CHANGES: Final = Columns(
    "changes", ("group", "state", "members", "joins", "leaves", "rebalances", "epochs", "flapping")
)
_MIX: Final = Columns("mix", ("share-partition", "records by type of acknowledgement", _REDELIVERED))
_SKEW: Final = Columns("skew", ("stream", "entries", "bytes", "keys"))
_QUALITY: Final = Columns("quality", ("stream", "entries", "claims", "noops", "quarantined", "unknown", "gaps", "lost"))
_GAPS: Final = Columns("gaps", ("stream", "after", "to", "lost", "why"))
_TABLES: Final = (
    STILL, UNREAD, GROUPS, _REASONS, _FAILED, _LETTERS, _MEMBERS, _BEFORE, _ENDS, _LINES, _STATES, _MIX, RUNS, WINDOWS,
    _CHANGES, _SKEW, _QUALITY, _GAPS,
)  # fmt: skip
_WINDOWS: Final = {1: "second", 60: "minute", 3_600: "hour"}
#: How many groups the title names.
_NAMED_MAX: Final = 3
_ENDS_HINT: Final = (
    "Of records that were finished or given up on this page: how long from their append until then. A record was "
    "appended after the last write of its share-partition that did not have it yet, and no later than the first one "
    "that had it; so each figure lies between two. Not known: appended before anything that was read."
)
_REASONS_HINT: Final = (
    "What members said when they released or rejected records, by kind of error: each failed delivery counts once. A "
    "member that gives no reason, as older clients do, is not counted."
)
_FAILED_HINT: Final = (
    "Rejected records, those at the group's delivery limit, and released ones with one delivery left: the newest 100 "
    "of each share-partition."
)
_LINES_HINT: Final = (
    "Largest lag first. Lag is high watermark less finished records at the end of this page, by what leaders wrote and "
    "by where the ingest saw the logs end; of them, delayed ones wait until their delay ends, and no member could take "
    "them then. Unknown: no member has fetched from it yet, so that its start is not set, or the end of its log was "
    "never seen. A dash: there is none, or it is not known. “≥” and dashed lines mark lower bounds."
)


def render(report: Report) -> str:
    """The whole page. Equal reports give equal bytes."""
    title = text(_title(report))
    narrow = f"@media(max-width:40rem){{{NARROW}{''.join(map(labels, _TABLES))}}}"
    body = "".join((*_head(report), *_now(report), *_lines(report), *_streams(report)))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>'
        f"<style>{STYLE}{narrow}</style></head><body><h1>{title}</h1>{body}</body></html>\n"
    )


def _title(report: Report) -> str:
    """Share groups, of which cluster, and the first few by the order of the table of groups (PM-102)."""
    named = [line.group_id for line in group_lines(report.partitions, report.standing) if line.group_id]
    cluster = f" of {report.cluster}" if report.cluster else ""
    return f"Share groups{cluster}" + (f": {listed(named, _NAMED_MAX)}" if named else "")


def _head(report: Report) -> tuple[str, ...]:
    return (
        dim(f"{text(instant(report.begin))} to {text(instant(report.end))}, UTC, "
            f"windows of {duration(report.window_s)}"),
        _summary(report),
    )  # fmt: skip


def _now(report: Report) -> tuple[str, ...]:
    """What an operator needs first: what stands still, what failed, and who works on it."""
    return (
        "<h2>What stands still</h2>",
        still(report),
        unread(report),
        "<h2>Groups</h2>",
        groups(group_lines(report.partitions, report.standing)),
        "<h2>Why records were given up</h2>",
        dim(_REASONS_HINT),
        _reasons(report.reasons),
        _failed(report),
        _letters(report.letters),
        "<h2>Members</h2>",
        dim("Those at the end of this page, and the partitions that each was given."),
        of_more(report.members, sum(row["members"] or 0 for row in report.standing)),
        table(_MEMBERS, ((row["group_id"], row["client_id"], row["client_host"], row["member_id"], row["member_epoch"],
                          row["has"]) for row in report.members)),
    )  # fmt: skip


def _lines(report: Report) -> tuple[str, ...]:
    """What happened in the page's time, by group and by share-partition."""
    shown, folded = report.partitions[:SHOWN_MAX], report.partitions[SHOWN_MAX:]
    more, rest = f"{len(folded):,} more {plural(len(folded), 'share-partition')}", folded[:ROWS_MAX]
    states = report.partitions[:ROWS_MAX]
    return (
        "<h2>Beside the time before</h2>",
        _comparison(report),
        "<h2>From append to end</h2>",
        dim(_ENDS_HINT),
        _ends(report.ends),
        "<h2>Share-partitions</h2>",
        dim(_LINES_HINT),
        _partitions(shown),
        fold(more, of_more(rest, len(folded)) + _partitions(rest)) if folded else "",
        fold("Start offsets, resets and anomalies", of_more(states, len(report.partitions)) + _states(states))
        if states else "",
        "<h2>Lag and progress</h2>",
        _chart_key(report, shown),
        *(charts(line, report.window_s, report.outages) for line in shown),
        "<h2>Acknowledgements</h2>",
        mix(shown),
        "<h2>Standstills</h2>",
        dim("All of this page's time, also those that are over."),
        standstills(report),
        "<h2>Rebalances</h2>",
        table(_CHANGES, ((row["group_id"], row["state"], row["members"], row["joins"], row["leaves"],
                          row["rebalances"], row["epoch_bumps"], row["flapping"]) for row in report.groups)),
    )  # fmt: skip


def _summary(report: Report) -> str:
    sums, findings = totals(report), "; ".join(report.findings)
    words = f"{text(findings[0].upper() + findings[1:])}." if findings else _WELL
    light = f'<p><span class="light {report.light}">{report.light}</span> {words}</p>'
    given_back = f"{sums['given_back']:,} given back by sessions that ended, " if sums["given_back"] else ""
    done = (
        f"{sums['accepted']:,} accepted, {sums['released']:,} released, {sums['rejected']:,} rejected, {given_back}"
        f"{sums['timed_out']:,} timed out, {sums['limited']:,} over the limit; "
        f"at least {sums['redelivered_lb']:,} finished after redelivery."
    )
    notes = _late(report.behind_s) + outages(report.outages) + _unknown_lag(sums["lag_unknown"])
    return f"{light}{notes}{_tiles(report, sums)}{dim(done)}"


def _tiles(report: Report, sums: dict[str, int]) -> str:
    failed, lost, standing = report.found.poison, report.found.lost, len(report.still)
    tiles = [
        (f"{sums['finished']:,}", f"{plural(sums['finished'], 'record')} finished"),
        (bounded(sums["lag"], bool(sums["lag_unknown"])), f"{plural(sums['lag'], 'record')} of lag"),
        (f"{sums['share_partitions']:,}", plural(sums["share_partitions"], "share-partition")),
        (f"{standing:,}", "standing still"),
        (bounded(failed, report.found.poison_least), "failed or poison"),
        (f"{lost:,}", f"{plural(lost, 'entry', 'entries')} lost"),
    ]
    if report.letters:
        letters = sum(row["records"] for row in report.letters)
        tiles.append((f"{letters:,}", f"{plural(letters, 'dead letter')} waiting"))
    if report.full is not None:
        tiles.append((f"{report.full:.0%}", "of the store in use"))
    return f'<div class="tiles">{"".join(f"<div><b>{number}</b> {words}</div>" for number, words in tiles)}</div>'


def _comparison(report: Report) -> str:
    """The sums of the page next to those of the period before it (PM-93)."""
    before, sums = report.before, totals(report)
    if before is None:
        return '<p class="none">Nothing was read.</p>'
    now = [_fine(sums[name] / report.read_s) if report.read_s else None for _, name in _RATES]
    then = [_fine(getattr(before, name) / before.seconds) for _, name in _RATES]
    rows = (
        ("this page", bounded(sums["lag"], bool(sums["lag_unknown"])), *now),
        ("before", bounded(before.lag, bool(before.lag_unknown)), *then),
    )
    span = duration(before.seconds)
    heading = f"Lag at the end of each, and records a second; before: {span} up to the page's begin."
    return dim(heading) + table(_BEFORE, rows)


def _fine(per_s: float) -> str:
    return f"{per_s:,.1f}" if per_s >= 10 or not per_s else f"{per_s:.3f}"


def _ends(ends: Sequence[Ends]) -> str:
    shown = ends[:ROWS_MAX]
    return of_more(shown, len(ends)) + table(
        _ENDS,
        ((one.group_id, *map(_range, (one.p50_ms, one.p95_ms, one.p99_ms)), one.records, one.unknown) for one in shown),
    )


def _range(bounds: tuple[int, int] | None) -> str | None:
    """Two bounds as text, or a single text if both are the same."""
    if bounds is None:
        return None
    low, high = (duration(ms / 1_000) for ms in bounds)
    return low if low == high else f"{low} – {high}"


def _unknown_lag(share_partitions: int) -> str:
    if not share_partitions:
        return ""
    return (
        f"<p><b>The lag of {counted(share_partitions, 'share-partition')} is unknown or only a lower bound: records "
        "may wait there.</b> Did a member ever fetch from there, and does <code>sharegroups metrics ingest</code> say "
        "that it cannot sample where logs end?</p>"
    )


def _late(behind_s: int) -> str:
    if behind_s < BEHIND_S:
        return ""
    running = "Is <code>sharegroups metrics ingest</code> running, and does it keep up?"
    return f"<p><b>Not everything from the last {duration(behind_s // 60 * 60)} has been read yet.</b> {running}</p>"


def _partitions(lines: Sequence[PartitionLine]) -> str:
    return table(
        _LINES,
        (
            (
                line.name, _lag(line), line.delayed, None if line.lag_s is None else duration(line.lag_s),
                line.finished, line.accepted, line.released, line.rejected, line.timed_out, line.limited,
                line.redelivered_lb,
            )
            for line in lines
        ),
    )  # fmt: skip


def _states(lines: Sequence[PartitionLine]) -> str:
    return table(
        _STATES,
        ((line.name, line.spso, line.given_back, percent(line.redelivery_ratio), line.resets, line.anomalies)
         for line in lines),
    )  # fmt: skip


def _lag(line: PartitionLine) -> str | None:
    return None if line.gone else bounded(line.lag, line.lag_least)


def _chart_key(report: Report, lines: Sequence[PartitionLine]) -> str:
    """The key to the charts' dashed lines (PM-102), vertical lines (PM-92) and hatched spans (PM-104)."""
    words = []
    if any(point.least for line in lines for point in line.points):
        words.append("Dashed: lower bounds, since the end of the log was not seen.")
    if any(line.marks for line in lines):
        kinds = "".join(f'<span class="key m{number}"></span>{event.value} ' for number, event in enumerate(Event))
        words.append(f"Upright lines: {kinds}")
    hatch = ""
    if report.outages:
        words.append("Hatched: nothing was ingested.")
        hatch = HATCH
    return hatch + (dim(" ".join(words)) if words else "")


def charts(line: PartitionLine, window_s: int, spans: Sequence[tuple[int, int]] = ()) -> str:
    """Lag and progress of a share-partition over the page's time, with its marks and the outages of the ingest.

    The lag at the end is the one that tables show, by value and by word.
    """
    events = list(Event)
    marks = [(mark.time_s, events.index(mark.event), mark.event.value) for mark in line.marks]
    overlay = Overlay(marks, spans)
    of_lag = overlay._replace(gone=line.gone)
    drawn = ""
    if line.points:
        at_end = Dot(line.points[-1].time_s, line.lag, line.lag_least)
        lag = [Dot(point.time_s, point.lag, point.least) for point in line.points]
        each = f"finished in each {_WINDOWS.get(window_s, duration(window_s))}"
        done = [Dot(point.time_s, point.finished) for point in line.points]
        drawn = chart("lag", lag, of_lag, at_end) + chart(each, done, overlay)
    return f'<h3>{text(line.name)}</h3><div class="charts">{drawn}</div>'


def _reasons(reasons: Sequence[Row]) -> str:
    return table(
        _REASONS,
        (("all others" if row["kind"] is None else row["kind"], row["records"], row["group_id"], row["topic"],
          row["example"]) for row in reasons),
    )  # fmt: skip


def _failed(report: Report) -> str:
    """How many records failed and how they ended; the records themselves are folded."""
    found, rows = report.found.poison, report.poison
    if not found:
        return "<h3>Failed records</h3>" + EMPTY
    ended = Counter(str(row["reason"]) for row in rows)
    parts = [f"{number:,} {words}" for words, number in sorted(ended.items(), key=lambda one: (-one[1], one[0]))]
    listing = f" Of the {len(rows):,} below" if found > len(rows) else ""
    split = f"{listing}: {', '.join(parts)}." if parts else "."
    number = bounded(found, report.found.poison_least)
    summary = f"<p>{number} {plural(found, 'record')} failed, or {plural(found, 'has', 'have')} one delivery left"
    records = table(
        _FAILED,
        ((row["name"], row["offset"], row["state"], row["reason"], row["delivery_count"], instant(row["first_seen"]),
          instant(row["last_seen"]), row["times_released"]) for row in rows),
    )  # fmt: skip
    end = "." if listing else ""
    folded = fold("Record by record", dim(_FAILED_HINT) + of_more(rows, found) + records)
    return f"<h3>Failed records</h3>{summary}{end}{text(split)}</p>{folded}"


def _letters(letters: Sequence[Row]) -> str:
    if not letters:
        return ""
    shown = letters[:ROWS_MAX]
    rows = table(_LETTERS, ((row["topic"], row["records"]) for row in shown))
    return f"<h3>Dead letters that wait</h3>{of_more(shown, len(letters))}{rows}"


def mix(lines: Sequence[PartitionLine]) -> str:
    """A bar for each share-partition, and the key to its colours."""
    kinds = ("accepted", "released", "rejected", "timed out", "over limit")
    key = "".join(f'<span class="key k{number}"></span>{kind} ' for number, kind in enumerate(kinds))
    bars = "".join(
        f"<tr><td>{text(line.name)}</td><td>{bar(counts, kinds)}</td>"
        f"<td>{cell(percent(line.redelivery_ratio))}</td></tr>"
        for line in lines
        if sum(counts := [line.accepted or 0, line.released or 0, line.rejected or 0, line.timed_out or 0,
                          line.limited or 0])
    )  # fmt: skip
    return dim(key) + framed(_MIX, bars) if bars else EMPTY


def _streams(report: Report) -> tuple[str, ...]:
    """The store and its streams, and how complete what was read is."""
    return ("<h2>Streams and store</h2>", _store(report), _skew(report.skew), "<h2>Data quality</h2>", _quality(report))


def _store(report: Report) -> str:
    if report.store is None:
        return ""
    used, limit = report.store["used_bytes"], report.store.get("limit_bytes")
    of = f" of {size_text(limit)} in use, {used / limit:.0%}." if limit else " in use; it has no limit."
    return f"<p>The store had {size_text(used)}{of}</p>"


def _skew(rows: Sequence[Row]) -> str:
    """How evenly streams are used: said once for all of them; the streams are folded (PM-62)."""
    if not rows:
        return EMPTY
    even = f"Skew {rows[0]['skew']:.2f} (the largest stream by the mean), Gini coefficient {rows[0]['gini']:.2f}."
    streams = table(_SKEW, ((row["stream"], row["entries"], row["bytes"], row["keys"]) for row in rows))
    return f"<p>{even}</p>" + fold(counted(len(rows), "stream"), streams)


def _quality(report: Report) -> str:
    counts = table(_QUALITY, (tuple(row[name] for name in _QUALITY.head) for row in report.quality))
    gaps = table(
        _GAPS, (tuple(row[name] for name in ("stream", "from_id", "to_id", "lost", "reason")) for row in report.gaps)
    )
    incomplete = counted(report.incomplete, "window of a share-partition is", "windows of share-partitions are")
    return (
        f"<p>{incomplete} incomplete: a replay had no snapshot there.</p>"
        f"<h3>Gaps</h3>{gaps}{fold('Counts by stream', counts)}"
    )
