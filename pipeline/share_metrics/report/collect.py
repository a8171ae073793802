"""Computes the report with Spark, which aggregates the rows, so that little data is sent to the driver (PM-37)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses

from share_metrics.metrics import (
    LogEnds,
    deletions_of,
    ends_of,
    episodes,
    fill_windows,
    gaps,
    group_windows,
    known_ends,
    lag_seconds,
    loads_of,
    measure,
    memberships,
    poison_of,
    progress_of,
    quality,
    reasons_of,
    replay_windows_of,
    stalls,
    with_arrivals,
    with_delayed,
    with_log_ends,
)
from share_metrics.metrics.common import KEY, ORDER, standing
from share_metrics.metrics.newest import topic_names
from share_metrics.metrics.stalls import COUNTS, GAUGES, STALL_AFTER_S, last_known
from share_metrics.replay.append_times import percentile_ms
from share_metrics.replay.given_reasons import OTHERS
from share_metrics.replay.poison import POISON_MAX, Reason
from share_metrics.report.lines import (
    SUMMED,
    archived,
    at_end,
    before_page,
    claims,
    key_of,
    lines_of,
    name_of,
    points_of,
    still_at_end,
    totals,
)
from share_metrics.report.model import REASONS_MAX, ROWS_MAX, SHOWN_MAX, Counts, Ends, Report

#: All rows from this long before the report's start on are read; older rows only if they give the state then (PM-32).
READ_BACK: Final = timedelta(hours=1)
_CHANGES: Final = ("joins", "leaves", "rebalances", "epoch_bumps", "flapping")
#: The columns of `progress` that a page needs.
_OF_WINDOWS: Final = tuple(
    dict.fromkeys(
        (*KEY, "window", *SUMMED, *COUNTS, *GAUGES, "done_at", "hwm_at", "tombstones", "leader_epoch_changes")
    )
)
_EDGES_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        *((name, pa.int64()) for name in ("begun_epoch", "begun_seq", "ended_epoch", "ended_seq")),
    ]
)
#: Greater than every id.
_AFTER_ALL: Final = (1 << 63, 0)
_QUANTILES: Final = (0.5, 0.95, 0.99)


class Logs(NamedTuple):
    """The topics' logs: samples of `log_ends` (PM-18), and rows of the kind `log_meta` if they were ingested."""

    ends: DataFrame
    batches: DataFrame | None = None


class Known(NamedTuple):
    """The time up to which everything was read. `behind_s`: how much earlier that is than the requested end, or than
    now, s."""

    until: datetime
    behind_s: int = 0


class RowsBetween:
    """Selects the rows for a page: applies `since` and `until` to several kinds with a single query (PM-7, PM-32).

    The query finds where each stream reaches the page's start and end. Its result, a row for each stream, is sent to
    the driver, so the plans that use it are short.
    """

    def __init__(self, rows: Sequence[DataFrame], begin: datetime, end: datetime) -> None:
        first, *others = (one.select("stream", "ts", *ORDER) for one in rows)
        for other in others:
            first = first.unionByName(other)
        at = {"begun": F.col("ts") >= F.lit(begin), "ended": F.col("ts") >= F.lit(end), "any": F.col("ts").isNotNull()}
        # By epoch too, so that the minimum is of plain numbers, which Spark aggregates without a sort.
        found = first.groupBy("stream", "epoch").agg(
            *(F.min(F.when(when, F.col("seq"))).alias(name) for name, when in at.items())
        ).collect()  # fmt: skip
        edges: dict[str, dict[str, tuple[int, int]]] = {}
        for row in found:
            here = edges.setdefault(row["stream"], {})
            for name in at:
                if row[name] is not None:
                    here[name] = min(here.get(name, _AFTER_ALL), (row["epoch"], row[name]))
        self._older = {
            name for name, one in edges.items() if "any" in one and one["any"] < one.get("begun", _AFTER_ALL)
        }
        none = (None, None)
        found_edges = [(name, *one.get("begun", none), *one.get("ended", none)) for name, one in sorted(edges.items())]
        columns = [list(column) for column in zip(*found_edges, strict=True)]
        self._edges = pa.table(columns or [[]] * 5, schema=_EDGES_SCHEMA)

    def until(self, rows: DataFrame) -> DataFrame:
        """Rows before the end, and those without a time."""
        return self._before(rows).select(*rows.columns)

    def both(self, rows: DataFrame) -> DataFrame:
        """Share-state rows before the end that `since` would keep for the start."""
        marked = self._before(rows)
        if not self._older:  # no stream has rows before the start
            return marked.select(*rows.columns)
        reached = F.struct(*ORDER) >= F.struct("begun_epoch", "begun_seq")
        known = F.col("begun_epoch").isNotNull()
        return standing(marked.withColumn("reached", F.coalesce(known & reached, F.lit(False))), rows.columns)

    def _before(self, rows: DataFrame) -> DataFrame:
        joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(self._edges)), "stream", "left")
        never = F.col("ts").isNull() | F.col("ended_epoch").isNull()
        return joined.where(never | (F.struct(*ORDER) < F.struct("ended_epoch", "ended_seq")))


