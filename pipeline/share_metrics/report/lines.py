"""The share-partitions of a page: their state at the end, their counts, and events of their services (PM-37)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics.common import KEY
from share_metrics.report.model import MARKS_MAX, Before, Event, Mark, Pace, PartitionLine, Point

SUMMED: Final = (
    "finished_count", "ack_accept", "ack_release", "ack_reject", "timeout_count", "limit_archived_count",
    "given_back_count", "redelivered_lb", "finished_known", "state_epoch_resets", "anomalies",
)  # fmt: skip

#: The figures that a page shows for the period before it, and their columns.
_BEFORE: Final = {
    "finished": "finished_count", "accepted": "ack_accept", "released": "ack_release", "rejected": "ack_reject",
    "timed_out": "timeout_count", "limited": "limit_archived_count", "redelivered_lb": "redelivered_lb",
}  # fmt: skip
_PACE: Final = {"arrived": "arrived", "finished_count": "done", "seconds": "seconds"}


def at_end(filled: DataFrame, begin: datetime, end: datetime, read_until: datetime) -> DataFrame:
    """The last known start offset of each share-partition, its lag, and the window at whose end it had this lag.

    This is the last window that was read or has records, otherwise the last window. Deleted share-partitions have no
    lag. `lag_before`: the lag at the page's start. `filled` must have `arrived`, which is summed from there on.
    """
    judged = F.struct((F.col("window") < F.lit(read_until)) | (F.col("entries") > 0), "window")
    here = F.col("window") >= F.lit(begin)
    last_before = F.max(F.when(~here, F.col("window")))
    return filled.where(F.col("window") < F.lit(end)).groupBy(*KEY).agg(
        F.max_by("last_spso", "window").alias("spso"),
        F.max_by("gone", "window").alias("gone"),
        F.max_by("last_lag", judged).alias("lag"),
        F.max_by("lag_least", judged).alias("lag_least"),
        F.max_by("delayed", "window").alias("delayed"),
        F.max_by("window", judged).alias("window"),
        *(F.sum(F.when(here & F.col("arrived").isNotNull(), F.col(name))).alias(pace) for name, pace in _PACE.items()),
        F.max_by("last_lag", F.when(~here, F.col("window"))).alias("lag_before"),
        F.max_by("lag_least", F.when(~here, F.col("window"))).alias("least_before"),
        (F.max_by("gone", F.when(~here, F.col("window"))) | last_before.isNull()).alias("not_before"),
        F.max(here).alias("here"),
    ).where("here").withColumn("lag", F.when(~F.col("gone"), F.col("lag")))  # fmt: skip


def totals(windows: DataFrame, at_the_end: DataFrame, begin: datetime, before: datetime) -> list[dict[str, Any]]:
    """The share-partitions, those with the largest lag first, with the sums over the page.

    `before_…` are the sums from `before` to the page's start. `events` are windows with new leaders or resets.
    """
    here = F.col("window") >= F.lit(begin)
    earlier = ~here & (F.col("window") >= F.lit(before))
    marked = F.struct(F.col("window").cast("long").alias("at"), "leader_epoch_changes", "state_epoch_resets")
    event = here & (F.col("leader_epoch_changes") + F.col("state_epoch_resets") > 0)
    summed = windows.groupBy(*KEY).agg(
        *(F.sum(F.when(here, F.col(name))).alias(name) for name in SUMMED),
        *(F.sum(F.when(earlier, F.col(name))).alias(f"before_{name}") for name in _BEFORE.values()),
        F.slice(F.sort_array(F.collect_list(F.when(event, marked)), asc=False), 1, MARKS_MAX).alias("events"),
        F.max(F.when(here, F.lit(True))).alias("written"),
    )
    # A share-partition without writes did nothing, so its counts are 0. If its writes have no counts, they stay null.
    idle = F.col("written").isNull()
    done = [F.when(idle, F.lit(0)).otherwise(F.col(name)).alias(name) for name in SUMMED]
    found = at_the_end.join(summed, [*KEY], "left").select(
        *KEY, "spso", "lag", "lag_least", "gone", "delayed", "lag_seconds", "arrived", "done", "seconds", "lag_before",
        "least_before", "not_before", "events", *(f"before_{name}" for name in _BEFORE.values()), *done,
    )  # fmt: skip
    rows = [row.asDict() for row in found.collect()]  # sorted here: Spark would run the plan twice to sort it
    return sorted(rows, key=lambda row: (row["lag"] is None, -(row["lag"] or 0), *key_of(row)))


def points_of(filled: DataFrame, worst: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Point, ...]]:
    """The points of the charts of the share-partitions in `worst`."""
    points: dict[tuple[Any, ...], list[Point]] = {key_of(row): [] for row in worst}
    drawn = filled.where(F.concat_ws("\0", *KEY).isin(*("\0".join(map(str, key)) for key in points)))
    shown = drawn.select(*KEY, F.col("window").cast("long").alias("at"), "last_lag", "lag_least", "finished_count")
    for row in sorted(shown.collect(), key=lambda row: row["at"]):
        points[key_of(row)].append(Point(row["at"], row["last_lag"], row["finished_count"], row["lag_least"]))
    return {key: tuple(found) for key, found in points.items()}


def before_page(totals: list[dict[str, Any]], span: timedelta) -> Before:
    """The figures for the period before the page, from the rows of `totals`."""
    sums = {name: sum(row[f"before_{source}"] or 0 for row in totals) for name, source in _BEFORE.items()}
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


def name_of(row: dict[str, Any], names: dict[str, str]) -> str:
    """The name of a share-partition on the page."""
    return f"{row['group_id']} · {names.get(row['topic_id'], row['topic_id'])}-{row['partition']}"


def key_of(row: Mapping[str, Any] | Row) -> tuple[Any, ...]:
    """The key of a row of a share-partition."""
    return tuple(row[name] for name in KEY)
