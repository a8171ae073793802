"""The share-partitions of a page: their lines, and events of their services, from rows of sums (PM-37). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from share_metrics.report.model import MARKS_MAX, Before, Event, Mark, Pace, PartitionLine, Point

KEY: Final = ("group_id", "topic_id", "partition")
#: The sums over a page.
SUMMED: Final = (
    "finished_count", "ack_accept", "ack_release", "ack_reject", "timeout_count", "limit_archived_count",
    "given_back_count", "redelivered_lb", "finished_known", "state_epoch_resets", "anomalies",
)  # fmt: skip
#: The figures that a page shows for the period before it, and their columns.
BEFORE: Final = {
    "finished": "finished_count", "accepted": "ack_accept", "released": "ack_release", "rejected": "ack_reject",
    "timed_out": "timeout_count", "limited": "limit_archived_count", "redelivered_lb": "redelivered_lb",
}  # fmt: skip


def before_page(totals: list[dict[str, Any]], span: timedelta) -> Before:
    """The figures for the period before the page, from the rows of `totals`."""
    sums = {name: sum(row[f"before_{source}"] or 0 for row in totals) for name, source in BEFORE.items()}
    there = [(row["lag_before"], row["least_before"]) for row in totals if not row["not_before"]]
    unknown = sum(lag is None or least for lag, least in there)
    return Before(int(span.total_seconds()), sum(lag or 0 for lag, _ in there), unknown, **sums)


def claims(streams: list[dict[str, Any]], begin: datetime) -> dict[tuple[Any, ...], list[Mark]]:
    """The times, from the page's start on, at which the state of each share-partition got a new owner."""
    found: dict[tuple[Any, ...], list[Mark]] = {}
    for row in streams:
        marks = [Mark(int(at), Event.OWNER) for at in row["claimed_at"] or () if at >= begin.timestamp()]
        for key in row["keys"] or () if marks else ():
            found[key_of(key)] = marks
    return found


def marks_of(row: dict[str, Any], owners: Mapping[tuple[Any, ...], list[Mark]]) -> tuple[Mark, ...]:
    """The events in the services of one share-partition, the newest MARKS_MAX, in order."""
    marks = list(owners.get(key_of(row), ()))
    for event in row["events"] or ():
        for name, kind in (("leader_epoch_changes", Event.LEADER), ("state_epoch_resets", Event.RESET)):
            marks += [Mark(event["at"], kind)] if event[name] else []
    return tuple(sorted(marks)[-MARKS_MAX:])


def lines_of(
    totals: list[dict[str, Any]],
    names: dict[str, str],
    points: Mapping[tuple[Any, ...], tuple[Point, ...]],
    owners: Mapping[tuple[Any, ...], list[Mark]],
    still: Mapping[tuple[Any, ...], float],
) -> list[PartitionLine]:
    """The share-partitions of a page, in the order of `totals`; some with points for their charts. `still`: for how
    long those have stood still that do so at the end, s."""
    return [
        replace(_line(row, names, points.get(key_of(row), ()), marks_of(row, owners)), still_s=still.get(key_of(row)))
        for row in totals
    ]


def archived(totals: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """How many records of each share-partition were archived, because they were rejected or at the limit."""
    return {key_of(row): (row["ack_reject"] or 0) + (row["limit_archived_count"] or 0) for row in totals}


def _line(
    row: dict[str, Any], names: dict[str, str], points: tuple[Point, ...], marks: tuple[Mark, ...]
) -> PartitionLine:
    """One share-partition, from its row of `totals`."""
    known = row["finished_known"]
    return PartitionLine(
        name_of(row, names),
        row["spso"],
        row["lag"],
        row["finished_count"],
        row["ack_accept"],
        row["ack_release"],
        row["ack_reject"],
        row["timeout_count"],
        row["limit_archived_count"],
        row["redelivered_lb"],
        (row["redelivered_lb"] or 0) / known if known else None,
        row["state_epoch_resets"],
        row["anomalies"],
        points,
        row["lag_seconds"],
        row["delayed"],
        row["lag_least"],
        row["gone"],
        row["group_id"],
        None if row["seconds"] is None else Pace(row["arrived"], row["done"], row["seconds"]),
        marks,
        row["given_back_count"],
    )


def still_at_end(
    rows: Iterable[Mapping[str, Any]], window_s: int, known_end: datetime, read_until: datetime
) -> dict[tuple[Any, ...], float]:
    """For how long, s, each share-partition has stood still that does so in the last window that is judged.

    `rows`: for each share-partition the `last` window in which it stands still, s since 1970, with its `kind` and
    `still_s`. Windows are judged up to `known_end`; that of `read_until` too, if the group has no
    members, and then the time is that up to `read_until`.
    """
    found = {}
    whole, read = known_end.timestamp(), read_until.timestamp()
    for row in rows:
        judged_to = max(whole, read) if row["kind"] == "abandoned" else whole
        if row["last"] + window_s >= judged_to:
            found[key_of(row)] = max(row["still_s"] - max(row["last"] + window_s - read, 0.0), 0.0)
    return found


def name_of(row: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The name of a share-partition on the page."""
    return f"{row['group_id']} · {names.get(row['topic_id'], row['topic_id'])}-{row['partition']}"


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a row of a share-partition."""
    return tuple(row[name] for name in KEY)
