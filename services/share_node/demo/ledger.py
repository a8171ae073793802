"""The demo's account of every record: what was produced, what workers reported, and whether it all adds up. Pure.

Workers report a result keyed by (topic, partition, offset) *before* they acknowledge, so a redelivered record
overwrites its earlier result and the totals are exact although delivery is at least once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from share_node.demo.jobs import Tally


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


class Report(NamedTuple):
    """One worker's result for one delivery; `outcome` is accepted, rejected or released."""

    place: Place
    worker: int
    delivery_count: int
    outcome: str
    tally: Tally


@dataclass(slots=True)
class Ledger:
    """Everything produced and everything reported."""

    produced: set[Place] = field(default_factory=set)
    final: dict[Place, Report] = field(default_factory=dict)
    deliveries: Counter[Place] = field(default_factory=Counter)
    by_worker: Counter[int] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        """Take one report in; a later result for the same place replaces the earlier one."""
        self.deliveries[report.place] += 1
        self.by_worker[report.worker] += 1
        if report.outcome != "released":
            self.final[report.place] = report

    @property
    def unfinished(self) -> int:
        """Produced records without a final result."""
        return sum(place not in self.final for place in self.produced)

    @property
    def strangers(self) -> int:
        """Deliveries of places that no producer was told of; only final once everything is produced."""
        return sum(times for place, times in self.deliveries.items() if place not in self.produced)

    @property
    def accepted(self) -> int:
        """Records whose last result was accepted."""
        return sum(report.outcome == "accepted" for report in self.final.values())

    @property
    def rejected(self) -> int:
        """Records whose last result was rejected."""
        return sum(report.outcome == "rejected" for report in self.final.values())

    @property
    def redelivered(self) -> int:
        """Records that were delivered more than once, by the delivery count the leader gave them."""
        return sum(report.delivery_count > 1 for report in self.final.values())

    @property
    def delivery_counts(self) -> dict[int, int]:
        """How many records were finished at each delivery count."""
        return dict(sorted(Counter(report.delivery_count for report in self.final.values()).items()))

    @property
    def totals(self) -> Tally:
        """The counters of all accepted records."""
        totals: Tally = Counter()
        for report in self.final.values():
            totals.update(report.tally)
        return totals

    def discrepancies(self, direct: Tally, accepted: int, rejected: int) -> list[str]:
        """What does not add up against the direct count; empty when all does."""
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
        return found
