"""The content of the report as plain values. `collect` sorts them, so that equal data gives equal bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from share_metrics.report.words import counted, duration, plural

#: The maximum number of share-partitions with charts; the others are in a folded table.
SHOWN_MAX: Final = 20
#: The maximum number of rows in a table; the page says how many were found.
ROWS_MAX: Final = 200
#: The maximum number of kinds of reasons that are listed; the others are one row.
REASONS_MAX: Final = 20
#: The maximum number of marks in a share-partition's charts; the newest are shown.
MARKS_MAX: Final = 50
#: How many unread seconds at the end of a page's time count as a finding.
BEHIND_S: Final = 300
#: From this age on, s, a standstill, and unread time at the end of a page, are red instead of amber (PM-101).
RED_S: Final = 900
#: From this part of its limit on, a store is amber, and red (PM-101).
FULL_AMBER: Final = 0.8
FULL_RED: Final = 0.95

Row = Mapping[str, Any]

_TOTALS: Final = (
    "finished", "accepted", "released", "given_back", "rejected", "timed_out", "limited", "redelivered_lb",
)  # fmt: skip


class Point(NamedTuple):
    """One window of a share-partition; unknown values are None. `least`: the lag is only a lower bound."""

    time_s: int
    lag: float | None
    finished: float | None
    least: bool = False


class Event(StrEnum):
    """An event of a share-partition's services, as its rows show it (PM-92)."""

    LEADER = "new leader"
    RESET = "state begun again"
    OWNER = "new owner of its state"


class Mark(NamedTuple):
    """An event and its time, s since 1970; for leaders and resets, the start of its window."""

    time_s: int
    event: Event


class Before(NamedTuple):
    """The figures for the period before a page, over all share-partitions (PM-93).

    `lag`: at the page's start. `lag_unknown`: how many share-partitions have an unknown lag. The others are counts;
    unknown ones count as 0, as on the page.
    """

    seconds: int
    lag: int
    lag_unknown: int
    finished: int
    accepted: int
    released: int
    rejected: int
    timed_out: int
    limited: int
    redelivered_lb: int


class Ends(NamedTuple):
    """How long the records of a group that ended in the page's period took from append to end, ms (PM-91).

    Each percentile is a lower and an upper bound; None without records of known times. `records` counts the records
    with known times, `unknown` those without.
    """

    group_id: str
    records: int
    unknown: int
    p50_ms: tuple[int, int] | None
    p95_ms: tuple[int, int] | None
    p99_ms: tuple[int, int] | None


