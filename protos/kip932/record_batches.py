"""Checks and decodes the bytes of record batches, within bounds of memory and time (CM-112, CL-110).

A producer announces how many records a batch has. This module checks that the bytes agree, and stops at its bounds, so
that a batch of a few bytes cannot cost much memory or time. Large batches are counted without an object per record.
Leaders and clients use it. Pure: bytes in, numbers or errors out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.errors import CorruptMessageError, InvalidRecordError
from kip932.ids import BATCH_FIELDS_MAX, BATCH_PLAIN_BYTES_MAX, BATCH_RECORDS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kip932.api.v1.record_batch_pb2 import Record

COMPRESSION_NONE: Final = 0
COMPRESSION_GZIP: Final = 1
#: Batches up to this size are parsed without counting their fields first. With two bytes per record, the worst case,
#: that costs 20 ms and 40 MB.
PARSED_BYTES_MAX: Final = 1 << 20
#: A gzip frame of n bytes holds at most n times as many bytes as this.
_INFLATION_MAX: Final = 1032
#: No record has fewer bytes.
_RECORD_BYTES_MIN: Final = 2
_PIECE_BYTES: Final = 1 << 18
#: Counting one field costs as much time as decompressing so many bytes.
_FIELD_BYTES: Final = 32
#: How many bytes are counted between two calls of `breathe`: some milliseconds at most.
_SLICE_BYTES: Final = 1 << 13
_RECORDS_FIELD: Final = 2
_VARINT_BYTES_MAX: Final = 10
_FIXED: Final = {1: 8, 5: 4}


class MoreBytesError(Exception):
    """The batch needs more room than there is. Whether it is valid is unknown."""

    def __init__(self) -> None:
        super().__init__(f"it has more than {BATCH_PLAIN_BYTES_MAX} bytes when decompressed")


def plausible_count(count: int, size_bytes: int) -> int:
    """`count`, limited to the number of records that a batch of `size_bytes` can hold, at least 1."""
    return min(count, max(size_bytes * _INFLATION_MAX // _RECORD_BYTES_MIN, 1))


def _hold_on() -> None:
    """The default of `breathe`: do nothing."""


def check_batch(data: bytes, announced: int, room_bytes: int, breathe: Callable[[], object] = _hold_on) -> int:
    """Check that `data` is a RecordBatch of `announced` records. Returns what the check cost, in bytes.

    The cost is the batch's bytes, its decompressed bytes, and 32 for each field of compressed records that had to be
    counted. `breathe` is called during long checks; when the check runs in a thread, that lets the event loop run.

    Raises CorruptMessageError and InvalidRecordError; MoreBytesError when the cost would exceed `room_bytes`.
    """
    if announced > BATCH_RECORDS_MAX:
        raise InvalidRecordError(
            f"the record batch says {announced} records; at most {BATCH_RECORDS_MAX} go into one batch"
        )
    size = len(data)
    if size > room_bytes:
        raise MoreBytesError
    value = _parsed(data, announced, breathe)
    packed = value.compressed_records
    if value.compression == COMPRESSION_NONE:
        if packed:
            raise InvalidRecordError("the record batch is not compressed and holds compressed records")
        _compare(len(value.records), announced)
        return size
    if value.compression != COMPRESSION_GZIP:
        raise InvalidRecordError(f"the record batch has compression {value.compression}; expected 0 (none) or 1 (gzip)")
    if not packed or value.records:
        raise InvalidRecordError(
            f"the record batch is marked compressed and holds {len(packed)} bytes of compressed records and "
            f"{len(value.records)} others; expected compressed ones alone"
        )
    return size + _check_packed(packed, announced, min(room_bytes - size, BATCH_PLAIN_BYTES_MAX), breathe)


def open_batch(data: bytes, announced: int) -> tuple[int, Sequence[Record]]:
    """Decode a stored batch of `announced` records: its base timestamp, ms since 1970, and its records.

    Raises CorruptMessageError when the bytes are no such batch, or exceed the limits of a batch.
    """
    try:
        value = _parsed(data, announced)
        if value.compression == COMPRESSION_NONE:
            records = value.records
        elif value.compression == COMPRESSION_GZIP:
            records = _message(_plain(value.compressed_records, announced)).records
        else:
            raise CorruptMessageError(f"compression {value.compression} is not known; 0 (none) and 1 (gzip) are")
    except (MoreBytesError, InvalidRecordError) as error:
        raise CorruptMessageError(str(error)) from error
    if len(records) != announced:
        raise CorruptMessageError(f"it holds {len(records)} records where {announced} were announced")
    return value.base_timestamp_ms, records


def _check_packed(packed: bytes, announced: int, room_bytes: int, breathe: Callable[[], object]) -> int:
    """Decompress and check; returns the cost as in `check_batch`. Long ones are counted piece by piece and not kept."""
    held: list[bytes] = []
    size = 0
    counter: ContentCounter | None = None
    for piece in _unpacked(packed, room_bytes):
        size += len(piece)
        held.append(piece)
        if size > PARSED_BYTES_MAX:
            counter = counter or ContentCounter(announced)
            for one in held:
                _walk(counter, one, breathe)
            held.clear()
    if counter is None:
        _compare(len(_message(b"".join(held)).records), announced)
        return size
    _compare(counter.finish(), announced)
    return size + counter.fields * _FIELD_BYTES


def _plain(packed: bytes, announced: int) -> bytes:
    """The decompressed records, within the limits of a batch. If they are long, their fields are counted first."""
    counter = ContentCounter(announced)
    pieces = []
    for piece in _unpacked(packed, BATCH_PLAIN_BYTES_MAX):
        pieces.append(piece)
        if counter.bytes or len(pieces) * _PIECE_BYTES > PARSED_BYTES_MAX:
            for unseen in pieces if not counter.bytes else [piece]:
                counter.feed(unseen)
    if counter.bytes:
        counter.finish()
    return b"".join(pieces)


class ContentCounter:
    """Counts the records of a serialised RecordBatch that comes in pieces, and keeps none of them.

    Call `feed` for each piece, then `finish`. Both raise: InvalidRecordError as soon as there are more records than
    announced, or more fields than a batch may have; CorruptMessageError for bytes that are no RecordBatch.
    """

    __slots__ = ("_announced", "_record_left", "_rest", "_skip", "bytes", "fields", "records")

    def __init__(self, announced: int) -> None:
        self._announced = announced
        self._rest = b""  # the beginning of a field whose tag or length is not complete yet
        self._skip = 0  # bytes that are left of the present field's value
        self._record_left = 0  # bytes that are left of the present record
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
                    raise CorruptMessageError("the record batch holds a field whose tag or length is no number")
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
        """All pieces were fed: returns the number of records."""
        if self._rest or self._skip or self._record_left:
            raise CorruptMessageError("the record batch ends inside a field")
        return self.records


def _walk(counter: ContentCounter, data: bytes, breathe: Callable[[], object]) -> None:
    fields = counter.fields
    for at in range(0, len(data), _SLICE_BYTES):
        counter.feed(data[at : at + _SLICE_BYTES])
        if counter.fields - fields > _SLICE_BYTES // 8:
            fields = counter.fields
            breathe()


def _parsed(data: bytes, announced: int, breathe: Callable[[], object] = _hold_on) -> RecordBatch:
    """Parse a batch. The fields of a large one are counted first, since two bytes can become fifty when parsed."""
    if len(data) > PARSED_BYTES_MAX:
        counter = ContentCounter(announced)
        _walk(counter, data, breathe)
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


def _unpacked(packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """Decompress one gzip frame in pieces. Raises CorruptMessageError, and MoreBytesError beyond `room_bytes`."""
    inflate = zlib.decompressobj(wbits=31)
    while not inflate.eof:
        try:
            piece = inflate.decompress(packed, min(_PIECE_BYTES, room_bytes + 1))
        except zlib.error as error:
            raise CorruptMessageError(f"the compressed records cannot be decompressed: {error}") from error
        packed = inflate.unconsumed_tail
        if not piece and not packed and not inflate.eof:
            raise CorruptMessageError("the compressed records end inside their gzip frame")
        room_bytes -= len(piece)
        if room_bytes < 0:
            raise MoreBytesError
        if piece:
            yield piece
    if inflate.unused_data:
        raise CorruptMessageError(f"{len(inflate.unused_data)} bytes follow the gzip frame of the compressed records")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint: its value and the index after it. An index of 0: it is not complete, or is no varint."""
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
