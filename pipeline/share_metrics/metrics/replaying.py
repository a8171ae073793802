"""Runs the pass of `measuring` in Spark for each stream, and returns its results as DataFrames (PM-32)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from share_metrics.metrics.common import KEY, ORDER, place
from share_metrics.replay.measuring import EVERY, Measured, Part, measured
from share_metrics.replay.progress_rows import COUNTS, NEWEST, NULLABLE
from share_metrics.replay.replay import Replay
from share_metrics.replay.tally_rows import COLUMNS, TIME, tally_row
from share_metrics.replay.write_columns import Key

_TALLY: Final = pa.struct(
    [
        ("window", TIME),
        *COLUMNS,
        ("ends", pa.list_(pa.struct([("bound", pa.string()), ("ms", pa.int64()), ("records", pa.int64())]))),
    ]
)
_SUSPECT: Final = pa.struct(
    [
        ("offset", pa.int64()),
        ("state", pa.string()),
        ("delivery_count", pa.int32()),
        ("reason", pa.string()),
        ("first_seen", TIME),
        ("last_seen", TIME),
        ("times_released", pa.int64()),
    ]
)
_LONG: Final = pa.int64()
_STEPS: Final = pa.struct(
    [
        ("window", TIME),
        *((name, _LONG) for name in (*COUNTS, *NULLABLE)),
        *((name, pa.int32() if name == "state_epoch" else _LONG) for name in NEWEST),
        *((name, TIME) for name in ("done_at", "hwm_at")),
        ("gone", pa.bool_()),
    ]
)
_OF_GAPS: Final = ("from_id", "to_id", "lost", "reason")
_LOAD: Final = pa.struct(
    [
        ("stream", pa.string()),
        *((name, _LONG) for name in ("entries", "claims", "noops", "unknown", "quarantined", "gaps", "lost")),
        *((name, _LONG) for name in ("records", "bytes", "tombstones")),
        (
            "keys",
            pa.list_(pa.struct([("group_id", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32())])),
        ),
        ("gap_rows", pa.list_(pa.struct([(name, _LONG if name == "lost" else pa.string()) for name in _OF_GAPS]))),
        ("claimed_at", pa.list_(pa.float64())),
    ]
)
_WHY: Final = pa.struct(
    [("window", TIME), ("kind", pa.string()), ("records", _LONG), ("example", pa.string()), ("said_at", TIME)]
)
_FOUND: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("tally", _TALLY),
        ("suspect", _SUSPECT),
        ("steps", _STEPS),
        ("load", _LOAD),
        ("why", _WHY),
    ]
)


def measure(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5, parts: Part = EVERY) -> DataFrame:
    """The results of one pass over the rows: each row holds a `tally`, a `suspect`, `steps`, a `load` or a `why`.

    The functions `…_of` turn them into metrics.
    """
    ordered = rows.select(*dict.fromkeys((*parts.needed, "entry_id")), place().alias("place")).repartition("stream")
    # Repeated rows are neighbours in this order (PM-34).
    ordered = ordered.sortWithinPartitions("stream", *ORDER, "place", "entry_id", "record_type").select(*parts.needed)
    return ordered.mapInArrow(_measurer(window_s, delivery_limit, parts), from_arrow_schema(_FOUND))


def replayed(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5) -> DataFrame:
    """The results of one replay, for `replay_windows_of` and `poison_of`."""
    return measure(rows, window_s, delivery_limit, Part.REPLAY)


def loads_of(found: DataFrame) -> DataFrame:
    """One row for each stream: the columns of `quality`, and more (PM-62, PM-64).

    `records`; their `bytes` and `keys`; `tombstones`; `gap_rows`: at most 200 rows as from `gaps`; `claimed_at`: when
    owners claimed the stream, s since 1970, the newest 100, newest first.
    """
    return found.where("load is not null").select("load.*")


def deletions_of(found: DataFrame) -> DataFrame:
    """The share-partitions that were deleted at the end of a window, with that window: their newest record is a
    tombstone."""
    return found.where("steps.gone").select(*KEY, "steps.window", "steps.gone")


def replay_windows_of(found: DataFrame) -> DataFrame:
    """The counts of a replay for each share-partition and window; lower bounds (PM-47, PM-49…PM-51, PM-63)."""
    return found.where("tally is not null").select(*KEY, "tally.*").drop("ends")


def ends_of(found: DataFrame) -> DataFrame:
    """For each group and window, the number of `records` by a lower or an upper `bound` of the `ms` that they took
    (PM-91).

    Records with the bound `unknown` ended, but their append time is unknown.
    """
    each = found.where("tally is not null").select("group_id", "tally.window", F.inline("tally.ends"))
    return each.groupBy("group_id", "window", "bound", "ms").agg(F.sum("records").alias("records"))


def poison_of(found: DataFrame) -> DataFrame:
    """Offsets that failed permanently or have one delivery left (PM-48): at most 100 per share-partition, newest first.

    The rows have the state by name, and the reason: `delivery limit`, `rejected` or `one delivery left`. The limit is
    the group's, as leaders recorded it; for writes of earlier builds it is `delivery_limit` of `replayed`.
    """
    return found.where("suspect is not null").select(*KEY, "suspect.*")


def reasons_of(found: DataFrame) -> DataFrame:
    """How many records of a share-partition were given up in a window with a reason of each `kind`, "" for all others,
    with the first line of the newest one, `example`, and its time, `said_at` (PM-94)."""
    return found.where("why is not null").select(*KEY, "why.*")


def replay_windows(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5) -> DataFrame:
    """`replay_windows_of`, from a new replay of the rows."""
    return replay_windows_of(replayed(rows, window_s, delivery_limit))


def poison(rows: DataFrame, delivery_limit: int = 5) -> DataFrame:
    """`poison_of`, from a new replay of the rows."""
    return poison_of(replayed(rows, delivery_limit=delivery_limit))


def _measurer(window_s: int, delivery_limit: int, parts: Part) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs on the rows of one task, which are sorted by stream."""

    def measurer(batches: Iterable[Any]) -> Iterator[Any]:
        for found in measured(batches, window_s * 1_000_000, delivery_limit, parts):
            yield pa.RecordBatch.from_pylist(list(_rows_of(found, parts)), schema=_FOUND)

    return measurer


def _rows_of(found: Measured, parts: Part) -> Iterator[dict[str, Any]]:
    for key, replay in found.replays.items():
        yield from _rows(key, replay)
    for key, progress in found.progress.items():
        named = dict(zip(KEY, key, strict=True))
        for row in progress.rows():
            yield named | {"steps": row}
    for key, reasons in found.reasons.items():
        named = dict(zip(KEY, key, strict=True))
        for window, kinds in sorted(reasons.windows.items()):
            for kind, said in sorted(kinds.items()):
                of_kind = {"kind": kind, "records": said.records, "example": said.example, "said_at": said.at_us}
                yield named | {"why": {"window": window, **of_kind}}
    if Part.LOAD in parts:
        yield {"load": {"stream": found.stream, **found.load.row()}}


def _rows(key: Key, replay: Replay) -> Iterator[dict[str, Any]]:
    named = dict(zip(KEY, key, strict=True))
    for at, tally in sorted(replay.windows.items()):
        counts = {"window": at, **tally_row(tally), "ends": tally.ends.rows}
        yield named | {"tally": counts}
    for one in replay.poison():
        yield named | {"suspect": one.row()}