class Pace(NamedTuple):
    """Records that arrived and records that were finished, in the windows for which both are known; their length."""

    arrived: int
    finished: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A share-partition over the whole period of the report.

    `lag`: at the end; None if it is unknown, or if the share-partition is `gone`. `lag_least`: `lag` is only a lower
    bound, since the log's end at that time is unknown. `delayed`: the records in the lag that still wait for the end of
    a delay; None if unknown. `pace`: None if no window shows how many records arrived. `given_back`: the records that
    were released although no member asked for it, as when a session ends; `released` does not have them. `still_s`: how
    long it has stood still at the end, s; None if it does not.
    """

    name: str
    spso: int | None
    lag: int | None
    finished: int
    accepted: int | None
    released: int | None
    rejected: int | None
    timed_out: int | None
    limited: int | None
    redelivered_lb: int | None
    redelivery_ratio: float | None
    resets: int
    anomalies: int
    points: tuple[Point, ...] = ()
    lag_s: float | None = None
    delayed: int | None = None
    lag_least: bool = False
    gone: bool = False
    group_id: str = ""
    pace: Pace | None = None
    marks: tuple[Mark, ...] = ()
    given_back: int | None = None
    still_s: float | None = None

    @property
    def lag_unknown(self) -> bool:
        """True if the share-partition exists but its lag is unknown."""
        return self.lag is None and not self.gone


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of all findings; a page may show fewer rows.

    `stalls` counts windows in which a share-partition stalled, `stalled` those of them whose group had members, and
    `standing` the share-partitions that stalled. `lost`, `quarantined` and `unknown` count entries, `poison` counts
    offsets. `poison_least`: more offsets than counted may have one delivery left.
    """

    lost: int = 0
    stalls: int = 0
    stalled: int = 0
    standing: int = 0
    poison: int = 0
    quarantined: int = 0
    unknown: int = 0
    poison_least: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page. Share-partitions are sorted by lag, the largest first.

    `counts` are given if rows were left out; otherwise the rows are counted. `behind_s`: how many seconds before the
    end are not completely read yet. `standing`: state and number of members of every group at the end. `members`: the
    members at the end, with their partitions as `has`. `stalls` are windows, `episodes` unbroken runs of them.
    `read_s`: how many seconds of the page's period were completely read. `reasons`: why records were given up, the most
    frequent kinds first; all others are the last row, whose `kind` is None (PM-94).

    `cluster`: its name, empty if it is not known. `unread`: the topics that no group reads, with `topic`, `records`
    and `oldest_s`, the time of the oldest record's append, s since 1970, or None. `configured`: the groups that have
    only configs. `outages`: the spans, s since 1970, in which nothing was ingested. `store`: how full the store is, as
    `used_bytes` and `limit_bytes` (None without a limit); None if it is not known. `letters`: the topics of dead
    letters, with `topic` and `records`.
    """

    begin: str
    end: str
    window_s: int
    partitions: Sequence[PartitionLine]
    poison: Sequence[Row] = field(default_factory=tuple)
    stalls: Sequence[Row] = field(default_factory=tuple)
    groups: Sequence[Row] = field(default_factory=tuple)
    skew: Sequence[Row] = field(default_factory=tuple)
    quality: Sequence[Row] = field(default_factory=tuple)
    gaps: Sequence[Row] = field(default_factory=tuple)
    incomplete: int = 0
    counts: Counts | None = None
    behind_s: int = 0
    standing: Sequence[Row] = field(default_factory=tuple)
    members: Sequence[Row] = field(default_factory=tuple)
    episodes: Sequence[Row] = field(default_factory=tuple)
    before: Before | None = None
    ends: Sequence[Ends] = field(default_factory=tuple)
    read_s: int = 0
    reasons: Sequence[Row] = field(default_factory=tuple)
    cluster: str = ""
    unread: Sequence[Row] = field(default_factory=tuple)
    configured: Sequence[str] = field(default_factory=tuple)
    outages: Sequence[tuple[int, int]] = field(default_factory=tuple)
    store: Row | None = None
    letters: Sequence[Row] = field(default_factory=tuple)

    @property
    def found(self) -> Counts:
        """The counts of findings."""
        return self.counts or Counts(
            sum(gap["lost"] for gap in self.gaps),
            len(self.stalls),
            sum(stall["kind"] == "stalled" for stall in self.stalls),
            len({stall["name"] for stall in self.stalls}),
            len(self.poison),
            sum(row["quarantined"] for row in self.quality),
            sum(row["unknown"] for row in self.quality),
        )

    @property
    def lost(self) -> int:
        """The number of lost entries."""
        return self.found.lost

    @property
    def still(self) -> list[PartitionLine]:
        """The share-partitions that stand still at the end, the longest standstill first (PM-100)."""
        lines = [line for line in self.partitions if line.still_s is not None]
        return sorted(lines, key=lambda line: (-(line.still_s or 0), -(line.lag or 0), line.name))

    @property
    def outage_s(self) -> int:
        """How many seconds of the page's time are in outages of the ingest."""
        if not self.outages:
            return 0
        begin_s, end_s = seconds_of(self.begin), seconds_of(self.end)
        return sum(max(0, min(until, end_s) - max(since, begin_s)) for since, until in self.outages)

    @property
    def full(self) -> float | None:
        """Which part of its limit the store had in use; None without a limit, or if that is not known."""
        if self.store is None or not self.store.get("limit_bytes"):
            return None
        used, limit = self.store["used_bytes"], self.store["limit_bytes"]
        return float(used / limit)

    @property
    def light(self) -> str:
        """`red` if entries were lost, or a standstill, unread time or the store is over its limit for that; `amber` for
        other findings, else `green` (PM-101).

        An unknown lag is a finding, since records may be waiting.
        """
        longest_s = max((line.still_s or 0 for line in self.still), default=0)
        if self.found.lost or max(longest_s, self.behind_s) >= RED_S or (self.full or 0) >= FULL_RED:
            return "red"
        return "amber" if self.findings else "green"

    @property
    def findings(self) -> list[str]:
        """The findings that make the light red or amber, the most serious first, each with its number."""
        found, still = self.found, self.still
        earlier = max(0, found.standing - len(still))
        unread = [row for row in self.unread if self._unread_s(row) >= BEHIND_S]
        anomalies = sum(line.anomalies for line in self.partitions)
        dark = sum(line.lag_unknown or line.lag_least for line in self.partitions)
        phrases = (
            (found.lost, f"{counted(found.lost, 'entry', 'entries')} lost"),
            (len(still), _still(still)),
            (self.behind_s >= BEHIND_S, f"{duration(self.behind_s // 60 * 60)} not read yet"),
            ((self.full or 0) >= FULL_AMBER, f"the store is {self.full or 0:.0%} full"),
            (earlier, f"{counted(earlier, 'share-partition')} stood still earlier"),
            (self.outage_s >= BEHIND_S, f"nothing was ingested for {duration(self.outage_s)}"),
            (len(unread), f"{counted(len(unread), 'topic')} with records that no group reads"),
            (dark, f"{counted(dark, 'share-partition')} of unknown lag"),
            (found.poison, f"{counted(found.poison, 'record')} failed, or {plural(found.poison, 'has', 'have')} one "
                           "delivery left"),
            (found.quarantined, f"{counted(found.quarantined, 'entry is no record', 'entries are no records')}"),
            (found.unknown, f"{counted(found.unknown, 'entry', 'entries')} of unknown types"),
            (anomalies, f"{counted(anomalies, 'write does', 'writes do')} not fit those before"),
            (self.incomplete, f"{counted(self.incomplete, 'window')} without a state to begin with"),
        )  # fmt: skip
        return [words for number, words in phrases if number]

    def _unread_s(self, row: Row) -> float:
        """How long the oldest record of a topic without a reader has waited, s; forever if that is not known."""
        return float("inf") if row["oldest_s"] is None else seconds_of(self.end) - float(row["oldest_s"])


