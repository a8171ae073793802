"""snappy, which defines no frame format of its own: Java's blocks, a single bare block, and false lengths."""

from __future__ import annotations

import random
import struct

import cramjam
import pytest

from kip932.compression.frames import PIECE_BYTES, MoreBytesError
from kip932.compression.snappy_frames import MAGIC, compress, unpacked
from kip932.errors import CorruptMessageError

HEADER = MAGIC + bytes.fromhex("0000000100000001")
CONTENT = random.Random(7).randbytes(100_000)
MIB = 1 << 20


def bare(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


def block(content: bytes) -> bytes:
    packed = bare(content)
    return struct.pack(">i", len(packed)) + packed


def unpack(packed: bytes, room: int = 64 * MIB) -> bytes:
    return b"".join(unpacked(packed, room))


@pytest.mark.rule("CM-116")
def test_content_goes_into_blocks_of_32_kib() -> None:
    step = 32 * 1024
    blocks = b"".join(block(CONTENT[at : at + step]) for at in range(0, len(CONTENT), step))
    assert compress(CONTENT, None) == HEADER + blocks
    with pytest.raises(ValueError, match="snappy has none"):
        compress(CONTENT, 3)


@pytest.mark.rule("CM-116")
def test_blocks_of_any_size_from_1_kib_on_are_read_and_the_last_may_be_smaller() -> None:
    sizes = [1024, 70_000, 1025]
    packed, at = HEADER, 0
    for size in [*sizes, len(CONTENT) - sum(sizes) - 3, 3]:
        packed += block(CONTENT[at : at + size])
        at += size
    assert unpack(packed) == CONTENT
    newer = MAGIC + bytes.fromhex("0000000900000001") + block(CONTENT)
    assert unpack(newer) == CONTENT


@pytest.mark.rule("CM-112")
def test_many_small_blocks_are_refused_at_the_first() -> None:
    """A million of them, in an otherwise acceptable batch, would block a leader."""
    packed = HEADER + block(b"") * 200_000
    with pytest.raises(CorruptMessageError, match="0 bytes is not the last one; expected 1024"):
        unpack(packed)


@pytest.mark.rule("CM-112")
def test_a_bare_block_comes_in_pieces_and_within_the_room() -> None:
    packed = bare(bytes(3 * MIB))
    assert [len(piece) for piece in unpacked(packed, 3 * MIB)] == [PIECE_BYTES] * 12
    with pytest.raises(MoreBytesError):
        unpack(packed, 3 * MIB - 1)


@pytest.mark.rule("CM-112")
@pytest.mark.parametrize(
    ("packed", "reported"),
    [
        (b"\xff\xff\xff\x1f\x00", "5 bytes cannot hold the 67108863 that it says"),
        (b"\x80" * 9, "does not begin with its length"),
        (b"", "does not begin with its length"),
        (HEADER + struct.pack(">i", 9) + b"\x03\x08abc", "end inside their snappy frame"),
        (HEADER + struct.pack(">i", -1) + b"\x03\x08abc", "end inside their snappy frame"),
        (HEADER + b"\0\0", "end inside their snappy frame"),
        (HEADER[:12], "end inside their snappy frame"),
        (MAGIC + bytes(8) + block(b"abc"), "version is 0; expected 1 or more"),
        (b"\x04\x08abc", "cannot be decompressed as snappy"),
    ],
    ids=[
        "length",
        "no length",
        "nothing",
        "long block",
        "negative",
        "half a length",
        "half a header",
        "version",
        "short",
    ],
)
def test_what_is_no_block_is_refused(packed: bytes, reported: str) -> None:
    with pytest.raises(CorruptMessageError, match=reported):
        unpack(packed)
