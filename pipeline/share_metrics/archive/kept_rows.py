"""Reads ingested Parquet rows without Spark or Java: those of one share-partition, or of groups (PM-39).

It chooses the files to open by their names: batches hold a stream's entries in id order, and the folders below
a batch name the day and hour in which its rows were appended (PM-35).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem

from share_metrics.archive.commits import Piece, visible
from share_metrics.reader import EntryId, Kind, Position, schema_of
from share_metrics.reader.offsets import entry_id, from_offsets
from share_metrics.reader.schemas import GAP

Row = dict[str, Any]
_KEY: Final = ("group_id", "topic_id", "partition")
#: The columns that decide which rows a replay needs. State batches are most of the bytes, and are read from few files.
_LIGHT: Final = ("stream", "entry_id", "epoch", "seq", "ts", "record_type", "error", *_KEY)
#: pyarrow's name for the column with the file's name.
_FILE: Final = "__filename"
#: Records that replace the whole state, so that a replay can start with them.
_BASES: Final = frozenset({"snapshot", "tombstone"})


def state_rows(data: Path, key: tuple[str, str, int], at: datetime | EntryId | None) -> list[Row]:
    """The rows that give a share-partition's state at `at`, in id order: from its last snapshot onwards, with its
    stream's gaps in that range.

    `key`: group id, topic id as text, partition. `at`: with a time, the rows end before the first record, in id order,
    that was appended later; with an entry id, they include that entry; with None, they go to the end. Batches whose
    rows were all appended later are not opened. Nor are batches before the snapshot, unless they have rows that were
    appended after `at`, which happens if an owner's clock was ahead.
    """
    folders = [span.pieces for span in visible(data, Kind.SHARE_STATE)]
    folders = [folder for folder in folders if folder]
    while isinstance(at, datetime) and folders and not _any_by(folders[-1], at):
        folders.pop()  # all of its rows were appended later, as were all rows after them in their streams
    found: list[Row] = []
    opened: list[Piece] = []
    for folder in reversed(folders):
        based = any(row["record_type"] in _BASES for row in found)
        if based and not _ends(_light(_maybe_later(folder, at), key), at):
            continue
        opened += folder
        found = _needed([*_light(folder, key), *found], at)
    own = [row for row in found if row["record_type"] != GAP]
    if not own:
        return []
    gaps = [row for row in found if row["record_type"] == GAP and row["stream"] == own[0]["stream"]]
    whole = _whole({row[_FILE] for row in own}, key, (_id(own[0]), _id(own[-1])))
    return sorted([*whole, *(gap for gap in gaps if not _is_later(gap, at, opened))], key=_order)


def group_rows(data: Path, columns: Sequence[str]) -> list[Row]:
    """All rows of kind `group`, with these columns."""
    files = [piece.path for span in visible(data, Kind.GROUP) for piece in span.pieces]
    return read_table(files, Kind.GROUP, columns, None).to_pylist() if files else []


def read_rows(files: Sequence[str], kind: Kind, columns: Sequence[str], wanted: Any) -> list[Row]:
    """The rows in these files that pyarrow's filter `wanted` keeps, with these columns."""
    rows: list[Row] = read_table(files, kind, columns, wanted).to_pylist()
    return rows


def begin(data: Path) -> datetime | None:
    """When the oldest row of kind `share_state` was appended; None if there is none."""
    there = [piece for span in visible(data, Kind.SHARE_STATE) for piece in span.pieces if piece.hour]
    first = min((piece.hour for piece in there), default="")
    files = [piece.path for piece in there if piece.hour == first]
    times = read_table(files, Kind.SHARE_STATE, ["ts"], None).column("ts").drop_null().to_pylist()
    return min(times, default=None)


def read_positions(data: Path, kind: Kind) -> dict[str, Position]:
    """The position up to which each stream was read, as of the last batch; empty where it is unknown."""
    there = visible(data, kind)
    lines = there[-1].positions.splitlines() if there else []
    return from_offsets(json.loads(lines[-1])) if lines else {}


def _any_by(folder: Sequence[Piece], at: datetime) -> bool:
    """Return whether a row in these files may have been appended at this time or before."""
    hour = f"{at.astimezone(UTC):%Y-%m-%dT%H}"
    return any(piece.hour and piece.hour <= hour for piece in folder)


def _maybe_later(folder: Sequence[Piece], at: datetime | EntryId | None) -> list[Piece]:
    """The files whose rows may have been appended later than a time."""
    if not isinstance(at, datetime):
        return []
    hour = f"{at.astimezone(UTC):%Y-%m-%dT%H}"
    return [piece for piece in folder if piece.hour >= hour]


