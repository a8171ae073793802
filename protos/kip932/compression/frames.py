"""The common part of all compressions: decompression in pieces that stops at a bound (CM-112).

A frame of a few bytes can hold gigabytes, so no more is decompressed than the caller has room for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from kip932.errors import CorruptMessageError
from kip932.ids import BATCH_PLAIN_BYTES_MAX

#: The largest piece of decompressed content, in bytes.
PIECE_BYTES: Final = 1 << 18
#: How many bytes of a frame are passed to the library at once: it copies those that it does not use yet.
_STEP_BYTES: Final = 1 << 16


class MoreBytesError(Exception):
    """The batch needs more room than there is. It may or may not be valid."""

    def __init__(self) -> None:
        super().__init__(f"it has more than {BATCH_PLAIN_BYTES_MAX} bytes when decompressed")


class Frames(Protocol):
    """The two functions that the module of each compression has."""

    def compress(self, data: bytes, level: int | None) -> bytes:
        """Return one frame that contains `data`. With `level` None the compression's default level is used."""
        ...

    def unpacked(self, packed: bytes, room_bytes: int) -> Iterator[bytes]:
        """Yield the content of one frame, in pieces.

        Raises CorruptMessageError for anything but one whole frame, MoreBytesError beyond `room_bytes`.
        """
        ...


class Stream(Protocol):
    """A decompressor of one frame, as those of `bz2`, `lzma` and `compression.zstd` are."""

    @property
    def eof(self) -> bool:
        """True once the frame has ended."""
        ...

    @property
    def needs_input(self) -> bool:
        """True while `decompress` needs more of the frame to go on."""
        ...

    @property
    def unused_data(self) -> bytes | None:
        """The bytes that follow the frame."""
        ...

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress `data`; return at most `max_length` bytes."""
        ...


def pieces(name: str, stream: Stream, failure: type[Exception], packed: bytes, room_bytes: int) -> Iterator[bytes]:
    """Yield the content of one frame of compression `name`, in pieces. `failure`: the stream's exception for a bad one.

    Raises as `Frames.unpacked` does.
    """
    at = 0
    while not stream.eof:
        data = packed[at : at + _STEP_BYTES] if stream.needs_input else b""
        at += len(data)
        try:
            piece = stream.decompress(data, min(PIECE_BYTES, room_bytes + 1))
        except failure as error:
            raise undecodable(name, error) from error
        goes_on = stream.eof or (stream.needs_input and at < len(packed))
        if not piece and not data and not goes_on:
            raise CorruptMessageError(f"the compressed records end inside their {name} frame")
        room_bytes -= len(piece)
        if room_bytes < 0:
            raise MoreBytesError
        if piece:
            yield piece
    if left := len(packed) - at + len(stream.unused_data or b""):
        raise CorruptMessageError(f"{left} bytes follow the {name} frame of the compressed records")


def undecodable(name: str, why: object) -> CorruptMessageError:
    """The error for bytes that are not a frame of compression `name`."""
    return CorruptMessageError(f"the compressed records cannot be decompressed as {name}: {why}")
