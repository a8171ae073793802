"""The replay of `replay`, run by Spark for each share-partition on its own (PM-32)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from kip932.state_batches import StateBatch
from share_metrics.replay import Event, Replay

from .common import KEY, timed

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEEDED: Final = (*KEY, "epoch", "seq", "record_type", "event_time", "losses", "start_offset", "state_batches")
_KEY_COLUMNS: Final = "group_id string, topic_id string, partition int"
_WINDOW_SCHEMA: Final = (
    f"{_KEY_COLUMNS}, window timestamp, released_lb bigint, accepted_lb bigint, archived_lb bigint, "
    "in_flight_batches int, in_flight_width_lb bigint, release_to_final_p50_ms bigint, release_to_final_p95_ms bigint, "
    "release_to_final_p99_ms bigint, delivery_counts_lb array<bigint>, incomplete boolean"
)
_POISON_SCHEMA: Final = (
    f"{_KEY_COLUMNS}, offset bigint, delivery_state int, delivery_count int, first_seen timestamp, "
    "last_seen timestamp, times_released bigint"
)
_TIME: Final = pa.timestamp("us", tz="UTC")
_KEY_FIELDS: Final = [("group_id", pa.string()), ("topic_id", pa.string()), ("partition", pa.int32())]
_WINDOW_ARROW: Final = pa.schema(
    [
        *_KEY_FIELDS,
        ("window", _TIME),
        ("released_lb", pa.int64()),
        ("accepted_lb", pa.int64()),
        ("archived_lb", pa.int64()),
        ("in_flight_batches", pa.int32()),
        ("in_flight_width_lb", pa.int64()),
        ("release_to_final_p50_ms", pa.int64()),
        ("release_to_final_p95_ms", pa.int64()),
        ("release_to_final_p99_ms", pa.int64()),
        ("delivery_counts_lb", pa.list_(pa.int64())),
        ("incomplete", pa.bool_()),
    ]
)
_POISON_ARROW: Final = pa.schema(
    [
        *_KEY_FIELDS,
        ("offset", pa.int64()),
        ("delivery_state", pa.int32()),
        ("delivery_count", pa.int32()),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
        ("times_released", pa.int64()),
    ]
)


def replay_windows(rows: DataFrame, window_s: int = 60, delivery_limit: int = 5) -> DataFrame:
    """What a replay counts, for each share-partition and window: lower bounds (PM-47, PM-49…PM-51, PM-63)."""

    def tallies(replay: Replay) -> list[dict[str, Any]]:
        return [
            {
                "window": at,
                "released_lb": tally.released_lb,
                "accepted_lb": tally.accepted_lb,
                "archived_lb": tally.archived_lb,
                "in_flight_batches": tally.in_flight_batches,
                "in_flight_width_lb": tally.in_flight_width_lb,
                "release_to_final_p50_ms": tally.percentile_ms(0.5),
                "release_to_final_p95_ms": tally.percentile_ms(0.95),
                "release_to_final_p99_ms": tally.percentile_ms(0.99),
                "delivery_counts_lb": tally.histogram,
                "incomplete": tally.incomplete,
            }
            for at, tally in sorted(replay.windows.items())
        ]

    return _replayed(rows, _WINDOW_SCHEMA, _replayer(tallies, _WINDOW_ARROW, window_s, delivery_limit))


def poison(rows: DataFrame, delivery_limit: int = 5) -> DataFrame:
    """Offsets that were delivered up to the limit, at most 100 for each share-partition, newest first (PM-48)."""

    def suspects(replay: Replay) -> list[dict[str, Any]]:
        return [
            {
                "offset": one.offset,
                "delivery_state": one.delivery_state,
                "delivery_count": one.delivery_count,
                "first_seen": one.first_seen_us,
                "last_seen": one.last_seen_us,
                "times_released": one.times_released,
            }
            for one in replay.poison()
        ]

    return _replayed(rows, _POISON_SCHEMA, _replayer(suspects, _POISON_ARROW, 60, delivery_limit))


def _replayed(rows: DataFrame, schema: str, replayer: Callable[[Any], Any]) -> DataFrame:
    records = timed(rows).where("record_type in ('snapshot', 'update', 'tombstone')").select(*_NEEDED)
    return records.groupBy(*KEY).applyInArrow(replayer, schema)


def _replayer(
    result: Callable[[Replay], list[dict[str, Any]]], schema: Any, window_s: int, delivery_limit: int
) -> Callable[[Any], Any]:
    """The function for one share-partition, from table to table. Spark promises no order, so it sorts (PM-32)."""

    def replayer(table: Any) -> Any:
        replay = Replay(window_s * 1_000_000, delivery_limit)
        ordered = table.sort_by([("epoch", "ascending"), ("seq", "ascending")]).to_pylist()
        for row in ordered:
            replay.apply(_event(row))
        key = {name: ordered[0][name] for name in KEY}
        return pa.Table.from_pylist([key | found for found in result(replay)], schema=schema)

    return replayer


def _event(row: dict[str, Any]) -> Event:
    if row["state_batches"] is None and row["record_type"] != "tombstone":
        raise ValueError("a replay needs state batches: read them without the option fields=light (PM-78)")
    batches = tuple(
        StateBatch(batch["first_offset"], batch["last_offset"], batch["delivery_state"], batch["delivery_count"])
        for batch in row["state_batches"] or ()
    )
    time_us = (row["event_time"] - _EPOCH) // timedelta(microseconds=1) if row["event_time"] is not None else 0
    return Event(row["record_type"], time_us, row["losses"], row["start_offset"], batches)
