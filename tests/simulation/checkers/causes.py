"""The changes to groups that administrators requested: nothing else may delete or reset the state of an existing
topic."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from tests.simulation.history import Administered, FaultStruck, History, Share

DELETE_GROUP: Final = "DeleteGroups"
DELETE_OFFSETS: Final = "DeleteShareGroupOffsets"
ALTER: Final = "AlterShareGroupOffsets"
CHANGES: Final = frozenset({DELETE_GROUP, DELETE_OFFSETS, ALTER})
#: Error codes that prove that nothing was done, unless an earlier attempt of the same call succeeded and a fault lost
#: its response.
_REFUSALS: Final = frozenset(
    {"NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE"}
)


class Altered(NamedTuple):
    """A requested alteration of one partition's start offset, by topic name."""

    group_id: str
    topic: str
    partition: int
    start_offset: int

    def share(self, topic_id: str) -> Share:
        """Return the share-partition, given one of the ids that the topic's name has had."""
        return Share(self.group_id, topic_id, self.partition)


def altered(event: Administered) -> Altered:
    """Return the alterations that an AlterShareGroupOffsets call requested."""
    place, _, start = event.detail.partition(" ")
    topic, _, partition = place.rpartition("/")
    return Altered(event.target, topic, int(partition), int(start))


class TopicNames:
    """Topic names by id, and the ids that each name has had."""

    def __init__(self, history: History) -> None:
        self.of: dict[str, str] = {}
        self.ids: dict[str, list[str]] = defaultdict(list)
        for event in history.of(Administered):
            if event.call == "CreateTopics" and event.detail and event.detail not in self.of:
                self.of[event.detail] = event.target
                self.ids[event.target].append(event.detail)


class Changes:
    """Changes to groups that may have taken effect, each at any time since it was requested.

    They are kept by topic name, since a name may get another id while a call is in flight.
    """

    def __init__(self, history: History) -> None:
        self._names = TopicNames(history)
        self._groups: dict[str, int] = {}
        self._topics: dict[tuple[str, str], int] = {}
        self._starts: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
        fault_ms = next((event.at_ms for event in history.of(FaultStruck)), None)
        for event in history.of(Administered):
            certain = event.error in _REFUSALS and (fault_ms is None or event.at_ms < fault_ms)
            if event.call in CHANGES and not certain:
                self._note(event)

    def deletes(self, share: Share, at_ms: int) -> bool:
        """Return True if the state may have been deleted by then: with its group, or with the group's offsets for its
        topic."""
        topic = self._names.of.get(share.topic_id, "")
        since = (self._groups.get(share.group_id), self._topics.get((share.group_id, topic)))
        return any(asked_ms is not None and asked_ms <= at_ms for asked_ms in since)

    def starts(self, share: Share, at_ms: int) -> set[int]:
        """Return the start offsets to which alterations may have set the state by then."""
        found = self._starts.get((share.group_id, self._names.of.get(share.topic_id, ""), share.partition), ())
        return {start for asked_ms, start in found if asked_ms <= at_ms}

    def touches(self, share: Share, at_ms: int) -> bool:
        """Return True if the state may have been deleted or reset by then."""
        return self.deletes(share, at_ms) or bool(self.starts(share, at_ms))

    def _note(self, event: Administered) -> None:
        if event.call == DELETE_GROUP:
            self._groups[event.target] = min(event.asked_ms, self._groups.get(event.target, event.asked_ms))
        elif event.call == DELETE_OFFSETS:
            key = (event.target, event.detail)
            self._topics[key] = min(event.asked_ms, self._topics.get(key, event.asked_ms))
        else:
            asked = altered(event)
            self._starts[asked[:3]].append((event.asked_ms, asked.start_offset))
