"""The acknowledgements that one member has asked for and has not heard of again. Pure."""

from __future__ import annotations

from tests.simulation.history import Place

#: What is recorded where the member cannot know.
UNKNOWN = "UNKNOWN"


class Asked:
    """By place: the types asked for, in order. Answers name a place, not the request, so two different requests for one
    place blur each other: then nothing is claimed about either."""

    def __init__(self) -> None:
        self._open: dict[Place, list[int]] = {}
        self._blurred: dict[Place, None] = {}

    def note(self, place: Place, kind: int) -> None:
        """The member asks for this."""
        kinds = self._open.setdefault(place, [])
        kinds.append(kind)
        if any(each != kind for each in kinds):
            self._blurred[place] = None

    def answered(self, place: Place, error: str) -> list[tuple[int, str]]:
        """An answer came: the (type, error) pairs that it settles; error is "" for NONE, UNKNOWN when blurred."""
        kinds = self._open.get(place, [])
        if not kinds:
            return []
        kind = kinds.pop(0)
        if not kinds:
            del self._open[place]
        return [(kind, UNKNOWN if place in self._blurred else error)]

    def places(self, topic_id: str, partition: int) -> list[Place]:
        """Places of one partition that wait for an answer."""
        return [place for place in self._open if place[:2] == (topic_id, partition)]

    def rest(self) -> list[tuple[Place, int]]:
        """What was never answered, as (place, type); nothing is open behind it."""
        found = [(place, kind) for place, kinds in self._open.items() for kind in kinds]
        self._open.clear()
        return found
