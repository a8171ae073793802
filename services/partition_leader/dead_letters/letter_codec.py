"""Builds dead letters (headers, key, copy of the record) and packs them into batches within the topic's size limit
(PL-909, PL-911)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kip932.api.v1.record_batch_pb2 import Header, Record, RecordBatch
from kip932.errors import KafkaError
from kip932.record_batches import ReadRecord, open_batch
from kip932.telemetry import TRACEPARENT, context_in
from partition_leader.share_partition.core.effects import DLQ_CLIENT_REJECT, DLQ_DELIVERY_COUNT_EXCEEDED
from partition_leader.topic_log.core.batch import LogBatch, NewBatch

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

#: Prefix of the headers that the server adds; a source record's headers with this prefix are not copied.
PREFIX: Final = "__dlq.errors."
_HOPS: Final = PREFIX + "hops"
_HOPS_DIGITS_MAX: Final = 9
MESSAGES: Final = {
    DLQ_CLIENT_REJECT: "Offset rejected by client.",
    DLQ_DELIVERY_COUNT_EXCEEDED: "Offset delivery count exceeded the threshold.",
}
#: Upper bounds, in bytes: a record's tag and length in its batch, and the batch's timestamp.
_FRAME_BYTES: Final = 6
_BATCH_BYTES: Final = 12
#: The lowest timestamp of a copy, and the one above the highest, in ms: a batch stores differences between timestamps,
#: which must fit in 64 bits, as must the timestamps themselves.
_TIMES: Final = (-(2**62), 2**62)

#: A decoded batch: its base timestamp, in ms, and its records.
DecodedBatch = tuple[int, Sequence[ReadRecord]]


class Source(NamedTuple):
    """A source record, as it is in the log."""

    record: ReadRecord
    timestamp_ms: int


class Origin(NamedTuple):
    """The values that all dead letters of a share-partition have in common."""

    group_id: str
    topic: str
    partition: int
    topic_id: str


class Letter(NamedTuple):
    """One dead letter, ready to be packed. `context`: that of its record's trace, if it is known."""

    offset: int
    record: Record
    timestamp_ms: int
    context: SpanContext | None = None

    @property
    def size(self) -> int:
        """The maximum number of bytes that it takes in a batch."""
        return self.record.ByteSize() + _FRAME_BYTES


class Packed(NamedTuple):
    """Batches that are appended together."""

    batches: tuple[NewBatch, ...]
    size: int


def decoded(batch: LogBatch) -> DecodedBatch | None:
    """Return the base timestamp and the records of a source batch; None when it has none, or cannot be decoded."""
    if batch.is_control or not batch.data:
        return None
    try:
        return open_batch(batch.data, batch.record_count)
    except KafkaError:
        return None


def letter(
    origin: Origin,
    offset: int,
    delivery_count: int,
    cause: str,
    *,
    now_ms: int,
    source: Source | None = None,
    hops: int = 1,
    reason: str = "",
) -> Letter:
    """Return the dead letter for one offset: a copy of `source` with headers added or, without a source, only the
    headers and a key that names the record. A timestamp that a copy cannot have is replaced by the current time.
    `hops`: its position in a chain of dead letters. `reason`: why a member gave the record up; "" if none is known
    (PL-943)."""
    record = Record()
    if source is None:
        record.key = f"{origin.group_id}:{origin.topic}:{origin.partition}:{offset}".encode()
        timestamp_ms = now_ms
    else:
        timestamp_ms = source.timestamp_ms if _TIMES[0] <= source.timestamp_ms < _TIMES[1] else now_ms
        if source.record.HasField("key"):
            record.key = source.record.key
        if source.record.HasField("value"):
            record.value = source.record.value
        record.headers.extend(header for header in source.record.headers if not header.key.startswith(PREFIX))
    values = {"reason": reason} if reason else {}
    values |= {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(offset),
        "group": origin.group_id,
        "delivery.count": str(delivery_count),
        "message": MESSAGES[cause],
        "topic.id": origin.topic_id,
    }
    if hops > 1:
        values["hops"] = str(hops)
    record.headers.extend(Header(key=PREFIX + name, value=value.encode()) for name, value in values.items())
    return Letter(offset, record, timestamp_ms)


def hops_of(source: Source | None) -> int:
    """Return how long the chain of dead letters is that ends with a source record: 0 if it is not a dead letter, or is
    unknown."""
    if source is None:
        return 0
    own = [header for header in source.record.headers if header.key.startswith(PREFIX)]
    if not own:
        return 0
    value = own[-1].value if own[-1].key == _HOPS else b""
    return int(value) if value.isdigit() and len(value) <= _HOPS_DIGITS_MAX else 1


def context_of(source: Source) -> SpanContext | None:
    """Return the context of the trace that a source record belongs to; None without a well-formed one. Call it only
    once OpenTelemetry is set up."""
    headers = source.record.headers
    if not any(header.key == TRACEPARENT for header in headers):
        return None
    return context_in((header.key, header.value) for header in headers)


def fits(found: Letter, max_message_bytes: int) -> bool:
    """Return whether a batch with only this dead letter is within the topic's limit."""
    return found.size + _BATCH_BYTES <= max_message_bytes


def packed(letters: Sequence[Letter], max_message_bytes: int) -> Packed:
    """Pack all dead letters, in order, into batches of at most `max_message_bytes`; each must pass `fits`."""
    groups: list[list[Letter]] = []
    size = max_message_bytes
    for found in letters:
        if size + found.size > max_message_bytes:
            groups.append([])
            size = _BATCH_BYTES
        groups[-1].append(found)
        size += found.size
    batches = tuple(_batch(group) for group in groups)
    return Packed(batches, sum(len(batch.data) for batch in batches))


def _batch(letters: Sequence[Letter]) -> NewBatch:
    base_ms = min(found.timestamp_ms for found in letters)
    batch = RecordBatch(base_timestamp_ms=base_ms)
    for found in letters:
        found.record.timestamp_delta_ms = found.timestamp_ms - base_ms
        batch.records.append(found.record)
    data = batch.SerializeToString()
    assert data[0], "it would be read as a batch of Kafka's"  # CM-220
    return NewBatch(data, len(letters), max(found.timestamp_ms for found in letters))
