"""The records that a producer has accepted and not yet delivered: per partition, in order, bounded in bytes.

Rules P-1 (send what piled up), CM-42 and CM-43 (sequences per partition). Each partition has one *group* in flight: up
to five batches, which the sender retries with the same sequences until the leader answers. Sequences belong to a topic
id. When a topic is created again under its name, its sequences begin at 0, and unconfirmed batches are not sent to it
(see `unconfirmed_batches`). Records are opaque; times, identities and topic ids are passed in. Not thread-safe: the
host holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar

from kip932.ids import TopicPartition
from sharegroups.core.unconfirmed_batches import Course, Meaning, course

RecordT = TypeVar("RecordT")
WatcherT = TypeVar("WatcherT")

#: The leader remembers the last five batches of a producer (CM-43), so no more may be in flight.
BATCHES_IN_FLIGHT: Final = 5
_SEQUENCE_LIMIT: Final = 2**31


class Appended(NamedTuple):
    """What accepting a record changed."""

    #: The partition had nothing waiting and nothing in flight. The caller must wake the sender.
    was_idle: bool
    #: The record began a batch. Records without a key then go to the next partition.
    began_batch: bool


class ProducerIdentity(NamedTuple):
    """Producer id and epoch of InitProducerId; (−1, −1) without idempotence."""

    producer_id: int
    epoch: int


#: The identity of a batch that was sent without one.
NO_IDENTITY: Final = ProducerIdentity(-1, -1)


@dataclass(slots=True, eq=False)
class Batch(Generic[RecordT, WatcherT]):
    """Records of one partition that are sent and stored together.

    `watchers` are told the outcome of a record; each comes with the record's place in the batch, and most records have
    none. `identity` and `base_sequence` number the batch under the topic id that its partition was last sent under; a
    retry under that id keeps them. `unconfirmed` is the topic at the first attempt that may have appended the batch;
    None while no attempt may have.
    """

    records: list[RecordT] = field(default_factory=list)
    watchers: list[tuple[int, WatcherT]] = field(default_factory=list)
    size_bytes: int = 0
    created_ms: int = 0
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    unconfirmed: Meaning | None = None


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
    """One partition: waiting batches, the group in flight, and the next sequence by identity and topic id.

    Waiting batches keep their order: first the unconfirmed ones, all under `topic_id`, then other numbered ones, then
    those without a number.
    """

    __slots__ = ("in_flight", "next_sequence", "not_before_ms", "partition", "topic_id", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch[RecordT, WatcherT]] = deque()
        self.in_flight: Group[RecordT, WatcherT] | None = None
        self.next_sequence: dict[tuple[ProducerIdentity, bytes], int] = {}
        self.not_before_ms = 0
        self.topic_id = b""

    def take_unconfirmed(self) -> list[Batch[RecordT, WatcherT]]:
        """Remove and return the unconfirmed batches."""
        taken: list[Batch[RecordT, WatcherT]] = []
        while self.waiting and self.waiting[0].unconfirmed is not None:
            taken.append(self.waiting.popleft())
        return taken

    def go_to(self, topic_id: bytes) -> None:
        """Send under this id from now on; call it only while no batch is unconfirmed under another id.

        The waiting numbered batches were refused under the former id. Their sequences are given back, for the case
        that the former id is used again, and the batches get new numbers.
        """
        if topic_id == self.topic_id:
            return
        for batch in reversed(self._numbered()):
            assert batch.identity is not None
            if (batch.identity, self.topic_id) in self.next_sequence:
                self.next_sequence[batch.identity, self.topic_id] = batch.base_sequence
        self.forget_numbers()
        self.topic_id = topic_id

    def forget_numbers(self, but_of: ProducerIdentity | None = None) -> None:
        """Take the numbers off the waiting batches, so that they get new ones; they were certainly not appended.

        Unconfirmed batches keep theirs, and so do the batches that the identity `but_of` has numbered.
        """
        for batch in self._numbered():
            if batch.unconfirmed is None and (but_of is None or batch.identity != but_of):
                batch.identity, batch.base_sequence = None, -1

    def number(self, batch: Batch[RecordT, WatcherT], identity: ProducerIdentity | None) -> None:
        """Give the batch its number, unless it has one."""
        if identity is None or batch.identity is not None:
            return
        key = identity, self.topic_id
        batch.identity, batch.base_sequence = identity, self.next_sequence.get(key, 0)
        self.next_sequence[key] = (batch.base_sequence + len(batch.records)) % _SEQUENCE_LIMIT

    def _numbered(self) -> list[Batch[RecordT, WatcherT]]:
        return list(takewhile(lambda batch: batch.identity is not None, self.waiting))


class ProduceBuffer(Generic[RecordT, WatcherT]):
    """All partitions of one producer. Sizes are bytes as the caller counts them.

    Only `extend` runs for every record, so it creates no object and needs no time. Everything else runs once per batch.
    """

    def __init__(self, memory_bytes: int, batch_bytes: int, batch_records: int) -> None:
        self._memory_bytes = memory_bytes
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        #: By (topic, partition).
        self._lanes: dict[tuple[str, int], _Lane[RecordT, WatcherT]] = {}
        #: Those whose first batches are, or lately were, unconfirmed.
        self._unconfirmed: dict[tuple[str, int], _Lane[RecordT, WatcherT]] = {}
        self.used_bytes = 0
        self.records = 0

    def has_room(self, size_bytes: int) -> bool:
        """Whether a record of this size fits now. An empty buffer has room for a record of any size."""
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._memory_bytes

    def extend(
        self, partition: tuple[str, int], record: RecordT, size_bytes: int, watcher: WatcherT | None = None
    ) -> bool:
        """Accept a record into its partition's open batch. False when none is open, or when it or the buffer is full.

        After False, make room if need be, then call `append`.
        """
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
        """Accept a record at the end of its partition, even without room. If it begins a batch, `now_ms` dates that."""
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
        meanings: Mapping[str, Meaning],
    ) -> list[Group[RecordT, WatcherT]]:
        """Take the groups of one request, with their sequences, and have them in flight.

        They hold about `budget_bytes` at most, and at least one batch of each partition that is reached before the
        budget is used up. `meanings`: what the topics' names mean now. Partitions whose first batches are unconfirmed
        under another topic id are left out. Report each group with `delivered` or `retry`, once.
        """
        groups: list[Group[RecordT, WatcherT]] = []
        for partition in partitions:
            if budget_bytes <= 0:
                break
            lane = self._lanes[partition]
            if lane.in_flight is not None or not lane.waiting:
                continue
            meaning = meanings[partition.topic]
            if course(lane.waiting[0].unconfirmed, meaning) is not Course.SEND:
                continue
            lane.go_to(meaning.topic_id)
            if identity is not None:  # a refused batch may have been in flight when the former identity was forgotten
                lane.forget_numbers(but_of=identity)
            owner = lane.waiting[0].identity or identity or NO_IDENTITY
            batches: list[Batch[RecordT, WatcherT]] = []
            while lane.waiting and len(batches) < BATCHES_IN_FLIGHT and (not batches or budget_bytes > 0):
                head = lane.waiting[0]
                if (head.identity or identity or NO_IDENTITY) != owner:
                    break  # what follows belongs to a newer identity
                lane.number(head, identity)
                batches.append(lane.waiting.popleft())
                budget_bytes -= head.size_bytes
            lane.in_flight = Group(partition, batches)
            groups.append(lane.in_flight)
        return groups

    def in_flight(self) -> list[Group[RecordT, WatcherT]]:
        """The groups that `take` gave out and that no leader has answered yet."""
        return [lane.in_flight for lane in self._lanes.values() if lane.in_flight is not None]

    def delivered(self, group: Group[RecordT, WatcherT]) -> None:
        """The leader answered for every batch of the group, or the sender gave it up: its memory is free again."""
        lane = self._lanes[group.partition]
        lane.in_flight = None
        lane.not_before_ms = 0
        self._free(group.batches)

    def retry(self, group: Group[RecordT, WatcherT], not_before_ms: int, unconfirmed: Meaning | None) -> None:
        """Put the group back in front, sequences unchanged, to be sent again from `not_before_ms` on.

        `unconfirmed`: what the topic's name meant at the attempt; None when this attempt certainly appended nothing. An
        unconfirmed batch remains so, and takes no more records.
        """
        lane = self._lanes[group.partition]
        if unconfirmed is not None:
            self._unconfirmed[group.partition] = lane
            for batch in group.batches:
                batch.unconfirmed = batch.unconfirmed or unconfirmed
                batch.identity = batch.identity or NO_IDENTITY
        lane.in_flight = None
        lane.not_before_ms = not_before_ms
        lane.waiting.extendleft(reversed(group.batches))

    def hurry(self) -> None:
        """The cluster can be reached again: groups that wait for a back-off may be sent now."""
        for lane in self._lanes.values():
            lane.not_before_ms = 0

    def expired(self, older_than_ms: int) -> list[Group[RecordT, WatcherT]]:
        """Remove and return the waiting batches accepted before `older_than_ms` (delivery.timeout.ms).

        They are finished: do not report them with `delivered` or `retry`.
        """
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            old: list[Batch[RecordT, WatcherT]] = []
            while lane.in_flight is None and lane.waiting and lane.waiting[0].created_ms < older_than_ms:
                old.append(lane.waiting.popleft())
            if old:
                groups.append(Group(lane.partition, old))
                self._free(old)
        return groups

    def give_up(self) -> list[Group[RecordT, WatcherT]]:
        """Remove and return everything that is not in flight. It is finished, as with `expired`."""
        groups: list[Group[RecordT, WatcherT]] = []
        for lane in self._lanes.values():
            if lane.waiting:
                groups.append(Group(lane.partition, list(lane.waiting)))
                lane.waiting.clear()
                self._free(groups[-1].batches)
        return groups

    def outlived(self, meaning_of: Callable[[str], Meaning | None]) -> tuple[list[Group[RecordT, WatcherT]], bool]:
        """Remove and return the batches that are unconfirmed under a topic id that exists no more.

        They are finished, as with `expired`. The second value is whether other unconfirmed batches wait for newer
        metadata. `meaning_of` returns what a topic's name means now, None while that is unknown.
        """
        # Unconfirmed batches are the first of their partition, and all of them were sent under one id.
        groups: list[Group[RecordT, WatcherT]] = []
        waits = False
        for key, lane in list(self._unconfirmed.items()):
            if lane.in_flight is not None:
                continue
            if not lane.waiting or lane.waiting[0].unconfirmed is None:
                del self._unconfirmed[key]
                continue
            meaning = meaning_of(lane.partition.topic)
            verdict = Course.SEND if meaning is None else course(lane.waiting[0].unconfirmed, meaning)
            waits = waits or verdict is Course.WAIT
            if verdict is Course.FAIL:
                gone = lane.take_unconfirmed()
                lane.not_before_ms = 0
                groups.append(Group(lane.partition, gone))
                self._free(gone)
        return groups, waits

    def forget_sequences(self) -> None:
        """The producer gets a new identity: only batches in flight and unconfirmed ones keep their numbers."""
        for lane in self._lanes.values():
            lane.next_sequence.clear()
            lane.forget_numbers()

    def _free(self, batches: Iterable[Batch[RecordT, WatcherT]]) -> None:
        for batch in batches:
            self.used_bytes -= batch.size_bytes
            self.records -= len(batch.records)