def collect(  # noqa: PLR0917 - the parts of a report
    states: DataFrame,
    groups: DataFrame,
    begin: datetime,
    end: datetime,
    window_s: int = 60,
    logs: Logs | None = None,
    known: Known | None = None,
) -> Report:
    """The report from `begin` to `end` (exclusive), from rows of the kinds `share_state` and `group`.

    It covers whole windows: `begin` is rounded down and `end` up. Lag is computed from leaders' writes and the samples
    of `logs`. Samples after the time of `known` are not used, since the records finished by then are unknown. With
    batches in `logs`, the report has lag in seconds. Idle windows are filled up to the end. After the time of `known`,
    no share-partition counts as stalled, and charts show only windows with records. Rows without a time, such as gaps,
    are always included.
    """
    begin, end = _whole_windows(begin, end, window_s)
    known_end = end if known is None else min(end, _known_end(known.until, window_s))
    read_until = end if known is None else min(end, known.until)
    between = RowsBetween((states, groups), begin - READ_BACK, end)
    states = between.both(states)
    # Computed once, since everything below uses it. In particular, the rows of states are read only for this.
    found = measure(states, window_s).localCheckpoint()
    groups = between.until(groups).localCheckpoint()
    streams = _streams(found, groups)
    names, there = _names_and_members(groups)
    ends = _usable(logs, end, known, window_s, begin - READ_BACK)
    windows = progress_of(found, window_s).select(*_OF_WINDOWS)
    windows = with_log_ends(windows, ends, window_s).localCheckpoint()
    # Start one window before the page: the lag at that window's end is the lag at the page's start.
    filled = fill_windows(windows, window_s, begin - timedelta(seconds=window_s), end, deletions_of(found), ends)
    filled = with_delayed(filled, replay_windows_of(found), window_s)
    filled = filled.withColumn("last_spso", last_known("spso")).localCheckpoint()
    members = group_windows(groups, window_s).localCheckpoint()
    here = (F.col("window") >= F.lit(begin)) & (F.col("window") < F.lit(end))
    span = min(end - begin, READ_BACK)
    at_the_end = at_end(with_arrivals(filled, window_s, read_until), begin, end, read_until)
    at_the_end = _lagging(at_the_end, logs, window_s, read_until)
    done = totals(windows.where(F.col("window") < F.lit(end)), at_the_end, begin, begin - span)
    points = points_of(_blank_after(filled.where(here), read_until), done[:SHOWN_MAX])
    still = _judged(stalls(filled, members).where(here), known_end, read_until).localCheckpoint()
    stood = _standing(still)
    incomplete, doubtful, least = _replay_counts(found, begin, here, archived(done))
    counts = Counts(**_counts(streams, stood), poison=doubtful, poison_least=least)
    poison = poison_of(found).where(F.col("last_seen") >= F.lit(begin)).orderBy(F.desc("last_seen"), *KEY, "offset")
    runs = episodes(still, window_s).orderBy(F.desc("kind"), F.desc("until"), *KEY, "since")
    shown, standing = _groups(members, here)
    form = "%Y-%m-%d %H:%M" if window_s % 60 == 0 else "%Y-%m-%d %H:%M:%S"
    return Report(
        begin.strftime(form),
        end.strftime(form),
        window_s,
        lines_of(done, names, points, claims(streams, begin), still_at_end(stood, window_s, known_end, read_until)),
        # Skip the query for a kind that has no findings.
        poison=_rows(poison, names) if counts.poison else [],
        stalls=_rows(still.orderBy(F.desc("kind"), F.desc("window"), *KEY), names) if counts.stalls else [],
        episodes=_rows(runs, names) if counts.stalls else [],
        groups=shown[:ROWS_MAX],
        skew=skew_rows(row for row in streams if row["keys"] is not None)[:ROWS_MAX],
        quality=streams[:ROWS_MAX],
        gaps=_gaps(streams, groups),
        incomplete=incomplete,
        counts=counts,
        behind_s=known.behind_s if known else 0,
        standing=standing,
        members=there,
        before=before_page(done, span),
        ends=ends_by_group(_ends(found, here)),
        read_s=max(0, int((read_until - begin).total_seconds())),
        reasons=_reasons(found, here, names),
    )


