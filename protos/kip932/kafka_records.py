"""The inside of Kafka's record batches (magic 2): reads the header, counts and decodes the records (CM-220, CM-222).

A batch is 61 bytes of header, then its records, which are compressed as one frame if the header says so. Each record
begins with its length. Numbers in records are varints in zigzag form. This module knows nothing of compression and
checksums: `record_batches` is the door to both formats. Pure: bytes in, values or errors out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, Literal, NamedTuple, overload

from kip932.api.v1.record_batch_pb2 import Header as RecordHeader
from kip932.errors import CorruptMessageError, InvalidRecordError, UnsupportedForMessageFormatError
from kip932.ids import BATCH_FIELDS_MAX, BATCH_RECORDS_MAX

MAGIC: Final = 2
#: The bytes before the records.
HEADER_BYTES: Final = 61
#: The bytes before those that the length in the header counts: the base offset, and that length.
BEFORE_LENGTH: Final = 12
#: Where the bytes begin that the checksum covers.
CRC_FROM: Final = 21
_MAGIC_AT: Final = 16
#: The lower byte of the attributes.
_ATTRIBUTES_AT: Final = 22
HEADER: Final = Struct(">qiibIhiqqqhii")

COMPRESSION_BITS: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
#: A broker that compacts sets it; the base timestamp then is another time.
DELETE_HORIZON_BIT: Final = 0x40

#: Attributes, timestamp delta, offset delta, both lengths and the number of headers take a byte each.
_RECORD_BYTES_MIN: Final = 6
_ZIGZAG_MIN: Final = 2 * _RECORD_BYTES_MIN
_VARINT_BYTES_MAX: Final = 5
#: Numbers from here on, in zigzag form, have more than two bytes.
_TWO_BYTES: Final = 1 << 14
_VARLONG_BYTES_MAX: Final = 10

#: Key, value, timestamp minus the batch's base timestamp in ms, and the headers with their number before them; None
#: without headers. A plain tuple: Python's garbage collector scans no tuple of bytes and numbers twice.
Row = tuple[bytes | None, bytes | None, int, bytes | None]


class Header(NamedTuple):
    """The header of a batch. `size`: bytes of the whole batch. `count`: number of its records."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # it hides a method of tuples that nothing calls

    @property
    def compression(self) -> int:
        """Kafka's number of the compression (CM-116)."""
        return self.attributes & COMPRESSION_BITS

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Return whether it is a marker of a transaction; only brokers write those."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        """Return whether a broker replaced the timestamps by the time of the append."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


def is_kafka_batch(data: bytes) -> bool:
    """Return whether the bytes of a stored batch are in Kafka's format: a protobuf message never begins with 0, and the
    base offset of a stored batch of Kafka's is 0 (CM-220)."""
    return data[:1] == b"\0"


def kafka_compression_of(data: bytes) -> int:
    """Return the number of a batch's compression; 0 for bytes that end before it."""
    return data[_ATTRIBUTES_AT] & COMPRESSION_BITS if len(data) > _ATTRIBUTES_AT else 0


def header_of(data: bytes | memoryview) -> Header:
    """Return the header of a batch. The records, the length and the checksum are not checked.

    Raises CorruptMessageError when the bytes end before the records, UnsupportedForMessageFormatError for another magic
    than 2.
    """
    if len(data) > _MAGIC_AT and data[_MAGIC_AT] != MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the record batch has magic {data[_MAGIC_AT]}; expected {MAGIC}, the format of Kafka's clients since 0.11"
        )
    if len(data) < HEADER_BYTES:
        raise CorruptMessageError(
            f"the record batch has {len(data)} bytes; expected at least {HEADER_BYTES}, the size of its header"
        )
    fields = HEADER.unpack_from(data)
    return Header(fields[0], fields[1] + BEFORE_LENGTH, *fields[2:])


