"""The messages that poll() returns. They are created from the decoded batches when the application first reads them
(P-14).

A message refers to its delivery, so acknowledging it needs no search. Classes and methods are those of CL-44.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from kip932.errors import KafkaError, UnsupportedCompressionTypeError
from kip932.ids import TopicIdPartition as IdPartition
from sharegroups import arguments
from sharegroups.consuming.core.acknowledgements import Delivery
from sharegroups.consuming.core.record_batch import Slice
from sharegroups.consuming.core.renewals import Lock
from sharegroups.errors import KeyDeserializationError, ValueDeserializationError
from sharegroups.tracing.traces import DeliveryTrace

if TYPE_CHECKING:
    from kip932.record_batches import ReadRecord

TIMESTAMP_CREATE_TIME = 1

Deserializer = Callable[[bytes], Any]


class AcknowledgeType(IntEnum):
    """How a record is acknowledged.

    ACCEPT: it is done. RELEASE: deliver it again. REJECT: never deliver it again. RENEW: extend its lock (CL-23).
    """

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4

    @classmethod
    def _missing_(cls, value: object) -> AcknowledgeType | None:
        """Raise ValueError with the known names."""
        names = ", ".join(f"AcknowledgeType.{kind.name}" for kind in cls)
        raise arguments.refusal("acknowledge", "type", value, f"one of {names}")


class TopicIdPartition(NamedTuple):
    """A partition, with its topic's name and id.

    The results of commits and callbacks are keyed by it (CL-45).
    """

    topic: str
    partition: int
    topic_id: bytes

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"  # without the id, which is seldom needed


class DecodedBatch(NamedTuple):
    """One fetched batch after decoding. `error` is set when its bytes cannot be read."""

    base_offset: int
    size: int
    base_timestamp_ms: int
    records: Sequence[ReadRecord]
    error: KafkaError | None


class SessionHandle(Protocol):
    """The session with the leader that delivered records; they can be acknowledged only there (CL-33)."""

    @property
    def node_id(self) -> int:
        """The leader's node id."""
        ...

    @property
    def generation(self) -> int:
        """The generation of the current session; deliveries of older generations cannot be acknowledged."""
        ...

    @property
    def release_delay_max_ms(self) -> int:
        """The longest release delay, in ms, that the leader accepts, as it last reported; 0 if it does not support
        delays (PL-931)."""
        ...


