"""The state of a share-partition at some time, replayed without Spark (PM-1a, PM-39).

Its records come from the store, from the Parquet files of an ingest, or from both. The store takes precedence as far
back as its history goes, since it shows its own losses; the files provide earlier records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from kip932.ids import SharePartitionKey, parse_topic_id, shard_index
from kip932.state_batches import UNSET_OFFSET, StateBatch, combine, merge_count, merge_into
from share_metrics.archive.folders import check_cluster
from share_metrics.archive.kept_rows import begin, group_rows, read_positions, state_rows
from share_metrics.ingest.read_up_to import read_up_to
from share_metrics.ingest.topic_names import NEEDED, lives_named, merged, noted_topics
from share_metrics.reader import EntryId, Kind, Position, Reader, Store
from share_metrics.reader.decoding import gap_row
from share_metrics.reader.offsets import NO_STREAM
from share_metrics.reader.planning import Goal, StreamPlan
from share_metrics.reader.schemas import GAP, STATE_BATCH_FIELDS
from share_metrics.reader.streams import TopicLife, cluster_id, topic_lives

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


#: The origins of an answer.
STORE: Final = "store"
DATA: Final = "data"
BOTH: Final = "data and store"


class UnknownTopicError(Exception):
    """The cluster has no topic of this name."""


@dataclass(frozen=True, slots=True)
class State:
    """A share-partition as of one entry. `complete`: a snapshot was read after all trimmed or lost records."""

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


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a replay.

    `gone`: the topic was deleted by then, so there is no state. `origin`: STORE, DATA or BOTH. `begin`: when the oldest
    record in the directory was appended. `read_up_to`: the time up to which the directory holds all writes. Both are
    None if unknown.
    """

    life: TopicLife
    state: State | None
    gone: bool
    origin: str
    begin: datetime | None
    read_up_to: datetime | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        state = self.state.as_dict() if self.state else {}
        read = {"read_up_to": self.read_up_to.isoformat() if self.read_up_to else None} if self.origin == DATA else {}
        return {"topic_id": self.life.topic_id, "source": self.origin} | read | state


def history(rows: Iterable[dict[str, Any]], key: SharePartitionKey, topic_text: str) -> Iterable[State]:
    """The states of one share-partition, one after each of its records. `rows` must be in id order.

    It uses the share coordinator's own rules, so that a replay gives the same states as there (SC-41, SC-42, SC-56).
    After a gap of the stream, the state is yielded again as not complete, since the share-partition may have lost
    records.
    """
    state: State | None = None
    for row in rows:
        if row["record_type"] == GAP:
            state = state and replace(state, complete=False)
        elif (row["group_id"], row["topic_id"], row["partition"]) == (key.group_id, topic_text, key.partition):
            state = _next(state, row)
        else:
            continue
        if state is not None:
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


