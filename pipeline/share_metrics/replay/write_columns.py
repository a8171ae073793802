"""Turns share-state rows into columns, from which replays and progress of share-partitions are computed. Pure.

A stream's rows come in id order, and are split into blocks. Within a block they are sorted by share-partition,
and keep the order of ids within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kip932.failures import Failure
from kip932.state_batches import ArchivedRange, StateBatch
from share_metrics.reader.schemas import GAP, STATE_BATCH_FIELDS, WRITE_COUNTS
from share_metrics.replay.columns import begins, spread
from share_metrics.replay.replay import Event

Key = tuple[str, str, int]
R = TypeVar("R")
#: The numbers of a row, in the order of `Writes.values`.
NUMBERS: Final = (
    "start_offset", "state_epoch", "leader_epoch", "generation", "write_id", "delivery_complete_count", "hwm", "speo",
    "delivery_limit", "cause", *WRITE_COUNTS, "max_dc", "sum_dc", "bytes", "create_ts", "write_ts",
)  # fmt: skip
AT: Final = {name: place for place, name in enumerate(NUMBERS)}
SNAPSHOT, UPDATE, TOMBSTONE, _GAP, _OTHER = range(5)
_KINDS: Final = {"snapshot": SNAPSHOT, "update": UPDATE, "tombstone": TOMBSTONE, GAP: _GAP}
_NAMES: Final = tuple(_KINDS)
#: The minimum number of rows in a block, unless the stream ends.
BLOCK_ROWS: Final = 50_000
_LONG_AGO: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Writes:
    """Records of one share-partition, in id order.

    `values[AT[name]]` are the numbers of that name; they are 0 where `known` is false. `time_us` is event time; it is 0
    where `timed` is false. `batches` are the fields of state batches: those from `offsets[i]` to before
    `offsets[i + 1]` belong to record `i`.
    """

    kind: Any
    time_us: Any
    timed: Any
    losses: Any
    values: Any
    known: Any
    offsets: Any
    batches: Any
    #: The ranges that records archive, by the records' numbers in `place`.
    archived: dict[int, tuple[ArchivedRange, ...]]
    place: Any
    #: Why members gave records up (X11), by the records' numbers in `place`.
    failures: dict[int, tuple[Failure, ...]]

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, part: slice) -> Writes:
        begin, end, _ = part.indices(len(self.kind))
        low, high = self.offsets[begin], self.offsets[end]
        return Writes(
            self.kind[begin:end], self.time_us[begin:end], self.timed[begin:end], self.losses[begin:end],
            self.values[:, begin:end], self.known[:, begin:end], self.offsets[begin : end + 1] - low,
            self.batches[:, low:high], self.archived, self.place[begin:end], self.failures,
        )  # fmt: skip

    def column(self, name: str) -> tuple[Any, Any]:
        """The numbers of a name, and the mask of the records that have one."""
        return self.values[AT[name]], self.known[AT[name]]

    @property
    def of_batch(self) -> Any:
        """For each batch, the number of its record."""
        return np.repeat(np.arange(len(self.kind)), np.diff(self.offsets))

    def event(self, number: int) -> Event:
        """The record with this number, for `Replay.apply`."""
        return next(self[number : number + 1].events())

    def events(self) -> Iterator[Event]:
        """The records, for `Replay.apply`. Columns become lists at once, which is cheaper than value by value."""
        start, epoch, limit, hwm = (
            [value if known else None for value, known in zip(values.tolist(), there.tolist(), strict=True)]
            for values, there in map(self.column, ("start_offset", "state_epoch", "delivery_limit", "hwm"))
        )
        kinds, times, losses, places = (
            column.tolist() for column in (self.kind, self.time_us, self.losses, self.place)
        )
        named, offsets = self.column("write_id")[1].tolist(), self.offsets.tolist()
        batches = tuple(map(StateBatch, *self.batches.tolist()))
        for number, kind in enumerate(kinds):
            yield Event(
                _NAMES[kind], times[number], losses[number], start[number],
                batches[offsets[number] : offsets[number + 1]], epoch[number], named[number], limit[number],
                self.archived.get(places[number], ()), hwm[number],
            )  # fmt: skip


class Blocks:
    """Converts the blocks of one stream. Keeps its event time, which never falls, its gaps and its last row (PM-7)."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._time_us = _LONG_AGO
        self._losses = 0
        self._last = (-1, -1, -1)

    def of(self, table: Any) -> Iterator[tuple[Key, Writes]]:
        """The records of each share-partition in the next rows. Raises ValueError for rows without state batches."""
        kind = _coded(table["record_type"])
        time_us = np.maximum.accumulate(np.append([self._time_us], _numbers(table["ts"], _LONG_AGO)[0]))[1:]
        losses = self._losses + np.cumsum(kind == _GAP)
        self._time_us, self._losses = int(time_us[-1]), int(losses[-1])
        kept = np.flatnonzero((kind <= TOMBSTONE) & ~self._repeats(table, kind))
        if not len(kept):
            return
        table = table.take(pa.array(kept))
        kind, time_us, losses = kind[kept], time_us[kept], losses[kept]
        if self._whole and (table["state_batches"].is_null().to_numpy() & (kind != TOMBSTONE)).any():
            raise ValueError("a replay needs state batches: read them without the option fields=light")  # PM-78
        keys = _key_numbers(table)
        order = np.argsort(keys, kind="stable")
        edges = np.append(begins(keys[order]), len(order))
        timed = time_us > _LONG_AGO
        every = _writes(table, order, (kind, np.where(timed, time_us, 0), timed, losses))
        first = pa.array(order[edges[:-1]])
        names = [table[name].take(first).to_pylist() for name in ("group_id", "topic_id", "partition")]
        for run in np.argsort(order[edges[:-1]]).tolist():
            group_id, topic_id, partition = (column[run] for column in names)
            yield (group_id, topic_id, partition), every[edges[run] : edges[run + 1]]

    def _repeats(self, table: Any, kind: Any) -> Any:
        """Mark the rows that repeat the one before them (PM-34)."""
        row = np.stack([_numbers(table["epoch"])[0], _numbers(table["seq"])[0], kind])
        before = np.concatenate([np.array(self._last)[:, None], row[:, :-1]], axis=1)
        self._last = (int(row[0, -1]), int(row[1, -1]), int(row[2, -1]))
        return (row == before).all(axis=0)