@dataclass(slots=True, eq=False)
class Delivered:
    """Records of one partition from one fetch, with everything that is needed to hand them out and acknowledge them."""

    topic: str
    id_partition: IdPartition
    session: SessionHandle
    generation: int
    delivery: Delivery
    batches: list[DecodedBatch]
    slices: list[Slice]
    #: How many records the slices contain.
    records: int
    #: True if the request asked for more than a poll returns (CL-136).
    ahead: bool = False
    #: True if the application has received them before and renewed their locks (CL-27).
    was_renewed: bool = False
    #: When the request that locked the records was sent, in ms of the loop's clock.
    acquired_ms: int = 0
    #: How long the lock lasts from then on, in ms; 0 while unknown.
    lock_ms: int = 0
    #: True if a warning that half of the lock's duration has passed was logged or counted for these records.
    is_warned: bool = False
    #: By offset given to `keep_alive` (CL-95), the number of blocks that keep it alive.
    kept: dict[int, int] | None = None
    #: The locks of those offsets, each of which may have been renewed separately (CL-94).
    locks: dict[int, Lock] | None = None
    #: What it is traced with, if it is, once a poll has returned it.
    trace: DeliveryTrace | None = None

    @property
    def place(self) -> str:
        """The partition as `topic-number`, for messages."""
        return f"{self.topic}-{self.id_partition.partition}"

    def is_lost(self, now_ms: int) -> bool:
        """Return whether the lock has expired, counted from when the request was sent, which was before the lock
        began."""
        return bool(self.lock_ms) and now_ms - self.acquired_ms >= self.lock_ms

    def is_stale(self, now_ms: int, need_ms: int) -> bool:
        """Return whether the records have waited in the buffer too long to be handed out.

        True when at least a quarter of their lock has passed and at most `need_ms` of it is left.
        """
        age_ms = now_ms - self.acquired_ms
        return bool(self.lock_ms) and age_ms * 4 >= self.lock_ms and age_ms + need_ms >= self.lock_ms

    @property
    def is_first(self) -> bool:
        """True if all its records are delivered for the first time, and the application has not received them
        before."""
        return not self.was_renewed and all(piece.delivery_count == 1 for piece in self.slices)

    @property
    def is_kept(self) -> bool:
        """True if all its records are kept alive, or were until their lock was lost, which `keep_alive` reports."""
        return self.kept is not None and len(self.kept) >= self.records

    @property
    def blocks_poll(self) -> bool:
        """True if a record is neither acknowledged nor kept alive, so that poll() must not be called (CL-21, CL-95)."""
        delivery = self.delivery
        if not delivery.unacknowledged:
            return False
        if not self.kept:
            return True
        if self.is_kept:
            return False
        return delivery.unacknowledged > sum(1 for offset in self.kept if delivery.is_unacknowledged(offset))

    @property
    def undecodable(self) -> KafkaError | None:
        """The error for a batch that this client cannot decompress; None if it can decompress all (CL-111)."""
        for batch in self.batches:
            if isinstance(batch.error, UnsupportedCompressionTypeError):
                return UnsupportedCompressionTypeError(f"{self.place}: {batch.error.message}")
        return None

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last acquired offset."""
        ranges = self.delivery.ranges
        return ranges[0][0], ranges[-1][1]

    @property
    def key(self) -> TopicIdPartition:
        """The partition by topic name, number and topic id."""
        return TopicIdPartition(self.topic, self.id_partition.partition, self.id_partition.topic_id)


class _Source:
    """The data that all messages of one slice of a batch share.

    `records`: the batch's records; None if it is unreadable.
    """

    __slots__ = ("batch", "delivered", "delivery_count", "records")

    def __init__(self, delivered: Delivered, batch: DecodedBatch, delivery_count: int) -> None:
        self.delivered = delivered
        self.batch = batch
        self.delivery_count = delivery_count
        self.records = batch.records if batch.error is None else None


class Message:
    """One record. Accessors are methods, as in confluent-kafka; data is copied only when an accessor is called."""

    # A message holds its index in the batch, not the record itself. One more object per message took a sixth of a fast
    # consumer's time, because Python's garbage collector scans it repeatedly.
    __slots__ = ("_index", "_source")

    def __init__(self, source: _Source, index: int) -> None:
        self._source = source
        self._index = index

    def topic(self) -> str:
        """Name of the topic."""
        return self._source.delivered.topic

    def topic_id(self) -> bytes:
        """Id of the topic, 16 bytes."""
        return self._source.delivered.id_partition.topic_id

    def partition(self) -> int:
        """Partition number."""
        return self._source.delivered.id_partition.partition

    def offset(self) -> int:
        """Offset in the partition."""
        return self._source.batch.base_offset + self._index

    def key(self) -> Any:
        """The key: bytes or None, or what key.deserializer returned."""
        records = self._source.records
        if records is None:
            return None
        record = records[self._index]
        key = record.key
        return key if key or record.HasField("key") else None

    def value(self) -> Any:
        """The value: bytes or None, or what value.deserializer returned; the raw bytes when that failed."""
        records = self._source.records
        if records is None:
            return None
        record = records[self._index]
        value = record.value
        return value if value or record.HasField("value") else None

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Headers in the order in which they were added."""
        records = self._source.records
        if records is None:
            return []
        return [
            (header.key, header.value if header.HasField("value") else None) for header in records[self._index].headers
        ]

    def timestamp(self) -> tuple[int, int]:
        """(TIMESTAMP_CREATE_TIME, milliseconds since 1970)."""
        source = self._source
        delta = source.records[self._index].timestamp_delta_ms if source.records is not None else 0
        return TIMESTAMP_CREATE_TIME, source.batch.base_timestamp_ms + delta

    def delivery_count(self) -> int:
        """How many times the record has been delivered, including this time.

        The true number may be higher. If a leader fails before it has stored anything about a delivery, that delivery
        is not counted, and the next one has the same count (CL-22).
        """
        return self._source.delivery_count

    def error(self) -> KafkaError | None:
        """The error if the key or value could not be read, otherwise None.

        Such a message can be acknowledged like any other.
        """
        return self._source.batch.error

    def __len__(self) -> int:
        value = self.value()
        return len(value) if isinstance(value, bytes | str) else 0

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Message({self.topic()}-{self.partition()}@{self.offset()}, delivery {self._source.delivery_count})"