def _batch(batch: dict[str, Any]) -> StateBatch:
    plain = dict(batch)
    until = plain.pop("not_before")
    return StateBatch(**plain, not_before_ms=0 if until is None else (until - _EPOCH) // _MS)


def _batch_as_dict(batch: StateBatch) -> dict[str, Any]:
    until = (_EPOCH + batch.not_before_ms * _MS).isoformat() if batch.not_before_ms else None
    return dict(zip(STATE_BATCH_FIELDS, (*batch[:-1], until), strict=True))


def _unset(value: int | None) -> int:
    """The value; −1 for None, since the share coordinator's rules use Kafka's −1 for absent."""
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
    """The topics that a name may mean at `at`, the likeliest first. `lives`: all topics of that name, the newest first.

    For a time, it is the topic that existed then; failing that, the last one deleted before it; failing that, the
    oldest. For an entry id, any of them may be meant.
    """
    if isinstance(at, EntryId):
        return list(lives)
    at_ms = (at or now).timestamp() * 1000
    begun = [one for one in lives if one.created_ms <= at_ms]
    there = [one for one in begun if one.deleted_ms is None or at_ms < one.deleted_ms]
    return there[:1] or sorted(begun, key=lambda one: one.deleted_ms or 0)[-1:] or list(lives[-1:])


def replayed(  # noqa: PLR0917 - the parts of a question about the past
    store: Store | None,
    group: str,
    topic: str,
    partition: int,
    at: datetime | EntryId | None,
    data: Path | None = None,
) -> Answer:
    """The state at `at` of the topic that the name meant at that time, from a store, from `data`, or from both.

    `topic`: a name, or an id as text, possibly of a deleted topic. With both, records that the store no longer holds
    come from `data`. Raises UnknownTopicError, FolderError and read errors.
    """
    now = datetime.now(UTC)
    if store is not None and data is not None:
        check_cluster(data, cluster_id(store))
    past = _Sources(store, data)
    meant = lives_at(past.lives(topic), at, now)
    found = [(life, *past.state(_key(group, life, partition), at)) for life in meant]
    if isinstance(at, EntryId):  # the topic whose stream has an entry with that id is meant
        exact = [one for one in found if one[1] is not None and one[1].entry_id == str(at)]
        return past.answer(*(exact or found)[0], gone=False, now=now)
    ((life, state, origin),) = found
    gone = life.deleted_ms is not None and life.deleted_ms <= (at or now).timestamp() * 1000
    return past.answer(life, None if gone else state, origin, gone=gone, now=now)


class _Sources:
    """The sources of past records: a store, a directory of an ingest, or both."""

    def __init__(self, store: Store | None, data: Path | None) -> None:
        self._store = store
        self._data = data

    def lives(self, topic: str) -> list[TopicLife]:
        """The topics that had a name or an id, the newest first. Raises UnknownTopicError."""
        topics = topic_lives(self._store) if self._store is not None else []
        if self._data is not None:
            topics = merged(topics, noted_topics(self._data), lives_named(group_rows(self._data, NEEDED)))
        found = [one for one in topics if topic in {one.name, one.topic_id}]
        if found:
            return found
        try:
            parse_topic_id(topic)
        except ValueError:
            names = ", ".join(sorted({one.name for one in topics if one.deleted_ms is None})) or "none"
            where = str(self._data) if self._store is None else "the cluster"
            raise UnknownTopicError(
                f"{where} has no topic {topic!r}, nor one that was deleted recently; it has: {names}"
            ) from None
        return [TopicLife(topic, topic)]

    def state(self, key: SharePartitionKey, at: datetime | EntryId | None) -> tuple[State | None, str]:
        """The state and its origin. Ingested rows are read only if the store's log does not give the whole state."""
        if self._store is None:
            assert self._data is not None
            return _last(state_rows(self._data, _columns(key), at), key, at), DATA
        held = _StoredStream(self._store, key, at)
        state = _last(held.rows(), key, at)
        known = state is not None and (state.complete or state.record_type == "tombstone")
        if self._data is None or known or not held.trimmed:
            return state, STORE
        kept = state_rows(self._data, _columns(key), at)
        read = read_positions(self._data, Kind.SHARE_STATE).get(held.stream, Position(EntryId(0, 0), 0))
        newer = held.after(read)
        return _last([*kept, *newer], key, at), BOTH if newer else DATA

    def answer(self, life: TopicLife, state: State | None, origin: str, *, gone: bool, now: datetime) -> Answer:
        """The answer, with the times from which and up to which the directory has records."""
        data = self._data
        return Answer(life, state, gone, origin, begin(data) if data else None, read_up_to(data, now) if data else None)


def _key(group: str, life: TopicLife, partition: int) -> SharePartitionKey:
    return SharePartitionKey(group, parse_topic_id(life.topic_id), partition)


def _columns(key: SharePartitionKey) -> tuple[str, str, int]:
    return key.group_id, key.topic_partition.text.rpartition(":")[0], key.partition


class _StoredStream:
    """The stored entries of a share-partition's stream, up to an entry id if one is given."""

    def __init__(self, store: Store, key: SharePartitionKey, at: datetime | EntryId | None) -> None:
        self._reader = Reader(store, Kind.SHARE_STATE)
        self._key = key
        streams = self._reader.streams()
        self.stream = streams[shard_index(key.text, len(streams))]
        self._tips = self._reader.tips([self.stream])
        self._goals = {self.stream: Goal(at)} if isinstance(at, EntryId) else {}

    @property
    def trimmed(self) -> int:
        """How many entries of the stream the store no longer holds."""
        return (self._tips[self.stream] or NO_STREAM).trimmed

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the stream."""
        plan = self._reader.plan({}, self._tips, self._goals)[self.stream]
        return self._read(plan)

    def after(self, read: Position) -> list[dict[str, Any]]:
        """Rows of the share-partition after a position, with any gaps before them."""
        plan = self._reader.plan({self.stream: read}, self._tips, self._goals)[self.stream]
        own = (*_columns(self._key),)
        found = (row for row in self._read(plan) if (row["group_id"], row["topic_id"], row["partition"]) == own)
        return [*map(gap_row, plan.gaps), *found]

    def _read(self, plan: StreamPlan) -> Iterator[dict[str, Any]]:
        return (row for batch in self._reader.read(plan.ranges) for row in batch.to_pylist())


def _last(rows: Iterable[dict[str, Any]], key: SharePartitionKey, at: datetime | EntryId | None) -> State | None:
    found: State | None = None
    for state in history(rows, key, _columns(key)[1]):
        if isinstance(at, datetime) and state.ts is not None and state.ts > at:
            break
        found = state
    return found
