"""Makes a line for each group: its lag, whether it keeps up, and when it will have caught up (PM-89). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .model import PartitionLine


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


def group_lines(partitions: Iterable[PartitionLine], standing: Iterable[Mapping[str, Any]]) -> list[GroupLine]:
    """The groups with share-partitions or a state other than Dead, largest lag first; unknown lags come before all.

    `standing`: rows with `group_id`, `state` and `members` at the end.
    """
    by_group: dict[str, list[PartitionLine]] = {}
    for line in partitions:
        if not line.gone:
            by_group.setdefault(line.group_id, []).append(line)
    told = {row["group_id"]: row for row in standing}
    there = by_group.keys() | {group for group, row in told.items() if row["state"] != "Dead"}
    found = [_line(group, by_group.get(group, ()), told.get(group, {})) for group in there]
    return sorted(found, key=lambda one: (one.lag is not None, -(one.lag or 0), one.group_id))


def _line(group: str, lines: Sequence[PartitionLine], told: Mapping[str, Any]) -> GroupLine:
    lags = [line.lag for line in lines if line.lag is not None]
    lag = sum(lags) if lags or not lines else None
    paces = [line.pace for line in lines if line.pace is not None]
    arrived = sum(pace.arrived / pace.seconds for pace in paces) if paces else None
    finished = sum(pace.finished / pace.seconds for pace in paces) if paces else None
    return GroupLine(
        group,
        told.get("state"),
        told.get("members"),
        len(lines),
        lag,
        any(line.lag is None or line.lag_least for line in lines),
        arrived,
        finished,
        drain_s(lag, arrived, finished, told.get("members")),
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
