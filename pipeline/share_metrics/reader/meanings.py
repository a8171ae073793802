"""The meanings of the columns of the reader's rows, for the tables in docs/pipeline.md (PM-16…PM-18, PM-20)."""

from __future__ import annotations

from typing import Final

from share_metrics.reader.schemas import WRITE_COUNTS, Kind

#: The columns that rows of every kind and type have.
COMMON: Final = {
    "stream": "key of the stream in the store",
    "entry_id": "id of the entry, `<epoch>-<seq>`; for a gap, where it ends",
    "epoch": "first part of the id: the owner's epoch; together with `seq` it orders a stream",  # PM-7
    "seq": "second part of the id; in a topic log, the offset that follows the batch",
    "ts": "when the owner appended it, by its own clock",
    "record_type": "type of the record, or `claim`, `noop`, `unknown`, `malformed`, `gap`",
    "bytes": "size of the record; for a batch, of its records",
    "error": "what is wrong with it; for a gap, what was lost, as JSON",
    "raw": "the bytes of an entry that is `malformed`",
}
_SHARE_STATE: Final = {
    "group_id": "the group",
    "topic_id": "id of the topic, 22 characters as Kafka prints it",
    "partition": "number of the partition",
    "state_epoch": "epoch of the state; a reset starts a new one. Null in an update",
    "leader_epoch": "epoch of the partition leader that wrote; null where a write leaves it unchanged",
    "generation": "generation of that leader epoch",  # SC-29a
    "snapshot_epoch": "number of the snapshot; for an update, of the snapshot before it",
    "start_offset": "SPSO: every record below it is finished; null where a write leaves it unchanged",
    "delivery_complete_count": "how many records at or above it are finished; null if unknown",
    "create_ts": "for a snapshot: when its state was first written",
    "write_ts": "for a snapshot: when it was written; later than `create_ts` in a cold copy",
    "state_batches": "states of offsets: all of them in a snapshot, in an update those that it changes. Null with "
    "`fields=light`. `delivery_state`: 0 Available, 2 Acknowledged, 3 Archiving, 4 Archived; `not_before`: delivered "
    "no earlier",
    "cause": "bits: 1 acknowledgement, 2 session ended, 4 lock expired, 8 dead letter written, 16 admin, 32 begin, "
    "64 cold copy",
    **{name: count.meaning for name, count in WRITE_COUNTS.items()},
    "max_dc": "largest delivery count of the records that it finishes",
    "sum_dc": "sum of their delivery counts",
    "hwm": "high watermark of the partition then",
    "speo": "end offset of the share-partition then, exclusive",
    "write_id": "number of the write in its leader epoch and generation; a write that is stored twice has it twice",
    "delivery_limit": "the group's delivery limit, where the write releases or archives records",
    "archived": "ranges that it archives; `reason`: 1 delivery limit, 2 rejected",
    "failures": "why members gave records up: in an update those of its write, in a snapshot those of all records from "
    "the start offset on",
}
_GROUP: Final = {
    "group_id": "the group; empty in `served_time`",
    "member_id": "the member, in records about one",
    "tombstone": "whether the record deletes its key",
    "cause": "bit 64: a cold copy, which repeats an earlier record",
    "reason": "why a member is gone: `left`, `expired`, `fenced`, `admin`",
    "group_epoch": "epoch of the group, in `group` and `deleted_group`",
    "member_count": "how many members it has, in `group`",
    "assignment_epoch": "epoch of the target assignment, in `target_meta`",
    "member_epoch": "epoch of the member, in `current`",
    "previous_member_epoch": "the previous epoch",
    "member_state": "0 stable, in `current`",  # GC-60
    "rack_id": "where the member runs, in `member`",
    "client_id": "its `client.id`",
    "client_host": "the host from which it joined",
    "subscribed_topic_names": "what it subscribes to",
    "assigned": "its partitions: its target assignment in `target_member`, what it was given in `current`",
    "initializing": "share-partitions whose state is being initialised, in `state`",
    "initialized": "share-partitions that the group has",
    "deleting": "topics whose share-partitions are being deleted",
}
_LOG_META: Final = {
    "topic_id": "id of the topic",
    "partition": "number of the partition",
    "base_offset": "first offset of the batch",
    "last_offset": "last offset of the batch",
    "record_count": "how many offsets it holds",
    "log_end_offset": "the offset that follows the batch, or at which a `marker` says that the log ends",
}
#: For each kind, its own columns in the order of its schema.
OWN: Final = {Kind.SHARE_STATE: _SHARE_STATE, Kind.GROUP: _GROUP, Kind.LOG_META: _LOG_META}
#: For each kind, the record types that are records of it.
RECORD_TYPES: Final = {
    Kind.SHARE_STATE: ("snapshot", "update", "tombstone"),
    Kind.GROUP: (
        "member", "group", "target_meta", "target_member", "current", "state", "deleted_group", "served_time",
    ),
    Kind.LOG_META: ("batch", "marker"),
}  # fmt: skip