def checked_header(data: bytes, announced: int) -> Header:
    """Return the header of a producer's batch of `announced` records, after checking it against that number and the
    size of `data`.

    Raises as `header_of` does, and InvalidRecordError.
    """
    header = header_of(data)
    if header.size != len(data):
        raise InvalidRecordError(f"the record batch has {len(data)} bytes; its header says {header.size}")
    count = header.count
    if not 1 <= count <= BATCH_RECORDS_MAX or count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"the header of the record batch says {count} records and {header.last_offset_delta} as the last offset "
            f"delta; expected 1 to {BATCH_RECORDS_MAX} records, and one less as the delta"
        )
    if count != announced:
        raise InvalidRecordError(f"the header of the record batch says {count} records; {announced} were announced")
    for bit, name in _BROKERS_BITS:
        if header.attributes & bit:
            raise InvalidRecordError(f"the record batch has the attribute of {name}, which only a broker may set")
    return header


_BROKERS_BITS: Final = (
    (CONTROL_BIT, "a control batch"),
    (LOG_APPEND_TIME_BIT, "LogAppendTime"),
    (DELETE_HORIZON_BIT, "a delete horizon"),
)


def compare_count(data: bytes, at: int, count: int) -> None:
    """Check that the bytes from `at` are `count` records, by their lengths alone.

    Raises CorruptMessageError for a length that no record has, InvalidRecordError for another number of records.
    """
    end = len(data)
    number = 0
    try:
        for number in range(count):
            size = data[at]
            if size < 0x80:
                at += 1
            elif (byte := data[at + 1]) < 0x80:
                size = size & 0x7F | byte << 7
                at += 2
            else:
                size, at = _number(data, at, _VARINT_BYTES_MAX)
                size <<= 1
            if size < _ZIGZAG_MIN or size & 1:
                raise _impossible(number)
            at += size >> 1
    except IndexError:
        raise InvalidRecordError(f"the record batch holds {number} records; its header says {count}") from None
    if at > end:
        raise CorruptMessageError(f"record {number} of the record batch is longer than the rest of the batch")
    if at < end:
        raise InvalidRecordError(f"the record batch holds more records than the {count} it says")


class RecordCounter:
    """Counts the records and fields of a batch's decompressed content that arrives in pieces; it keeps no more than the
    record that is not complete yet.

    Call `feed` for each piece, then `finish`; both raise as `ContentCounter` of `record_batches` does.
    """

    __slots__ = ("_announced", "_held", "_missing", "bytes", "fields", "records")

    def __init__(self, announced: int) -> None:
        self._announced = announced
        self._held: list[bytes] = []  # the beginning of a record
        self._missing = 0  # how many bytes that record needs at least
        self.fields = 0
        self.records = 0
        self.bytes = 0

    def feed(self, piece: bytes) -> None:
        """Count the next piece."""
        self.bytes += len(piece)
        if self._held:
            self._held.append(piece)
            self._missing -= len(piece)
            if self._missing > 0:
                return
            piece = b"".join(self._held)
            self._held = []
        at, end = 0, len(piece)
        while at < end:
            try:
                size, begin = _number(piece, at, _VARINT_BYTES_MAX)
            except IndexError:
                self._hold(piece[at:], 1)
                return
            if size < _RECORD_BYTES_MIN:
                raise _impossible(self.records)
            if begin + size > end:
                self._hold(piece[at:], begin + size - end)
                return
            self._record(piece, begin, begin + size)
            at = begin + size

    def _hold(self, rest: bytes, missing: int) -> None:
        self._held, self._missing = [rest], missing

    def _record(self, data: bytes, at: int, end: int) -> None:
        self.records += 1
        if self.records > self._announced:
            raise InvalidRecordError(f"the record batch holds more records than the {self._announced} it says")
        self.fields += 2 + 2 * _headers_in(data, at, end, BATCH_FIELDS_MAX - self.fields)
        if self.fields > BATCH_FIELDS_MAX:
            raise _too_many_fields()

    def finish(self) -> int:
        """Return the number of records, once all pieces were fed."""
        if self._held:
            raise CorruptMessageError("the record batch ends inside a record")
        return self.records