def _known_end(known_until: datetime, window_s: int) -> datetime:
    """The end of the windows that can be judged. A partly read window is included if the read part is long enough."""
    whole, part_s = divmod(known_until.timestamp(), window_s)
    return datetime.fromtimestamp((whole + (part_s >= STALL_AFTER_S)) * window_s, UTC)


def _blank_after(filled: DataFrame, read_until: datetime) -> DataFrame:
    """Remove the values of windows without records that begin after what was read: it is unknown what was written."""
    unknown = (F.col("window") >= F.lit(read_until)) & (F.col("entries") == 0)
    return filled.withColumns({name: F.when(~unknown, F.col(name)) for name in ("last_lag", "finished_count")})


def _usable(logs: Logs | None, end: datetime, known: Known | None, window_s: int, begin: datetime) -> LogEnds:
    """What is known of the logs' ends up to the page's end, and up to the time of `known`, after which nothing was
    read."""
    until = None if known is None else min(end, known.until)
    if logs is None:
        return LogEnds(None, until)
    samples = logs.ends.where(F.col("sampled_at") < F.lit(end))
    batches = None if logs.batches is None else logs.batches.where(F.col("ts") < F.lit(end))
    marks, _ = known_ends(samples, batches, window_s, until, begin)
    return LogEnds(None if marks is None else marks.localCheckpoint(eager=False), until)


def _whole_windows(begin: datetime, end: datetime, window_s: int) -> tuple[datetime, datetime]:
    """The start of the first and the end of the last window that overlap this period, in UTC."""
    first, last = begin.timestamp() // window_s, -(-end.timestamp() // window_s)
    return datetime.fromtimestamp(first * window_s, UTC), datetime.fromtimestamp(last * window_s, UTC)


def _lagging(at_the_end: DataFrame, logs: Logs | None, window_s: int, read_until: datetime) -> DataFrame:
    if logs is None or logs.batches is None:
        return at_the_end.withColumn("lag_seconds", F.lit(None).cast("double"))
    return lag_seconds(at_the_end, logs.batches, window_s, read_until)


def _streams(found: DataFrame, groups: DataFrame) -> list[dict[str, Any]]:
    """The loads of all streams, sorted by name; `keys` is null for streams of groups."""
    both = loads_of(found).unionByName(quality(groups), allowMissingColumns=True).drop("newest_ts")
    return sorted((row.asDict() for row in both.collect()), key=lambda row: row["stream"])


def _gaps(streams: list[dict[str, Any]], groups: DataFrame) -> list[dict[str, Any]]:
    """The first ROWS_MAX gaps, by stream and ids. Rows of groups are queried only if they have gaps."""
    rows = [{"stream": one["stream"], **gap.asDict()} for one in streams for gap in one["gap_rows"] or ()]
    if any(one["gaps"] for one in streams if one["keys"] is None):
        rows += [row.asDict() for row in gaps(groups).collect()]
    return sorted(rows, key=lambda row: (row["stream"], row["from_id"], row["to_id"]))[:ROWS_MAX]


