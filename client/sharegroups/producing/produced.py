"""Records to be produced, and their serialisation as a RecordBatch.

Batches are serialised by hand, because creating a protobuf object for each record would cost more than all other work
of a producer. The bytes are the same as protobuf's; the tests compare them (CM-41, P-7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kip932.api.v1.record_batch_pb2 import Header, Record, RecordBatch
from kip932.compression.kinds import Compression
from sharegroups import arguments
from sharegroups.packing import PLAIN, Packing

#: Key, value, headers, and milliseconds since 1970. A plain tuple, because one is created for every record.
ProducedRecord = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]

_OVERHEAD_BYTES = 24
# Protobuf tags (field number and wire type): Record's key, value and timestamp_delta_ms, and RecordBatch's records.
_KEY = b"\x0a"
_VALUE = b"\x12"
_DELTA = b"\x20"
_RECORD = b"\x12"


def size_of(record: ProducedRecord) -> int:
    """Return the size of a record in bytes as the buffer counts it: about its serialised size."""
    key, value, headers, _ = record
    size = _OVERHEAD_BYTES
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    if headers:
        for name, content in headers:
            size += len(name) + len(content or b"") + 4
    return size


def encode(records: Sequence[ProducedRecord], packing: Packing = PLAIN) -> tuple[bytes, int]:
    """Return the serialised RecordBatch and its largest timestamp, ms since 1970."""
    base = records[0][3]
    batch = RecordBatch(base_timestamp_ms=base)
    parts, latest = _encode_records(records, base)
    if packing.kind is not Compression.NONE:
        batch.compression = packing.kind
        batch.compressed_records = packing.pack(b"".join(parts))
        parts = []
    parts[:1] = [batch.SerializeToString()]  # field 1, or 3 and 4; the records are field 2
    data = b"".join(parts)
    assert data[0], "it would be read as a batch of Kafka's"  # CM-220
    return data, latest


def _encode_records(records: Sequence[ProducedRecord], base: int) -> tuple[list[bytes], int]:
    """Return a list with an empty part followed by the records with their tags and lengths, and the largest timestamp,
    in ms."""
    parts = [b""]
    add = parts.append
    latest = known = base
    end = b""
    begins: dict[int, bytes] = {}  # the bytes before a lone value, by its length; valid only with the current `end`
    for key, value, headers, timestamp_ms in records:
        if timestamp_ms != known:
            known = timestamp_ms
            latest = max(latest, known)
            end = _DELTA + varint(known - base) if known != base else b""
            begins = {}
        if key is None and value is not None and not headers:
            length = len(value)
            begin = begins.get(length)
            if begin is None:
                field = _VALUE + varint(length)
                begin = begins[length] = _RECORD + varint(len(field) + length + len(end)) + field
            add(begin)
            add(value)
            if end:
                add(end)
        else:
            body = _fields(key, value, headers) + end
            add(_RECORD + varint(len(body)) + body)
    return parts, latest


def _fields(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return the key, value and headers of one record, serialised; absent ones are left out."""
    if headers:
        pairs = [Header(key=name, value=content) for name, content in headers]
        return Record(key=key, value=value, headers=pairs).SerializeToString()
    body = b"" if key is None else _KEY + varint(len(key)) + key
    return body if value is None else body + _VALUE + varint(len(value)) + value


def varint(number: int) -> bytes:
    """Return an int64 as a base-128 varint; a negative one takes ten bytes, in two's complement."""
    if 0 <= number < 0x80:
        return _ONE_BYTE[number]
    number &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_ONE_BYTE = [bytes((number,)) for number in range(0x80)]


def header_pairs(
    headers: Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]] | None,
) -> list[tuple[str, bytes | None]]:
    """Return headers, given as a mapping or pairs, as pairs with bytes as values. Raises ValueError for anything
    else."""
    if not headers:
        return []
    expected, instead = "a dict of text to bytes or text, or pairs of them", 'headers={"trace": "7"}'
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise arguments.refusal("produce", "headers", headers, expected, instead)
    found: list[tuple[str, bytes | None]] = []
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise arguments.refusal("produce", "a header", pair, expected, instead)
        name, value = pair
        if not isinstance(value, str | bytes | None):
            raise arguments.refusal("produce", f"the value of header {name!r}", value, "bytes, text or None")
        if not name.isascii() and not _is_utf8(name):
            raise arguments.refusal("produce", "the name of a header", name, "text without lone surrogates")
        found.append((name, value.encode() if isinstance(value, str) else value))
    return found


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
