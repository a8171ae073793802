"""snappy, Kafka's compression 2: in the blocks of Java's snappy-java, or as one bare block as librdkafka writes it.

Snappy itself has no stream format. snappy-java writes a header of 16 bytes (the magic, its version, the oldest version
that can read it), then blocks of 32 KiB of content, each after its length in four bytes. A block begins with the length
of its content, so that is known before anything is decompressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import cramjam

from kip932.compression.frames import PIECE_BYTES, MoreBytesError, undecodable
from kip932.errors import CorruptMessageError

#: A bare block cannot begin with these bytes: its third byte would refer to content before the first.
MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER: Final = struct.Struct(">8sii")
_LENGTH: Final = struct.Struct(">i")
_VERSION: Final = 1
#: Bytes of content in one block, as in snappy-java.
_BLOCK_BYTES: Final = 1 << 15
#: snappy-java puts at least this many bytes into every block but the last. Smaller blocks are refused: they would take
#: much time for little of the allowed content.
_BLOCK_BYTES_MIN: Final = 1 << 10
#: A block of n bytes has less content than n times this: three bytes copy at most 64.
_INFLATION_MAX: Final = 22
_VARINT_BYTES_MAX: Final = 5


def compress(data: bytes, level: int | None) -> bytes:
    """Return `data` as blocks of snappy-java. Snappy has no levels: `level` must be None."""
    if level is not None:
        raise ValueError(f"the level is {level}; snappy has none")
    parts = [_HEADER.pack(MAGIC, _VERSION, _VERSION)]
    for at in range(0, len(data), _BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def unpacked(packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """Yield the content of snappy-java's blocks, or of one bare block; see `Frames.unpacked`."""
    blocks = _blocks(packed) if packed.startswith(MAGIC) else iter((packed,))
    last: int | None = None
    for block in blocks:
        if last is not None and last < _BLOCK_BYTES_MIN:
            raise undecodable("snappy", f"a block of {last} bytes is not the last one; expected {_BLOCK_BYTES_MIN}")
        last = _content_bytes(block)
        if last > room_bytes:
            raise MoreBytesError
        room_bytes -= last
        try:
            content = memoryview(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as error:
            raise undecodable("snappy", error) from error
        for at in range(0, last, PIECE_BYTES):  # one large copy would hold the interpreter lock for long
            yield bytes(content[at : at + PIECE_BYTES])


def _blocks(packed: bytes) -> Iterator[bytes]:
    """Yield the blocks after the header. Raises CorruptMessageError unless they end with the last byte."""
    if len(packed) < _HEADER.size:
        raise CorruptMessageError("the compressed records end inside their snappy frame")
    _, version, _ = _HEADER.unpack_from(packed)
    if version < _VERSION:
        raise undecodable("snappy", f"its version is {version}; expected 1 or more")
    at = _HEADER.size
    while at < len(packed):
        begin = at + _LENGTH.size
        length = _LENGTH.unpack_from(packed, at)[0] if begin <= len(packed) else 0
        at = begin + length
        if length < 1 or at > len(packed):
            raise CorruptMessageError("the compressed records end inside their snappy frame")
        yield packed[begin:at]


def _content_bytes(block: bytes) -> int:
    """The length of a block's content, read from its first bytes. Raises CorruptMessageError for an impossible one."""
    size = shift = 0
    for byte in block[:_VARINT_BYTES_MAX]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise undecodable("snappy", f"a block of {len(block)} bytes does not begin with its length")
    if size > len(block) * _INFLATION_MAX:
        raise undecodable("snappy", f"a block of {len(block)} bytes cannot hold the {size} that it says")
    return size
