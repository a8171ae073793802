"""lz4, Kafka's compression 3: an LZ4 frame by package lz4, in the form that Kafka's Java client reads.

That client accepts neither blocks that depend on one another nor LZ4's checksum of the whole content.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import lz4.frame

from kip932.compression.frames import pieces

#: Kafka's default level. Unlike all others, it means not LZ4's level of the same number, but LZ4's fast mode.
KAFKA_DEFAULT_LEVEL: Final = 9
_FAST: Final = 0


def compress(data: bytes, level: int | None) -> bytes:
    """Return one LZ4 frame. `level`: 1 to 17, where 9 is the fast mode, as in Kafka."""
    fast = level is None or level == KAFKA_DEFAULT_LEVEL
    packed: bytes = lz4.frame.compress(
        data,
        compression_level=_FAST if fast else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return packed


def unpacked(packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """The content of one frame; see `Frames.unpacked`."""
    return pieces("lz4", lz4.frame.LZ4FrameDecompressor(), RuntimeError, packed, room_bytes)
