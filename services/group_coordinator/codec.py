"""Translates the core's records to group log entries: `kip932.records.v1.GroupRecord` and its type text (CM-16).

The type is Kafka's record number as text. In-memory fields are not written; a decoded record has their defaults, so an
initialising entry is due at once (GC-69a).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.message import DecodeError

from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import UNKNOWN_NAME, Initializing, Lifecycle, TopicState
from group_coordinator.core.rewriting import kind_of
from group_coordinator.core.views import Assignment
from kip932.records.v1 import group_log_pb2 as pb

RECORD_VERSION: Final = 0
#: Bit of `cause` that marks a cold copy (CM-18).
CAUSE_COLD: Final = 64
_NO_EPOCH: Final = -1


class GroupLogCodec:
    """The `Codec` of group shards."""

    def encode(self, record: r.Record, wall_ms: int) -> tuple[str, bytes]:
        """Return the entry's fields `t` and `r` for a record that is appended at `wall_ms` (X1)."""
        value = record.record if isinstance(record, r.ColdCopy) else record
        message = pb.GroupRecord(
            record_version=RECORD_VERSION,
            key=pb.GroupRecord.Key(group_id=value.group_id, member_id=getattr(value, "member_id", "") or None),
            append_time_ms=wall_ms,
            cause=CAUSE_COLD if isinstance(record, r.ColdCopy) else 0,
        )
        if isinstance(value, r.Tombstone):
            message.reason = value.reason
        else:
            _WRITE[type(value)](message, value)
        return str(kind_of(value)), message.SerializeToString()

    def decode(self, kind: str, data: bytes) -> r.Record | None:
        """Return the record, or None for a type or version that this build does not know. Raises ValueError if the
        bytes are malformed."""
        read = _READ.get(kind)
        if read is None:
            return None
        try:
            message = pb.GroupRecord.FromString(data)
        except DecodeError as error:
            raise ValueError(
                f"group log entry of type {kind}: {len(data)} bytes are not a GroupRecord: {error}"
            ) from error
        if message.record_version != RECORD_VERSION:
            return None
        found = message.WhichOneof("value")
        field, convert = read
        if found is None:
            return r.Tombstone(int(kind), message.key.group_id, message.key.member_id, message.reason)
        if found != field:
            raise ValueError(f"group log entry of type {kind} holds {found}; expected {field} or no value")
        return convert(message.key, getattr(message, field))

    def key(self, data: bytes) -> str:
        """Return the group id of a damaged entry, from the bytes of its key. Raises ValueError."""
        try:
            return pb.GroupRecord.Key.FromString(data).group_id
        except DecodeError as error:
            raise ValueError(f"{len(data)} bytes are not the key of a group record: {error}") from error


def _write_member(message: pb.GroupRecord, value: r.MemberMetadata) -> None:
    message.member_metadata.CopyFrom(
        pb.ShareGroupMemberMetadata(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=value.subscribed,
            principal=value.principal,
        )
    )


def _read_member(key: pb.GroupRecord.Key, value: pb.ShareGroupMemberMetadata) -> r.Value:
    rack_id = value.rack_id if value.HasField("rack_id") else None
    names = tuple(value.subscribed_topic_names)
    return r.MemberMetadata(
        key.group_id, key.member_id, rack_id, value.client_id, value.client_host, names, value.principal
    )


def _write_group(message: pb.GroupRecord, value: r.GroupMetadata) -> None:
    message.group_metadata.CopyFrom(
        pb.ShareGroupMetadata(
            epoch=value.epoch,
            metadata_hash=value.metadata_hash,
            member_count=value.member_count,
            used_ms=value.used_ms,
        )
    )


def _read_group(key: pb.GroupRecord.Key, value: pb.ShareGroupMetadata) -> r.Value:
    used_ms = value.used_ms if value.HasField("used_ms") else None
    return r.GroupMetadata(key.group_id, value.epoch, value.metadata_hash, value.member_count, used_ms)


def _write_target_metadata(message: pb.GroupRecord, value: r.TargetMetadata) -> None:
    message.target_assignment_metadata.CopyFrom(
        pb.ShareGroupTargetAssignmentMetadata(
            assignment_epoch=value.epoch, assignment_timestamp=value.timestamp_ms, computed_by=value.computed_by
        )
    )


def _read_target_metadata(key: pb.GroupRecord.Key, value: pb.ShareGroupTargetAssignmentMetadata) -> r.Value:
    return r.TargetMetadata(
        key.group_id, value.assignment_epoch, value.assignment_timestamp, computed_by=value.computed_by
    )


def _write_target(message: pb.GroupRecord, value: r.TargetMember) -> None:
    message.target_assignment_member.CopyFrom(
        pb.ShareGroupTargetAssignmentMember(topic_partitions=_topics(value.assignment))
    )


def _read_target(key: pb.GroupRecord.Key, value: pb.ShareGroupTargetAssignmentMember) -> r.Value:
    return r.TargetMember(key.group_id, key.member_id, _assignment(value.topic_partitions))


