"""What the report shows, as plain values. `collect` sorts them, so that equal data gives equal bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

#: How many share-partitions have charts; the others are in a folded table.
SHOWN_MAX: Final = 20
#: How many rows a table has; how many more were found is told.
ROWS_MAX: Final = 200
#: How many marks a share-partition's charts have, the newest ones.
MARKS_MAX: Final = 50
#: If the ingest has not read the last so many seconds of a page's time, that is a finding; as STALL_AFTER_S.
BEHIND_S: Final = 300

Row = Mapping[str, Any]

_TOTALS: Final = ("finished", "accepted", "released", "rejected", "timed_out", "limited", "redelivered_lb")


class Point(NamedTuple):
    """One window of a share-partition; unknown values are None."""

    time_s: int
    lag: float | None
    finished: float | None


class Event(StrEnum):
    """What happened to a share-partition's services, as its rows show it (PM-92)."""

    LEADER = "new leader"
    RESET = "state begun anew"
    OWNER = "new owner of its state"


class Mark(NamedTuple):
    """When it happened, s since 1970; of leaders and resets, the window in which it did."""

    time_s: int
    event: Event


class Before(NamedTuple):
    """The figures of the time before a page, over all share-partitions (PM-93).

    `lag` is that at the page's begin, `lag_unknown` of how many share-partitions it is not known. Others are counts;
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
    """Of the records of a group that ended in the page's time: how long from append to end, ms (PM-91).

    Each percentile lies between two bounds; None without records of which that is known. `unknown`: of so many more
    records it is not known.
    """

    group_id: str
    records: int
    unknown: int
    p50_ms: tuple[int, int] | None
    p95_ms: tuple[int, int] | None
    p99_ms: tuple[int, int] | None


class Pace(NamedTuple):
    """What arrived and what was finished in the windows of which both are known, and how long these lasted."""

    arrived: int
    finished: int
    seconds: float


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A share-partition over the whole time of the report.

    `lag` is that at the end; None: it is not known, or the share-partition is `gone`. `lag_least`: at the end it was
    that at least, for where the log ended then is not known. `delayed`: of the lag, records that wait at the end for
    the end of a delay; None: not known. `pace`: None where no window shows what arrived.
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

    @property
    def lag_unknown(self) -> bool:
        """Whether nobody can say what lag it has."""
        return self.lag is None and not self.gone


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was found in all; a page may show fewer rows.

    `stalls` counts windows in which a share-partition stalled, `stalled` those of them whose group had members, and
    `standing` the share-partitions. `lost`, `quarantined` and `unknown` count entries, `poison` counts offsets;
    `poison_least`: there may be more that have one delivery left.
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
    end are not completely read yet. `standing`: state and number of members of every group at the end; `members`: each
    member then, with `has`, the partitions that it was given. `stalls` are windows, `episodes` unbroken runs of them.
    `read_s`: of how many seconds of its time everything was read.
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
        """Entries that were lost."""
        return self.found.lost

    @property
    def light(self) -> str:
        """`red` if a share-partition stalls or entries were lost, `amber` for other findings, else `green`.

        A lag that is not known is a finding: records may wait there.
        """
        if self.found.lost or self.found.stalled:
            return "red"
        return "amber" if self.findings else "green"

    @property
    def findings(self) -> list[str]:
        """What makes the light red or amber, the gravest first, each in some words with its number."""
        found, still = self.found, "share-partitions that stood still"
        if not found.stalled:
            still = "share-partitions with records and without members"
        elif found.stalled < found.stalls:
            still += ", or have records and no members"
        counted = (
            (found.lost, "entries lost"),
            (found.standing, still),
            (self.behind_s // 60 if self.behind_s >= BEHIND_S else 0, "minutes that were not read yet"),
            (sum(line.lag_unknown or line.lag_least for line in self.partitions), "share-partitions of unknown lag"),
            (found.poison, "records that failed, or have one delivery left"),
            (found.quarantined, "entries that are no records"),
            (found.unknown, "entries of unknown types"),
            (sum(line.anomalies for line in self.partitions), "writes that do not fit those before them"),
            (self.incomplete, "windows without a state to begin with"),
        )
        return [f"{words}: {number:,}" for number, words in counted if number]


def totals(report: Report) -> dict[str, int]:
    """Sums over all share-partitions, lag included; unknown values count as 0. Names of lower bounds end in `_lb`.

    `lag_unknown` counts share-partitions whose lag is not known, or only what it is at least.
    `quarantined` counts entries that are no records, `unknown` records that this build does not know (PM-64);
    `behind_s` is how many seconds before the end are not completely read yet.
    """
    counted = {name: sum(getattr(line, name) or 0 for line in report.partitions) for name in (*_TOTALS, "lag")}
    found = {name: getattr(report.found, name) for name in ("poison", "stalls", "lost", "quarantined", "unknown")}
    dark = sum(line.lag_unknown or line.lag_least for line in report.partitions)
    own = {"lag_unknown": dark, "behind_s": report.behind_s}
    return {"share_partitions": len(report.partitions)} | counted | found | own
