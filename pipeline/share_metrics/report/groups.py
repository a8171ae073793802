"""The page's lines of groups: lag, pace and time to drain (PM-90). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from share_metrics.report.model import ROWS_MAX, PartitionLine
from share_metrics.report.tables import Columns, dim, of_more, table
from share_metrics.report.words import bounded, duration

#: Lag and time to drain are first: a narrow screen shows them without scrolling (PM-103).
COLUMNS: Final = Columns(
    "groups",
    (
        "group", "lag", "drained in", "state", "members", "share-partitions", "arrived a second", "finished a second",
    ),
)  # fmt: skip
_HINT: Final = (
    "Arrived and finished are records a second over this page, of the windows at both of whose ends the lag is known; "
    "drained in: how long the lag takes at this pace."
)


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


def groups(lines: Sequence[GroupLine]) -> str:
    """The table of groups, at most ROWS_MAX, in the order of `group_lines`."""
    shown = lines[:ROWS_MAX]
    return dim(_HINT) + of_more(shown, len(lines)) + table(
        COLUMNS,
        (
            (
                line.group_id, bounded(line.lag, line.lag_least), drained(line.drain_s), line.state, line.members,
                line.share_partitions, _rate(line.arrived_per_s), _rate(line.finished_per_s),
            )
            for line in shown
        ),
    )  # fmt: skip


def group_lines(partitions: Iterable[PartitionLine], standing: Iterable[Mapping[str, Any]]) -> list[GroupLine]:
    """The groups with share-partitions or a state other than Dead, largest lag first; unknown lags before all others
    (PM-90).

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


def drained(seconds: float | None) -> str | None:
    """A time to drain as text."""
    if seconds is None or seconds == 0:
        return None if seconds is None else "nothing left"
    return "never, at this pace" if seconds == float("inf") else duration(seconds)


def _rate(per_s: float | None) -> str | None:
    return None if per_s is None else f"{per_s:,.1f}"
