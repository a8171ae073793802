"""Cuts requests out of the bytes of a connection: each has its size in four bytes before it (KL-1)."""

from __future__ import annotations

from typing import Final

PREFIX_BYTES: Final = 4
#: A request has at least its key, its version and its correlation id.
FRAME_MIN_BYTES: Final = 8


class FrameSizeError(ValueError):
    """The bytes cannot begin a request: the size in them is too small or too large."""


class Frames:
    """The bytes of a connection that are not taken yet. `size_max`: the largest request, in bytes; it may be changed.

    Check `size` before you feed more than the first four bytes of a request: it refuses a size beforehand.
    """

    __slots__ = ("_bytes", "size_max")

    def __init__(self, size_max: int) -> None:
        self._bytes = bytearray()
        self.size_max = size_max

    @property
    def buffered(self) -> int:
        """How many bytes are kept."""
        return len(self._bytes)

    def feed(self, data: bytes) -> None:
        """Keep bytes that came."""
        self._bytes += data

    def size(self) -> int | None:
        """Return the size of the next request, in bytes; None while its size is not there yet.

        Raises FrameSizeError for a size that no request may have.
        """
        if len(self._bytes) < PREFIX_BYTES:
            return None
        size = int.from_bytes(self._bytes[:PREFIX_BYTES], "big", signed=True)
        if not FRAME_MIN_BYTES <= size <= self.size_max:
            raise FrameSizeError(f"a request of {size} bytes; expected {FRAME_MIN_BYTES} to {self.size_max}")
        return size

    def take(self) -> bytes | None:
        """Return the next request without its size; None while it is not whole. Raises FrameSizeError as `size`."""
        size = self.size()
        if size is None or len(self._bytes) < PREFIX_BYTES + size:
            return None
        with memoryview(self._bytes) as view:
            frame = bytes(view[PREFIX_BYTES : PREFIX_BYTES + size])
        del self._bytes[: PREFIX_BYTES + size]
        return frame

    def clear(self) -> None:
        """Forget what is kept: the connection is closed."""
        self._bytes = bytearray()
