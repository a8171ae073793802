"""What the counters for Prometheus have counted, kept beside the rows (PM-38).

counters.json     by share-partition, group and stream; and up to which batch of each kind

A counter that began at 0 with each process would hide what a killed one had counted and nobody had scraped. So a batch
counts once for its directory: with the numbers the file names the last batch that is in them, and a batch that Spark
repeats is not added again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from share_metrics.folders import query_id
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

    def only(self, there: Container[Key]) -> None:
        """Forget share-partitions that are not there any more."""
        self.partitions = {key: counts for key, counts in self.partitions.items() if key in there}


class CountersFile:
    """The file in the directory of an ingest job, whose owner alone may use it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._note = data / _FILE

    def load(self) -> Counters:
        """What was kept; nothing if there is none, or if rows of other queries are in it: they are ingested anew."""
        if not self._note.exists():
            return Counters()
        told: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8"))
        if any(query_id(self._data, Kind(kind)) != query for kind, query in told["queries"].items()):
            return Counters()
        return Counters(
            {(group, topic, partition): Counter(counts) for group, topic, partition, counts in told["partitions"]},
            {(group, topic): Counter(counts) for group, topic, counts in told["others"]},
            Counter(told["rebalances"]),
            Counter({(stream, name): count for stream, name, count in told["trouble"]}),
            {Kind(kind): number for kind, number in told["batches"].items()},
        )

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
