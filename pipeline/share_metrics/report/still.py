"""The first part of the page: what stands still, for how long and why, and what no group reads (PM-100). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from share_metrics.report.model import ROWS_MAX, PartitionLine, Report, Row, seconds_of
from share_metrics.report.tables import EMPTY, Columns, dim, fold, of_more, table
from share_metrics.report.words import bounded, counted, duration, instant, listed, text

STILL: Final = Columns("still", ("share-partition", "for", "lag", "nothing finished since", "why"))
UNREAD: Final = Columns("unread", ("topic", "records", "oldest waits for", "appended"))
RUNS: Final = Columns("runs", ("share-partition", "lag at most", "kind", "nothing finished since", "until"))
WINDOWS: Final = Columns("still-windows", ("share-partition", "lag", "window", "still for", "kind"))
#: The maximum number of groups without anything but configs that are named.
_NAMED_MAX: Final = 50


def still(report: Report) -> str:
    """The share-partitions that stand still at the end, at most ROWS_MAX."""
    lines = report.still
    if not lines:
        return EMPTY
    shown = lines[:ROWS_MAX]
    states = {row["group_id"]: row for row in report.standing}
    runs = sorted(report.episodes, key=lambda row: str(row["until"]))
    since = {row["name"]: _since(row, report.window_s) for row in runs}
    rows = (
        (line.name, duration(line.still_s or 0), bounded(line.lag, line.lag_least),
         since.get(line.name), why(line, states.get(line.group_id)))
        for line in shown
    )  # fmt: skip
    return of_more(shown, len(lines)) + table(STILL, rows)


def why(line: PartitionLine, group: Row | None) -> str:
    """Why a share-partition stands still, as far as its group and its counts on this page show it."""
    members = group["members"] if group else None
    if members is None:
        return "no member of the group was ever seen"
    if not members:
        return "the group has no members"
    words = f"{counted(members, 'member finishes', 'members finish')} nothing"
    if line.timed_out:
        return f"{words}, and {counted(line.timed_out, 'record')} timed out on this page: do they hang?"
    if line.released:
        return f"{words}, and released {counted(line.released, 'record')} on this page"
    return f"{words}: do they hang, or wait for something?"


def unread(report: Report) -> str:
    """The topics that no group reads, and the groups that have only configs; nothing without any."""
    parts = []
    if report.unread:
        shown = report.unread[:ROWS_MAX]
        end_s = seconds_of(report.end)
        parts += [
            "<h3>Topics that no group reads</h3>",
            dim("They have records, and no group has a share-partition of them."),
            of_more(shown, len(report.unread)),
            table(UNREAD, ((row["topic"], row["records"], *_waits(row["oldest_s"], end_s)) for row in shown)),
        ]
    if report.configured:
        names = text(listed(list(report.configured), _NAMED_MAX))
        parts.append(
            f"<h3>Groups that have only configs</h3><p>They have neither members nor share-partitions: {names}.</p>"
        )
    return "".join(parts)


def _waits(oldest_s: float | None, end_s: int) -> tuple[str | None, str | None]:
    return (None, None) if oldest_s is None else (duration(max(end_s - oldest_s, 0)), instant(oldest_s))


def standstills(report: Report) -> str:
    """All standstills of the page, and a folded table of their windows."""
    runs = table(
        RUNS,
        ((row["name"], _lag(row), row["kind"], _since(row, report.window_s), instant(row["until"]))
         for row in report.episodes),
    )  # fmt: skip
    if not report.stalls:
        return runs
    windows = table(
        WINDOWS,
        ((row["name"], _lag(row), instant(row["window"]), duration(row["still_s"]), row["kind"])
         for row in report.stalls),
    )  # fmt: skip
    return runs + fold("Window by window", of_more(report.stalls, report.found.stalls) + windows)


def _since(episode: Row, window_s: int) -> str:
    """The end of the window in which a record was last finished: from there on ages are counted."""
    return instant(seconds_of(episode["since"]) + window_s)


def _lag(row: Row) -> str:
    return bounded(row["lag"], bool(row.get("lag_least")))


def outages(spans: Sequence[tuple[int, int]]) -> str:
    """The spans in which nothing was ingested, in words (PM-104); nothing without any."""
    if not spans:
        return ""
    each = [f"from {instant(since)} to {instant(until)} ({duration(until - since)})" for since, until in spans]
    return (
        f"<p><b>Nothing was ingested {text(listed(each, _NAMED_MAX))}.</b> Charts are hatched there; what was written "
        "meanwhile was read later, if the store still had it.</p>"
    )
