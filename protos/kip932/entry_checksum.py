"""The CRC-32C checksum that every stored entry carries in its field `c` (CM-100).

It covers the stream's key, the type, the record and the entry's id, in that order: it detects an entry that was moved
to another place as well as a changed byte. The id comes last, because the store chooses the id of a claim and then
extends the checksum that the caller computed. An entry with a batch carries a second checksum, which extends the first
over the batch: reads that leave batches out verify only the first.

Entries of coordinators' logs carry another checksum in the field `k`, over the entry's place and its key (CM-106):
when the entry is damaged elsewhere, it proves which key's change is lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import google_crc32c

if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c is installed without its C library (found: {google_crc32c.implementation}), which takes "
        "milliseconds for each batch. Expected a wheel for this platform: "
        "pip install --force-reinstall --only-binary :all: google-crc32c"
    )

_ID: Final = struct.Struct(">QQ")
#: The first byte of the field `key`, number 2, in the messages of coordinators' logs.
_KEY_TAG: Final = 0x12
_ONE: Final = struct.Struct(">I")
_BOTH: Final = struct.Struct(">II")
_extend = google_crc32c.extend
_value = google_crc32c.value


@lru_cache(maxsize=10_000)
def _seed(stream: str, kind: str) -> int:
    return int(_value(f"{stream}\0{kind}\0".encode()))


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes that are not an entry: those of a batch in Kafka's format (CM-221)."""
    return int(_value(data))


def unplaced(stream: str, kind: str, record: bytes) -> int:
    """The checksum of an entry without its id; `placed` extends it once the id is known."""
    return int(_extend(_seed(stream, kind), record))


def placed(so_far: int, at: tuple[int, int]) -> bytes:
    """Field `c` of an entry without a batch, from `unplaced` and its id."""
    return _ONE.pack(_extend(so_far, _ID.pack(*at)))


def checksum(stream: str, at: tuple[int, int], kind: str, record: bytes, batch: bytes = b"") -> bytes:
    """Field `c` of the entry with the id `at` (epoch, sequence): four bytes, most significant first; eight with a
    batch."""
    head = _extend(_seed(stream, kind), record + _ID.pack(*at))
    return _BOTH.pack(head, _extend(head, batch)) if batch else _ONE.pack(head)


def intact_check(stream: str, kind: str) -> Callable[[tuple[int, int], bytes, bytes], bool]:
    """Return a function that checks, from id, record and field `c`, whether an entry of one type is intact.

    It is a faster `damage` for entries without a batch: those of coordinators' logs, which are short and many.
    """
    seed, extend, id_bytes, packed = _seed(stream, kind), _extend, _ID.pack, _ONE.pack

    def intact(at: tuple[int, int], record: bytes, proof: bytes) -> bool:
        return proof == packed(extend(seed, record + id_bytes(*at)))

    return intact


def damage(
    stream: str, at: tuple[int, int], kind: str, record: bytes, *, batch: bytes | None, found: bytes | None
) -> str:
    """Describe what is wrong with an entry; return "" for an intact one, and for one written without a checksum.

    `found`: its field `c`, None without one. When `batch` is None it was not read, so only the first checksum is
    verified.
    """
    if found is None:
        return ""
    head = _extend(_seed(stream, kind), record + _ID.pack(*at))
    if batch is None:
        if found[:4] == _ONE.pack(head) and len(found) in {4, 8}:
            return ""
        return f"its checksum is {found[:4].hex()}, its bytes give {head:08x}"
    expected = _BOTH.pack(head, _extend(head, batch)) if batch else _ONE.pack(head)
    return "" if found == expected else f"its checksum is {found.hex()}, its bytes give {expected.hex()}"


def key_of(record: bytes) -> bytes:
    """The bytes of the key at the front of a coordinator's record; b"" when there is none.

    Group and share-state records begin with their key, after the record version if that is not 0. The record may be
    damaged: only `proves_key` shows that the key is intact.
    """
    if record[:1] == b"\x12" and len(record) > 1 and record[1] < 0x80:  # nearly every record
        return record[2 : 2 + record[1]]
    at = 0
    if record[:1] == b"\x08":  # field 1, the record version
        at = 2
        while at <= len(record) and record[at - 1] & 0x80:
            at += 1
    if at >= len(record) or record[at] != _KEY_TAG:
        return b""
    length = shift = 0
    for end, byte in enumerate(record[at + 1 : at + 6], start=at + 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return record[end : end + length]
    return b""


def key_proof(stream: str, at: tuple[int, int], key: bytes) -> bytes:
    """Field `k` of an entry: a checksum of four bytes over the stream's key, the entry's id and the key. A no-op's key
    is b""."""
    return _ONE.pack(_extend(_key_seed(stream), _ID.pack(*at) + key))


@lru_cache(maxsize=1_000)
def _key_seed(stream: str) -> int:
    return int(_value(f"{stream}\0key\0".encode()))


def proves_key(stream: str, at: tuple[int, int], key: bytes, proof: bytes) -> bool:
    """Return whether an entry's field `k` proves that the entry has this key."""
    return proof == key_proof(stream, at, key)