def by_stream(batches: Iterable[Any]) -> Iterator[tuple[str, Iterator[Any]]]:
    """The streams in `pyarrow.RecordBatch`es that are grouped by stream: each as an iterator of blocks of rows.

    A stream's blocks must be taken before the next stream is.
    """
    pieces = _pieces(batches)
    ahead = next(pieces, None)

    def blocks(name: str) -> Iterator[Any]:
        nonlocal ahead
        held: list[Any] = []
        while ahead is not None and ahead[0] == name:
            held.append(ahead[1])
            ahead = None  # before the next one is requested, so that memory holds it once
            ahead = next(pieces, None)
            if sum(one.num_rows for one in held) >= BLOCK_ROWS:
                yield pa.Table.from_batches(held).combine_chunks()
                held = []
        if held:
            yield pa.Table.from_batches(held).combine_chunks()

    while ahead is not None:
        yield ahead[0], blocks(ahead[0])


def _pieces(batches: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Batches split where the stream changes, each with the stream's name."""
    for batch in batches:
        if batch.num_rows:
            named = batch.column("stream").dictionary_encode()
            edges = [*begins(named.indices.to_numpy()).tolist(), batch.num_rows]
            for begin, end in pairwise(edges):
                yield named[begin].as_py(), batch.slice(begin, end - begin)


def _writes(table: Any, order: Any, columns: tuple[Any, Any, Any, Any]) -> Writes:
    """The records of a table in the order `order`. `columns`: kind, event time, whether it is known, losses."""
    values = np.zeros((len(NUMBERS), len(order)), dtype=np.int64)
    known = np.zeros((len(NUMBERS), len(order)), dtype=bool)
    for name in set(NUMBERS).intersection(table.column_names):
        numbers, there = _numbers(table[name])
        values[AT[name]], known[AT[name]] = numbers[order], there[order]
    offsets, batches = _batches(table, order)
    kind, time_us, timed, losses = (column[order] for column in columns)
    named = (_ranges(table, "archived", ArchivedRange), order, _ranges(table, "failures", Failure))
    return Writes(kind, time_us, timed, losses, values, known, offsets, batches, *named)


def _batches(table: Any, order: Any) -> tuple[Any, Any]:
    """The offsets at which each record's state batches start, in the order `order`, and the fields of the batches."""
    if "state_batches" not in table.column_names:
        return np.zeros(len(order) + 1, dtype=np.int64), np.zeros((len(STATE_BATCH_FIELDS), 0), dtype=np.int64)
    column = table["state_batches"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    low, high = column.offsets.to_numpy()[:-1], column.offsets.to_numpy()[1:]
    low, high = low[order].astype(np.int64), high[order].astype(np.int64)
    high = np.where(column.is_valid().to_numpy(zero_copy_only=False)[order], high, low)
    _, taken = spread(low, high)
    *plain, until = (_numbers(column.values.field(name))[0][taken] for name in STATE_BATCH_FIELDS)
    return np.append([0], np.cumsum(high - low)), np.stack([*plain, until // 1000])


def _ranges(table: Any, name: str, kind: Callable[..., R]) -> dict[int, tuple[R, ...]]:
    """The values of a column of lists, by the numbers of the rows whose list is not empty."""
    if name not in table.column_names:
        return {}
    filled = np.flatnonzero(pc.fill_null(pc.list_value_length(table[name]), 0).to_numpy())
    found = table[name].take(pa.array(filled)).to_pylist()
    return {at: tuple(kind(**one) for one in of) for at, of in zip(filled.tolist(), found, strict=True)}


def _coded(record_types: Any) -> Any:
    """Record types as numbers."""
    coded = record_types.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    return np.array([_KINDS.get(name, _OTHER) for name in coded.dictionary.to_pylist()])[coded.indices.to_numpy()]


def _key_numbers(table: Any) -> Any:
    """A number for each row, equal for the rows of one share-partition."""
    pair = np.zeros(table.num_rows, dtype=np.int64)
    for name in ("group_id", "topic_id"):
        coded = table[name].combine_chunks().dictionary_encode()
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        pair = pair * len(coded.dictionary) + coded.indices.to_numpy()
    return (np.unique(pair, return_inverse=True)[1] << 32) | _numbers(table["partition"])[0]


def _numbers(column: Any, none: int = 0) -> tuple[Any, Any]:
    """A column of whole numbers or times as an array, with `none` for null; and a mask of the non-null values."""
    plain = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    known = np.asarray(column.is_valid())
    filled = pc.fill_null(plain, none) if column.null_count else plain
    return np.asarray(filled).astype(np.int64, copy=False), known
