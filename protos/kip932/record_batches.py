"""Checks and decodes the bytes of record batches, within bounds of memory and time (CM-112, CM-116, CL-110).

A producer announces how many records a batch has. This module checks that the bytes agree, and stops at its bounds, so
that a batch of a few bytes cannot cost much memory or time. It counts the records of large batches without creating an
object for each. Leaders and clients use it. Pure: bytes in, numbers or errors out.

It is the door to both formats of stored batches: the first byte of a batch says which it is (CM-220). `RecordBatch`
messages are this suite's own; `kafka_records` reads the inside of Kafka's.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, cast

from google.protobuf.message import DecodeError

from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.compression.frames import MoreBytesError
from kip932.compression.kinds import KNOWN_TEXT, Compression, frames_of
from kip932.errors import (
    CorruptMessageError,
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from kip932.ids import BATCH_FIELDS_MAX, BATCH_PLAIN_BYTES_MAX, BATCH_RECORDS_MAX
from kip932.kafka_records import (
    CRC_FROM,
    HEADER_BYTES,
    RecordCounter,
    checked_header,
    compare_count,
    decode,
    header_of,
    is_kafka_batch,
    kafka_compression_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kip932.api.v1.record_batch_pb2 import Header

#: Batches up to this size are parsed without counting their fields first. With two bytes per record, the worst case,
#: that costs 20 ms and 40 MB.
PARSED_BYTES_MAX: Final = 1 << 20
#: A batch of n bytes stored before CM-112 holds at most n times this many records: it is plain or gzip, which
#: compresses at most 1,032 bytes into one, and a record has at least two bytes.
_OLD_RECORDS_PER_BYTE: Final = 516
#: Counting one field takes as much time as decompressing this many bytes.
_FIELD_BYTES: Final = 32
#: Records are counted in slices of this many bytes, each in some milliseconds at most. `yield_now` is called between
#: two slices, once enough fields were counted.
_SLICE_BYTES: Final = 1 << 13
_RECORDS_FIELD: Final = 2
#: Tags of the outer message: field 2, one uncompressed record; field 3, the compression.
_PLAIN_RECORD_TAG: Final = 0x12
_COMPRESSION_TAG: Final = 0x18
#: How many fields of the outer message are read to find the compression.
_OUTER_FIELDS_MAX: Final = 16
_VARINT_BYTES_MAX: Final = 10
_FIXED: Final = {1: 8, 5: 4}


class ReadRecord(Protocol):
    """A decoded record of either format: a protobuf Record, or one of `kafka_records`."""

    @property
    def key(self) -> bytes:
        """The key; empty for null."""
        ...

    @property
    def value(self) -> bytes:
        """The value; empty for null."""
        ...

    @property
    def headers(self) -> Sequence[Header]:
        """The headers, in order."""
        ...

    @property
    def timestamp_delta_ms(self) -> int:
        """Timestamp minus the base timestamp of the batch, ms."""
        ...

    def HasField(self, field_name: Literal["key", "value"]) -> bool:  # noqa: N802 - protobuf's name
        """Return whether the key or the value is not null."""
        ...


def plausible_count(count: int, size_bytes: int) -> int:
    """Return `count`, limited to the records that a stored batch of `size_bytes` can hold.

    A count within the limit of CM-112 is trusted. A larger one, stored before that rule, is reduced to what the bytes
    can hold, but not below that limit.
    """
    return min(count, max(size_bytes * _OLD_RECORDS_PER_BYTE, BATCH_RECORDS_MAX))


def _no_yield() -> None:
    """The default of `yield_now`: do nothing."""


def compression_of(data: bytes) -> int:
    """The number of a stored batch's compression, read from its outer fields; the records are not read.

    The producers of this suite write the field before the records. The number may be wrong for a batch with very many
    other fields before it, and for bytes that are not a batch.
    """
    if is_kafka_batch(data):
        return kafka_compression_of(data)
    found = at = 0
    end = len(data)
    for _ in range(_OUTER_FIELDS_MAX):
        if at >= end:
            break
        tag, at = _varint(data, at)
        size = _FIXED.get(tag & 7, 0)
        if at and tag & 7 in (0, 2):
            size, at = _varint(data, at)
        if not at or tag == _PLAIN_RECORD_TAG:
            break
        if tag == _COMPRESSION_TAG:
            found = size
        elif tag & 7:
            at += size
    return found - (1 << 64) if found >> 63 else found


def check_batch(data: bytes, announced: int, room_bytes: int, yield_now: Callable[[], object] = _no_yield) -> int:
    """Check that `data` is a batch of `announced` records, in either format. Returns what the check cost, in bytes.

    The cost is the batch's bytes, its decompressed bytes, and 32 for each field that was counted in large compressed
    records. `yield_now` is called during long checks; when the check runs in a thread, it can let the event loop run.

    Raises CorruptMessageError and InvalidRecordError; UnsupportedForMessageFormatError for one of Kafka's older
    formats; UnsupportedCompressionTypeError when the library that the batch needs is not installed here; MoreBytesError
    when the cost would exceed `room_bytes`.
    """
    if announced > BATCH_RECORDS_MAX:
        raise InvalidRecordError(
            f"the record batch says {announced} records; at most {BATCH_RECORDS_MAX} go into one batch"
        )
    size = len(data)
    if size > room_bytes:
        raise MoreBytesError
    if is_kafka_batch(data):
        return size + _check_kafka(data, announced, room_bytes - size, yield_now)
    value = _parsed(data, announced, yield_now)
    packed = value.compressed_records
    if value.compression == Compression.NONE:
        if packed:
            raise InvalidRecordError("the record batch is not compressed and holds compressed records")
        _compare(len(value.records), announced)
        return size
    kind = _checked_kind(value.compression)
    if not packed or value.records:
        raise InvalidRecordError(
            f"the record batch is marked compressed and holds {len(packed)} bytes of compressed records and "
            f"{len(value.records)} others; expected compressed ones alone"
        )
    pieces = frames_of(kind).unpacked(packed, _room(room_bytes - size))
    return size + _check_content(pieces, announced, _OWN, yield_now)


def open_batch(data: bytes, announced: int) -> tuple[int, Sequence[ReadRecord]]:
    """Decode a stored batch of `announced` records: its base timestamp, ms since 1970, and its records.

    A checksum in the batch is not verified: the leader has done that, and the store's entries have their own (CM-222).

    Raises CorruptMessageError when the bytes are not such a batch or exceed the limits of a batch;
    UnsupportedCompressionTypeError when this process cannot decompress them, so their state is unknown.
    """
    records: Sequence[ReadRecord]
    try:
        if is_kafka_batch(data):
            return _open_kafka(data, announced)
        value = _parsed(data, announced)
        if value.compression == Compression.NONE:
            records = value.records
        else:
            kind = _readable_kind(value.compression)
            records = _message(_plain(kind, value.compressed_records, announced)).records
    except (MoreBytesError, InvalidRecordError, UnsupportedForMessageFormatError) as error:
        raise CorruptMessageError(str(error)) from error
    if len(records) != announced:
        raise CorruptMessageError(f"it holds {len(records)} records where {announced} were announced")
    return value.base_timestamp_ms, records


def base_timestamp_of(data: bytes) -> int | None:
    """The base timestamp of a stored batch, ms since 1970, whose records are not decompressed; None for bytes that are
    not a batch."""
    try:
        return header_of(data).base_timestamp_ms if is_kafka_batch(data) else _message(data).base_timestamp_ms
    except (CorruptMessageError, UnsupportedForMessageFormatError):
        return None


def _check_kafka(data: bytes, announced: int, room_bytes: int, yield_now: Callable[[], object]) -> int:
    """Check a batch in Kafka's format (CM-221); return the cost as in `check_batch`, without the batch's own bytes."""
    header = checked_header(data, announced)
    if (found := _crc32c()(data[CRC_FROM:])) != header.crc:
        raise CorruptMessageError(f"the checksum of the record batch is {header.crc:08x}, its bytes give {found:08x}")
    kind = _checked_kind(header.compression)
    if kind is not Compression.NONE:
        pieces: Iterator[bytes] = frames_of(kind).unpacked(data[HEADER_BYTES:], _room(room_bytes))
    elif len(data) > PARSED_BYTES_MAX:
        pieces = iter((data[HEADER_BYTES:],))
    else:
        compare_count(data, HEADER_BYTES, announced)
        return 0
    cost = _check_content(pieces, announced, _KAFKAS, yield_now)
    return cost if kind else 0


def _open_kafka(data: bytes, announced: int) -> tuple[int, Sequence[ReadRecord]]:
    header = checked_header(data, announced)
    kind = _readable_kind(header.compression)
    if kind is Compression.NONE:
        return header.base_timestamp_ms, decode(data, HEADER_BYTES, announced)
    content = b"".join(frames_of(kind).unpacked(data[HEADER_BYTES:], BATCH_PLAIN_BYTES_MAX))
    return header.base_timestamp_ms, decode(content, 0, announced)


@cache
def _crc32c() -> Callable[[bytes], int]:
    """The checksum in batches of Kafka's format. It is imported when first used: leaders check batches, and they have
    its library, which clients do not need."""
    return cast("Callable[[bytes], int]", importlib.import_module("kip932.entry_checksum").crc32c)


def _checked_kind(number: int) -> Compression:
    """The compression with this number. Raises InvalidRecordError for one that is not known here."""
    try:
        return Compression(number)
    except ValueError:
        raise InvalidRecordError(f"the record batch has compression {number}; expected one of {KNOWN_TEXT}") from None


def _readable_kind(number: int) -> Compression:
    """The compression with this number. Raises UnsupportedCompressionTypeError for one that is not known here."""
    try:
        return Compression(number)
    except ValueError:
        raise UnsupportedCompressionTypeError(
            f"it has compression {number}, which this version does not know; it knows {KNOWN_TEXT}"
        ) from None


def _room(room_bytes: int) -> int:
    return min(room_bytes, BATCH_PLAIN_BYTES_MAX)


class _Counter(Protocol):
    """Counts records and fields in pieces of a batch's content: a ContentCounter, or a RecordCounter."""

    fields: int

    def feed(self, piece: bytes) -> None:
        """Count the next piece."""
        ...

    def finish(self) -> int:
        """Return the number of records."""
        ...


