"""What a page says of groups: their members, how they changed, and the names of topics, from their records. Pure.

It computes what `metrics.group_windows`, `memberships`, `topic_names` and `quality` compute in Spark (PM-19, PM-54,
PM-55, PM-57, PM-64); a test compares them.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from share_metrics.reader.schemas import CLAIM, GAP, MALFORMED, NOOP, UNKNOWN
from share_metrics.replay.progress_rows import COLD
from share_metrics.report.model import ROWS_MAX
from share_metrics.report.periods import Period, us_of

#: The columns that it needs.
COLUMNS: Final = (
    "stream", "entry_id", "epoch", "seq", "ts", "record_type", "error", "group_id", "member_id", "tombstone", "cause",
    "reason", "group_epoch", "client_id", "client_host", "member_epoch", "assigned", "initialized",
)  # fmt: skip
_CHANGES: Final = ("joins", "leaves", "rebalances", "epoch_bumps", "flapping")
_EVENTS: Final = frozenset({"member", "group", "target_meta", "deleted_group"})
_FLAPPING_S: Final = 300
_FLAPPING_JOINS: Final = 3
_OF_MEMBERS: Final = ("tombstone", "client_id", "client_host", "member_epoch", "assigned")
_OF_GAPS: Final = ("from_id", "to_id", "lost", "reason")

Row = dict[str, Any]
_Id = tuple[int, int]


@dataclass(slots=True)
class GroupWindow:
    """One window of a group: what changed in it, its members at the end, and whether it was deleted by then.

    `reasons`: why members are gone. `events`, `members_sum`: the number of records, and the sum of the members after
    each.
    """

    joins: int = 0
    leaves: int = 0
    rebalances: int = 0
    flapping: int = 0
    epochs: set[int] = field(default_factory=set)
    members: int = 0
    gone: bool = False
    reasons: Counter[str] = field(default_factory=Counter)
    events: int = 0
    members_sum: int = 0

    @property
    def epoch_bumps(self) -> int:
        """How many epochs of the group its records have."""
        return len(self.epochs)

    @property
    def state(self) -> str:
        """The group's state at the window's end (PM-54)."""
        if self.gone:
            return "Dead"
        return "Stable" if self.members > 0 else "Empty"


@dataclass(slots=True)
class _Joins:
    """The joins of one client from one host: their windows, by the second of their event time."""

    at_s: list[int] = field(default_factory=list)
    windows: list[GroupWindow] = field(default_factory=list)

    def count_flapping(self) -> None:
        """Count each join that is at least the third within five minutes."""
        ordered = sorted(self.at_s)
        for at_s, window in zip(self.at_s, self.windows, strict=True):
            lately = bisect_right(ordered, at_s) - bisect_left(ordered, at_s - _FLAPPING_S)
            window.flapping += lately >= _FLAPPING_JOINS


class GroupFigures:
    """The groups of a page, from the rows of their streams; the results of several streams can be merged."""

    def __init__(self, period: Period) -> None:
        self._period = period
        self._window_us = period.window_s * 1_000_000
        self.windows: dict[str, dict[int, GroupWindow]] = defaultdict(dict)
        self._names: dict[str, tuple[_Id, str]] = {}
        self._member: dict[tuple[str, str], tuple[_Id, Row]] = {}
        self._current: dict[tuple[str, str], tuple[_Id, Row]] = {}
        self.quality: list[Row] = []
        self.gaps: list[Row] = []

    def take(self, rows: Iterable[Row]) -> None:
        """Take all rows of one stream, in the order of `measured`; `ts` is in µs since 1970."""
        clients: dict[tuple[str, str | None, str | None], _Joins] = defaultdict(_Joins)
        there: dict[tuple[str, str], bool] = {}
        members: Counter[str] = Counter()
        types: Counter[str] = Counter()
        before: tuple[Any, ...] | None = None
        time_us: int | None = None
        lost, name = 0, ""
        for row in rows:
            name, kind = row["stream"], row["record_type"]
            types[kind] += 1
            if kind == GAP:
                gap = json.loads(row["error"])
                self.gaps.append({"stream": name, **{one: gap[one] for one in _OF_GAPS}})
                lost += gap["lost"]
            self._newest(row)
            this = (row["epoch"], row["seq"], row["entry_id"], kind)
            if this == before:  # the same row again (PM-34)
                continue
            before = this
            if row["ts"] is not None:
                time_us = row["ts"] if time_us is None else max(time_us, row["ts"])
            if kind in _EVENTS:
                self._event(row, time_us, there, members, clients)
        for joins in clients.values():
            joins.count_flapping()
        if types:
            self.quality.append(_quality(name, types, lost))

    def merge(self, other: GroupFigures) -> None:
        """Take the groups of another result, which has none of these streams."""
        self.windows.update(other.windows)
        self._member |= other._member
        self._current |= other._current
        for topic_id, named in other._names.items():
            self._names[topic_id] = max(self._names.get(topic_id, named), named)
        self.quality += other.quality
        self.gaps += other.gaps

    def _event(
        self,
        row: Row,
        time_us: int | None,
        there: dict[tuple[str, str], bool],
        members: Counter[str],
        clients: Mapping[tuple[str, str | None, str | None], _Joins],
    ) -> None:
        """Take a record that changes a group."""
        group, kind, tombstone = row["group_id"], row["record_type"], row["tombstone"]
        cold = bool((row["cause"] or 0) & COLD)
        window = GroupWindow()
        if time_us is not None:
            window = self.windows[group].setdefault(time_us // self._window_us * self._window_us, window)
        if kind == "member":
            was_there = there.get((group, row["member_id"]), False)
            there[group, row["member_id"]] = not tombstone
            members[group] += int(not tombstone and not was_there) - int(tombstone and was_there)
            window.leaves += tombstone
            window.reasons[row["reason"] or ""] += tombstone
            if not tombstone and not was_there and not cold:
                window.joins += 1
                if time_us is not None:
                    joins = clients[group, row["client_id"], row["client_host"]]
                    joins.at_s.append(time_us // 1_000_000)
                    joins.windows.append(window)
        elif kind == "target_meta":
            window.rebalances += not tombstone and not cold
        if not cold and row["group_epoch"] is not None:
            window.epochs.add(row["group_epoch"])
        window.members = members[group]
        window.events += 1
        window.members_sum += window.members
        window.gone = kind == "group" and bool(tombstone)

    def _newest(self, row: Row) -> None:
        """Note the newest record about a member, and the newest name of each topic."""
        kind, at = row["record_type"], (row["epoch"], row["seq"])
        known = {"member": self._member, "current": self._current}.get(kind)
        if known is not None:
            key = row["group_id"], row["member_id"]
            if key not in known or known[key][0] <= at:
                known[key] = at, {name: row[name] for name in _OF_MEMBERS}
        elif kind == "state":
            for topic in row["initialized"] or ():
                if topic["topic_id"] not in self._names or self._names[topic["topic_id"]][0] <= at:
                    self._names[topic["topic_id"]] = at, topic["topic_name"]

    @property
    def names(self) -> dict[str, str]:
        """The names of topics, by id."""
        return {topic_id: name for topic_id, (_, name) in self._names.items()}

    @property
    def live(self) -> dict[str, tuple[Any, Any]]:
        """The number of members of each group at the ends of its windows: their starts, µs, and the numbers."""
        found = {group: sorted(windows.items()) for group, windows in self.windows.items()}
        return {
            group: (np.array([at for at, _ in own]), np.array([window.members for _, window in own]))
            for group, own in found.items()
        }

    @property
    def standing(self) -> list[Row]:
        """All groups as they are at the end, with the sums of their changes on the page; by id."""
        begin_us, end_us = us_of(self._period.begin), us_of(self._period.end)
        rows = []
        for group, windows in sorted(self.windows.items()):
            here = [window for at, window in windows.items() if begin_us <= at < end_us]
            last = windows[max(windows)]
            sums = {name: sum(getattr(one, name) for one in here) if here else None for name in _CHANGES}
            rows.append({"group_id": group, **sums, "state": last.state, "members": last.members, "changed": len(here)})
        return rows

    @property
    def members(self) -> list[Row]:
        """The members at the end, at most ROWS_MAX. `has`: a member's partitions by topic."""
        rows = sorted(self._members(), key=lambda row: (row["group_id"], row["client_id"] or "", row["member_id"]))
        names = self.names
        return [row | {"has": has(row["assigned"] or (), names)} for row in rows]

    def _members(self) -> list[Row]:
        rows = []
        for (group, member), (_, row) in self._member.items():
            if not row["tombstone"]:
                given = self._current.get((group, member), (None, None))[1]
                given = None if given is None or given["tombstone"] else given
                rows.append(
                    {
                        "group_id": group,
                        "member_id": member,
                        "client_id": row["client_id"],
                        "client_host": row["client_host"],
                        "member_epoch": given and given["member_epoch"],
                        "assigned": given and given["assigned"],
                    }
                )
        rows.sort(key=lambda row: (row["group_id"], row["client_id"] is not None, row["client_id"], row["member_id"]))
        return rows[:ROWS_MAX]


