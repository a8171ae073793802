"""Identifies one life of a process, for the events of its observers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kip932.ids import SharePartitionKey
from tests.simulation.history import Event, Share

if TYPE_CHECKING:
    from tests.simulation.world import World


class Edge:
    """One life of a process, in the form used in events."""

    def __init__(self, world: World, objects: itertools.count[int], process: str, incarnation: int) -> None:
        self.events = world.history.events
        self.now_ms = world.now_ms
        self.incarnation = incarnation
        self._world = world
        self._process = process
        self._objects = objects
        self._topics: dict[bytes, str] = {}

    def report(self, kind: Callable[..., Event], *details: Any) -> None:
        """Record an event of this process, now."""
        self.events.append(kind(self.now_ms(), self._process, self.incarnation, *details))

    def changes(self, *, deletion: bool) -> None:
        """Note that a group coordinator in this process starts to change a group."""
        self._world.changes(self._process, deletion=deletion)

    def next_object(self) -> int:
        """Return a number that is unique among the objects of the run."""
        return next(self._objects)

    def topic(self, topic_id: bytes) -> str:
        """Return a topic id in hexadecimal digits."""
        found = self._topics.get(topic_id)
        if found is None:
            found = self._topics[topic_id] = topic_id.hex()
        return found

    def share(self, key: SharePartitionKey) -> Share:
        """Return a share-partition in the form used in events."""
        return Share(key.group_id, self.topic(key.topic_id), key.partition)
