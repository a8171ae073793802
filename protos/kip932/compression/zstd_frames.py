"""zstd, Kafka's compression 4: frames made and read by Python's own module since Python 3.14, before that by its
backport."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from kip932.compression.frames import pieces

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DEFAULT_LEVEL: Final = 3
#: Frames with a larger window are not read. The highest level, 22, uses this one. A window takes memory only as far as
#: the content fills it.
_WINDOW_LOG_MAX: Final = 27


def compress(data: bytes, level: int | None) -> bytes:
    """Return one zstd frame. `level`: −131072 to 22."""
    return zstd.compress(data, DEFAULT_LEVEL if level is None else level)


def unpacked(packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """The content of one frame; see `Frames.unpacked`."""
    options = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG_MAX}
    return pieces("zstd", zstd.ZstdDecompressor(options=options), zstd.ZstdError, packed, room_bytes)
