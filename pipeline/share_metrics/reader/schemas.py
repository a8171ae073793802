"""The Arrow schemas of the kinds of record (PM-16…PM-18). All batches of a kind use one schema object (PM-75)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa


class Kind(StrEnum):
    """The kinds of record: share-partition state, the group log, or topic logs without their payloads (PM-5)."""

    SHARE_STATE = "share_state"
    GROUP = "group"
    LOG_META = "log_meta"


# The types of rows that are not records of their kind; such rows have only the common columns.
CLAIM: Final = "claim"
NOOP: Final = "noop"
UNKNOWN: Final = "unknown"
MALFORMED: Final = "malformed"
#: A row for lost entries, not for an entry (PM-11): `error` describes them as JSON, `entry_id` is where the gap ends.
GAP: Final = "gap"
NOT_RECORDS: Final = frozenset({CLAIM, NOOP, UNKNOWN, MALFORMED, GAP})

_TIME: Final = pa.timestamp("us", tz="UTC")
_INT: Final = pa.int32()
_LONG: Final = pa.int64()
_TEXT: Final = pa.string()


class Count(NamedTuple):
    """A count of a write (PM-20 X3): whether its records are finished then, its column in windows and in views."""

    finishes: bool
    summed: str
    shown: str
    meaning: str


#: By column, the counts that a leader gives with a write. Schema, sums and views follow from them.
WRITE_COUNTS: Final = {
    "n_accept": Count(True, "ack_accept", "accepted", "records that this write accepts"),
    "n_release": Count(False, "ack_release", "released", "records that members release by it"),
    "n_reject": Count(True, "ack_reject", "rejected", "records that it rejects"),
    "n_timeout": Count(False, "timeout_count", "timed_out", "records whose lock expired"),
    "n_limit": Count(True, "limit_archived_count", "limited", "records that reached the delivery limit"),
    "n_given_back": Count(
        False, "given_back_count", "given_back", "records that it gives back, since their member's session ended"
    ),
}


def _list(item: Any) -> Any:
    return pa.list_(pa.field("element", item))


def _struct(**fields: Any) -> Any:
    return pa.struct([pa.field(name, type_) for name, type_ in fields.items()])


_COMMON: Final = {
    "stream": _TEXT,
    "entry_id": _TEXT,
    "epoch": _LONG,
    "seq": _LONG,
    "ts": _TIME,
    "record_type": _TEXT,
    "bytes": _INT,
    "error": _TEXT,
    "raw": pa.binary(),
}
#: `not_before`: the end of the delay of Available records; null without a delay and in rows of earlier builds (PM-16).
_STATE_BATCH: Final = _struct(
    first_offset=_LONG, last_offset=_LONG, delivery_state=_INT, delivery_count=_INT, not_before=_TIME
)
STATE_BATCH_FIELDS: Final = tuple(field.name for field in _STATE_BATCH)
_ARCHIVED: Final = _struct(first_offset=_LONG, last_offset=_LONG, delivery_count=_INT, reason=_INT)
_FAILURE: Final = _struct(first_offset=_LONG, last_offset=_LONG, delivery_count=_INT, reason=_TEXT)
_SHARE_STATE: Final = {
    "group_id": _TEXT,
    "topic_id": _TEXT,
    "partition": _INT,
    "state_epoch": _INT,
    "leader_epoch": _INT,
    "generation": _INT,
    "snapshot_epoch": _INT,
    "start_offset": _LONG,
    "delivery_complete_count": _INT,
    "create_ts": _TIME,
    "write_ts": _TIME,
    "state_batches": _list(_STATE_BATCH),
    # Extension fields X2 to X5, and X8 to X10 (PM-20): null in rows of earlier builds.
    "cause": _INT,
    **dict.fromkeys(WRITE_COUNTS, _INT),
    "max_dc": _INT,
    "sum_dc": _LONG,
    "hwm": _LONG,
    "speo": _LONG,
    "write_id": _LONG,
    "delivery_limit": _INT,
    "archived": _list(_ARCHIVED),
    "failures": _list(_FAILURE),  # X11: null in rows of earlier builds
}
_ASSIGNED: Final = _struct(topic_id=_TEXT, partitions=_list(_INT))
_PARTITIONS: Final = _struct(topic_id=_TEXT, topic_name=_TEXT, partitions=_list(_INT))
_GROUP: Final = {
    "group_id": _TEXT,
    "member_id": _TEXT,
    "tombstone": pa.bool_(),
    "cause": _INT,
    "reason": _TEXT,
    "group_epoch": _INT,
    "member_count": _INT,
    "assignment_epoch": _INT,
    "member_epoch": _INT,
    "previous_member_epoch": _INT,
    "member_state": _INT,
    "rack_id": _TEXT,
    "client_id": _TEXT,
    "client_host": _TEXT,
    "subscribed_topic_names": _list(_TEXT),
    "assigned": _list(_ASSIGNED),
    "initializing": _list(_PARTITIONS),
    "initialized": _list(_PARTITIONS),
    "deleting": _list(_struct(topic_id=_TEXT, topic_name=_TEXT)),
}
_LOG_META: Final = {
    "topic_id": _TEXT,
    "partition": _INT,
    "base_offset": _LONG,
    "last_offset": _LONG,
    "record_count": _INT,
    "log_end_offset": _LONG,
}
_SCHEMAS: Final = {
    kind: pa.schema([pa.field(name, type_) for name, type_ in {**_COMMON, **own}.items()])
    for kind, own in ((Kind.SHARE_STATE, _SHARE_STATE), (Kind.GROUP, _GROUP), (Kind.LOG_META, _LOG_META))
}


def schema_of(kind: Kind) -> Any:
    """The `pyarrow.Schema` of a kind; the same object every time."""
    return _SCHEMAS[kind]
