"""The state of a share-partition at some time, replayed from its log without Spark (PM-1a, PM-39)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kip932.ids import SharePartitionKey, parse_topic_id, shard_index
from kip932.state_batches import UNSET_OFFSET, StateBatch, combine, merge_count, merge_into
from share_metrics.reader.schemas import STATE_BATCH_FIELDS

from .reader import EntryId, Kind, Reader, Store
from .reader.planning import Goal
from .reader.streams import TopicLife, topic_lives

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


def lives_at(lives: Sequence[TopicLife], at: datetime | EntryId | None, now: datetime) -> list[TopicLife]:
    """Which of the topics that one name has meant are meant, the likeliest first. `lives`: the newest first.

    By time the one that existed then, else the last one that was deleted before; by entry id, each may be meant.
    """
    if isinstance(at, EntryId):
        return list(lives)
    at_ms = (at or now).timestamp() * 1000
    begun = [one for one in lives if one.created_ms <= at_ms]
    there = [one for one in begun if one.deleted_ms is None or at_ms < one.deleted_ms]
    return there[:1] or sorted(begun, key=lambda one: one.deleted_ms or 0)[-1:] or list(lives[-1:])


def replayed(
    store: Store, group: str, topic: str, partition: int, at: datetime | EntryId | None
) -> tuple[TopicLife, State | None, bool]:
    """The topic that was meant then, the state then, and whether the topic was deleted by then, so that it has none.

    `topic` is a name, or an id as text; of a deleted topic, too. Raises UnknownTopicError and read errors.
    """
    now = datetime.now(UTC)
    meant = lives_at(_lives(store, topic), at, now)
    found = [(life, state_at(store, _key(group, life, partition), at)) for life in meant]
    if isinstance(at, EntryId):  # ids are those of a stream: the entry with that id tells which topic is meant
        exact = [one for one in found if one[1] is not None and one[1].entry_id == str(at)]
        return *(exact or found)[0], False
    ((life, state),) = found
    gone = life.deleted_ms is not None and life.deleted_ms <= (at or now).timestamp() * 1000
    return life, None if gone else state, gone


def _key(group: str, life: TopicLife, partition: int) -> SharePartitionKey:
    return SharePartitionKey(group, parse_topic_id(life.topic_id), partition)


def _lives(store: Store, topic: str) -> list[TopicLife]:
    known = topic_lives(store)
    found = [one for one in known if topic in {one.name, one.topic_id}]
    if found:
        return found
    try:
        parse_topic_id(topic)
    except ValueError:
        names = ", ".join(sorted({one.name for one in known if one.deleted_ms is None})) or "none"
        raise UnknownTopicError(
            f"the cluster has no topic {topic!r}, nor any that was deleted of late; it has: {names}"
        ) from None
    return [TopicLife(topic, topic)]


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
