"""The values of the counters for Prometheus, stored beside the rows (PM-38).

counters.json     counts by share-partition, group and stream; and the last counted batch of each kind

If counters started at 0 in each process, counts of a killed process that had not been scraped yet would be lost. So
each batch is counted once per directory: the file also names the last batch that was counted, and a batch that Spark
repeats is not added again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from share_metrics.archive.folders import confirmed, query_id
from share_metrics.reader import Kind

_FILE: Final = "counters.json"

#: Group, topic id, partition.
Key = tuple[str, str, int]


@dataclass(slots=True)
class Counters:
    """Counts by name.

    `partitions`: for share-partitions with their own series. `others`: for all others of a group and topic id together,
    so that no sum ever falls. `rebalances`: target assignments by group. `trouble`: lost, quarantined and unknown
    entries, by stream and name. `batches`: the number of the last counted batch of each kind.
    """

    partitions: dict[Key, Counter[str]] = field(default_factory=dict)
    others: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    rebalances: Counter[str] = field(default_factory=Counter)
    trouble: Counter[tuple[str, str]] = field(default_factory=Counter)
    batches: dict[Kind, int] = field(default_factory=dict)

    def has(self, kind: Kind, number: int | None) -> bool:
        """Return whether a batch was counted already. `number`: None for a batch that is never repeated."""
        return number is not None and number <= self.batches.get(kind, -1)

    def copy(self) -> Counters:
        """An independent copy."""
        return Counters(
            {key: counts.copy() for key, counts in self.partitions.items()},
            {key: counts.copy() for key, counts in self.others.items()},
            self.rebalances.copy(),
            self.trouble.copy(),
            self.batches.copy(),
        )

    def only(self, there: Container[Key]) -> None:
        """Remove share-partitions that are not in `there`."""
        self.partitions = {key: counts for key, counts in self.partitions.items() if key in there}


class CountersFile:
    """The `counters.json` in an ingest job's directory. Only the owner of the directory may use it."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._note = data / _FILE

    def load(self, notify: Callable[[str], None]) -> Counters:
        """The stored counters; empty if there is no file, or if its queries or batches do not match the checkpoints.

        A mismatch means that the checkpoints are new or from a backup; counting then starts at 0. A file that cannot be
        read, for example after a power loss, is reported with `notify` and treated as empty.
        """
        if not self._note.exists():
            return Counters()
        try:
            stored: dict[str, Any] = json.loads(self._note.read_text(encoding="utf-8"))
            counted = _read(stored)
            fits = all(
                query_id(self._data, kind) == stored["queries"][kind] and number <= confirmed(self._data, kind) + 1
                for kind, number in counted.batches.items()
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            notify(f"{self._note} cannot be read ({error}); counters for Prometheus begin at 0")
            return Counters()
        return counted if fits else Counters()

    def save(self, counters: Counters) -> None:
        """Store the counters. The file is replaced as a whole. Raises OSError."""
        stored = {
            "queries": {kind: query_id(self._data, kind) for kind in counters.batches},
            "batches": counters.batches,
            "partitions": [[*key, counts] for key, counts in counters.partitions.items()],
            "others": [[*key, counts] for key, counts in counters.others.items()],
            "rebalances": counters.rebalances,
            "trouble": [[*key, count] for key, count in counters.trouble.items()],
        }
        new = self._note.with_suffix(".new")
        new.write_text(json.dumps(stored), encoding="utf-8")
        new.replace(self._note)


def _read(stored: dict[str, Any]) -> Counters:
    return Counters(
        {(group, topic, partition): Counter(counts) for group, topic, partition, counts in stored["partitions"]},
        {(group, topic): Counter(counts) for group, topic, counts in stored["others"]},
        Counter(stored["rebalances"]),
        Counter({(stream, name): count for stream, name, count in stored["trouble"]}),
        {Kind(kind): number for kind, number in stored["batches"].items()},
    )
