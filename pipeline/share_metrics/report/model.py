"""What the report shows, as plain values; whoever makes them sorts them, so that equal data gives equal bytes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

#: Share-partitions that are drawn; the others stand in a folded table.
SHOWN_MAX: Final = 20
#: An ingest that is so far behind the end of a page is a finding: as long as what stands still takes to be one.
BEHIND_S: Final = 300

Row = Mapping[str, Any]

_TOTALS: Final = ("finished", "accepted", "released", "rejected", "timed_out", "limited", "redelivered_lb")


class Point(NamedTuple):
    """One window of a share-partition; None where nothing is known."""

    time_s: int
    lag: float | None
    finished: float | None


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """A share-partition over the whole time of the report."""

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


@dataclass(frozen=True, slots=True)
class Counts:
    """How much there is in all, of which a page may hold less.

    `stalls` are windows of share-partitions that stood still, `stalled` those of groups with members, `standing` the
    share-partitions; `lost`, `quarantined` and `unknown` are entries, `poison` offsets.
    """

    lost: int = 0
    stalls: int = 0
    stalled: int = 0
    standing: int = 0
    poison: int = 0
    quarantined: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page. Share-partitions stand with the largest lag first.

    `counts` are given where rows were left out; else the rows are counted. `behind_s`: for how long before the end
    not everything was read yet.
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

    @property
    def found(self) -> Counts:
        """How much was found of what should not be."""
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
        """`red` where something stands still or is lost, `amber` where somebody should look, else `green`."""
        found = self.found
        if found.lost or found.stalled:
            return "red"
        doubtful = found.quarantined + found.unknown
        odd = sum(line.anomalies for line in self.partitions)
        late = self.behind_s >= BEHIND_S
        return "amber" if found.stalls or found.poison or self.incomplete or doubtful or odd or late else "green"


def totals(report: Report) -> dict[str, int]:
    """Sums over all share-partitions, lag included; what nobody recorded counts as 0. Names end in `_lb` as above.

    `quarantined` and `unknown` are entries that are no records, and records that this build does not know (PM-64);
    `behind_s` are seconds before the end of which not everything was read.
    """
    counted = {name: sum(getattr(line, name) or 0 for line in report.partitions) for name in (*_TOTALS, "lag")}
    found = {name: getattr(report.found, name) for name in ("poison", "stalls", "lost", "quarantined", "unknown")}
    return {"share_partitions": len(report.partitions)} | counted | found | {"behind_s": report.behind_s}
