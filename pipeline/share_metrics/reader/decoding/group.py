"""Entries of `{gc:<p>}:log` as rows (PM-17). Their `letter` is Kafka's record number as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from kip932.records.v1 import group_log_pb2 as pb
from share_metrics.reader.decoding.values import time_us, topic_text


def decode_group(letter: str, data: bytes) -> dict[str, Any] | None:
    """The columns specific to this kind; None for a later build's type or version. Raises ValueError or DecodeError."""
    if letter not in _TYPES:
        return None
    message = pb.GroupRecord.FromString(data)
    if message.record_version:
        return None
    record_type, field, columns = _TYPES[letter]
    found = message.WhichOneof("value")
    if found not in {None, field}:
        raise ValueError(f"an entry of type {letter} holds {found}; expected {field} or no value")
    row: dict[str, Any] = {
        "record_type": record_type,
        "ts": time_us(message.append_time_ms),
        "group_id": message.key.group_id,
        "member_id": message.key.member_id if message.key.HasField("member_id") else None,
        "tombstone": found is None,
        "cause": message.cause,
        "reason": message.reason or None,
    }
    return row if found is None else row | columns(getattr(message, field))


def _member(value: pb.ShareGroupMemberMetadata) -> dict[str, Any]:
    return {
        "rack_id": value.rack_id if value.HasField("rack_id") else None,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "subscribed_topic_names": list(value.subscribed_topic_names),
    }


def _group(value: pb.ShareGroupMetadata) -> dict[str, Any]:
    return {
        "group_epoch": value.epoch,
        "member_count": value.member_count if value.HasField("member_count") else None,
    }


def _target_meta(value: pb.ShareGroupTargetAssignmentMetadata) -> dict[str, Any]:
    return {"assignment_epoch": value.assignment_epoch}


def _target_member(value: pb.ShareGroupTargetAssignmentMember) -> dict[str, Any]:
    return {"assigned": _assigned(value.topic_partitions)}


def _current(value: pb.ShareGroupCurrentMemberAssignment) -> dict[str, Any]:
    return {
        "member_epoch": value.member_epoch,
        "previous_member_epoch": value.previous_member_epoch,
        "member_state": value.state,
        "assigned": _assigned(value.assigned_partitions),
    }


def _state(value: pb.ShareGroupStatePartitionMetadata) -> dict[str, Any]:
    return {
        "initializing": _partitions(value.initializing_topics),
        "initialized": _partitions(value.initialized_topics),
        "deleting": [(topic_text(topic.topic_id), topic.topic_name) for topic in value.deleting_topics],
    }


def _deleted(value: pb.DeletedGroupEpoch) -> dict[str, Any]:
    return {"group_epoch": value.epoch}


def _assigned(topics: Iterable[pb.AssignedTopic]) -> list[tuple[str, list[int]]]:
    return [(topic_text(topic.topic_id), list(topic.partitions)) for topic in topics]


def _partitions(
    topics: Iterable[pb.ShareGroupStatePartitionMetadata.TopicPartitionsInfo],
) -> list[tuple[str, str, list[int]]]:
    return [(topic_text(topic.topic_id), topic.topic_name, list(topic.partitions)) for topic in topics]


_TYPES: Final[dict[str, tuple[str, str, Callable[[Any], dict[str, Any]]]]] = {
    "10": ("member", "member_metadata", _member),
    "11": ("group", "group_metadata", _group),
    "12": ("target_meta", "target_assignment_metadata", _target_meta),
    "13": ("target_member", "target_assignment_member", _target_member),
    "14": ("current", "current_member_assignment", _current),
    "15": ("state", "state_partition_metadata", _state),
    "90": ("deleted_group", "deleted_group_epoch", _deleted),
    "91": ("served_time", "served_time", lambda _: {}),
}
