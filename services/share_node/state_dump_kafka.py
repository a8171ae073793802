"""Share state as Kafka's ShareGroupStateMessageFormatter writes it, for programs that read that (CT-96)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from kip932.ids import topic_id_text
from kip932.records.v1 import share_state_log_pb2, state_batch_pb2
from shard_runtime.record_log.protocol import CLAIM_TYPE, NOOP_TYPE, Entry

#: Kafka's type numbers of keys, by the type of our entries; a tombstone has the key of a snapshot.
_KEY_TYPES: Final = {"S": 0, "T": 0, "U": 1}
_UNKNOWN: Final = -1


def as_kafka_has_it(entry: Entry) -> dict[str, object] | None:
    """Return one snapshot, update or tombstone, with Kafka's names; fields that only this suite stores are left out.

    None for claims and no-ops, which Kafka does not have. Raises ValueError for an entry that is damaged or not known.
    """
    if entry.damage:
        raise ValueError(entry.damage)
    if entry.kind in (CLAIM_TYPE, NOOP_TYPE):
        return None
    if entry.kind not in _KEY_TYPES:
        raise ValueError(f"its type {entry.kind!r} is not known to this build")
    try:
        record = share_state_log_pb2.ShareStateRecord.FromString(entry.record)
    except DecodeError as error:
        raise ValueError(f"it cannot be read: {error}") from None
    where = {
        "groupId": record.key.group_id,
        "topicId": topic_id_text(record.key.topic_id),
        "partition": record.key.partition,
    }
    data: dict[str, object] | None = None
    if record.WhichOneof("value") == "snapshot":
        data = _snapshot(record.snapshot)
    elif record.WhichOneof("value") == "update":
        data = _update(record.update)
    return {
        "key": {"type": _KEY_TYPES[entry.kind], "data": where},
        "value": None if data is None else {"version": record.record_version, "data": data},
    }


def _snapshot(found: share_state_log_pb2.ShareSnapshot) -> dict[str, object]:
    return {
        "snapshotEpoch": found.snapshot_epoch,
        "stateEpoch": found.state_epoch,
        "leaderEpoch": found.leader_epoch,
        "startOffset": found.start_offset,
        **_complete(found),
        "createTimestamp": found.create_timestamp,
        "writeTimestamp": found.write_timestamp,
        "stateBatches": [_batch(batch) for batch in found.state_batches],
    }


def _update(found: share_state_log_pb2.ShareUpdate) -> dict[str, object]:
    return {
        "snapshotEpoch": found.snapshot_epoch,
        "leaderEpoch": found.leader_epoch,
        "startOffset": found.start_offset,
        **_complete(found),
        "stateBatches": [_batch(batch) for batch in found.state_batches],
    }


def _complete(found: share_state_log_pb2.ShareSnapshot | share_state_log_pb2.ShareUpdate) -> dict[str, object]:
    """Kafka leaves the field out while the count is not known."""
    known = found.HasField("delivery_complete_count") and found.delivery_complete_count != _UNKNOWN
    return {"deliveryCompleteCount": found.delivery_complete_count} if known else {}


def _batch(found: state_batch_pb2.StateBatch) -> dict[str, object]:
    return {
        "firstOffset": found.first_offset,
        "lastOffset": found.last_offset,
        "deliveryState": found.delivery_state,
        "deliveryCount": found.delivery_count,
    }