class _Deserialized(Message):
    """One record whose key and value went through the deserializers. If one fails, the raw bytes stay, and error()
    returns why (CL-44, S-010)."""

    __slots__ = ("_error", "_key", "_value")

    def __init__(self, source: _Source, index: int, decode: tuple[Deserializer | None, Deserializer | None]) -> None:
        super().__init__(source, index)
        for_key, for_value = decode
        self._key, self._value, self._error = super().key(), super().value(), super().error()
        if self._error is not None:
            return
        if for_key is not None and self._key is not None:
            try:
                self._key = for_key(self._key)
            except KeyboardInterrupt:  # from the user, not from the function
                raise
            except BaseException as problem:
                self._error = KeyDeserializationError(_failure(self, "key", problem))
        if for_value is not None and self._value is not None:
            try:
                self._value = for_value(self._value)
            except KeyboardInterrupt:  # from the user, not from the function
                raise
            except BaseException as problem:
                self._error = ValueDeserializationError(_failure(self, "value", problem))

    def key(self) -> Any:
        return self._key

    def value(self) -> Any:
        return self._value

    def error(self) -> KafkaError | None:
        return self._error


class Messages(Sequence[Message]):
    """The messages of one poll, in offset order within each partition. A slice is a `Messages` too."""

    __slots__ = ("_count", "_decode", "_delivered", "_made")

    def __init__(
        self,
        delivered: Iterable[Delivered] = (),
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
    ) -> None:
        self._delivered = tuple(delivered)
        self._decode = (key_deserializer, value_deserializer)
        self._count = sum([part.records for part in self._delivered])
        self._made: list[Message] | None = None

    def count(self, value: Any = None) -> int:
        """The number of messages, or with an argument, how many times that message occurs."""
        return self._count if value is None else sum(1 for message in self if message is value)

    def is_empty(self) -> bool:
        """Return whether there are no messages."""
        return self._count == 0

    def records(self) -> list[Message]:
        """The messages as a list."""
        return list(self._messages())

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Messages: ...
    def __getitem__(self, index: int | slice) -> Message | Messages:
        if isinstance(index, slice):
            part = Messages()
            part._made = self._messages()[index]
            part._count = len(part._made)
            return part
        return self._messages()[index]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages())

    def __repr__(self) -> str:
        return f"Messages(count={self._count})"

    def _messages(self) -> list[Message]:
        if self._made is None:
            made: list[Message] = []
            kind = Message if self._decode == (None, None) else partial(_Deserialized, decode=self._decode)
            for delivered in self._delivered:
                for number, start, stop, delivery_count in delivered.slices:
                    source = _Source(delivered, delivered.batches[number], delivery_count)
                    made.extend(map(kind, repeat(source), range(start, stop)))
            if not _ascending(self._delivered):
                place = {part.id_partition: number for number, part in enumerate(self._delivered)}
                made.sort(key=lambda message: (place[delivered_of(message).id_partition], message.offset()))
            self._made = made
        return self._made


def delivered_of(message: Message) -> Delivered:
    """Return the delivery that a message belongs to. Raises ValueError for anything but a message from poll()."""
    try:
        return message._source.delivered
    except AttributeError:
        expected, instead = "one message that poll() returned", "for message in messages: consumer.acknowledge(message)"
        raise arguments.refusal("acknowledge", "message", message, expected, instead) from None


def _ascending(delivered: Iterable[Delivered]) -> bool:
    """Return whether each partition's deliveries are in offset order (CL-22).

    They may be out of order when several renewals of one partition were confirmed separately.
    """
    ends: dict[IdPartition, int] = {}
    for part in delivered:
        first, last = part.span
        if first < ends.get(part.id_partition, -1):
            return False
        ends[part.id_partition] = last
    return True


def _failure(message: Message, part: str, error: BaseException) -> str:
    where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
    try:
        text = str(error)
    except BaseException as problem:  # it is user code, whose methods may raise anything
        text = f"(its text cannot be read: {type(problem).__name__})"
    return f"{where}: the {part} deserializer failed: {type(error).__name__}: {text}; the raw bytes are kept"
