"""One partition of a producer's buffer: the waiting batches, the groups in flight, and their sequences.

Rules CM-43 (sequences by identity and topic id) and CL-130 to CL-133 (a second group may follow the first). See
`produce_buffer`, which owns the lanes. Not thread-safe: the host holds a lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kip932.errors import KafkaError, OutOfOrderSequenceNumberError
from kip932.ids import TopicPartition
from sharegroups.producing.core.unconfirmed_batches import Meaning, nothing_written

RecordT = TypeVar("RecordT")
WatcherT = TypeVar("WatcherT")

#: The leader remembers a producer's last five batches (CM-43), so no more may be in flight.
BATCHES_IN_FLIGHT: Final = 5
_SEQUENCE_LIMIT: Final = 2**31


class ProducerIdentity(NamedTuple):
    """Producer id and epoch from InitProducerId; (−1, −1) without idempotence."""

    producer_id: int
    epoch: int


#: How a leader is reached: its node id, and the number of the stream to it.
Way = tuple[int, int]
NO_ROUTE: Final[Way] = (-1, -1)

#: The identity of a batch that was sent without one.
NO_IDENTITY: Final = ProducerIdentity(-1, -1)


class Outcome(NamedTuple):
    """The outcome of an attempt to send a group.

    Without `error` the group was delivered, and `answer` is the leader's result. `delay_ms`: retry after this time;
    None if a retry cannot help. `unconfirmed`: see `ProduceBuffer.retry`.
    """

    answer: Any = None
    error: KafkaError | None = None
    delay_ms: int | None = None
    unconfirmed: Meaning | None = None


@dataclass(slots=True, eq=False)
class Batch(Generic[RecordT, WatcherT]):
    """Records of one partition that are sent and stored together.

    Each watcher is notified of one record's outcome. `watchers` has them with the record's index in the batch; most
    records have no watcher. `order` numbers all batches of the partition. `identity` and `base_sequence` are the
    batch's numbers for the topic id that its partition was last sent with; a retry with that id keeps them.
    `unconfirmed` is the topic's id and version at the first attempt that may have appended the batch; None if no
    attempt may have.
    """

    records: list[RecordT] = field(default_factory=list)
    watchers: list[tuple[int, WatcherT]] = field(default_factory=list)
    size_bytes: int = 0
    created_ms: int = 0
    identity: ProducerIdentity | None = None
    base_sequence: int = -1
    unconfirmed: Meaning | None = None
    order: int = 0
    #: True if the batch was refused together with others, any of which may be the cause, so that it is sent without
    #: them (CL-154).
    alone: bool = False
    #: What the host traces it with, if it does.
    trace: Any = None


@dataclass(slots=True, eq=False)
class Group(Generic[RecordT, WatcherT]):
    """Batches of one partition that are in flight together.

    `way` is how they were sent. `is_first_try`: True if none of the batches was sent before. `after_given_up`: True if
    batches with the same identity and lower sequences were given up. `outcome`: set once it is known.
    """

    partition: TopicPartition
    batches: list[Batch[RecordT, WatcherT]]
    way: Way = NO_ROUTE
    is_first_try: bool = False
    after_given_up: bool = False
    outcome: Outcome | None = None

    @property
    def created_ms(self) -> int:
        """When its oldest record was accepted."""
        return self.batches[0].created_ms


class Lane(Generic[RecordT, WatcherT]):
    """One partition: waiting batches, the groups in flight, and the next sequence by identity and topic id.

    `proven` is the identity and the way of the last group that the leader accepted, if nothing has failed since: the
    leader knows that producer. `gap`: the identity of the last numbered batches that were given up, if the leader has
    accepted none since. A later batch with this identity comes after a sequence gap that nothing will fill.

    Waiting batches keep their order: first the unconfirmed ones, all for `topic_id`, then other numbered ones, then
    those without numbers.
    """

    __slots__ = (
        "gap", "in_flight", "next_sequence", "not_before_ms", "order", "partition", "proven", "topic_id", "waiting",
    )  # fmt: skip

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[Batch[RecordT, WatcherT]] = deque()
        self.in_flight: list[Group[RecordT, WatcherT]] = []
        self.proven: tuple[ProducerIdentity, Way] | None = None
        self.gap: ProducerIdentity | None = None
        self.order = 0
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
        """Send with this topic id from now on. Call this only while no batch is unconfirmed for another id.

        The waiting numbered batches were refused for the previous id. They get new numbers, and their old sequences
        become free in case the previous id is used again.
        """
        if topic_id == self.topic_id:
            return
        for batch in reversed(self._numbered()):
            assert batch.identity is not None
            if (batch.identity, self.topic_id) in self.next_sequence:
                self.next_sequence[batch.identity, self.topic_id] = batch.base_sequence
        self.forget_numbers()
        self.topic_id = topic_id
        self.proven = None

    def forget_numbers(self, but_of: ProducerIdentity | None = None) -> None:
        """Remove the numbers of waiting batches that were certainly not appended, so that they get new ones.

        Unconfirmed batches keep their numbers, and so do batches with the identity `but_of`.
        """
        for batch in self._numbered():
            if batch.unconfirmed is None and (but_of is None or batch.identity != but_of):
                batch.identity, batch.base_sequence = None, -1

    def given_up(self, batches: list[Batch[RecordT, WatcherT]]) -> None:
        """Note that these batches will not be sent again."""
        self.gap = next((batch.identity for batch in reversed(batches) if batch.identity is not None), self.gap)

    def follows_gap(self, batch: Batch[RecordT, WatcherT]) -> bool:
        """Return whether batches with lower sequences of the same producer were given up (CM-43 (k))."""
        return self.gap not in {None, NO_IDENTITY} and batch.identity == self.gap

    def number(self, batch: Batch[RecordT, WatcherT], identity: ProducerIdentity | None) -> None:
        """Give the batch its identity and base sequence, unless it has them."""
        if identity is None or batch.identity is not None:
            return
        key = identity, self.topic_id
        batch.identity, batch.base_sequence = identity, self.next_sequence.get(key, 0)
        self.next_sequence[key] = (batch.base_sequence + len(batch.records)) % _SEQUENCE_LIMIT

    def may_follow(self, identity: ProducerIdentity | None, topic_id: bytes, way: Way) -> bool:
        """Return whether a second group may be sent before the response to the first one (CL-131)."""
        if len(self.in_flight) != 1 or identity is None or self.proven != (identity, way):
            return False
        first = self.in_flight[0]
        return first.is_first_try and first.outcome is None and first.way == way and self.topic_id == topic_id

    def has_full(self, least_bytes: int | None) -> bool:
        """Return whether full batches of at least `least_bytes` in total are waiting, none of which was sent before.
        Returns False for None."""
        waiting = self.waiting
        if least_bytes is None or len(waiting) < 2 or waiting[0].identity is not None:
            return False
        found = 0
        for number in range(min(len(waiting) - 1, BATCHES_IN_FLIGHT)):
            found += waiting[number].size_bytes
            if found >= least_bytes:
                return True
        return False

    def put_back(self, batches: list[Batch[RecordT, WatcherT]]) -> None:
        """Put the batches back among the waiting ones, in their order."""
        before: list[Batch[RecordT, WatcherT]] = []
        while self.waiting and self.waiting[0].order < batches[0].order:
            before.append(self.waiting.popleft())
        self.waiting.extendleft(reversed(before + batches))

    def _numbered(self) -> list[Batch[RecordT, WatcherT]]:
        return list(takewhile(lambda batch: batch.identity is not None, self.waiting))

    def settle(self, group: Group[RecordT, WatcherT], outcome: Outcome) -> list[Group[RecordT, WatcherT]]:
        """See `ProduceBuffer.settle`."""
        group.outcome = outcome
        first = self.in_flight[0].outcome
        if first is None or (first.error is not None and any(each.outcome is None for each in self.in_flight)):
            return []
        if first.error is not None and len(self.in_flight) > 1:
            _settle_after_failure(*self.in_flight)
        return [each for each in self.in_flight if each.outcome is not None]


def _settle_after_failure(first: Group[RecordT, WatcherT], second: Group[RecordT, WatcherT]) -> None:
    """Correct the outcomes of two groups, the first of which failed (CM-43, CL-133).

    If the leader found a sequence gap before the second group, that gap is the missing first group: the second was not
    appended, and is sent again as soon as the first is. If it is unknown whether the second was appended, the first
    counts as unconfirmed too. Both then keep their numbers and topic id, since unconfirmed batches must come first
    among the waiting ones.
    """
    one, two = first.outcome, second.outcome
    assert one is not None
    assert two is not None
    if isinstance(two.error, OutOfOrderSequenceNumberError):
        second.outcome = two._replace(delay_ms=one.delay_ms or 0, unconfirmed=None)
    elif one.delay_ms is None and one.error is not None and nothing_written(one.error):
        # The first is given up, so nothing will fill its gap: the second was not appended and never will be.
        second.outcome = two._replace(unconfirmed=None)
    elif two.error is not None and two.unconfirmed is not None and one.unconfirmed is None:
        first.outcome = one._replace(unconfirmed=two.unconfirmed)