def _standing(still: DataFrame) -> list[dict[str, Any]]:
    """For each share-partition that stands still anywhere: in how many windows, in how many of them it is `stalled`,
    and the `last` one of these windows, s since 1970, with its kind and `still_s`."""
    last = F.max_by(F.struct("still_s", "kind"), "window").alias("at_last")
    found = still.groupBy(*KEY).agg(
        F.count("*").alias("stalls"),
        F.count(F.when(F.col("kind") == "stalled", 1)).alias("stalled"),
        F.max("window").cast("long").alias("last"),
        last,
    )
    return [row.asDict() for row in found.select("*", "at_last.*").drop("at_last").collect()]


def _counts(streams: list[dict[str, Any]], still: list[dict[str, Any]]) -> dict[str, int]:
    """The counts of all findings. A page shows only some rows, and the counts must not depend on that."""
    entries = {name: sum(row[name] or 0 for row in streams) for name in ("lost", "quarantined", "unknown")}
    windows = {name: sum(row[name] for row in still) for name in ("stalls", "stalled")}
    return entries | windows | {"standing": len(still)}


def _replay_counts(
    replay: DataFrame, begin: datetime, here: Column, failed: Mapping[tuple[Any, ...], int]
) -> tuple[int, int, bool]:
    """The number of incomplete windows; the number of offsets that failed or have one delivery left; and whether more
    may have one delivery left (PM-48).

    At most POISON_MAX offsets of a share-partition are listed. If it has that many, `failed` says how many failed.
    """
    plain = replay.select(*KEY, "tally.window", "tally.incomplete", "suspect.last_seen", "suspect.reason")
    listed = F.col("last_seen") >= F.lit(begin)
    found = plain.groupBy(*KEY).agg(
        F.count(F.when(here & F.col("incomplete"), 1)).alias("incomplete"),
        F.count(F.when(listed, 1)).alias("listed"),
        F.count(F.when(listed & (F.col("reason") == F.lit(Reason.NEAR_LIMIT)), 1)).alias("near"),
    ).collect()  # fmt: skip
    full = [row for row in found if row["listed"] >= POISON_MAX]
    doubtful = sum(row["listed"] for row in found if row["listed"] < POISON_MAX)
    doubtful += sum(max(row["listed"], row["near"] + failed.get(key_of(row), 0)) for row in full)
    return sum(row["incomplete"] for row in found), doubtful, any(row["near"] for row in full)


def _names_and_members(groups: DataFrame) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Topic names by id; and the members at the end, at most ROWS_MAX. `has`: a member's partitions by topic."""
    topics = topic_names(groups).select(F.struct("topic_id", "topic_name").alias("topic"))
    first = memberships(groups).orderBy("group_id", "client_id", "member_id").limit(ROWS_MAX)
    found = topics.unionByName(first.select(F.struct("*").alias("member")), allowMissingColumns=True).collect()
    names = {row["topic"]["topic_id"]: row["topic"]["topic_name"] for row in found if row["topic"]}
    rows = [row["member"].asDict() for row in found if row["member"]]
    rows.sort(key=lambda row: (row["group_id"], row["client_id"] or "", row["member_id"]))
    return names, [row | {"has": _has(row["assigned"] or (), names)} for row in rows]


def _judged(still: DataFrame, known_end: datetime, read_until: datetime) -> DataFrame:
    """Standstills up to `known_end`; those of groups without members even in the partly read window."""
    lonely = (F.col("kind") == "abandoned") & (F.col("window") < F.lit(read_until))
    return still.where((F.col("window") < F.lit(known_end)) | lonely)


def _ends(replay: DataFrame, here: Column) -> list[dict[str, Any]]:
    counted = ends_of(replay).where(here).groupBy("group_id", "bound", "ms")
    return [row.asDict() for row in counted.agg(F.sum("records").alias("records")).collect()]


