"""How many connections there may be, and how many of one address (KL-8)."""

from __future__ import annotations

from collections import Counter
from typing import Final

#: How many connections one address may have for each one that is left to others.
PER_FREE: Final = 3


class Places:
    """The open connections of one listener. `places_max`: how many there may be."""

    __slots__ = ("_of", "_total", "places_max")

    def __init__(self, places_max: int) -> None:
        self.places_max = places_max
        self._total = 0
        self._of: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many connections are open."""
        return self._total

    def take(self, address: str) -> bool:
        """Count a connection of this address; return False, and count nothing, if it would be one too many: there are
        as many as there may be, or the address has three times as many as are left."""
        left = self.places_max - self._total
        if left <= 0 or self._of[address] >= PER_FREE * left:
            if not self._of[address]:
                del self._of[address]
            return False
        self._total += 1
        self._of[address] += 1
        return True

    def give(self, address: str) -> None:
        """Note the end of a connection that was counted."""
        self._total -= 1
        self._of[address] -= 1
        if not self._of[address]:
            del self._of[address]
