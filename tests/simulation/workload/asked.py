"""One member's acknowledgements that have not been answered yet. Pure."""

from __future__ import annotations

from tests.simulation.history import Place

#: Recorded as the outcome where the member cannot know it.
UNKNOWN = "UNKNOWN"


class Asked:
    """By place: the requested types, in order. Answers name a place, not the request, so two different requests for one
    place cannot be distinguished: then nothing is claimed about either."""

    def __init__(self) -> None:
        self._open: dict[Place, list[int]] = {}
        self._blurred: dict[Place, None] = {}

    def note(self, place: Place, kind: int) -> None:
        """Note that the member requests this type."""
        kinds = self._open.setdefault(place, [])
        kinds.append(kind)
        if any(each != kind for each in kinds):
            self._blurred[place] = None

    def answered(self, place: Place, error: str) -> list[tuple[int, str]]:
        """Return the (type, error) pairs that an answer settles; error is "" for NONE, UNKNOWN when requests of
        different types were open for the place."""
        kinds = self._open.get(place, [])
        if not kinds:
            return []
        kind = kinds.pop(0)
        if not kinds:
            del self._open[place]
        return [(kind, UNKNOWN if place in self._blurred else error)]

    def places(self, topic_id: str, partition: int) -> list[Place]:
        """Return the places of one partition that wait for an answer."""
        return [place for place in self._open if place[:2] == (topic_id, partition)]

    def rest(self) -> list[tuple[Place, int]]:
        """Return what was never answered, as (place, type), and clear it."""
        found = [(place, kind) for place, kinds in self._open.items() for kind in kinds]
        self._open.clear()
        return found