def _still(lines: Sequence[PartitionLine]) -> str:
    if not lines:
        return ""
    longest, many = duration(lines[0].still_s or 0), len(lines) > 1
    words = f"{counted(len(lines), 'share-partition stands', 'share-partitions stand')} still"
    return f"{words}, the longest for {longest}" if many else f"{words}, for {longest}"


def seconds_of(text: str) -> int:
    """Seconds since 1970 of a time of the report, `2026-11-22 08:00` or `2026-11-22 08:00:00`, in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def totals(report: Report) -> dict[str, int]:
    """Sums over all share-partitions, lag included; unknown values count as 0. Names of lower bounds end in `_lb`.

    `lag_unknown` counts share-partitions whose lag is unknown or only a lower bound.
    `quarantined` counts entries that are not records, `unknown` records that this build does not know (PM-64);
    `behind_s` is how many seconds before the end are not completely read yet.
    """
    counted = {name: sum(getattr(line, name) or 0 for line in report.partitions) for name in (*_TOTALS, "lag")}
    found = {name: getattr(report.found, name) for name in ("poison", "stalls", "lost", "quarantined", "unknown")}
    dark = sum(line.lag_unknown or line.lag_least for line in report.partitions)
    own = {"lag_unknown": dark, "behind_s": report.behind_s}
    return {"share_partitions": len(report.partitions)} | counted | found | own