class _Format(NamedTuple):
    """How the content of a batch is counted in one of the formats.

    `compare` checks that small content is so many records; `counter` makes the counter of large content.
    """

    compare: Callable[[bytes, int], None]
    counter: Callable[[int], _Counter]


def _check_content(pieces: Iterable[bytes], announced: int, contents: _Format, yield_now: Callable[[], object]) -> int:
    """Check the decompressed records; return the cost as in `check_batch`. Large ones are counted piece by piece, not
    kept. The cost excludes the batch's own bytes."""
    held: list[bytes] = []
    size = 0
    counter: _Counter | None = None
    for piece in pieces:
        size += len(piece)
        held.append(piece)
        if size > PARSED_BYTES_MAX:
            counter = counter or contents.counter(announced)
            for one in held:
                _walk(counter, one, yield_now)
            held.clear()
    if counter is None:
        contents.compare(b"".join(held), announced)
        return size
    _compare(counter.finish(), announced)
    return size + counter.fields * _FIELD_BYTES


def _plain(kind: Compression, packed: bytes, announced: int) -> bytes:
    """The decompressed records, within the limits of a batch. If they are large, their fields are counted first."""
    counter = ContentCounter(announced)
    pieces = []
    size = 0
    for piece in frames_of(kind).unpacked(packed, BATCH_PLAIN_BYTES_MAX):
        pieces.append(piece)
        size += len(piece)
        if size > PARSED_BYTES_MAX:
            for unseen in pieces if not counter.bytes else [piece]:
                counter.feed(unseen)
    if counter.bytes:
        counter.finish()
    return b"".join(pieces)