def _reasons(found: DataFrame, here: Column, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """The REASONS_MAX most frequent kinds of reasons by group and topic; then one row of all others, if there are any
    (PM-94)."""
    kinds = reasons_of(found).where(here).groupBy("group_id", "topic_id", "kind").agg(
        F.sum("records").alias("records"), F.max_by("example", "said_at").alias("example")
    )  # fmt: skip
    order = Window.orderBy(F.col("kind") == F.lit(OTHERS), F.desc("records"), "group_id", "topic_id", "kind")
    last = F.when(F.col("kind") == F.lit(OTHERS), REASONS_MAX + 1).otherwise(F.row_number().over(order))
    placed = kinds.withColumn("place", F.least(last, F.lit(REASONS_MAX + 1))).groupBy("place")
    one = [F.first(name).alias(name) for name in ("group_id", "topic_id", "kind", "example")]
    rows = sorted((row.asDict() for row in placed.agg(F.sum("records").alias("records"), *one).collect()),
                  key=lambda row: row["place"])  # fmt: skip
    return [
        {"kind": None, "group_id": None, "topic": None, "records": row["records"], "example": None}
        if row["place"] > REASONS_MAX
        else {**row, "topic": names.get(row["topic_id"], row["topic_id"])}
        for row in rows
    ]


def _groups(members: DataFrame, here: Column) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Groups that changed on the page, with the sums of their changes; and all groups as they are at the end."""
    sums = (F.sum(F.when(here, F.col(name))).alias(name) for name in _CHANGES)
    last = (F.max_by(name, "window").alias(name) for name in ("state", "members"))
    found = members.groupBy("group_id").agg(*sums, *last, F.count(F.when(here, 1)).alias("changed"))
    rows = sorted((row.asDict() for row in found.collect()), key=lambda row: row["group_id"])
    return [row for row in rows if row["changed"]], rows


def _has(assigned: Iterable[Any], names: dict[str, str]) -> str:
    topics = sorted((names.get(one["topic_id"], one["topic_id"]), sorted(one["partitions"])) for one in assigned)
    return "; ".join(f"{name}: {', '.join(map(str, partitions))}" for name, partitions in topics if partitions)


def _rows(found: DataFrame, names: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """At most ROWS_MAX rows; each with the share-partition's `name` if `names` are given."""
    # Spark formats the times in UTC; Python would convert them to this machine's time zone.
    texts = [
        F.date_format(name, "yyyy-MM-dd HH:mm:ss").alias(name) if kind == "timestamp" else F.col(name)
        for name, kind in found.dtypes
    ]
    rows = [row.asDict() for row in found.limit(ROWS_MAX).select(*texts).collect()]
    return [row | {"name": name_of(row, names)} for row in rows] if names is not None else rows


def ends_by_group(rows: Iterable[Mapping[str, Any]]) -> list[Ends]:
    """The times from append to end of the groups whose records ended, by id (PM-91).

    `rows`: counts by group, `bound` and `ms`, as from `ends_of`.
    """
    counts: dict[str, dict[str, Counter[int]]] = {}
    for row in rows:
        of_group = counts.setdefault(row["group_id"], {name: Counter() for name in ("least", "most", "unknown")})
        of_group[row["bound"]][row["ms"] or 0] += row["records"]
    return [_ends_of_group(group, **found) for group, found in sorted(counts.items())]


def _ends_of_group(group: str, least: Counter[int], most: Counter[int], unknown: Counter[int]) -> Ends:
    bounds = [(percentile_ms(least, share), percentile_ms(most, share)) for share in _QUANTILES]
    p50, p95, p99 = (None if low is None or high is None else (low, high) for low, high in bounds)
    return Ends(group, least.total(), unknown.total(), p50, p95, p99)


def skew_rows(streams: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How evenly streams are used: a row for each stream with records, the largest first (PM-62).

    Each row has `entries`, `bytes`, the number of `keys`, and the `skew` of all streams (the largest divided by the
    mean) and their Gini coefficient. `streams`: rows of `metrics.loads_of`, with `keys` as lists.
    """
    used = [one for one in streams if one["records"]]
    ordered = sorted(one["records"] for one in used)
    count, total = len(ordered), sum(ordered)
    ranked = sum(rank * entries for rank, entries in enumerate(ordered, 1))
    shared = (
        {"skew": ordered[-1] * count / total, "gini": 2 * ranked / (count * total) - (count + 1) / count}
        if used
        else {}
    )
    rows = [
        {"stream": one["stream"], "entries": one["records"], "bytes": one["bytes"], "keys": len(one["keys"])} | shared
        for one in used
    ]
    return sorted(rows, key=lambda row: (-row["entries"], row["stream"]))
