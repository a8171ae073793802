"""What poll() returns: messages over the decoded batches, made when somebody looks at them (P-14).

A message keeps a reference to its delivery, so acknowledging it needs no search. Shapes as in CL-44.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition as IdPartition
from sharegroups import arguments
from sharegroups.core.acknowledgements import Delivery
from sharegroups.core.record_batch import Slice
from sharegroups.errors import KeyDeserializationError, ValueDeserializationError

if TYPE_CHECKING:
    from kip932.api.v1.record_batch_pb2 import Record

TIMESTAMP_CREATE_TIME = 1

Deserializer = Callable[[bytes], Any]


class AcknowledgeType(IntEnum):
    """What became of a record (CL-23)."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4

    @classmethod
    def _missing_(cls, value: object) -> AcknowledgeType | None:
        """Raises ValueError with the names that there are."""
        names = ", ".join(f"AcknowledgeType.{kind.name}" for kind in cls)
        raise arguments.refusal("acknowledge", "type", value, f"one of {names}")


class TopicIdPartition(NamedTuple):
    """A partition by its topic's name and id: the key of commit results and callbacks (CL-45)."""

    topic: str
    partition: int
    topic_id: bytes

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"  # what a person asks for; the id is there for programs


class DecodedBatch(NamedTuple):
    """One fetched batch after decoding. `error` is set when its bytes could not be read."""

    base_offset: int
    size: int
    base_timestamp_ms: int
    records: Sequence[Record]
    error: KafkaError | None


class SessionHandle(Protocol):
    """The leader's session that delivered records; only there can they be acknowledged (CL-33)."""

    @property
    def node_id(self) -> int:
        """The leader's node id."""
        ...

    @property
    def generation(self) -> int:
        """The generation of the present session; deliveries of older ones are void."""
        ...


@dataclass(slots=True, eq=False)
class Delivered:
    """Records of one partition from one fetch, on their way through buffer, user and acknowledgement."""

    topic: str
    id_partition: IdPartition
    session: SessionHandle
    generation: int
    delivery: Delivery
    batches: list[DecodedBatch]
    slices: list[Slice]
    #: How many records the slices hold.
    records: int
    #: The application has had them before and asked for more time (CL-27).
    was_renewed: bool = False
    #: When the request that locked it was sent, in ms of the loop's clock, and for how long; 0 while that is not known.
    acquired_ms: int = 0
    lock_ms: int = 0
    #: Whether it has been said that half of the lock is used.
    is_told: bool = False

    @property
    def place(self) -> str:
        """The partition for people."""
        return f"{self.topic}-{self.id_partition.partition}"

    def is_lost(self, now_ms: int) -> bool:
        """Whether the lock is over at the leader, or will be within the time that the request took."""
        return bool(self.lock_ms) and now_ms - self.acquired_ms >= self.lock_ms

    def has_lain(self, now_ms: int, need_ms: int) -> bool:
        """Whether so much of the lock went by before anybody had the records, a quarter or more, that less than
        `need_ms` is left."""
        age_ms = now_ms - self.acquired_ms
        return bool(self.lock_ms) and age_ms * 4 >= self.lock_ms and age_ms + need_ms >= self.lock_ms

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last acquired offset."""
        ranges = self.delivery.ranges
        return ranges[0][0], ranges[-1][1]

    @property
    def key(self) -> TopicIdPartition:
        """The partition as users see it."""
        return TopicIdPartition(self.topic, self.id_partition.partition, self.id_partition.topic_id)


class _Source(NamedTuple):
    """What the messages of one slice of a batch have in common."""

    delivered: Delivered
    batch: DecodedBatch
    delivery_count: int


class _Decoded(NamedTuple):
    """What the deserializers made of a message; None for a part that they did not read."""

    key: Any = None
    value: Any = None
    error: KafkaError | None = None


class Message:
    """One record. Accessors are methods, as in confluent-kafka; nothing is copied before it is asked for."""

    __slots__ = ("_decoded", "_offset", "_record", "_source")

    def __init__(self, source: _Source, offset: int, record: Record | None) -> None:
        self._source = source
        self._offset = offset
        self._record = record
        self._decoded: _Decoded | None = None

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
        return self._offset

    def key(self) -> Any:
        """The key: bytes or None, or what the deserializer made of it."""
        if self._decoded is not None and self._decoded.key is not None:
            return self._decoded.key
        record = self._record
        if record is None:
            return None
        key = record.key
        return key if key or record.HasField("key") else None

    def value(self) -> Any:
        """The value: bytes or None, or what the deserializer made of it; raw bytes when it failed."""
        if self._decoded is not None and self._decoded.value is not None:
            return self._decoded.value
        record = self._record
        if record is None:
            return None
        value = record.value
        return value if value or record.HasField("value") else None

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Headers in the order in which they were added."""
        if self._record is None:
            return []
        return [(header.key, header.value if header.HasField("value") else None) for header in self._record.headers]

    def timestamp(self) -> tuple[int, int]:
        """(TIMESTAMP_CREATE_TIME, milliseconds since 1970)."""
        delta = self._record.timestamp_delta_ms if self._record is not None else 0
        return TIMESTAMP_CREATE_TIME, self._source.batch.base_timestamp_ms + delta

    def delivery_count(self) -> int:
        """How often the record has been delivered, this time included (CL-22).

        At least so often: a delivery of which nothing was stored before its leader went away is not counted, so a count
        may come again after a restart.
        """
        return self._source.delivery_count

    def error(self) -> KafkaError | None:
        """Why key or value could not be read, or None; such a message can be acknowledged like any other."""
        return self._source.batch.error if self._decoded is None else self._decoded.error

    def __len__(self) -> int:
        value = self.value()
        return len(value) if isinstance(value, bytes | str) else 0

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Message({self.topic()}-{self.partition()}@{self._offset}, delivery {self._source.delivery_count})"