class ContentCounter:
    """Counts the records of a serialised RecordBatch that arrives in pieces, and keeps none of them.

    Call `feed` for each piece, then `finish`. `feed` raises InvalidRecordError as soon as there are more records than
    announced, or more fields than a batch may have. Both raise CorruptMessageError for bytes that are not a
    RecordBatch.
    """

    __slots__ = ("_announced", "_record_left", "_rest", "_skip", "bytes", "fields", "records")

    def __init__(self, announced: int) -> None:
        self._announced = announced
        self._rest = b""  # the beginning of a field whose tag or length is not complete yet
        self._skip = 0  # bytes left of the current field's value
        self._record_left = 0  # bytes left of the current record
        self.fields = 0
        self.records = 0
        self.bytes = 0

    def feed(self, piece: bytes) -> None:
        """Count the next piece."""
        self.bytes += len(piece)
        data = self._rest + piece if self._rest else piece
        self._rest = b""
        at, end = 0, len(data)
        while at < end:
            if self._skip:
                step = min(self._skip, end - at)
                self._skip -= step
                at += step
                continue
            begin = at
            tag, at = _varint(data, begin)
            size = _FIXED.get(tag & 7, 0)
            if at and tag & 7 in (0, 2):
                size, at = _varint(data, at)
            if not at:
                if end - begin > 2 * _VARINT_BYTES_MAX:
                    raise CorruptMessageError("the record batch holds a field whose tag or length is not a number")
                self._rest = data[begin:]
                return
            self._field(tag >> 3, tag & 7, size, at - begin)

    def _field(self, number: int, kind: int, size: int, head: int) -> None:
        if not number or kind not in (0, 1, 2, 5):
            raise CorruptMessageError(f"the record batch holds field {number} of wire type {kind}, which no batch has")
        self.fields += 1
        if self.fields > BATCH_FIELDS_MAX:
            raise InvalidRecordError(
                f"the record batch holds more than {BATCH_FIELDS_MAX} keys, values, headers and timestamps; send fewer "
                "records in a batch"
            )
        body = 0 if kind == 0 else size
        if self._record_left:
            self._record_left -= head + body
            if self._record_left < 0:
                raise CorruptMessageError("a field of a record is longer than the record")
            self._skip = body
        elif number == _RECORDS_FIELD and kind == 2:
            self.records += 1
            if self.records > self._announced:
                raise InvalidRecordError(f"the record batch holds more records than the {self._announced} it says")
            self._record_left = body
        else:
            self._skip = body

    def finish(self) -> int:
        """Return the number of records, once all pieces were fed."""
        if self._rest or self._skip or self._record_left:
            raise CorruptMessageError("the record batch ends inside a field")
        return self.records