def _write_current(message: pb.GroupRecord, value: r.CurrentAssignment) -> None:
    message.current_member_assignment.CopyFrom(
        pb.ShareGroupCurrentMemberAssignment(
            member_epoch=value.epoch,
            previous_member_epoch=value.previous_epoch,
            state=value.state,
            assigned_partitions=_topics(value.assigned),
        )
    )


def _read_current(key: pb.GroupRecord.Key, value: pb.ShareGroupCurrentMemberAssignment) -> r.Value:
    return r.CurrentAssignment(
        key.group_id,
        key.member_id,
        value.member_epoch,
        value.previous_member_epoch,
        value.state,
        _assignment(value.assigned_partitions),
    )


def _write_state(message: pb.GroupRecord, value: r.StateMetadata) -> None:
    state = message.state_partition_metadata
    state.SetInParent()
    for _, topic in sorted(value.lifecycle.topics.items()):
        names = {"topic_id": topic.topic_id, "topic_name": topic.name, "first_count": topic.first_count}
        if topic.initializing:
            entries = sorted(topic.initializing.items())
            state.initializing_topics.add(
                **names,
                partitions=[index for index, _ in entries],
                start_offsets=[entry.start_offset for _, entry in entries],
                state_epochs=[_NO_EPOCH if entry.state_epoch is None else entry.state_epoch for _, entry in entries],
            )
        if topic.initialized:
            state.initialized_topics.add(**names, partitions=topic.initialized)
    for topic_id, name in sorted(value.lifecycle.deleting.items()):
        state.deleting_topics.add(topic_id=topic_id, topic_name=name or UNKNOWN_NAME)
    state.deleting_group = value.lifecycle.dropping


def _read_state(key: pb.GroupRecord.Key, value: pb.ShareGroupStatePartitionMetadata) -> r.Value:
    topics: dict[bytes, TopicState] = {}
    for info in value.initialized_topics:
        topics[info.topic_id] = TopicState(
            info.topic_id, info.topic_name, info.first_count, initialized=tuple(info.partitions)
        )
    for info in value.initializing_topics:
        offsets = list(info.start_offsets) or [-1] * len(info.partitions)
        epochs = list(info.state_epochs) or [_NO_EPOCH] * len(info.partitions)
        entries = {
            index: Initializing(offset, None if epoch == _NO_EPOCH else epoch)
            for index, offset, epoch in zip(info.partitions, offsets, epochs, strict=True)
        }
        known = topics.get(info.topic_id)
        initialized = known.initialized if known is not None else ()
        topics[info.topic_id] = TopicState(info.topic_id, info.topic_name, info.first_count, entries, initialized)
    deleting = {info.topic_id: info.topic_name for info in value.deleting_topics}
    return r.StateMetadata(key.group_id, Lifecycle(topics, deleting, value.deleting_group))


def _write_deleted(message: pb.GroupRecord, value: r.DeletedGroup) -> None:
    message.deleted_group_epoch.CopyFrom(pb.DeletedGroupEpoch(epoch=value.epoch, deleted_at_ms=value.deleted_at_ms))


def _read_deleted(key: pb.GroupRecord.Key, value: pb.DeletedGroupEpoch) -> r.Value:
    return r.DeletedGroup(key.group_id, value.epoch, value.deleted_at_ms)


def _write_served(message: pb.GroupRecord, value: r.ServedTime) -> None:
    message.served_time.CopyFrom(pb.ServedTime(served_ms=value.served_ms))


def _read_served(_: pb.GroupRecord.Key, value: pb.ServedTime) -> r.Value:
    return r.ServedTime(value.served_ms)


def _topics(assignment: Assignment) -> list[pb.AssignedTopic]:
    return [pb.AssignedTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in assignment.items()]


def _assignment(topics: Iterable[pb.AssignedTopic]) -> Assignment:
    return {topic.topic_id: tuple(topic.partitions) for topic in topics}


_WRITE: Final[dict[type[Any], Callable[[pb.GroupRecord, Any], None]]] = {
    r.MemberMetadata: _write_member,
    r.GroupMetadata: _write_group,
    r.TargetMetadata: _write_target_metadata,
    r.TargetMember: _write_target,
    r.CurrentAssignment: _write_current,
    r.StateMetadata: _write_state,
    r.DeletedGroup: _write_deleted,
    r.ServedTime: _write_served,
}
_READ: Final[dict[str, tuple[str, Callable[[pb.GroupRecord.Key, Any], r.Record]]]] = {
    str(r.MEMBER): ("member_metadata", _read_member),
    str(r.GROUP): ("group_metadata", _read_group),
    str(r.TARGET_META): ("target_assignment_metadata", _read_target_metadata),
    str(r.TARGET): ("target_assignment_member", _read_target),
    str(r.CURRENT): ("current_member_assignment", _read_current),
    str(r.STATE): ("state_partition_metadata", _read_state),
    str(r.DELETED): ("deleted_group_epoch", _read_deleted),
    str(r.SERVED): ("served_time", _read_served),
}
