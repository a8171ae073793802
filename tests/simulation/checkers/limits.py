"""The delivery limits of groups over time, as leaders saw them and as administrators requested them."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from tests.simulation.history import Administered, History, LimitsSeen
from tests.simulation.leader_events import AckDone, Locked

_CONFIG: Final = "share.delivery.count.limit"
_NO_LIMIT: Final = 1 << 31


class Limits:
    """Delivery limits by group."""

    def __init__(self, history: History) -> None:
        self._seen: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._asked: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for position, event in enumerate(history.events):
            if isinstance(event, Locked | AckDone):
                self._note(event.share.group_id, position, event.limit)
            elif isinstance(event, LimitsSeen):
                self._note(event.group_id, position, event.delivery_count_limit)
            elif isinstance(event, Administered) and event.call == "IncrementalAlterConfigs":
                self._ask(event)

    def lowest(self, group_id: str, since: int, at_ms: int) -> int:
        """Return the lowest limit that may have been in force between a position of the history and a time. A change
        that was requested by then may have taken effect at any time since its request."""
        found = [limit for asked_ms, limit in self._asked.get(group_id, ()) if asked_ms <= at_ms]
        return min([*found, *self._within(group_id, since)], default=_NO_LIMIT)

    def highest(self, group_id: str, since: int, until: int) -> int:
        """Return the highest limit that leaders saw between two positions, or that was in force at the first."""
        return max(self._within(group_id, since, until), default=0)

    def _within(self, group_id: str, since: int, until: int | None = None) -> list[int]:
        found = []
        for position, limit in reversed(self._seen.get(group_id, ())):
            if until is None or position <= until:
                found.append(limit)
            if position <= since:
                break
        return found

    def _note(self, group_id: str, position: int, limit: int) -> None:
        seen = self._seen[group_id]
        if not seen or seen[-1][1] != limit:
            seen.append((position, limit))

    def _ask(self, event: Administered) -> None:
        name, _, value = event.detail.partition("=")
        if name == _CONFIG and value.isdecimal():
            self._asked[event.target].append((event.asked_ms, int(value)))
