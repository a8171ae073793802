"""Computes replays, progress, loads and reasons of share-partitions in one pass over the rows of their streams. Pure.

All records of a share-partition are in one stream (SC-3). So one pass over a stream in id order sees each
share-partition's records in order too, with the stream's event time and gaps (PM-7, PM-11, PM-32, PM-34). No Spark, no
I/O.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from share_metrics.reader.schemas import CLAIM, GAP, MALFORMED, NOOP, NOT_RECORDS, UNKNOWN
from share_metrics.replay.given_reasons import GivenReasons
from share_metrics.replay.progress_rows import Progress
from share_metrics.replay.replay_runs import ColumnReplay
from share_metrics.replay.write_columns import NUMBERS, Blocks, Key, by_stream

_COMMON: Final = ("stream", "epoch", "seq", "ts", "record_type", "group_id", "topic_id", "partition")
#: The maximum number of claims listed per stream; the newest are kept.
CLAIMS_MAX: Final = 100
#: The maximum number of gaps listed per stream; the first ones, by the text of their ids, are kept.
GAPS_MAX: Final = 200
_NOT_RECORDS: Final = pa.array(sorted(NOT_RECORDS))


class Part(Flag):
    """The results to compute from the rows."""

    REPLAY = auto()
    PROGRESS = auto()
    LOAD = auto()
    REASONS = auto()

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that it needs; `stream` is the first of them."""
        named = {
            Part.REPLAY: ("state_epoch", "start_offset", "write_id", "delivery_limit", "hwm", "archived"),
            Part.PROGRESS: tuple(name for name in NUMBERS if name != "delivery_limit"),
            Part.LOAD: ("bytes", "error"),
            Part.REASONS: ("state_epoch", "start_offset", "failures"),
        }
        batches = ("state_batches",) if self & (Part.REPLAY | Part.PROGRESS) else ()
        return tuple(dict.fromkeys((*_COMMON, *(name for part in self for name in named[part]), *batches)))


EVERY: Final = Part.REPLAY | Part.PROGRESS | Part.LOAD | Part.REASONS


@dataclass(slots=True)
class StreamLoad:
    """A share-state stream's entries by type so far, and the size of its records (PM-62, PM-64, PM-92).

    `claimed_us`: when owners claimed it. `gaps`: (from id, to id, lost, reason).
    """

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
            errors = [json.loads(gap) for gap in rows["error"].filter(pc.equal(kind, GAP)).to_pylist()]
            self.lost += sum(gap["lost"] for gap in errors)
            gaps = [(gap["from_id"], gap["to_id"], gap["lost"], gap["reason"]) for gap in errors]
            self.gaps = sorted([*self.gaps, *gaps])[:GAPS_MAX]
        if found.get(CLAIM):
            claims = rows["ts"].filter(pc.equal(kind, CLAIM)).drop_null().cast("int64").to_pylist()
            self.claimed_us = sorted([*self.claimed_us, *claims], reverse=True)[:CLAIMS_MAX]
        sizes = rows["bytes"]
        if not found.keys().isdisjoint(NOT_RECORDS):
            sizes = sizes.filter(pc.invert(pc.is_in(kind, value_set=_NOT_RECORDS)))
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


@dataclass(slots=True)
class Measured:
    """The results for one stream."""

    stream: str
    load: StreamLoad = field(default_factory=StreamLoad)
    replays: dict[Key, ColumnReplay] = field(default_factory=dict)
    progress: dict[Key, Progress] = field(default_factory=dict)
    reasons: dict[Key, GivenReasons] = field(default_factory=dict)


def measured(
    batches: Iterable[Any], window_us: int, delivery_limit: int = 5, parts: Part = EVERY
) -> Iterator[Measured]:
    """Yield the results of one stream after the other, from `pyarrow.RecordBatch`es with the columns that `parts` need.

    The rows must be grouped by stream, and sorted by id within it. A gap must come before the entry at which it ends,
    but a lost tail after it; rows of one entry must be sorted by type. Memory holds the results of one stream and one
    block of rows at a time. Raises ValueError for a replay of rows without state batches.
    """
    for name, blocks in by_stream(batches):
        found, stream = Measured(name), Blocks(whole=Part.REPLAY in parts)
        for block in blocks:
            if Part.LOAD in parts:
                found.load.take(block)
            for key, writes in stream.of(block):
                if Part.REPLAY in parts:
                    if key not in found.replays:
                        found.replays[key] = ColumnReplay(window_us, delivery_limit)
                    found.replays[key].take(writes)
                if Part.PROGRESS in parts:
                    if key not in found.progress:
                        found.progress[key] = Progress(window_us)
                    found.progress[key].take(writes)
                if Part.REASONS in parts:
                    found.reasons.setdefault(key, GivenReasons(window_us)).take(writes)
                found.load.keys.add(key)
        yield found
