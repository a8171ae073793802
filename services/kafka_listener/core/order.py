"""The order of a connection's answers: that of its requests, whichever is ready first (KL-4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

#: How many requests of one connection may be under way (KL-4).
UNDER_WAY_MAX: Final = 64

T = TypeVar("T")


class Place(Generic[T]):
    """One request's place in the order."""

    __slots__ = ("answer", "settled")

    def __init__(self) -> None:
        self.settled = False
        self.answer: T | None = None


class Order(Generic[T]):
    """The requests of one connection that are not answered. Answers leave by `ready`."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: deque[Place[T]] = deque()

    @property
    def under_way(self) -> int:
        """How many requests have begun whose answers have not left."""
        return len(self._places)

    @property
    def is_full(self) -> bool:
        """Whether no further request may begin."""
        return len(self._places) >= UNDER_WAY_MAX

    def begin(self) -> Place[T]:
        """Note a request, and return its place. Raises RuntimeError when as many are under way as there may be."""
        if self.is_full:
            raise RuntimeError(f"{UNDER_WAY_MAX} requests are under way; begin no other one before an answer leaves")
        place: Place[T] = Place()
        self._places.append(place)
        return place

    @staticmethod
    def settle(place: Place[T], answer: T | None) -> None:
        """Note a request's answer; None if it gets none at all."""
        place.answer, place.settled = answer, True

    def ready(self) -> Iterator[T]:
        """Yield the answers that may leave now; each leaves once."""
        while self._places and self._places[0].settled:
            answer = self._places.popleft().answer
            if answer is not None:
                yield answer