class KafkaRecord:
    """One record, with the accessors of a protobuf Record that readers use."""

    __slots__ = ("_row",)

    def __init__(self, row: Row) -> None:
        self._row = row

    @property
    def key(self) -> bytes:
        """The key; empty for null."""
        return self._row[0] or b""

    @property
    def value(self) -> bytes:
        """The value; empty for null."""
        return self._row[1] or b""

    @property
    def timestamp_delta_ms(self) -> int:
        """Timestamp minus the base timestamp of the batch, ms."""
        return self._row[2]

    @property
    def headers(self) -> Sequence[RecordHeader]:
        """The headers, in order. In a name, bytes that are not UTF-8 are replaced, as Kafka's client does."""
        packed = self._row[3]
        return [] if packed is None else _headers(packed)

    def HasField(self, field_name: Literal["key", "value"]) -> bool:  # noqa: N802 - the name that protobuf gives it
        """Return whether the key or the value is not null."""
        return self._row[field_name == "value"] is not None


class KafkaRecords(Sequence[KafkaRecord]):
    """The records of a decoded batch. An object for a record exists only while it is used."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> KafkaRecord: ...
    @overload
    def __getitem__(self, index: slice) -> KafkaRecords: ...
    def __getitem__(self, index: int | slice) -> KafkaRecord | KafkaRecords:
        if isinstance(index, slice):
            return KafkaRecords(self._rows[index])
        return KafkaRecord(self._rows[index])

    def __iter__(self) -> Iterator[KafkaRecord]:
        return map(KafkaRecord, self._rows)


def decode(data: bytes, at: int, count: int) -> KafkaRecords:
    """Decode the `count` records at `at`, which must end where `data` ends.

    Raises CorruptMessageError for other bytes, InvalidRecordError for more than a million keys, values and headers.
    """
    rows: list[Row] = []
    left = BATCH_FIELDS_MAX
    try:
        for _ in range(count):  # calls for the numbers of usual records would take most of the time
            begin = at
            size = data[at]
            if size > 0x7F:
                at += 1
                size = size & 0x7F | data[at] << 7
            end = at + 1 + (size >> 1)
            delta = data[at + 2]  # after the attributes, which have no meaning yet
            if delta > 0x7F:
                at += 1
                delta = delta & 0x7F | data[at + 2] << 7
            at += 4 if data[at + 3] < 0x80 else 5  # the offset delta: a record's offset is given by its place
            if (size | delta) < _TWO_BYTES and not size & 1 and data[at - 1] < 0x80:
                length = data[at]
                at += 1
                key = None
                if length != 1 and not length & 0x81:
                    key = data[at : at + (length >> 1)]
                    at += length >> 1
                if key is not None or length == 1:
                    length = data[at]
                    at += 1
                    if length > 0x7F:
                        length = length & 0x7F | data[at] << 7
                        at += 1
                    if at + (length >> 1) == end - 1 and not length & 1 and not data[end - 1]:
                        rows.append((key, data[at : end - 1], (delta >> 1) ^ -(delta & 1), None))
                        at = end
                        continue
            row, at, fields = _row(data, begin, left)
            rows.append(row)
            left -= fields
    except IndexError:
        raise CorruptMessageError(f"the record batch ends inside record {len(rows)} of {count}") from None
    if at != len(data):
        raise CorruptMessageError(
            f"the {count} records of the record batch end {abs(len(data) - at)} bytes "
            f"{'before' if at < len(data) else 'after'} its end"
        )
    return KafkaRecords(rows)


def _row(data: bytes, at: int, fields_max: int) -> tuple[Row, int, int]:
    """Decode any record; return it, the index after it, and how many fields its headers are."""
    size, at = _number(data, at, _VARINT_BYTES_MAX)
    end = at + size
    delta, at = _number(data, at + 1, _VARLONG_BYTES_MAX)
    _, at = _number(data, at, _VARINT_BYTES_MAX)
    key, at = _bytes(data, at)
    value, at = _bytes(data, at)
    headers = _check_headers(data, at, end, fields_max)
    return (key, value, delta, data[at:end] if headers else None), end, 2 * headers


def encode(rows: Sequence[Row]) -> bytes:
    """Return records as Kafka writes them, uncompressed; offset deltas are their places."""
    parts: list[bytes] = []
    add = parts.append
    number = zigzag
    for place, (key, value, delta, headers) in enumerate(rows):
        head = b"\0" + number(delta) + number(place)
        if key is None:
            head += b"\x01"
        else:
            head += number(len(key)) + key
        tail = headers or b"\0"
        if value is None:
            head += b"\x01"
            add(number(len(head) + len(tail)) + head)
        else:
            size = len(value)
            head += number(size)
            add(number(len(head) + size + len(tail)) + head)
            add(value)
        add(tail)
    return b"".join(parts)


def encode_headers(pairs: Sequence[tuple[str, bytes | None]]) -> bytes | None:
    """Return headers as a `Row` has them."""
    if not pairs:
        return None
    parts = [zigzag(len(pairs))]
    for name, value in pairs:
        key = name.encode()
        parts += (zigzag(len(key)), key, b"\x01" if value is None else zigzag(len(value)), value or b"")
    return b"".join(parts)


@lru_cache(maxsize=1 << 15)
def zigzag(number: int) -> bytes:
    """Return an int64 as a varint in zigzag form: 0, −1, 1, −2 are 0, 1, 2, 3."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _number(data: bytes, at: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag varint of at most `bytes_max` bytes; return it and the index after it.

    Raises IndexError when `data` ends inside it, CorruptMessageError when it is longer.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    for _ in range(bytes_max - 1):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFF_FFFF_FFFF_FFFF
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise CorruptMessageError(f"the record batch holds a number of more than {bytes_max} bytes")


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read a length and that many bytes; the length −1 means null."""
    if data[at] == 1:
        return None, at + 1
    size, at = _length(data, at)
    return data[at : at + size], at + size


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Read a length or a number of things, which must not be negative."""
    size, at = _number(data, at, _VARINT_BYTES_MAX)
    if size < 0:
        raise CorruptMessageError(f"a field of a record has the length {size}; expected −1 for null, or 0 and more")
    return size, at


