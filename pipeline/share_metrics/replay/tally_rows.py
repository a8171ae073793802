"""The counts of a replay as rows: their columns and types, which Spark and this process share (PM-47…PM-51, PM-63)."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from share_metrics.replay.replay import Tally

TIME: Final = pa.timestamp("us", tz="UTC")
#: The columns of a window, after its start.
COLUMNS: Final = (
    ("released_lb", pa.int64()),
    ("accepted_lb", pa.int64()),
    ("archived_lb", pa.int64()),
    ("in_flight_batches", pa.int32()),
    ("in_flight_width_lb", pa.int64()),
    ("waits", pa.list_(pa.struct([("until", TIME), ("records", pa.int64())]))),
    ("release_to_final_p50_ms", pa.int64()),
    ("release_to_final_p95_ms", pa.int64()),
    ("release_to_final_p99_ms", pa.int64()),
    ("delivery_counts_lb", pa.list_(pa.int64())),
    ("incomplete", pa.bool_()),
)


def tally_row(tally: Tally) -> dict[str, Any]:
    """The values of COLUMNS."""
    return {
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
    }
