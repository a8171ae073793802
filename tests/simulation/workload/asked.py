"""One member's acknowledgements that have had no response yet. Pure."""

from __future__ import annotations

from tests.simulation.history import Place

#: The outcome that is recorded if the member cannot know it.
UNKNOWN = "UNKNOWN"


class Asked:
    """For each place (a record's topic, partition and offset), the requested types in order. A response names a place,
    not a request, so two different requests for one place cannot be distinguished; then nothing is claimed about
    either."""

    def __init__(self) -> None:
        self._open: dict[Place, list[int]] = {}
        self._blurred: dict[Place, None] = {}

    def note(self, place: Place, kind: int) -> None:
        """Note that the member requested this type."""
        kinds = self._open.setdefault(place, [])
        kinds.append(kind)
        if any(each != kind for each in kinds):
            self._blurred[place] = None

    def answered(self, place: Place, error: str) -> list[tuple[int, str]]:
        """Return the (type, error) pairs that a response settles; error is "" for NONE, UNKNOWN if requests with
        different types were open for the place."""
        kinds = self._open.get(place, [])
        if not kinds:
            return []
        kind = kinds.pop(0)
        if not kinds:
            del self._open[place]
        return [(kind, UNKNOWN if place in self._blurred else error)]

    def places(self, topic_id: str, partition: int) -> list[Place]:
        """Return the places in one partition that await a response."""
        return [place for place in self._open if place[:2] == (topic_id, partition)]

    def rest(self) -> list[tuple[Place, int]]:
        """Return the requests that never had a response, as (place, type), and clear them."""
        found = [(place, kind) for place, kinds in self._open.items() for kind in kinds]
        self._open.clear()
        return found
