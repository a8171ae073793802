"""Cuts answers into pieces for a transport that takes any amount at once and then reports it as sent (KL-14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

#: The largest piece, in bytes.
PIECE_BYTES: Final = 64 * 1024


class Pieces:
    """What is to be written, in its order. `size`: how many bytes."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()
        self.size = 0

    def add(self, parts: Sequence[bytes | memoryview]) -> None:
        """Add the parts of an answer."""
        whole = memoryview(b"".join(parts))
        self._pieces.extend(whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES))
        self.size += len(whole)

    def take(self) -> memoryview:
        """Return the next piece, which is taken out. Raises IndexError when there is none."""
        piece = self._pieces.popleft()
        self.size -= len(piece)
        return piece
