"""The state of a share-partition at some time, replayed from its log without Spark (PM-1a, PM-39)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kip932.ids import SharePartitionKey, parse_topic_id, shard_index
from kip932.state_batches import UNSET_OFFSET, StateBatch, combine, merge_count, merge_into
from share_metrics.reader.schemas import STATE_BATCH_FIELDS

from .reader import EntryId, Kind, Reader, Store
from .reader.planning import Goal
from .reader.streams import topics

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class UnknownTopicError(Exception):
    """The cluster has no topic of this name."""


@dataclass(frozen=True, slots=True)
class State:
    """A share-partition as of one entry. `complete` is False before its first snapshot: the log was trimmed."""

    entry_id: str
    record_type: str
    ts: datetime | None
    state_epoch: int | None
    leader_epoch: int | None
    start_offset: int | None
    delivery_complete_count: int | None
    batches: tuple[StateBatch, ...]
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "entry_id": self.entry_id,
            "record_type": self.record_type,
            "ts": self.ts.isoformat() if self.ts else None,
            "state_epoch": self.state_epoch,
            "leader_epoch": self.leader_epoch,
            "start_offset": self.start_offset,
            "delivery_complete_count": self.delivery_complete_count,
            "state_batches": [_batch_as_dict(batch) for batch in self.batches],
            "complete": self.complete,
        }


def history(rows: Iterable[dict[str, Any]], key: SharePartitionKey, topic_text: str) -> Iterable[State]:
    """The states of one share-partition, one after each of its records. `rows` must be in the order of ids.

    It uses the share coordinator's own rules, so that replayed records mean the same here (SC-41, SC-42, SC-56).
    """
    state: State | None = None
    for row in rows:
        if (row["group_id"], row["topic_id"], row["partition"]) != (key.group_id, topic_text, key.partition):
            continue
        state = _next(state, row)
        yield state


def _next(before: State | None, row: dict[str, Any]) -> State:
    ended = before is None or before.record_type == "tombstone"
    batches = tuple(map(_batch, row["state_batches"] or ()))
    if row["record_type"] == "tombstone":
        return _state(row, (), complete=True)
    start = _unset(row["start_offset"])
    if before is None or ended or row["record_type"] == "snapshot":
        return _state(row, tuple(combine((), batches, start)), complete=row["record_type"] == "snapshot")
    stored = _unset(before.start_offset)
    count = merge_count(stored, _unset(before.delivery_complete_count), start, _unset(row["delivery_complete_count"]))
    start = max(stored, start)
    known = {
        "state_epoch": before.state_epoch,
        "leader_epoch": before.leader_epoch if row["leader_epoch"] is None else row["leader_epoch"],
        "start_offset": None if start == UNSET_OFFSET else start,
        "delivery_complete_count": None if count < 0 else count,
    }
    return _state(row | known, tuple(merge_into(before.batches, batches, start)), complete=before.complete)


def _batch(told: dict[str, Any]) -> StateBatch:
    plain = dict(told)
    until = plain.pop("not_before")
    return StateBatch(**plain, not_before_ms=0 if until is None else (until - _EPOCH) // _MS)


def _batch_as_dict(batch: StateBatch) -> dict[str, Any]:
    until = (_EPOCH + batch.not_before_ms * _MS).isoformat() if batch.not_before_ms else None
    return dict(zip(STATE_BATCH_FIELDS, (*batch[:-1], until), strict=True))


def _unset(value: int | None) -> int:
    """−1 for None: the rules of the share coordinator use Kafka's −1 for absent."""
    return UNSET_OFFSET if value is None else value


def _state(row: dict[str, Any], batches: tuple[StateBatch, ...], *, complete: bool) -> State:
    return State(
        row["entry_id"],
        row["record_type"],
        row["ts"],
        row["state_epoch"],
        row["leader_epoch"],
        row["start_offset"],
        row["delivery_complete_count"],
        batches,
        complete,
    )


def share_partition(store: Store, group: str, topic: str, partition: int) -> SharePartitionKey:
    """The key of a share-partition; `topic` is a name, or an id as text. Raises UnknownTopicError and read errors."""
    known = topics(store)
    for one in known:
        if topic in {one.name, one.topic_id}:
            return SharePartitionKey(group, parse_topic_id(one.topic_id), partition)
    names = ", ".join(one.name for one in known) or "none"
    raise UnknownTopicError(f"the cluster has no topic {topic!r}; it has: {names}")


def state_at(store: Store, key: SharePartitionKey, at: datetime | EntryId | None) -> State | None:
    """The state as of a time or an entry id (None: now); None when it had none then. Raises what reading raises.

    By time, it is the state before the first record, in the order of ids, that was appended later.
    """
    reader = Reader(store, Kind.SHARE_STATE)
    streams = reader.streams()
    stream = streams[shard_index(key.text, len(streams))]
    goals = {stream: Goal(at)} if isinstance(at, EntryId) else {}
    plan = reader.plan({}, reader.tips([stream]), goals)[stream]
    rows = (row for batch in reader.read(plan.ranges) for row in batch.to_pylist())
    found: State | None = None
    topic_text = key.topic_partition.text.rpartition(":")[0]
    for state in history(rows, key, topic_text):
        if isinstance(at, datetime) and state.ts is not None and state.ts > at:
            break
        found = state
    return found
