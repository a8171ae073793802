"""The replay of `replay_rows`, run by Spark for each stream (PM-32)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's own documentation uses
from pyspark.sql.pandas.types import from_arrow_schema

from share_metrics.replay import Replay
from share_metrics.replay_rows import NEEDED, Key, replays

from .common import KEY, ORDER, place

_TIME: Final = pa.timestamp("us", tz="UTC")
_TALLY: Final = pa.struct(
    [
        ("window", _TIME),
        ("released_lb", pa.int64()),
        ("accepted_lb", pa.int64()),
        ("archived_lb", pa.int64()),
        ("in_flight_batches", pa.int32()),
        ("in_flight_width_lb", pa.int64()),
        ("waits", pa.list_(pa.struct([("until", _TIME), ("records", pa.int64())]))),
        ("release_to_final_p50_ms", pa.int64()),
        ("release_to_final_p95_ms", pa.int64()),
        ("release_to_final_p99_ms", pa.int64()),
        ("delivery_counts_lb", pa.list_(pa.int64())),
        ("incomplete", pa.bool_()),
        ("ends", pa.list_(pa.struct([("bound", pa.string()), ("ms", pa.int64()), ("records", pa.int64())]))),
    ]
)
_SUSPECT: Final = pa.struct(
    [
        ("offset", pa.int64()),
        ("state", pa.string()),
        ("delivery_count", pa.int32()),
        ("reason", pa.string()),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
        ("times_released", pa.int64()),
    ]
)
_FOUND: Final = pa.schema(
    [
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("tally", _TALLY),
        ("suspect", _SUSPECT),
    ]
)


def replayed(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5) -> DataFrame:
    """The results of one replay, for `replay_windows_of` and `poison_of`: each row holds a `tally` or a `suspect`."""
    ordered = rows.select(*NEEDED, *ORDER, place().alias("place")).repartition("stream")
    ordered = ordered.sortWithinPartitions("stream", *ORDER, "place", "record_type").select(*NEEDED)
    return ordered.mapInArrow(_replayer(window_s, delivery_limit), from_arrow_schema(_FOUND))


def replay_windows_of(found: DataFrame) -> DataFrame:
    """The counts of a replay for each share-partition and window; lower bounds (PM-47, PM-49…PM-51, PM-63)."""
    return found.where("tally is not null").select(*KEY, "tally.*").drop("ends")


def ends_of(found: DataFrame) -> DataFrame:
    """For each group and window: how many `records` took at least or at most (`bound`) so many `ms` to end (PM-91).

    Those with the bound `unknown` ended, and it is not known when they were appended.
    """
    each = found.where("tally is not null").select("group_id", "tally.window", F.inline("tally.ends"))
    return each.groupBy("group_id", "window", "bound", "ms").agg(F.sum("records").alias("records"))


def poison_of(found: DataFrame) -> DataFrame:
    """Offsets that failed for good or have one delivery left (PM-48): at most 100 a share-partition, newest first.

    With their state by name, and the reason: `delivery limit`, `rejected` or `one delivery left`. The limit is that of
    the group, as leaders told it; `delivery_limit` is for writes of earlier builds.
    """
    return found.where("suspect is not null").select(*KEY, "suspect.*")


def replay_windows(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5) -> DataFrame:
    """`replay_windows_of` with a replay of its own."""
    return replay_windows_of(replayed(rows, window_s, delivery_limit))


def poison(rows: DataFrame, delivery_limit: int = 5) -> DataFrame:
    """`poison_of` with a replay of its own."""
    return poison_of(replayed(rows, delivery_limit=delivery_limit))


def _replayer(window_s: int, delivery_limit: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs on the rows of one task, which are sorted by stream."""

    def replayer(batches: Iterable[Any]) -> Iterator[Any]:
        for found in replays(batches, window_s * 1_000_000, delivery_limit):
            rows = [row for key, replay in found.items() for row in _rows(key, replay)]
            yield pa.RecordBatch.from_pylist(rows, schema=_FOUND)

    return replayer


def _rows(key: Key, replay: Replay) -> Iterator[dict[str, Any]]:
    named = dict(zip(KEY, key, strict=True))
    for at, tally in sorted(replay.windows.items()):
        counts = {
            "window": at,
            "released_lb": tally.released_lb,
            "accepted_lb": tally.accepted_lb,
            "archived_lb": tally.archived_lb,
            "in_flight_batches": tally.in_flight_batches,
            "in_flight_width_lb": tally.in_flight_width_lb,
            "waits": None if tally.waits is None else [{"until": at, "records": count} for at, count in tally.waits],
            "release_to_final_p50_ms": tally.percentile_ms(0.5),
            "release_to_final_p95_ms": tally.percentile_ms(0.95),
            "release_to_final_p99_ms": tally.percentile_ms(0.99),
            "delivery_counts_lb": tally.histogram,
            "incomplete": tally.incomplete,
            "ends": tally.ends.rows,
        }
        yield named | {"tally": counts}
    for one in replay.poison():
        suspect = {
            "offset": one.offset,
            "state": one.state,
            "delivery_count": one.delivery_count,
            "reason": str(one.reason),
            "first_seen": one.first_seen_us,
            "last_seen": one.last_seen_us,
            "times_released": one.times_released,
        }
        yield named | {"suspect": suspect}
