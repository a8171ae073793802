"""What a producer has accepted and not yet delivered: per partition, in order, bounded in bytes.

Rules P-1 (send what piled up), CM-42 and CM-43 (sequences per partition). A *group* of up to five batches of one
partition is in flight at a time; it is sent again with the same sequences until it is answered. Sequences belong to a
topic id: a topic that was created again under its name begins at 0. Records stay opaque; times, identities and topic
ids are passed in. Not thread-safe: the host holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from kip932.ids import TopicPartition

RecordT = TypeVar("RecordT")
WatcherT = TypeVar("WatcherT")

#: The leader remembers five batches per producer (CM-43), so no more may be without an answer.
BATCHES_IN_FLIGHT: Final = 5
_SEQUENCE_LIMIT: Final = 2**31


class Appended(NamedTuple):
    """What accepting a record changed."""

    #: The partition had nothing waiting or in flight, so the sender must be woken.
    was_idle: bool
    #: The record began a batch; a keyless producer moves on to the next partition then.
    began_batch: bool


class ProducerIdentity(NamedTuple):
    """Producer id and epoch of InitProducerId; (−1, −1) without idempotence."""

    producer_id: int
    epoch: int


@dataclass(slots=True, eq=False)
class Batch(Generic[RecordT, WatcherT]):
    """Records of one partition that travel and are stored together.

    `watchers` are those who want to know the fate of a record, with its place in the batch; most records have none.
    `identity` and `base_sequence` are those it was last sent with, `numbers` all of them by topic id: wherever it goes
    again, it goes under the same number.
    """

    records: list[RecordT] = field(default_factory=list)
    watchers: list[tuple[int, WatcherT]] = field(default_factory=list)
    size_bytes: int = 0
    created_ms: int = 0
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    numbers: dict[bytes, tuple[ProducerIdentity, int]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Group(Generic[RecordT, WatcherT]):
    """Batches of one partition that are in flight together."""

    partition: TopicPartition
    batches: list[Batch[RecordT, WatcherT]]

    @property
    def created_ms(self) -> int:
        """When the oldest record of it was accepted."""
        return self.batches[0].created_ms


class _Lane(Generic[RecordT, WatcherT]):
    """One partition: batches that wait, the group in flight, and the next sequence by identity and topic id."""

    __slots__ = ("in_flight", "next_sequence", "not_before_ms", "partition", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch[RecordT, WatcherT]] = deque()
        self.in_flight: Group[RecordT, WatcherT] | None = None
        self.next_sequence: dict[tuple[ProducerIdentity, bytes], int] = {}
        self.not_before_ms = 0


class ProduceBuffer(Generic[RecordT, WatcherT]):
    """All partitions of one producer. Sizes are bytes as the caller counts them.

    Only `extend` runs for every record, so it makes nothing and asks for no time; everything else runs once per batch.
    """

    def __init__(self, memory_bytes: int, batch_bytes: int, batch_records: int) -> None:
        self._memory_bytes = memory_bytes
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        #: By (topic, partition).
        self._lanes: dict[tuple[str, int], _Lane[RecordT, WatcherT]] = {}
        self.used_bytes = 0
        self.records = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size fits now; the only one in the buffer always does."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._memory_bytes

    def extend(
        self, partition: tuple[str, int], record: RecordT, size_bytes: int, watcher: WatcherT | None = None
    ) -> bool:
        """Accept a record into the open batch of its partition; False without one, or when it or the buffer is full."""
        lane = self._lanes.get(partition)
        if lane is None or not lane.waiting:
            return False
        batch = lane.waiting[-1]
        records = batch.records
        filled = batch.size_bytes + size_bytes
        used = self.used_bytes + size_bytes
        if (
            filled > self._batch_bytes
            or used > self._memory_bytes
            or len(records) >= self._batch_records
            or batch.identity is not None
        ):
            return False
        if watcher is not None:
            batch.watchers.append((len(records), watcher))
        records.append(record)
        batch.size_bytes = filled
        self.used_bytes = used
        self.records += 1
        return True

    def append(
        self, partition: tuple[str, int], record: RecordT, size_bytes: int, now_ms: int, watcher: WatcherT | None = None
    ) -> Appended:
        """Accept a record at the end of its partition, room or not; it may begin a batch, of age `now_ms`."""
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(TopicPartition(*partition))
        if lane.waiting and self.extend(partition, record, size_bytes, watcher):
            return Appended(was_idle=False, began_batch=False)
        idle = not lane.waiting and lane.in_flight is None
        watchers = [] if watcher is None else [(0, watcher)]
        lane.waiting.append(Batch(records=[record], watchers=watchers, size_bytes=size_bytes, created_ms=now_ms))
        self.used_bytes += size_bytes
        self.records += 1
        return Appended(idle, began_batch=True)

    def ready(self, now_ms: int) -> list[TopicPartition]:
        """Partitions that have something to send, nothing in flight, and no back-off running."""
        return [
            lane.partition
            for lane in self._lanes.values()
            if lane.waiting and lane.in_flight is None and lane.not_before_ms <= now_ms
        ]

    def next_deadline(self) -> int | None:
        """When the next back-off of a partition with something to send ends; None when none runs."""
        times = [lane.not_before_ms for lane in self._lanes.values() if lane.waiting and lane.in_flight is None]
        return min(times, default=None)

    def take(
        self,
        partitions: Iterable[TopicPartition],
        identity: ProducerIdentity | None,
        budget_bytes: int,
        topic_ids: Mapping[str, bytes],
    ) -> list[Group[RecordT, WatcherT]]:
        """Groups for one request of at most about `budget_bytes`, with their sequences; at least one batch of each
        partition that is reached before the budget is used up. `topic_ids`: what the topics' names mean now."""
        groups: list[Group[RecordT, WatcherT]] = []
        for partition in partitions:
            if budget_bytes <= 0:
                break
            lane = self._lanes[partition]
            if lane.in_flight is not None or not lane.waiting:
                continue
            topic_id = topic_ids[partition.topic]
            batches: list[Batch[RecordT, WatcherT]] = []
            while lane.waiting and len(batches) < BATCHES_IN_FLIGHT and (not batches or budget_bytes > 0):
                head = lane.waiting[0]
                if batches and head.numbers.get(topic_id, (identity,))[0] != batches[0].identity:
                    break  # what follows belongs to a newer identity
                self._number(lane, head, identity, topic_id)
                batches.append(lane.waiting.popleft())
                budget_bytes -= head.size_bytes
            lane.in_flight = Group(partition, batches)
            groups.append(lane.in_flight)
        return groups

    def in_flight(self) -> list[Group[RecordT, WatcherT]]:
        """What `take` gave out and nobody has answered for yet."""
        return [lane.in_flight for lane in self._lanes.values() if lane.in_flight is not None]

    def delivered(self, group: Group[RecordT, WatcherT]) -> None:
        """The leader answered for every batch of the group, or it was given up: its memory is free again."""
        lane = self._lanes[group.partition]
        lane.in_flight = None
        lane.not_before_ms = 0
        for batch in group.batches:
            self.used_bytes -= batch.size_bytes
            self.records -= len(batch.records)

    def retry(self, group: Group[RecordT, WatcherT], not_before_ms: int) -> None:
        """Put the group back in front, sequences unchanged, to be sent again from `not_before_ms` on."""
        lane = self._lanes[group.partition]
        lane.in_flight = None
        lane.not_before_ms = not_before_ms
        lane.waiting.extendleft(reversed(group.batches))

    def hurry(self) -> None:
        """The cluster can be reached again: what waits for a back-off may be sent now."""
        for lane in self._lanes.values():
            lane.not_before_ms = 0

    def expired(self, older_than_ms: int) -> list[Group[RecordT, WatcherT]]:
        """Take out, as finished groups, the waiting batches accepted before `older_than_ms` (delivery.timeout.ms)."""
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            old: list[Batch[RecordT, WatcherT]] = []
            while lane.in_flight is None and lane.waiting and lane.waiting[0].created_ms < older_than_ms:
                old.append(lane.waiting.popleft())
            if old:
                groups.append(Group(lane.partition, old))
                for batch in old:
                    self.used_bytes -= batch.size_bytes
                    self.records -= len(batch.records)
        return groups

    def forget_sequences(self) -> None:
        """A new identity follows: numbers of the old one stay only with batches that carry them already."""
        for lane in self._lanes.values():
            lane.next_sequence.clear()

    def _number(
        self,
        lane: _Lane[RecordT, WatcherT],
        batch: Batch[RecordT, WatcherT],
        identity: ProducerIdentity | None,
        topic_id: bytes,
    ) -> None:
        number = batch.numbers.get(topic_id)
        if number is None:
            if identity is None:
                return
            base_sequence = lane.next_sequence.get((identity, topic_id), 0)
            lane.next_sequence[identity, topic_id] = (base_sequence + len(batch.records)) % _SEQUENCE_LIMIT
            number = batch.numbers[topic_id] = identity, base_sequence
        batch.identity, batch.base_sequence = number
