"""Chooses and reads the ingested rows that a page needs, without Spark, in Arrow tables (PM-32, PM-110).

The rows are those that `metrics.common.since` and `until` keep. Files of hours that cannot matter are not opened; of
older hours only a few columns are read first, to find the files with the last snapshots of share-partitions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from share_metrics.archive.commits import Piece, visible
from share_metrics.archive.kept_rows import count_rows, read_table
from share_metrics.reader import Kind
from share_metrics.reader.schemas import GAP
from share_metrics.replay.measuring import EVERY

KEY: Final = ("group_id", "topic_id", "partition")
#: How many rows, and how many bytes of files, are read at once, unless one stream has more.
ROWS_AT_ONCE: Final = 300_000
BYTES_AT_ONCE: Final = 64 << 20
#: What a row of an older hour counts.
_OLD: Final = 0.1
_COUNTED_AT_ONCE: Final = 256
_STATE_COLUMNS: Final = tuple(dict.fromkeys((*EVERY.needed, "entry_id")))
_NO_ID: Final = (1 << 62, 0)
#: An end after every row.
NO_END: Final = datetime(9999, 1, 1, tzinfo=UTC)

Id = tuple[int, int]


@dataclass(frozen=True)
class PageFiles:
    """The files of a directory with rows for the time from `begin` to `end`."""

    data: Path
    begin: datetime
    end: datetime

    @cached_property
    def _states(self) -> list[list[Piece]]:
        return [span.pieces for span in visible(self.data, Kind.SHARE_STATE)]

    @cached_property
    def _recent(self) -> list[Piece]:
        """Files with rows of the page's hours, or without times."""
        return [one for span in self._states for one in span if self._is_recent(one)]

    def _is_recent(self, piece: Piece) -> bool:
        return not piece.hour or self._hour(self.begin) <= piece.hour <= self._hour(self.end)

    @cached_property
    def _old(self) -> list[list[Piece]]:
        """Files of older hours, by span, the newest first."""
        hour = self._hour(self.begin)
        return [[one for one in span if one.hour and one.hour < hour] for span in reversed(self._states)]

    @staticmethod
    def _hour(at: datetime) -> str:
        return f"{at.astimezone(UTC):%Y-%m-%dT%H}"

    @property
    def size(self) -> int:
        """The size of the files with rows of the page's hours, bytes."""
        return sum(piece.size for piece in self._recent)

    def weigh(self, most: int) -> int:
        """How many rows have to be read for the page; counts no further than `most`.

        A row of an older hour, of which only a few columns are read, counts as a tenth.
        """
        old = [piece for span in self._old for piece in span]
        groups = [piece for span in visible(self.data, Kind.GROUP) for piece in span.pieces]
        weight = 0.0
        for pieces, kind, share in ((self._recent, Kind.SHARE_STATE, 1), (groups, Kind.GROUP, 1),
                                    (old, Kind.SHARE_STATE, _OLD)):  # fmt: skip
            for begin in range(0, len(pieces) if weight <= most else 0, _COUNTED_AT_ONCE):
                weight += share * count_rows(_paths(pieces[begin : begin + _COUNTED_AT_ONCE]), kind)
                if weight > most:
                    break
        return int(weight)

    def states(self) -> Iterator[Any]:
        """The rows of kind `share_state`: tables of whole streams, in the order that `measured` needs."""
        edges = self._edges(Kind.SHARE_STATE)
        pieces = [*self._recent, *self._needed(edges)]
        for streams in self._parts(pieces):
            wanted = None if streams is None else pc.field("stream").isin(streams)
            rows = read_table(_paths(pieces), Kind.SHARE_STATE, _STATE_COLUMNS, wanted)
            yield _ordered(_standing(rows, edges))

    def groups(self, columns: Sequence[str]) -> Any:
        """The rows of kind `group` before the end, in order, in one table."""
        edges = self._edges(Kind.GROUP)
        needed = tuple(dict.fromkeys((*columns, "stream", "epoch", "seq", "ts", "record_type", "error", "entry_id")))
        files = [piece.path for span in visible(self.data, Kind.GROUP) for piece in span.pieces]
        table = read_table(files, Kind.GROUP, needed, None)
        return _ordered(table.filter(pa.array(_before(table, edges)))).select(list(columns))

    def _edges(self, kind: Kind) -> dict[str, tuple[Id, Id]]:
        """For each stream the ids at which it reached the begin and the end (PM-7), _NO_ID if it did not."""
        hour = self._hour(self.begin)
        files = [one.path for span in visible(self.data, kind) for one in span.pieces if one.hour >= hour]
        rows = read_table(files, kind, ("stream", "epoch", "seq", "ts"), pc.field("ts") >= pc.scalar(self.begin))
        reached = _first_ids(rows)
        ended = _first_ids(rows.filter(pc.greater_equal(rows["ts"], pa.scalar(self.end, rows["ts"].type))))
        return {name: (at, ended.get(name, _NO_ID)) for name, at in reached.items()}

    def _needed(self, edges: Mapping[str, tuple[Id, Id]]) -> list[Piece]:
        """The older files with the last snapshots of share-partitions and the records after them, and those with rows
        that an owner whose clock was slow has written in the page's time."""
        closed: set[tuple[Any, ...]] = set()
        needed: list[Piece] = []
        for span in self._old:
            begun: set[tuple[Any, ...]] = set()
            for piece in span:
                rows = read_table([piece.path], Kind.SHARE_STATE, ("stream", "epoch", "seq", *KEY, "record_type"), None)
                kinds = rows.group_by([*KEY, "record_type"]).aggregate([]).to_pylist()
                there = {_key_of(row) for row in kinds if row["group_id"] is not None}
                if not there <= closed or _from_begin(rows, edges).any():
                    needed.append(piece)
                begun |= {_key_of(row) for row in kinds if row["record_type"] == "snapshot"}
            closed |= begun
        return needed

    def _parts(self, pieces: Sequence[Piece]) -> Iterator[list[str] | None]:
        """The names of streams that are read together; None for all at once."""
        files = _paths(pieces)
        rows, size = count_rows(files, Kind.SHARE_STATE), sum(piece.size for piece in pieces)
        most = min(ROWS_AT_ONCE, rows * BYTES_AT_ONCE // max(size, 1))
        if rows <= most:
            yield None
            return
        streams = read_table(files, Kind.SHARE_STATE, ("stream",), None)
        sizes = streams.group_by("stream").aggregate([([], "count_all")]).to_pylist()
        part: list[str] = []
        left = most
        for row in sorted(sizes, key=lambda one: one["stream"]):
            if part and row["count_all"] > left:
                yield part
                part, left = [], most
            part.append(row["stream"])
            left -= row["count_all"]
        yield part


def _paths(pieces: Iterable[Piece]) -> list[str]:
    return [piece.path for piece in pieces]


def _key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def log_batches(data: Path, columns: Sequence[str], wanted: Any = None) -> Iterator[Any]:
    """The rows of `log_meta` that pyarrow's filter `wanted` keeps, a table for each file; none unless they were
    ingested."""
    for span in visible(data, Kind.LOG_META):
        for piece in span.pieces:
            yield read_table([piece.path], Kind.LOG_META, columns, wanted)


def newest_time(data: Path) -> datetime | None:
    """When the newest row of states and groups was appended; None without any. Only files of the newest hour are
    read."""
    found: list[datetime] = []
    for kind in (Kind.SHARE_STATE, Kind.GROUP):
        pieces = [one for span in visible(data, kind) for one in span.pieces if one.hour]
        last = max((one.hour for one in pieces), default="")
        files = [one.path for one in pieces if one.hour == last]
        newest = pc.max(read_table(files, kind, ("ts",), None)["ts"]).as_py()
        found += [] if newest is None else [newest]
    return max(found, default=None)


def watermarks(data: Path) -> dict[tuple[str, int], int]:
    """The lowest high watermark that the writes of an existing share-partition report, by log; 0 if none does."""
    highest: dict[tuple[Any, ...], int] = {}
    newest: dict[tuple[Any, ...], tuple[Id, bool]] = {}
    columns = (*KEY, "record_type", "hwm", "epoch", "seq")
    for span in visible(data, Kind.SHARE_STATE):
        for piece in span.pieces:
            rows = read_table([piece.path], Kind.SHARE_STATE, columns, pc.field("topic_id").is_valid())
            gone = rows.append_column("gone", pc.equal(rows["record_type"], "tombstone"))
            found = gone.group_by([*KEY, "epoch", "gone"]).aggregate([("hwm", "max"), ("seq", "max")])
            for row in found.to_pylist():
                key = _key_of(row)
                highest[key] = max(highest.get(key, 0), row["hwm_max"] or 0)
                last = (row["epoch"], row["seq_max"]), row["gone"]
                newest[key] = max(newest.get(key, last), last)
    lowest: dict[tuple[str, int], int] = {}
    for (_, topic_id, partition), hwm in ((key, hwm) for key, hwm in highest.items() if not newest[key][1]):
        lowest[topic_id, partition] = min(lowest.get((topic_id, partition), hwm), hwm)
    return lowest


def _first_ids(rows: Any) -> dict[str, Id]:
    """The lowest id of each stream."""
    found: dict[str, Id] = {}
    for row in rows.group_by(["stream", "epoch"]).aggregate([("seq", "min")]).to_pylist():
        at = (row["epoch"], row["seq_min"])
        found[row["stream"]] = min(found.get(row["stream"], at), at)
    return found


def _numbers(column: Any) -> Any:
    """Whole numbers as an array, −1 for null."""
    return np.asarray(pc.fill_null(column, -1))


def _from(table: Any, ids: Sequence[Id]) -> Any:
    """Which rows have at least the id that belongs to their stream, given by the stream's place in its dictionary."""
    epochs, seqs = (np.array([one[part] for one in ids], dtype=np.int64) for part in (0, 1))
    of = _codes(table["stream"])[0]
    epoch, seq = _numbers(table["epoch"]), _numbers(table["seq"])
    return (epoch > epochs[of]) | ((epoch == epochs[of]) & (seq >= seqs[of]))


def _codes(column: Any) -> tuple[Any, list[Any]]:
    """For each value its place among the different ones, or their number for null; and the different ones."""
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    return np.asarray(pc.fill_null(coded.indices, len(coded.dictionary))), coded.dictionary.to_pylist()


def _from_begin(table: Any, edges: Mapping[str, tuple[Id, Id]]) -> Any:
    """Mark the rows from where their stream reached the begin on."""
    return _from(table, [edges.get(name, (_NO_ID, _NO_ID))[0] for name in _codes(table["stream"])[1]])


def _before(table: Any, edges: Mapping[str, tuple[Id, Id]]) -> Any:
    """Mark the rows before the end, and those without a time."""
    ended = _from(table, [edges.get(name, (_NO_ID, _NO_ID))[1] for name in _codes(table["stream"])[1]])
    return ~ended | np.asarray(table["ts"].is_null())


def _standing(table: Any, edges: Mapping[str, tuple[Id, Id]]) -> Any:
    """The rows before the end that are needed from the begin on: see `metrics.common.since`."""
    table = table.filter(pa.array(_before(table, edges)))
    late = _from_begin(table, edges) | np.asarray(table["ts"].is_null())
    if late.all():
        return table
    old = np.flatnonzero(~late & np.asarray(pc.is_valid(table["group_id"])))
    kept = late.copy()
    kept[old[_from_state(table.take(pa.array(old)))]] = True
    return table.filter(pa.array(kept))


def _from_state(old: Any) -> Any:
    """Mark the old rows from the last snapshot of their share-partition on, or else from the last start offset on."""
    key = np.zeros(old.num_rows, dtype=np.int64)
    for name in KEY:
        codes, values = _codes(old[name])
        key = np.unique(key * (len(values) + 1) + codes, return_inverse=True)[1]
    epoch, seq, kind = _numbers(old["epoch"]), _numbers(old["seq"]), old["record_type"]
    snapshot = np.asarray(pc.equal(kind, "snapshot"))
    starts = np.asarray(pc.equal(kind, "update")) & np.asarray(pc.is_valid(old["start_offset"]))
    begin = np.full((2, int(key.max(initial=-1)) + 1), _NO_ID[0])
    for base in (starts, snapshot):
        order = np.flatnonzero(base)[np.lexsort((seq[base], epoch[base]))]
        begin[:, key[order]] = epoch[order], seq[order]  # the last one of each key remains
    return (epoch > begin[0][key]) | ((epoch == begin[0][key]) & (seq >= begin[1][key]))


def _ordered(table: Any) -> Any:
    """The rows by stream and id; a gap before the entry at which it ends, but a lost tail after it (PM-11, PM-34)."""
    kind = table["record_type"]
    place = np.ones(table.num_rows, dtype=np.int64)
    gaps = np.flatnonzero(np.asarray(pc.equal(kind, GAP)))
    errors = table["error"].take(pa.array(gaps)).to_pylist()
    place[gaps] = [2 if json.loads(error)["reason"] == "tail" else 0 for error in errors]
    texts = {name: _ranks(table[name]) for name in ("record_type", "entry_id", "stream")}
    numbers = (place, _numbers(table["seq"]), _numbers(table["epoch"]))
    order = np.lexsort((texts["record_type"], texts["entry_id"], *numbers, texts["stream"]))
    return table if (order == np.arange(len(order))).all() else table.take(pa.array(order))


def _ranks(column: Any) -> Any:
    """For each text its place in the order of the different ones."""
    codes, values = _codes(column)
    ranks = np.full(len(values) + 1, -1)
    ranks[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
    return ranks[codes]
