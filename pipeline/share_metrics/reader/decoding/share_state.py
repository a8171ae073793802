"""Entries of `{sgs:<p>}:log` as rows (PM-16)."""

from __future__ import annotations

from typing import Any, Final

from kip932.records.share_state import batches_from_messages, failures_from_messages, stats_from_message
from kip932.records.v1 import share_state_log_pb2 as pb
from share_metrics.reader.decoding.values import known, time_us, topic_text

TYPES: Final = {"S": ("snapshot", "snapshot"), "U": ("update", "update"), "T": ("tombstone", None)}


def decode_share_state(letter: str, data: bytes, *, light: bool = False) -> dict[str, Any] | None:
    """The columns specific to this kind; None for a type or version of a later build. Raises ValueError or DecodeError.

    `light`: without the state batches and the reasons of failures, which are most of a record (PM-78).
    """
    if letter not in TYPES:
        return None
    message = pb.ShareStateRecord.FromString(data)
    if message.record_version:
        return None
    record_type, field = TYPES[letter]
    found = message.WhichOneof("value")
    if found != field:
        raise ValueError(f"an entry of type {letter} holds {found or 'no value'}; expected {field or 'no value'}")
    row: dict[str, Any] = {
        "record_type": record_type,
        "ts": time_us(message.append_time_ms),
        "group_id": message.key.group_id,
        "topic_id": topic_text(message.key.topic_id),
        "partition": message.key.partition,
    }
    if field == "snapshot":
        row |= _value(message.snapshot, light)
        row["state_epoch"] = known(message.snapshot.state_epoch)
        row["create_ts"] = time_us(message.snapshot.create_timestamp)
        row["write_ts"] = time_us(message.snapshot.write_timestamp)
    elif field == "update":
        row |= _value(message.update, light)
    return row


def _value(value: pb.ShareSnapshot | pb.ShareUpdate, light: bool) -> dict[str, Any]:
    stats = stats_from_message(value.stats)
    count = value.delivery_complete_count if value.HasField("delivery_complete_count") else -1
    return {
        "snapshot_epoch": value.snapshot_epoch,
        "leader_epoch": known(value.leader_epoch),
        "generation": known(value.generation),
        "start_offset": known(value.start_offset),
        "delivery_complete_count": known(count),
        "state_batches": None if light else _batches(value),
        **stats._asdict(),
        "archived": stats.archived or None,
        "failures": None if light else failures_from_messages(value.failures) or None,
    }


def _batches(value: pb.ShareSnapshot | pb.ShareUpdate) -> tuple[tuple[int | None, ...], ...]:
    """State batches, with the end of a batch's delay (PL-934) converted as other times are.

    Raises ValueError for an invalid time.
    """
    return tuple((*batch[:-1], time_us(batch.not_before_ms)) for batch in batches_from_messages(value.state_batches))