def group_figures(batches: Iterable[Any], period: Period) -> GroupFigures:
    """What is found in rows of whole streams before the page's end: record batches in the order of `measured`."""
    found = GroupFigures(period)
    rows = (row for batch in batches for row in _plain(batch).to_pylist())
    for _, stream in groupby(rows, key=itemgetter("stream")):
        found.take(stream)
    return found


def _plain(batch: Any) -> Any:
    """The rows with times as numbers."""
    at = batch.schema.names.index("ts")
    return batch.set_column(at, "ts", batch.column(at).cast(pa.int64()))


def has(assigned: Iterable[Any], names: Mapping[str, str]) -> str:
    """The partitions that a member was assigned, by topic."""
    topics = sorted((names.get(one["topic_id"], one["topic_id"]), sorted(one["partitions"])) for one in assigned)
    return "; ".join(f"{name}: {', '.join(map(str, partitions))}" for name, partitions in topics if partitions)


def _quality(stream: str, types: Counter[str], lost: int) -> Row:
    return {
        "stream": stream,
        "entries": types.total() - types[GAP],
        "claims": types[CLAIM],
        "noops": types[NOOP],
        "unknown": types[UNKNOWN],
        "quarantined": types[MALFORMED],
        "gaps": types[GAP],
        "lost": lost,
    }
