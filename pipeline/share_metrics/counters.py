"""What the counters for Prometheus have counted, kept beside the rows (PM-38).

counters.json     by share-partition, group and stream; and up to which batch of each kind

A counter that began at 0 with each process would hide what a killed one had counted and nobody had scraped. So a batch
counts once for its directory: with the numbers the file names the last batch that is in them, and a batch that Spark
repeats is not added again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from share_metrics.folders import confirmed, query_id
from share_metrics.reader import Kind

_FILE: Final = "counters.json"

#: Group, topic id, partition.
Key = tuple[str, str, int]


@dataclass(slots=True)
class Counters:
    """Counts by name, of share-partitions with a series of their own; of all others of a group and topic id, since
    their sum never falls; target assignments by group; and entries in `trouble` by stream and name.

    `batches`: the number of the last batch of each kind that is in them.
    """

    partitions: dict[Key, Counter[str]] = field(default_factory=dict)
    others: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    rebalances: Counter[str] = field(default_factory=Counter)
    trouble: Counter[tuple[str, str]] = field(default_factory=Counter)
    batches: dict[Kind, int] = field(default_factory=dict)

    def has(self, kind: Kind, number: int | None) -> bool:
        """Whether a batch is in them already; None is a batch that does not come again."""
        return number is not None and number <= self.batches.get(kind, -1)

    def copy(self) -> Counters:
        """The same, to count in."""
        return Counters(
            {key: counts.copy() for key, counts in self.partitions.items()},
            {key: counts.copy() for key, counts in self.others.items()},
            self.rebalances.copy(),
            self.trouble.copy(),
            self.batches.copy(),
        )

    def only(self, there: Container[Key]) -> None:
        """Forget share-partitions that are not there any more."""
        self.partitions = {key: counts for key, counts in self.partitions.items() if key in there}


class CountersFile:
    """The file in the directory of an ingest job, whose owner alone may use it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._note = data / _FILE

    def load(self, tell: Callable[[str], None]) -> Counters:
        """What was kept; nothing if there is none, or if it is of other queries or later batches than the checkpoints:
        then they are new, or of a backup, and count from now on.

        A file that cannot be read, as a loss of power may leave it, is told of.
        """
        if not self._note.exists():
            return Counters()
        try:
            told: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8"))
            counted = _read(told)
            fits = all(
                query_id(self._data, kind) == told["queries"][kind] and number <= confirmed(self._data, kind) + 1
                for kind, number in counted.batches.items()
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            tell(f"{self._note} cannot be read ({error}); counters for Prometheus begin at 0")
            return Counters()
        return counted if fits else Counters()

    def save(self, counters: Counters) -> None:
        """Keep them. The file appears whole. Raises OSError."""
        told = {
            "queries": {kind: query_id(self._data, kind) for kind in counters.batches},
            "batches": counters.batches,
            "partitions": [[*key, counts] for key, counts in counters.partitions.items()],
            "others": [[*key, counts] for key, counts in counters.others.items()],
            "rebalances": counters.rebalances,
            "trouble": [[*key, count] for key, count in counters.trouble.items()],
        }
        new = self._note.with_suffix(".new")
        new.write_text(json.dumps(told), encoding="utf-8")
        new.replace(self._note)


def _read(told: dict[str, Any]) -> Counters:
    return Counters(
        {(group, topic, partition): Counter(counts) for group, topic, partition, counts in told["partitions"]},
        {(group, topic): Counter(counts) for group, topic, counts in told["others"]},
        Counter(told["rebalances"]),
        Counter({(stream, name): count for stream, name, count in told["trouble"]}),
        {Kind(kind): number for kind, number in told["batches"].items()},
    )
