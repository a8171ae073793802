"""Kafka's record batches (magic 2) at the edge to Kafka's clients: what is stored of them, and what is served (CM-220).

A batch is stored as its producer made it, but for the base offset and the leader epoch: both are at its front, outside
of what its checksum covers. When it is served, they are set to what the log says. Batches of this suite's own format
and the markers of transactions are made into Kafka's when one of its clients fetches them (CM-223).

Pure: bytes in, bytes out. Leaders and listeners use it; it needs google-crc32c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.entry_checksum import crc32c
from kip932.errors import CorruptMessageError
from kip932.kafka_records import (
    BEFORE_LENGTH,
    CONTROL_BIT,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    Header,
    Row,
    encode,
    encode_headers,
    header_of,
    is_kafka_batch,
)
from kip932.record_batches import compression_of, open_batch

__all__ = [
    "Header",
    "for_kafka_client",
    "from_native",
    "header_of",
    "is_kafka_batch",
    "marker",
    "served",
    "split",
    "stored",
]

_FRONT: Final = Struct(">q4si")
_LENGTH: Final = Struct(">i")
#: The bytes of base offset, length and leader epoch.
_FRONT_BYTES: Final = _FRONT.size
_NO_EPOCH: Final = -1
#: Version 0, and the type: 0 abort, 1 commit.
_MARKER_KEY: Final = Struct(">hh")
#: Version 0, and the epoch of the transaction coordinator, which clients do not read.
_MARKER_VALUE: Final = Struct(">hi").pack(0, 0)
#: The largest producer epoch and timestamp that a batch can have.
_EPOCH_MAX: Final = 2**15 - 1
_TIME_MAX: Final = 2**63 - 1


def split(data: bytes | memoryview) -> list[memoryview]:
    """Cut the records of a Produce into batches by the lengths in their headers, of whatever magic. Nothing is copied.

    Raises CorruptMessageError unless the last one ends where `data` does.
    """
    found = []
    view = memoryview(data)
    at, end = 0, len(view)
    while at < end:
        if end - at < HEADER_BYTES:
            raise CorruptMessageError(
                f"{end - at} bytes follow the last whole record batch; the header of a batch has {HEADER_BYTES}"
            )
        size = _LENGTH.unpack_from(view, at + BEFORE_LENGTH - _LENGTH.size)[0] + BEFORE_LENGTH
        if not HEADER_BYTES <= size <= end - at:
            raise CorruptMessageError(
                f"a record batch says it has {size} bytes; expected {HEADER_BYTES} to {end - at}, what was sent"
            )
        found.append(view[at : at + size])
        at += size
    return found


def stored(data: bytes | memoryview) -> bytes:
    """Return a producer's batch as it is stored: with base offset 0 and leader epoch −1. It is copied once."""
    return b"".join((_front(data, 0, _NO_EPOCH), memoryview(data)[_FRONT_BYTES:]))


def served(data: bytes, base_offset: int, leader_epoch: int) -> list[bytes | memoryview]:
    """Return a stored batch with its base offset and leader epoch, in two parts; the second one is not copied."""
    return [_front(data, base_offset, leader_epoch), memoryview(data)[_FRONT_BYTES:]]


def from_native(
    data: bytes,
    count: int,
    base_offset: int,
    *,
    leader_epoch: int = _NO_EPOCH,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Return a batch of this suite's own format as a batch of Kafka's with the same records, timestamps and
    compression.

    Raises as `record_batches.open_batch` does.
    """
    base_ms, records = open_batch(data, count)
    rows: list[Row] = [
        (
            record.key if record.HasField("key") else None,
            record.value if record.HasField("value") else None,
            record.timestamp_delta_ms,
            encode_headers([(one.key, one.value if one.HasField("value") else None) for one in record.headers]),
        )
        for record in records
    ]
    kind = Compression(compression_of(data))
    content = encode(rows)
    if kind is not Compression.NONE:
        content = frames_of(kind).compress(content, None)
    return _batch(
        content,
        Header(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            kind | (TRANSACTIONAL_BIT if is_transactional else 0),
            count - 1,
            base_ms,
            min(base_ms + max(row[2] for row in rows), _TIME_MAX),
            producer_id,
            min(producer_epoch, _EPOCH_MAX),
            base_sequence,
            count,
        ),
    )


def marker(
    base_offset: int, leader_epoch: int, producer_id: int, producer_epoch: int, *, timestamp_ms: int, commit: bool
) -> bytes:
    """Return the control batch that ends a transaction of `producer_id`, as Kafka's clients read it."""
    return _batch(
        encode([(_MARKER_KEY.pack(0, commit), _MARKER_VALUE, 0, None)]),
        Header(
            base_offset,
            0,
            leader_epoch,
            MAGIC,
            0,
            TRANSACTIONAL_BIT | CONTROL_BIT,
            0,
            timestamp_ms,
            timestamp_ms,
            producer_id,
            min(producer_epoch, _EPOCH_MAX),
            -1,
            1,
        ),
    )


def for_kafka_client(fetched: FetchedBatch, leader_epoch: int = _NO_EPOCH) -> list[bytes | memoryview]:
    """Return a batch of a fetch as a client of Kafka's reads it, in parts that belong one after the other.

    Raises CorruptMessageError and UnsupportedCompressionTypeError for a batch of this suite's own format that cannot be
    read here.
    """
    producer_id = fetched.producer_id if fetched.HasField("producer_id") else -1
    producer_epoch = fetched.producer_epoch if fetched.HasField("producer_epoch") else -1
    base_offset = fetched.base_offset
    if fetched.is_control:
        time_ms = fetched.append_time_ms if fetched.HasField("append_time_ms") else -1
        commit = fetched.control_type == 1
        return [marker(base_offset, leader_epoch, producer_id, producer_epoch, timestamp_ms=time_ms, commit=commit)]
    data = fetched.batch
    if is_kafka_batch(data):
        return served(data, base_offset, leader_epoch)
    return [
        from_native(
            data,
            fetched.count,
            base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=fetched.is_transactional,
        )
    ]


def _front(data: bytes | memoryview, base_offset: int, leader_epoch: int) -> bytes:
    """The first bytes of a batch, with another base offset and leader epoch."""
    return _FRONT.pack(base_offset, bytes(data[8:BEFORE_LENGTH]), leader_epoch)


def _batch(content: bytes, header: Header) -> bytes:
    """Return a batch with these records; length and checksum are filled in."""
    length = HEADER_BYTES + len(content) - BEFORE_LENGTH
    checked = HEADER.pack(*header._replace(size=length))[CRC_FROM:] + content
    return HEADER.pack(*header._replace(size=length, crc=crc32c(checked)))[:CRC_FROM] + checked
