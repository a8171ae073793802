"""The demo's account of every record: what was produced, what workers reported, and whether both agree. Pure.

Workers report a result, keyed by (topic, partition, offset), *before* they acknowledge. A redelivered record overwrites
its earlier result, so the totals are exact although delivery is at least once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from share_node.demo.jobs import Tally


class Place(NamedTuple):
    """A record's topic, partition and offset."""

    topic: str
    partition: int
    offset: int


class Report(NamedTuple):
    """One worker's result of one delivery; `outcome` is accepted, rejected or released."""

    place: Place
    worker: int
    delivery_count: int
    outcome: str
    tally: Tally


@dataclass(slots=True)
class Ledger:
    """All that was produced and reported."""

    produced: set[Place] = field(default_factory=set)
    final: dict[Place, Report] = field(default_factory=dict)
    released: set[Place] = field(default_factory=set)
    deliveries: Counter[Place] = field(default_factory=Counter)
    by_worker: Counter[int] = field(default_factory=Counter)
    #: Dead letters that were written; None when the group has no topic for them.
    letters: int | None = None

    def add(self, report: Report) -> None:
        """Note one report; a later result of the same place replaces the earlier one."""
        self.deliveries[report.place] += 1
        self.by_worker[report.worker] += 1
        if report.outcome == "released":
            self.released.add(report.place)
        else:
            self.final[report.place] = report

    @property
    def unfinished(self) -> int:
        """The number of produced records without a final result."""
        return sum(place not in self.final for place in self.produced)

    @property
    def strangers(self) -> int:
        """The number of deliveries of records that no produce response named; final only after everything is
        produced."""
        return sum(times for place, times in self.deliveries.items() if place not in self.produced)

    @property
    def accepted(self) -> int:
        """The number of records whose last result was accepted."""
        return sum(report.outcome == "accepted" for report in self.final.values())

    @property
    def rejected(self) -> int:
        """The number of records whose last result was rejected."""
        return sum(report.outcome == "rejected" for report in self.final.values())

    @property
    def redelivered(self) -> int:
        """The number of records that were delivered more than once, by the leader's delivery count."""
        return sum(report.delivery_count > 1 for report in self.final.values())

    @property
    def failed(self) -> int:
        """The number of records whose jobs failed, and which were released to be tried again."""
        return len(self.released)

    @property
    def delivery_counts(self) -> dict[int, int]:
        """The number of records that were finished at each delivery count."""
        return dict(sorted(Counter(report.delivery_count for report in self.final.values()).items()))

    @property
    def totals(self) -> Tally:
        """The counters of all accepted records."""
        totals: Tally = Counter()
        for report in self.final.values():
            totals.update(report.tally)
        return totals

    def discrepancies(self, direct: Tally, accepted: int, rejected: int) -> list[str]:
        """Differences from the direct count; empty when there are none."""
        found = [
            f"{name}: {mine} through the queue, {theirs} directly"
            for name, mine, theirs in (
                ("accepted", self.accepted, accepted),
                ("rejected", self.rejected, rejected),
                *((name, self.totals[name], direct[name]) for name in sorted(direct.keys() | self.totals.keys())),
            )
            if mine != theirs
        ]
        if self.unfinished:
            found.append(f"{self.unfinished} records were produced and never finished")
        if self.strangers:
            found.append(f"{self.strangers} deliveries of records that were never produced")
        if self.letters is not None and self.letters < self.rejected:  # a leader's crash may write one twice
            found.append(f"{self.rejected} records were rejected, and only {self.letters} dead letters written")
        return found
