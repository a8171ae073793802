"""The format of a backup's files, version 1 (CM-142). Pure: bytes in, bytes out.

A segment is a header line followed by frames. A frame is its body's length and CRC-32C (four bytes each, most
significant first), then the body. The body is one byte that says how the rest is packed, then the rest: one item, which
is a page of one stream's entries, a hash, or a string, with the key it belongs to.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import google_crc32c

from shard_runtime.record_log.protocol import StreamId
from shard_runtime.record_log.redis.stream_copies import RawEntry

HEADER: Final = b"sharegroups-backup-segment 1\n"
FRAME_HEAD: Final = struct.Struct(">II")
_PLAIN: Final = b"\0"
_ZLIB: Final = b"\1"
_LEVEL: Final = 1
_ENTRIES: Final = 1
_HASH: Final = 2
_STRING: Final = 3
_ITEM_HEAD: Final = struct.Struct(">BHI")
_ENTRY_HEAD: Final = struct.Struct(">QQH")
_SIZE: Final = struct.Struct(">I")


class FormatError(ValueError):
    """The bytes are not a frame of this format; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some entries of one stream, in order."""

    key: str
    entries: Sequence[RawEntry]


@dataclass(frozen=True, slots=True)
class StoredHash:
    """A hash, whole."""

    key: str
    fields: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class StoredString:
    """A string."""

    key: str
    value: bytes


Item = StreamPage | StoredHash | StoredString


def crc(data: bytes, so_far: int = 0) -> int:
    """Return the CRC-32C of `data`, continuing from `so_far`, the CRC of the bytes before it."""
    return int(google_crc32c.extend(so_far, data))


def frame(item: Item) -> bytes:
    """Return the frame of an item; it is packed when that makes it smaller."""
    plain = _encoded(item)
    packed = zlib.compress(plain, _LEVEL)
    body = _ZLIB + packed if len(packed) < len(plain) else _PLAIN + plain
    return FRAME_HEAD.pack(len(body), crc(body)) + body


def item_of(body: bytes, expected_crc: int) -> Item:
    """Return the item of a frame's body. Raises FormatError."""
    found = crc(body)
    if found != expected_crc:
        raise FormatError(f"its checksum is {expected_crc:08x}, its bytes give {found:08x}")
    try:
        plain = zlib.decompress(body[1:]) if body[:1] == _ZLIB else body[1:]
        return _decoded(plain)
    except FormatError:
        raise
    except (zlib.error, struct.error, ValueError) as error:
        raise FormatError(f"it cannot be read: {error}") from error


def _encoded(item: Item) -> bytes:
    key = item.key.encode()
    if isinstance(item, StreamPage):
        parts = [_ITEM_HEAD.pack(_ENTRIES, len(key), len(item.entries)), key]
        for entry in item.entries:
            parts.append(_ENTRY_HEAD.pack(*entry.id, len(entry.fields)))
            parts += _sized(entry.fields)
    elif isinstance(item, StoredHash):
        words = [word for pair in item.fields.items() for word in pair]
        parts = [_ITEM_HEAD.pack(_HASH, len(key), len(words)), key, *_sized(words)]
    else:
        parts = [_ITEM_HEAD.pack(_STRING, len(key), 1), key, *_sized([item.value])]
    return b"".join(parts)


def _sized(words: Sequence[bytes]) -> list[bytes]:
    return [part for word in words for part in (_SIZE.pack(len(word)), word)]


def _decoded(plain: bytes) -> Item:
    kind, key_size, count = _ITEM_HEAD.unpack_from(plain)
    cursor = _Cursor(plain, _ITEM_HEAD.size)
    key = cursor.take(key_size).decode()
    item: Item
    if kind == _ENTRIES:
        item = StreamPage(key, [cursor.entry() for _ in range(count)])
    elif kind == _HASH:
        words = [cursor.word() for _ in range(count)]
        item = StoredHash(key, dict(zip(words[::2], words[1::2], strict=True)))
    elif kind == _STRING:
        item = StoredString(key, cursor.word())
    else:
        raise FormatError(f"it is of kind {kind}, which this build does not know")
    if cursor.at != len(plain):
        raise FormatError(f"{len(plain) - cursor.at} bytes follow its end")
    return item


class _Cursor:
    """Reads a frame's unpacked bytes from start to end. Raises FormatError when they end too early."""

    __slots__ = ("_data", "at")

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def take(self, size: int) -> bytes:
        """The next bytes."""
        taken = self._data[self.at : self.at + size]
        if len(taken) < size:
            raise FormatError(f"it ends {size - len(taken)} bytes too early")
        self.at += size
        return taken

    def word(self) -> bytes:
        """The next word; its size comes before it."""
        return self.take(_SIZE.unpack(self.take(_SIZE.size))[0])

    def entry(self) -> RawEntry:
        """The next entry."""
        epoch, seq, words = _ENTRY_HEAD.unpack(self.take(_ENTRY_HEAD.size))
        return RawEntry(StreamId(epoch, seq), tuple(self.word() for _ in range(words)))
