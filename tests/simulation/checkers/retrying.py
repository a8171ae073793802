"""How checkers read delays: which back-offs applied where, what wall clocks showed, which delays releases request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from kip932.ids import ACK_RELEASE
from tests.simulation.checkers.reading import offsets
from tests.simulation.delay_events import BackoffSeen, ClockSet, ReleaseSeen, RetriesSeen
from tests.simulation.history import History
from tests.simulation.leader_events import Locked


class Clocks:
    """How far the wall clock of each process is ahead of the run's time, and when."""

    def __init__(self, history: History) -> None:
        self._set: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for event in history.of(ClockSet):
            self._set[event.process].append((event.at_ms, event.ahead_ms))

    def between(self, process: str, since_ms: int, until_ms: int) -> list[int]:
        """Return every lead that it had between two moments (inclusive)."""
        known = self._set.get(process, [])
        before = [ahead_ms for at_ms, ahead_ms in known if at_ms < since_ms]
        return [*before[-1:], *(ahead_ms for at_ms, ahead_ms in known if since_ms <= at_ms <= until_ms)] or [0]


class Backoffs:
    """Back-offs of groups as each leader saw them. A leader may use a value until it reads the next one, so for a
    period the value at its start also counts."""

    def __init__(self, history: History) -> None:
        self._seen: dict[tuple[str, int, str], list[tuple[int, BackoffSeen]]] = defaultdict(list)
        self._by_group: dict[str, list[BackoffSeen]] = defaultdict(list)
        for event in history.of(RetriesSeen):
            self._seen[event.process, event.incarnation, event.group_id].append((event.at_ms, event.backoff))
            self._by_group[event.group_id].append(event.backoff)

    def least_ms(self, event: Locked, delivery_count: int, since_ms: int) -> int:
        """Return the shortest delay that the delivering leader can have given the record since then."""
        known = self._seen.get((event.process, event.incarnation, event.share.group_id), [])
        before = [backoff for at_ms, backoff in known if at_ms < since_ms]
        since = [backoff for at_ms, backoff in known if since_ms <= at_ms <= event.at_ms]
        return min((each.least_ms(delivery_count) for each in [*before[-1:], *since]), default=0)

    def most_ms(self, group_id: str, delivery_count: int) -> int:
        """Return the longest delay that any leader of the run gave such a record."""
        return max((each.most_ms(delivery_count) for each in self._by_group.get(group_id, ())), default=0)


def delays_of(batches: Iterable[ReleaseSeen]) -> Iterator[tuple[int, int]]:
    """Yield the offset and delay of every well-formed release; a negative delay means that the back-off applies."""
    for first, last, types, delays in batches:
        covered = offsets(first, last)
        if len(types) not in {1, len(covered)} or len(delays) not in {0, 1, len(covered)}:
            continue
        for index, offset in enumerate(covered):
            if types[index if len(types) > 1 else 0] == ACK_RELEASE:
                yield offset, delays[index if len(delays) > 1 else 0] if delays else -1