def _compare_parsed(content: bytes, announced: int) -> None:
    _compare(len(_message(content).records), announced)


def _compare_walked(content: bytes, announced: int) -> None:
    compare_count(content, 0, announced)


_OWN: Final = _Format(_compare_parsed, ContentCounter)
_KAFKAS: Final = _Format(_compare_walked, RecordCounter)


def _walk(counter: _Counter, data: bytes, yield_now: Callable[[], object]) -> None:
    fields = counter.fields
    for at in range(0, len(data), _SLICE_BYTES):
        counter.feed(data[at : at + _SLICE_BYTES])
        if counter.fields - fields > _SLICE_BYTES // 8:
            fields = counter.fields
            yield_now()


def _parsed(data: bytes, announced: int, yield_now: Callable[[], object] = _no_yield) -> RecordBatch:
    """Parse a batch. A large one is counted first, since two bytes can take fifty when parsed."""
    if len(data) > PARSED_BYTES_MAX:
        counter = ContentCounter(announced)
        _walk(counter, data, yield_now)
        counter.finish()
    return _message(data)


def _message(data: bytes) -> RecordBatch:
    try:
        return RecordBatch.FromString(data)
    except DecodeError as error:
        raise CorruptMessageError(f"the {len(data)} bytes of the record batch cannot be decoded: {error}") from error


def _compare(found: int, announced: int) -> None:
    if found != announced:
        raise InvalidRecordError(f"the record batch holds {found} records; its header says {announced}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; return its value and the index after it. The index is 0 when it is incomplete or not a varint."""
    end = len(data)
    if at < end and data[at] < 0x80:
        return data[at], at + 1
    value = shift = 0
    for index in range(at, min(end, at + _VARINT_BYTES_MAX)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, index + 1
        shift += 7
    return 0, 0
