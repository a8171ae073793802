"""Replays the share-partitions of streams from rows in Arrow, batch by batch, in one pass (PM-7, PM-11, PM-32, PM-34).

All records of a share-partition are in one stream (SC-3). So one pass over a stream in the order of ids has each
share-partition's records in order too, and knows the stream's event time and gaps. Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kip932.state_batches import ArchivedRange, StateBatch
from share_metrics.reader.schemas import STATE_BATCH_FIELDS

from .reader.schemas import GAP
from .replay import Event, Replay

Key = tuple[str, str, int]
_KEY: Final = ("group_id", "topic_id", "partition")
#: The columns that a replay needs.
NEEDED: Final = (
    "stream", "record_type", "ts", *_KEY, "state_epoch", "start_offset", "write_id", "delivery_limit", "archived",
    "hwm", "state_batches",
)  # fmt: skip
_RECORDS: Final = frozenset({"snapshot", "update", "tombstone"})


def replays(batches: Iterable[Any], window_us: int, delivery_limit: int = 5) -> Iterator[dict[Key, Replay]]:
    """The replays of one stream after the other, from `pyarrow.RecordBatch`es that have the columns NEEDED.

    The rows must be grouped by stream, and sorted by id within it. A gap must come before the entry at which it ends,
    but a lost tail after it; rows of one entry must be sorted by type. Only the replays of one stream are in memory at
    a time. Raises ValueError for rows without state batches.
    """
    name, stream = None, _Stream(window_us, delivery_limit)
    for batch in batches:
        for row in zip(*_columns(batch), strict=True):
            if row[0] != name:
                if stream.replays:
                    yield stream.replays
                name, stream = row[0], _Stream(window_us, delivery_limit)
            stream.take(*row[1:])
    if stream.replays:
        yield stream.replays


class _Stream:
    """One stream so far: its event time, which never decreases, its gaps, and its share-partitions."""

    def __init__(self, window_us: int, delivery_limit: int) -> None:
        self._made = (window_us, delivery_limit)
        self._time_us: int | None = None
        self._losses = 0
        self.replays: dict[Key, Replay] = {}

    def take(  # noqa: PLR0917 - the columns of a row
        self,
        record_type: str,
        ts_us: int | None,
        group_id: str,
        topic_id: str,
        partition: int,
        state_epoch: int | None,
        start_offset: int | None,
        write_id: int | None,
        delivery_limit: int | None,
        archived: list[dict[str, int]] | None,
        hwm: int | None,
        batches: tuple[StateBatch, ...] | None,
    ) -> None:
        """Take the next row. A row repeated at once changes nothing, since combining is idempotent (PM-34, SC-111)."""
        if ts_us is not None and (self._time_us is None or ts_us > self._time_us):
            self._time_us = ts_us
        if record_type not in _RECORDS:
            self._losses += record_type == GAP
            return
        if batches is None and record_type != "tombstone":
            raise ValueError("a replay needs state batches: read them without the option fields=light (PM-78)")
        key = (group_id, topic_id, partition)
        replay = self.replays.get(key)
        if replay is None:
            replay = self.replays[key] = Replay(*self._made)
        ranges = tuple(ArchivedRange(**found) for found in archived or ())
        told = (state_epoch, write_id is not None, delivery_limit, ranges, hwm)
        replay.apply(Event(record_type, self._time_us or 0, self._losses, start_offset, batches or (), *told))


def _columns(batch: Any) -> list[Iterable[Any]]:
    """The columns NEEDED as Python values: times in microseconds, state batches as tuples."""
    plain = {name: batch.column(name) for name in NEEDED}
    plain["ts"] = plain["ts"].cast(pa.int64())
    batches = plain.pop("state_batches")
    return [*(column.to_pylist() for column in plain.values()), _state_batches(batches)]


def _state_batches(column: Any) -> Iterator[tuple[StateBatch, ...] | None]:
    """State batches as tuples, without the dictionary for each batch that `to_pylist` would create.

    The column's offsets count in the whole child array.
    """
    *plain, until = (column.values.field(name) for name in STATE_BATCH_FIELDS)
    until_ms = pc.fill_null(pc.divide(until.cast(pa.int64()), 1000), 0)
    flat = list(map(StateBatch, *(field.to_pylist() for field in plain), until_ms.to_pylist()))
    offsets = column.offsets.to_pylist()
    for begin, end, known in zip(offsets, offsets[1:], column.is_valid().to_pylist(), strict=False):
        yield tuple(flat[begin:end]) if known else None
