"""Translates share-state records to entries of `{sgs:<p>}:log` (CM-16): type S, U or T, and one ShareStateRecord."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError

from kip932.entry_checksum import key_of
from kip932.ids import TOPIC_ID_BYTES, SharePartitionKey
from kip932.records.share_state import (
    batches_from_messages,
    batches_to_messages,
    failures_from_messages,
    failures_to_messages,
    stats_from_message,
    stats_to_message,
)
from kip932.records.v1 import share_state_log_pb2 as pb
from kip932.state_batches import NO_STATS
from share_coordinator.core.records import UNKNOWN_COUNT, ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate

SNAPSHOT: Final = "S"
UPDATE: Final = "U"
TOMBSTONE: Final = "T"
_KINDS: Final = frozenset({SNAPSHOT, UPDATE, TOMBSTONE})
_VERSION: Final = 0
#: How many keys are cached, so that the entries of a share-partition share one; a shard has at most about this many.
_KEYS_MAX: Final = 16_384
_new_update = tuple.__new__  # makes a ShareUpdate of a tuple of its fields; a replay makes hundreds of thousands


class ShareStateCodec:
    """The Codec of share-state records. Unknown types and versions decode to None (SC-51, SR-26)."""

    def encode(self, record: ShareRecord, wall_ms: int) -> tuple[str, bytes]:
        """Return the entry's type letter and bytes; `wall_ms` is its append time (PM-20 X1)."""
        message = pb.ShareStateRecord(record_version=_VERSION, append_time_ms=wall_ms)
        key = message.key
        key.group_id, key.topic_id, key.partition = record.key
        kind = TOMBSTONE
        if isinstance(record, ShareUpdate):
            kind = UPDATE
            _fill_update(message.update, record)
        elif isinstance(record, ShareSnapshot):
            kind = SNAPSHOT
            message.snapshot.CopyFrom(_snapshot_message(record))
        return kind, message.SerializeToString()

    def decode(self, kind: str, data: bytes) -> ShareRecord | None:
        """Return the record; None for a type or version of a later build. Raises ValueError for bytes that are not such
        a record."""
        if kind not in _KINDS:
            return None
        try:
            message = pb.ShareStateRecord.FromString(data)
        except DecodeError as error:
            raise ValueError(
                f"an entry of type {kind} with {len(data)} bytes is not a ShareStateRecord: {error}"
            ) from error
        if message.record_version != _VERSION:
            return None
        key = _key(key_of(data) or message.key.SerializeToString())
        if len(key.topic_id) != TOPIC_ID_BYTES:
            raise ValueError(f"an entry of type {kind} has a topic id of {len(key.topic_id)} bytes; expected 16")
        if kind == UPDATE and message.HasField("update"):
            return _update(key, message.update)
        found = message.WhichOneof("value")
        if kind == SNAPSHOT and found == "snapshot":
            return _snapshot(key, message.snapshot)
        if kind == TOMBSTONE and found is None:
            return ShareTombstone(key)
        raise ValueError(f"an entry of type {kind} for {key.text} holds {found or 'no value'}")

    def key(self, data: bytes) -> SharePartitionKey:
        """Return the share-partition of a damaged entry, from the bytes of its key. Raises ValueError."""
        try:
            return _key(data)
        except DecodeError as error:
            raise ValueError(f"{len(data)} bytes are not the key of a share-partition: {error}") from error


@lru_cache(maxsize=_KEYS_MAX)
def _key(data: bytes) -> SharePartitionKey:
    """Decode a key; cached, since many entries have the same one. Raises DecodeError."""
    key = pb.ShareStateRecord.Key.FromString(data)
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def _snapshot_message(record: ShareSnapshot) -> pb.ShareSnapshot:
    return pb.ShareSnapshot(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        create_timestamp=record.create_ms,
        write_timestamp=record.write_ms,
        state_batches=batches_to_messages(record.batches),
        generation=record.generation,
        fence_leader_epoch=record.fence_leader_epoch,
        fence_generation=record.fence_generation,
        fence_state_epoch=record.fence_state_epoch,
        stats=stats_to_message(record.stats),
        archived_by_limit=record.archived_by_limit,
        archived_by_reject=record.archived_by_reject,
        failures=failures_to_messages(record.failures),
    )


def _fill_update(message: pb.ShareUpdate, record: ShareUpdate) -> None:
    """Write an update into its message directly, without a copy, since nearly all records are updates."""
    message.snapshot_epoch = record.snapshot_epoch
    message.leader_epoch = record.leader_epoch
    message.start_offset = record.start_offset
    message.delivery_complete_count = record.delivery_complete_count
    message.generation = record.generation
    for first, last, state, count, until in record.batches:
        message.state_batches.add(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count, not_before_ms=until
        )
    stats = stats_to_message(record.stats)
    if stats is not None:
        message.stats.CopyFrom(stats)
    if record.failures:
        message.failures.extend(failures_to_messages(record.failures))


def _snapshot(key: SharePartitionKey, message: pb.ShareSnapshot) -> ShareSnapshot:
    has_count = message.HasField("delivery_complete_count")
    return ShareSnapshot(
        key=key,
        snapshot_epoch=message.snapshot_epoch,
        state_epoch=message.state_epoch,
        leader_epoch=message.leader_epoch,
        generation=message.generation,
        start_offset=message.start_offset,
        delivery_complete_count=message.delivery_complete_count if has_count else UNKNOWN_COUNT,
        create_ms=message.create_timestamp,
        write_ms=message.write_timestamp,
        batches=batches_from_messages(message.state_batches),
        fence_leader_epoch=message.fence_leader_epoch,
        fence_generation=message.fence_generation,
        fence_state_epoch=message.fence_state_epoch,
        stats=stats_from_message(message.stats),
        archived_by_limit=message.archived_by_limit,
        archived_by_reject=message.archived_by_reject,
        failures=failures_from_messages(message.failures),
    )


def _update(key: SharePartitionKey, message: pb.ShareUpdate) -> ShareUpdate:
    count = message.delivery_complete_count
    stats = stats_from_message(message.stats) if message.HasField("stats") else NO_STATS
    failures = message.failures
    return _new_update(
        ShareUpdate,
        (
            key,
            message.snapshot_epoch,
            message.leader_epoch,
            message.generation,
            message.start_offset,
            count if count or message.HasField("delivery_complete_count") else UNKNOWN_COUNT,
            batches_from_messages(message.state_batches),
            stats,
            failures_from_messages(failures) if failures else (),
        ),
    )
