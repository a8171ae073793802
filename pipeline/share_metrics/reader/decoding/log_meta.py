"""Entries of `{tp:<topic id>:<partition>}:log` as rows (PM-18): the offsets of batches, never their contents."""

from __future__ import annotations

from typing import Any, Final

from kip932.records.v1 import topic_log_pb2 as pb
from share_metrics.reader.decoding.values import time_us

_OFFSET_MAX: Final = 2**62  # far beyond any log; a batch that begins here still ends within 64 bits


def topic_partition(stream: str) -> tuple[str, int]:
    """The topic id, as text, and the partition in a topic log's key (CM-40). Raises ValueError."""
    topic_id, _, partition = stream[stream.find("{tp:") + 4 : stream.find("}")].rpartition(":")
    if not topic_id:
        raise ValueError(f"{stream!r} is not a topic log; expected {{tp:<topic id>:<partition>}}:log")
    return topic_id, int(partition)


def decode_log_meta(letter: str, data: bytes) -> dict[str, Any] | None:
    """The columns specific to this kind; None for a later build's type or version. Raises ValueError or DecodeError."""
    field = {"B": "batch", "M": "marker"}.get(letter)
    if field is None:
        return None
    message = pb.TopicLogRecord.FromString(data)
    if message.record_version:
        return None
    if message.WhichOneof("value") != field:
        raise ValueError(f"an entry of type {letter} holds {message.WhichOneof('value') or 'no value'}")
    row: dict[str, Any] = {"record_type": field, "ts": time_us(message.append_time_ms)}
    if field == "marker":
        return row | {"log_end_offset": message.marker.log_end_offset}
    batch = message.batch
    if not 0 <= batch.base_offset <= _OFFSET_MAX:
        raise ValueError(f"a batch begins at offset {batch.base_offset}")
    return row | {
        "base_offset": batch.base_offset,
        "last_offset": batch.base_offset + batch.count - 1,
        "record_count": batch.count,
        "log_end_offset": batch.base_offset + batch.count,
        "bytes": batch.size_bytes,
    }
