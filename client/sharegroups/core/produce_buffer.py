"""What a producer has accepted and not yet delivered: per partition, in order, bounded in bytes.

Rules P-1 (send what piled up), CM-42 and CM-43 (sequences per partition). A *group* of up to five batches of one
partition is in flight at a time; it is sent again with the same sequences until it is answered. Sequences belong to a
topic id: a topic that was created again under its name begins at 0, and batches in doubt do not go there
(`unconfirmed_batches`). Records stay opaque; times, identities and what names mean are passed in. Not thread-safe: the
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


#: The identity of those that have none.
NOBODY: Final = ProducerIdentity(-1, -1)


@dataclass(slots=True, eq=False)
class Batch(Generic[RecordT, WatcherT]):
    """Records of one partition that travel and are stored together.

    `watchers` are those who want to know the fate of a record, with its place in the batch; most records have none.
    `identity` and `base_sequence` are its number under the topic id that its partition was last sent under; it keeps
    them while it goes there again. `doubt`: what its topic's name meant at the first attempt of which it is not known
    that it appended nothing; None while there is none.
    """

    records: list[RecordT] = field(default_factory=list)
    watchers: list[tuple[int, WatcherT]] = field(default_factory=list)
    size_bytes: int = 0
    created_ms: int = 0
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    doubt: Meaning | None = None


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
    """One partition: batches that wait, the group in flight, and the next sequence by identity and topic id.

    Of those that wait, the ones in doubt stand in front, all under `topic_id`, and behind them those with a number,
    since nothing overtakes anything.
    """

    __slots__ = ("in_flight", "next_sequence", "not_before_ms", "partition", "topic_id", "waiting")

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch[RecordT, WatcherT]] = deque()
        self.in_flight: Group[RecordT, WatcherT] | None = None
        self.next_sequence: dict[tuple[ProducerIdentity, bytes], int] = {}
        self.not_before_ms = 0
        self.topic_id = b""

    def take_doubtful(self) -> list[Batch[RecordT, WatcherT]]:
        """Take out the batches in doubt."""
        taken: list[Batch[RecordT, WatcherT]] = []
        while self.waiting and self.waiting[0].doubt is not None:
            taken.append(self.waiting.popleft())
        return taken

    def go_to(self, topic_id: bytes) -> None:
        """Send under this id from now on. Nothing is in doubt; numbers that were refused under the former id are free
        again, should its turn come once more."""
        if topic_id == self.topic_id:
            return
        for batch in reversed(self._numbered()):
            assert batch.identity is not None
            if (batch.identity, self.topic_id) in self.next_sequence:
                self.next_sequence[batch.identity, self.topic_id] = batch.base_sequence
        self.forget_numbers()
        self.topic_id = topic_id

    def forget_numbers(self, but_of: ProducerIdentity | None = None) -> None:
        """Have the waiting batches numbered anew, but for those in doubt, and those that this identity has numbered:
        the others were certainly not appended."""
        for batch in self._numbered():
            if batch.doubt is None and (but_of is None or batch.identity != but_of):
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

    Only `extend` runs for every record, so it makes nothing and asks for no time; everything else runs once per batch.
    """

    def __init__(self, memory_bytes: int, batch_bytes: int, batch_records: int) -> None:
        self._memory_bytes = memory_bytes
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        #: By (topic, partition).
        self._lanes: dict[tuple[str, int], _Lane[RecordT, WatcherT]] = {}
        #: Those whose first batches are, or lately were, in doubt.
        self._doubtful: dict[tuple[str, int], _Lane[RecordT, WatcherT]] = {}
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
        meanings: Mapping[str, Meaning],
    ) -> list[Group[RecordT, WatcherT]]:
        """Groups for one request of at most about `budget_bytes`, with their sequences; at least one batch of each
        partition that is reached before the budget is used up. `meanings`: what the topics' names mean now.

        Partitions whose first batches are in doubt under another topic id are left out.
        """
        groups: list[Group[RecordT, WatcherT]] = []
        for partition in partitions:
            if budget_bytes <= 0:
                break
            lane = self._lanes[partition]
            if lane.in_flight is not None or not lane.waiting:
                continue
            meaning = meanings[partition.topic]
            if course(lane.waiting[0].doubt, meaning) is not Course.SEND:
                continue
            lane.go_to(meaning.topic_id)
            if identity is not None:  # what was refused was in flight, it may be, when the former one was forgotten
                lane.forget_numbers(but_of=identity)
            owner = lane.waiting[0].identity or identity or NOBODY
            batches: list[Batch[RecordT, WatcherT]] = []
            while lane.waiting and len(batches) < BATCHES_IN_FLIGHT and (not batches or budget_bytes > 0):
                head = lane.waiting[0]
                if (head.identity or identity or NOBODY) != owner:
                    break  # what follows belongs to a newer identity
                lane.number(head, identity)
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
        self._free(group.batches)

    def retry(self, group: Group[RecordT, WatcherT], not_before_ms: int, doubt: Meaning | None) -> None:
        """Put the group back in front, sequences unchanged, to be sent again from `not_before_ms` on.

        `doubt`: what the topic's name meant at the attempt, unless it is known that this attempt appended nothing. A
        batch once in doubt stays so, and takes no more records.
        """
        lane = self._lanes[group.partition]
        if doubt is not None:
            self._doubtful[group.partition] = lane
            for batch in group.batches:
                batch.doubt = batch.doubt or doubt
                batch.identity = batch.identity or NOBODY
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
                self._free(old)
        return groups

    def outlived(self, meaning_of: Callable[[str], Meaning | None]) -> tuple[list[Group[RecordT, WatcherT]], bool]:
        """Take out, as finished groups, the batches in doubt under a topic id that is no more; they are the first of
        their partitions, and all in doubt under one id. Also, whether some wait for metadata as new as those that
        they were sent by. `meaning_of` tells what a topic's name means now, None while that is unknown."""
        groups: list[Group[RecordT, WatcherT]] = []
        waits = False
        for key, lane in list(self._doubtful.items()):
            if lane.in_flight is not None:
                continue
            if not lane.waiting or lane.waiting[0].doubt is None:
                del self._doubtful[key]
                continue
            meaning = meaning_of(lane.partition.topic)
            verdict = Course.SEND if meaning is None else course(lane.waiting[0].doubt, meaning)
            waits = waits or verdict is Course.WAIT
            if verdict is Course.FAIL:
                gone = lane.take_doubtful()
                lane.not_before_ms = 0
                groups.append(Group(lane.partition, gone))
                self._free(gone)
        return groups, waits

    def forget_sequences(self) -> None:
        """A new identity follows: numbers of the old one stay only with batches that are in flight or in doubt."""
        for lane in self._lanes.values():
            lane.next_sequence.clear()
            lane.forget_numbers()

    def _free(self, batches: Iterable[Batch[RecordT, WatcherT]]) -> None:
        for batch in batches:
            self.used_bytes -= batch.size_bytes
            self.records -= len(batch.records)
