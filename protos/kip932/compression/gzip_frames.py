"""gzip, Kafka's compression 1: frames made and read by Python's zlib."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from kip932.compression.frames import pieces

#: zlib's `wbits` for a gzip header and the largest window.
_GZIP: Final = 31
_DEFAULT_LEVEL: Final = -1


def compress(data: bytes, level: int | None) -> bytes:
    """Return one gzip frame, without a time stamp. `level`: 1 to 9, or −1 for zlib's default, 6."""
    return zlib.compress(data, _DEFAULT_LEVEL if level is None else level, wbits=_GZIP)


def unpacked(packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """The content of one frame; see `Frames.unpacked`."""
    return pieces("gzip", _Inflate(), zlib.error, packed, room_bytes)


class _Inflate:
    """zlib's decompressor with the interface of the others: it keeps the input that it has not used yet."""

    __slots__ = ("_inflate",)

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=_GZIP)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        tail = self._inflate.unconsumed_tail
        return self._inflate.decompress(tail + data if tail else data, max_length)
