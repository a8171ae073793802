"""Counts a share-state stream's entries by type, and the size of its records (PM-62, PM-64, PM-92). Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from share_metrics.reader.schemas import CLAIM, GAP, MALFORMED, NOOP, NOT_RECORDS, UNKNOWN

#: The most claims of a stream that are listed; the newest are kept.
CLAIMS_MAX: Final = 100
#: The most gaps of a stream that are listed; the first ones by the texts of their ids are kept.
GAPS_MAX: Final = 200
_OTHERS: Final = pa.array(sorted(NOT_RECORDS))


@dataclass(slots=True)
class StreamLoad:
    """The load of a stream so far. `claimed_us`: when owners claimed it. `gaps`: (from id, to id, lost, reason)."""

    types: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    gaps: list[tuple[str, str, int, str]] = field(default_factory=list)
    bytes: int | None = None
    keys: set[tuple[str, str, int]] = field(default_factory=set)
    claimed_us: list[int] = field(default_factory=list)

    def take(self, rows: Any) -> None:
        """Take the next rows, a `pyarrow.Table`."""
        kind = rows["record_type"]
        found = {one["values"]: one["counts"] for one in pc.value_counts(kind).to_pylist()}
        self.types.update(found)
        if found.get(GAP):
            told = [json.loads(gap) for gap in rows["error"].filter(pc.equal(kind, GAP)).to_pylist()]
            self.lost += sum(gap["lost"] for gap in told)
            gaps = [(gap["from_id"], gap["to_id"], gap["lost"], gap["reason"]) for gap in told]
            self.gaps = sorted([*self.gaps, *gaps])[:GAPS_MAX]
        if found.get(CLAIM):
            claims = rows["ts"].filter(pc.equal(kind, CLAIM)).drop_null().cast("int64").to_pylist()
            self.claimed_us = sorted([*self.claimed_us, *claims], reverse=True)[:CLAIMS_MAX]
        sizes = rows["bytes"]
        if not found.keys().isdisjoint(NOT_RECORDS):
            sizes = sizes.filter(pc.invert(pc.is_in(kind, value_set=_OTHERS)))
        if len(sizes) > sizes.null_count:
            self.bytes = (self.bytes or 0) + int(np.sum(np.asarray(sizes.drop_null()), dtype=np.int64))

    def row(self) -> dict[str, Any]:
        """The columns of `metrics.loads_of`."""
        return {
            "entries": self.types.total() - self.types[GAP],
            "claims": self.types[CLAIM],
            "noops": self.types[NOOP],
            "unknown": self.types[UNKNOWN],
            "quarantined": self.types[MALFORMED],
            "gaps": self.types[GAP],
            "lost": self.lost,
            "records": sum(count for name, count in self.types.items() if name not in NOT_RECORDS),
            "bytes": self.bytes,
            "keys": [dict(zip(("group_id", "topic_id", "partition"), key, strict=True)) for key in sorted(self.keys)],
            "tombstones": self.types["tombstone"],
            "gap_rows": [dict(zip(("from_id", "to_id", "lost", "reason"), gap, strict=True)) for gap in self.gaps],
            "claimed_at": [us / 1_000_000 for us in self.claimed_us],
        }
