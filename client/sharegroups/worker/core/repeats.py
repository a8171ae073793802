"""Decides which of a worker's failed jobs are logged: the first of each cause at once, and those of the next minute as
one count.

Pure. A handler that fails for every record would otherwise write a traceback for each delivery.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

#: How long jobs that end for the same cause are held back after the first of them, in seconds.
EVERY_S: Final = 60.0
#: How many causes are kept apart within that time; all further ones share one for each level.
CAUSES_MAX: Final = 100
#: How much of a message distinguishes it from others, in characters.
_SHAPE_MAX: Final = 120
_DIGITS: Final = frozenset("0123456789")

T = TypeVar("T")


class Further(NamedTuple):
    """The shared cause of all beyond `CAUSES_MAX`."""

    level: int


@dataclass(slots=True)
class HeldBack(Generic[T]):
    """What was not logged since the first of its cause was, at `since_s`: how many, and the newest. `various`: these
    are of more than one cause."""

    since_s: float
    newest: T
    count: int = 0
    various: bool = False


class Repeats(Generic[T]):
    """The causes of the last minute, with what was held back of each. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        #: By cause, in the order in which their minutes began, and so end.
        self._kept: dict[Hashable, HeldBack[T]] = {}

    def admit(self, cause: Hashable, level: int, line: T, now_s: float) -> bool:
        """Return whether this line is to be logged now; otherwise it is counted. Take `due` first."""
        kept = self._kept.get(cause)
        if kept is None and len(self._kept) >= CAUSES_MAX:
            cause = Further(level)
            kept = self._kept.get(cause)
        if kept is None:
            self._kept[cause] = HeldBack(now_s, line, various=isinstance(cause, Further))
            return True
        kept.count += 1
        kept.newest = line
        return False

    def due(self, now_s: float, *, at_end: bool = False) -> list[HeldBack[T]]:
        """Forget the causes whose minute is over, all of them `at_end`, and return those with lines held back."""
        over: list[HeldBack[T]] = []
        while self._kept:
            cause, kept = next(iter(self._kept.items()))
            if not at_end and now_s < kept.since_s + EVERY_S:
                break
            del self._kept[cause]
            if kept.count:
                over.append(kept)
        return over


def shape_of(text: str) -> str:
    """Return a message without what differs between records: words that contain a digit, and quoted text."""
    for quote in ("'", '"'):
        parts = text.split(quote)
        # Text between two quotes has an odd place, unless the last quote has no partner.
        text = quote.join("…" if place % 2 and place < len(parts) - 1 else part for place, part in enumerate(parts))
    return " ".join(word if _DIGITS.isdisjoint(word) else "#" for word in text.split())[:_SHAPE_MAX]