class Messages(Sequence[Message]):
    """The messages of one poll, in offset order per partition. A slice of it is a Messages too."""

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
        """How many messages there are; with an argument, how often it occurs."""
        return self._count if value is None else sum(1 for message in self if message is value)

    def is_empty(self) -> bool:
        """Whether there is none."""
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
            for delivered in self._delivered:
                for number, start, stop, delivery_count in delivered.slices:
                    batch = delivered.batches[number]
                    source = _Source(delivered, batch, delivery_count)
                    records = repeat(None) if batch.error is not None else batch.records[start:stop]
                    offsets = range(batch.base_offset + start, batch.base_offset + stop)
                    made.extend(map(Message, repeat(source), offsets, records))
            if not _ascending(self._delivered):
                place = {part.id_partition: number for number, part in enumerate(self._delivered)}
                made.sort(key=lambda message: (place[delivered_of(message).id_partition], message.offset()))
            if self._decode != (None, None):
                for message in made:
                    _deserialize(message, *self._decode)
            self._made = made
        return self._made


def delivered_of(message: Message) -> Delivered:
    """Where a message came from. Raises ValueError for what poll() did not return."""
    try:
        return message._source.delivered
    except AttributeError:
        expected, instead = "one message that poll() returned", "for message in messages: consumer.acknowledge(message)"
        raise arguments.refusal("acknowledge", "message", message, expected, instead) from None


def _ascending(delivered: Iterable[Delivered]) -> bool:
    """Whether no partition's offsets go back; they do where renewals of one partition were confirmed apart (CL-22)."""
    ends: dict[IdPartition, int] = {}
    for part in delivered:
        first, last = part.span
        if first < ends.get(part.id_partition, -1):
            return False
        ends[part.id_partition] = last
    return True


def _deserialize(message: Message, for_key: Deserializer | None, for_value: Deserializer | None) -> None:
    """Run the deserializers; a failure stays with its message, which keeps its raw bytes (CL-44, S-010)."""
    if message.error() is not None:
        return
    key, value = message.key(), message.value()
    error: KafkaError | None = None
    if for_key is not None and key is not None:
        try:
            key = for_key(key)
        except Exception as problem:
            error = KeyDeserializationError(_failure(message, "key", problem))
    if for_value is not None and value is not None:
        try:
            value = for_value(value)
        except Exception as problem:
            error = ValueDeserializationError(_failure(message, "value", problem))
    message._decoded = _Decoded(key, value, error)


def _failure(message: Message, part: str, error: Exception) -> str:
    where = f"{message.topic()}-{message.partition()} offset {message.offset()}"
    return f"{where}: the {part} deserializer failed: {type(error).__name__}: {error}; the raw bytes are kept"
