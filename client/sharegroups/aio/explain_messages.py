"""Converts between ExplainRecord messages and values of the admin client (PL-820, CL-90)."""

from __future__ import annotations

from typing import Any

from kip932.api.v1 import explain_record_pb2 as pb
from kip932.ids import TopicIdPartition, TopicPartition
from sharegroups.admin_values import Node, PendingWrite, RecordExplanation, RecordsExplained


def request_for(group_id: str, partition: TopicIdPartition, offset: int, last_offset: int) -> pb.ExplainRecordRequest:
    """Return the request about these offsets."""
    return pb.ExplainRecordRequest(
        group_id=group_id,
        topic_id=partition.topic_id,
        partition_index=partition.partition,
        offset=offset,
        last_offset=last_offset,
    )


def told(
    group_id: str, partition: TopicPartition, leader: Node, response: pb.ExplainRecordResponse
) -> RecordsExplained:
    """Return the leader's answer, which has no error, as a value."""
    return RecordsExplained(
        group_id,
        partition,
        leader,
        response.loaded,
        response.start_offset if response.start_offset >= 0 else None,
        response.end_offset if response.end_offset >= 0 else None,
        response.log_start_offset,
        response.high_watermark,
        response.in_flight_offsets,
        response.max_record_locks,
        response.delivery_count_limit,
        response.fetching_members,
        tuple(map(_record, response.records)),
        in_flight=_optional(response, "held_records"),
        read_committed=response.read_committed,
        last_stable_offset=_optional(response, "last_stable_offset"),
        stable_kept_by=response.stable_kept_by or None,
        stable_kept_ms=response.stable_kept_ms if response.stable_kept_by else None,
    )


def _record(record: pb.ExplainRecordResponse.Record) -> RecordExplanation:
    write = PendingWrite(_optional(record.write, "running_ms"), record.write.attempts)
    return RecordExplanation(
        record.first_offset,
        record.last_offset,
        _word(pb.RecordState, "RECORD_STATE_", record.state),
        _word(pb.DeliveryObstacle, "DELIVERY_OBSTACLE_", record.obstacle),
        record.explanation,
        _optional(record, "delivery_count"),
        record.member_id or None,
        lock_remaining_ms=_optional(record, "lock_remaining_ms"),
        lock_renewed=record.lock_renewed,
        delay_remaining_ms=_optional(record, "delay_remaining_ms"),
        becomes=_word(pb.RecordState, "RECORD_STATE_", record.becomes) if record.becomes else None,
        write=write if record.HasField("write") else None,
        append_time_ms=_optional(record, "append_time_ms"),
    )


def _optional(message: Any, field: str) -> int | None:
    return getattr(message, field) if message.HasField(field) else None


def _word(enum: Any, prefix: str, number: int) -> str:
    """Return an enum value as a word. A leader of a later build may use values that are not known here."""
    known = enum.values()
    return enum.Name(number).removeprefix(prefix).lower() if number in known else f"unknown ({number})"