def _light(folder: Sequence[Piece], key: tuple[str, str, int]) -> list[Row]:
    """The rows of a share-partition and all gaps, without the large columns; each with its file's name as _FILE."""
    if not folder:
        return []
    columns = [*_LIGHT, _FILE]
    wanted = _of_key(key) | (ds.field("record_type") == GAP)
    rows: list[Row] = read_table([piece.path for piece in folder], Kind.SHARE_STATE, columns, wanted).to_pylist()
    return rows


def _whole(paths: Iterable[str], key: tuple[str, str, int], ends: tuple[EntryId, EntryId]) -> Iterator[Row]:
    """The rows of a share-partition with ids from the first to the last of `ends`, with all columns."""
    table = read_table(sorted(paths), Kind.SHARE_STATE, schema_of(Kind.SHARE_STATE).names, _of_key(key))
    return (row for row in table.to_pylist() if ends[0] <= _id(row) <= ends[1])


def _needed(rows: list[Row], at: datetime | EntryId | None) -> list[Row]:
    """The rows that give the state at `at`, in id order: from the last base up to `at`."""
    needed: list[Row] = []
    for row in sorted(rows, key=_order):
        gap = row["record_type"] == GAP
        if isinstance(at, EntryId) and (_gap_begin(row) >= at if gap else _id(row) > at):
            continue
        if not gap and _ends([row], at):
            break
        if row["record_type"] in _BASES:
            needed = []
        needed.append(row)
    return needed


def _ends(rows: Iterable[Row], at: datetime | EntryId | None) -> bool:
    """Return whether one of these rows was appended after the time `at`."""
    return isinstance(at, datetime) and any(row["ts"] is not None and row["ts"] > at for row in rows)


def _is_later(gap: Row, at: datetime | EntryId | None, opened: Sequence[Piece]) -> bool:
    """Return whether all entries of a gap were appended after the time `at`: true if an entry before the gap was."""
    files = [piece.path for piece in _maybe_later(opened, at)]
    if not files:
        return False
    table = read_table(files, Kind.SHARE_STATE, ["epoch", "seq", "ts"], ds.field("stream") == gap["stream"])
    begin_id = _gap_begin(gap)
    return _ends((row for row in table.to_pylist() if _id(row) <= begin_id), at)


def read_table(files: Sequence[str], kind: Kind, columns: Any, wanted: Any) -> Any:
    """Read files into a `pyarrow.Table` with the current schema, since files of earlier builds lack columns.

    `files` are paths or URIs; the column _FILE holds the one that each row comes from.
    """
    tables = []
    for dataset, named in _datasets(files, kind):
        table = dataset.to_table(columns=list(columns), filter=wanted)
        if _FILE in columns:
            paths = pa.array([named[name] for name in table.column(_FILE).to_pylist()], pa.string())
            table = table.set_column(table.schema.get_field_index(_FILE), _FILE, paths)
        tables.append(table)
    if tables:
        return pa.concat_tables(tables)
    return schema_of(kind).empty_table().select([name for name in columns if name != _FILE])


def count_rows(files: Sequence[str], kind: Kind) -> int:
    """The number of rows in files, by their footers."""
    return sum(dataset.count_rows() for dataset, _ in _datasets(files, kind))


def _datasets(files: Sequence[str], kind: Kind) -> Iterator[tuple[Any, dict[str, str]]]:
    """A dataset for each file system, and the files in it by the names that it gives them.

    pyarrow's `s3` is Hadoop's `s3a`.
    """
    for base in dict.fromkeys(map(_system, files)):
        there = [file for file in files if _system(file) == base]
        system, begin = FileSystem.from_uri(f"{base}/".replace("s3a://", "s3://", 1)) if base else (None, "")
        begin = begin.rstrip("/")  # for s3, the bucket
        named = {begin + file.removeprefix(base) if base else file: file for file in there}
        yield ds.dataset(list(named), format="parquet", schema=schema_of(kind), filesystem=system), named


def _system(file: str) -> str:
    """The scheme and host of a URI, which name its file system; "" for a local path."""
    parts = urlsplit(file)
    return f"{parts.scheme}://{parts.netloc}" if "://" in file else ""


def _of_key(key: tuple[str, str, int]) -> Any:
    group_id, topic_id, partition = (ds.field(name) == pa.scalar(value) for name, value in zip(_KEY, key, strict=True))
    return group_id & topic_id & partition


def _id(row: Row) -> EntryId:
    return EntryId(row["epoch"], row["seq"])


def _gap_begin(row: Row) -> EntryId:
    """The id after which a gap begins. For a lost tail it is `to_id`, since the rows read before it still exist."""
    gap = json.loads(row["error"])
    return entry_id(gap["to_id" if gap["reason"] == "tail" else "from_id"])


def _order(row: Row) -> tuple[EntryId, int]:
    """The sort key: by id, with a gap before the entry at which it ends, but a lost tail after it (PM-11)."""
    if row["record_type"] != GAP:
        return _id(row), 1
    return _id(row), 2 if json.loads(row["error"])["reason"] == "tail" else 0