def _headers_in(data: bytes, at: int, end: int, fields_max: int) -> int:
    """Return the number of headers of the record that is at `at` to `end`, after checking its fields.

    Raises CorruptMessageError when they do not end at `end`, InvalidRecordError for too many fields.
    """
    try:
        _, at = _number(data, at + 1, _VARLONG_BYTES_MAX)
        _, at = _number(data, at, _VARINT_BYTES_MAX)
        at = _skip(data, _skip(data, at))
        return _check_headers(data, at, end, fields_max)
    except IndexError:
        raise _bad_fields() from None


def _skip(data: bytes, at: int) -> int:
    """Return the index after a length and its bytes."""
    if data[at] == 1:
        return at + 1
    size, at = _length(data, at)
    return at + size


def _check_headers(data: bytes, at: int, end: int, fields_max: int) -> int:
    """Return the number of the headers at `at`, which must end at `end`."""
    if at >= end:
        raise _bad_fields()
    count, at = _length(data, at)
    if 2 * count + 2 > fields_max:
        raise _too_many_fields()
    for _ in range(count):
        size, at = _length(data, at)
        at = _skip(data, at + size)
        if at > end:
            break
    if at != end:
        raise _bad_fields()
    return count


def _headers(packed: bytes) -> list[RecordHeader]:
    count, at = _length(packed, 0)
    found = []
    for _ in range(count):
        size, at = _length(packed, at)
        name = packed[at : at + size].decode(errors="replace")
        value, at = _bytes(packed, at + size)
        found.append(RecordHeader(key=name, value=value))
    return found


def _impossible(number: int) -> CorruptMessageError:
    return CorruptMessageError(
        f"record {number} of the record batch has a length below {_RECORD_BYTES_MIN} bytes, which no record has"
    )


def _bad_fields() -> CorruptMessageError:
    return CorruptMessageError("the fields of a record do not end where the record ends")


def _too_many_fields() -> InvalidRecordError:
    return InvalidRecordError(
        f"the record batch holds more than {BATCH_FIELDS_MAX} keys, values and headers; send fewer records in a batch"
    )
