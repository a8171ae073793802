"""Puts a page together from what was found about its share-partitions and its groups (PM-37). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from share_metrics.replay.given_reasons import OTHERS
from share_metrics.report.figures import Figures, order_of
from share_metrics.report.group_figures import GroupFigures
from share_metrics.report.model import REASONS_MAX, ROWS_MAX, Counts, Report
from share_metrics.report.partition_lines import before_page, claims, lines_of, name_of
from share_metrics.report.periods import Period, time_text
from share_metrics.report.sums import ends_by_group, skew_rows

_TIMES = ("window", "since", "until", "first_seen", "last_seen")
#: The columns of the loads of streams that rows of groups do not have.
_OF_STATES = ("records", "bytes", "tombstones", "keys", "gap_rows", "claimed_at")

Row = dict[str, Any]


def assembled(
    period: Period, figures: Figures, groups: GroupFigures, lag_s: Mapping[tuple[Any, ...], float], behind_s: int = 0
) -> Report:
    """The report. `lag_s`: the ages of the oldest unfinished records by share-partition, s, as far as they are known.

    `behind_s`: how many seconds before the requested end are not completely read yet.
    """
    names = groups.names
    streams = _streams(figures, groups)
    done = [{**row, "lag_seconds": lag_s.get(key)} for key, row in figures.rows.items()]
    done.sort(key=order_of)
    still = {key: row["still_s"] for key, row in figures.rows.items() if row.get("still_s") is not None}
    counts = figures.counts
    found = {name: sum(row[name] for row in streams) for name in ("lost", "quarantined", "unknown")}
    found |= {name: counts[name] for name in ("stalls", "stalled", "standing", "poison")}
    form = "%Y-%m-%d %H:%M" if period.window_s % 60 == 0 else "%Y-%m-%d %H:%M:%S"
    standing = groups.standing
    return Report(
        period.begin.strftime(form),
        period.end.strftime(form),
        period.window_s,
        lines_of(done, names, figures.charts, claims(streams, period.begin), still),
        poison=_named(figures.poison, names),
        stalls=_named(figures.stalls, names),
        episodes=_named(figures.episodes, names),
        groups=[row for row in standing if row["changed"]][:ROWS_MAX],
        skew=skew_rows(row for row in streams if row["keys"] is not None)[:ROWS_MAX],
        quality=streams[:ROWS_MAX],
        gaps=_gaps(streams, groups),
        incomplete=counts["incomplete"],
        counts=Counts(**found, poison_least=figures.poison_least),
        behind_s=behind_s,
        standing=standing,
        members=groups.members,
        before=before_page(done, period.begin - period.before),
        ends=ends_by_group(
            {"group_id": group, "bound": bound, "ms": ms, "records": records}
            for (group, bound, ms), records in figures.ends.items()
        ),
        read_s=period.read_s,
        reasons=_reasons(figures, names),
    )


def _streams(figures: Figures, groups: GroupFigures) -> list[Row]:
    """The loads of all streams, sorted by name; `keys` is None for streams of groups."""
    of_groups = [{**row, **dict.fromkeys(_OF_STATES)} for row in groups.quality]
    return sorted([*figures.loads, *of_groups], key=lambda row: row["stream"])


def _named(rows: Iterable[Row], names: Mapping[str, str]) -> list[Row]:
    """The rows with times as text, and with the share-partition's `name`."""
    texts = [row | {at: time_text(row[at]) for at in _TIMES if at in row} for row in rows]
    return [row | {"name": name_of(row, names)} for row in texts]


def _gaps(streams: list[Row], groups: GroupFigures) -> list[Row]:
    """The first ROWS_MAX gaps, by stream and ids."""
    rows = [{"stream": one["stream"], **gap} for one in streams for gap in one["gap_rows"] or ()]
    return sorted([*rows, *groups.gaps], key=lambda row: (row["stream"], row["from_id"], row["to_id"]))[:ROWS_MAX]


def _reasons(figures: Figures, names: Mapping[str, str]) -> list[Row]:
    """The REASONS_MAX most frequent kinds of reasons by group and topic; then one row of all others, if there are any
    (PM-94)."""
    kinds = sorted(figures.reasons.items(), key=lambda one: (one[0][2] == OTHERS, -one[1][0], one[0]))
    listed = [one for one in kinds if one[0][2] != OTHERS][:REASONS_MAX]
    rows = [
        {
            "place": place,
            "group_id": group,
            "topic_id": topic_id,
            "topic": names.get(topic_id, topic_id),
            "kind": kind,
            "records": records,
            "example": example,
        }
        for place, ((group, topic_id, kind), (records, example, _)) in enumerate(listed, start=1)
    ]
    others = kinds[len(listed) :]
    if others:
        total = sum(records for _, (records, _, _) in others)
        rows.append({"kind": None, "group_id": None, "topic": None, "records": total, "example": None})
    return rows
