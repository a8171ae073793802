"""Judges one run by what clients, leaders and stored state showed: INV-1, 2, 4, 5, 6, 7, 9, 13 and 17."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.unit.adversarial.watch import Acquired, Answered, Asked, Watch, finals

Place = tuple[int, int]
Offset = tuple[bytes, int, int]

#: A record that waits in a client's buffer reaches the application this much later than the leader gave it out.
BUFFERED_S = 5


@dataclass
class Books:
    """What producers and consumers were told. `limited`: nothing may be missing there, deliveries ran out."""

    produced: set[bytes] = field(default_factory=set)
    stored: dict[bytes, Place] = field(default_factory=dict)
    delivered: list[tuple[float, str, int, int, int, bytes]] = field(default_factory=list)
    confirmed: dict[Place, float] = field(default_factory=dict)
    unsure: set[Place] = field(default_factory=set)


@dataclass
class StateBooks:
    """Start offsets as the share coordinators showed them, one sample after the other."""

    found: list[str] = field(default_factory=list)
    _starts: dict[object, tuple[int, int]] = field(default_factory=dict)

    def sample(self, at: float, states: Mapping[object, tuple[int, int]]) -> None:
        """(state epoch, start offset) by key: within a state epoch the start offset never steps back (INV-9)."""
        for key, (epoch, start) in states.items():
            before = self._starts.get(key)
            if before is not None and (epoch < before[0] or (epoch == before[0] and start < before[1])):
                self.found.append(f"INV-9: {key} went from {before} to {(epoch, start)} at {at:.3f}")
            self._starts[key] = (epoch, start)


def faults_of(books: Books, watch: Watch, limit: int) -> list[str]:
    """Everything that must not be, in words."""
    return [*_loss(books, limit), *_invention(books), *_finality(watch), *_ownership(watch), *_given_again(books)]


def _loss(books: Books, limit: int) -> list[str]:
    seen: dict[Place, list[int]] = defaultdict(list)
    for _, _, partition, offset, attempt, _ in books.delivered:
        seen[partition, offset].append(attempt)
    found = []
    for value, place in sorted(books.stored.items()):
        if place in books.confirmed or place in books.unsure:
            continue
        attempts = seen.get(place, [])
        if not attempts:
            found.append(f"INV-1: {value!r} at {place} was stored and never delivered")
        elif max(attempts) < limit:
            found.append(f"INV-1: {value!r} at {place} was delivered {attempts}, never settled, and did not come back")
    return found


def _invention(books: Books) -> list[str]:
    found = []
    places = dict(books.stored)
    values = {place: value for value, place in places.items()}
    for _, member, partition, offset, attempt, value in books.delivered:
        place = (partition, offset)
        if value not in books.produced:
            found.append(f"INV-2: {member} got {value!r} at {place}, which nobody produced")
        if values.setdefault(place, value) != value:
            found.append(f"INV-2: {place} held {values[place]!r} and was delivered as {value!r}")
        if places.setdefault(value, place) != place:
            found.append(f"CM-43: {value!r} stands at {places[value]} and at {place}")
        if attempt < 1:
            found.append(f"INV-7: {place} was delivered with count {attempt}")
    return found


def _finality(watch: Watch) -> list[str]:
    """INV-4, INV-5: nothing is acquired behind a confirmed accept or reject."""
    found = []
    final: dict[Offset, Answered] = {}
    for event in watch.events:
        if isinstance(event, Asked):
            continue
        if isinstance(event, Answered):
            for offset in event.finals() if event.code == 0 else ():
                final.setdefault((event.topic, event.partition, offset), event)
            continue
        for offset in range(event.first, event.last + 1):
            before = final.get((event.topic, event.partition, offset))
            if before is not None:
                found.append(
                    f"INV-4: {event.partition}/{offset} acquired by {event.member} at {event.at:.3f} on {event.node}, "
                    f"though settled for {before.member} at {before.at:.3f} on {before.node}"
                )
    return found


def _ownership(watch: Watch) -> list[str]:
    """INV-6: an accept is confirmed to the member that acquired last, but for what was settled before it asked."""
    found = []
    holders: dict[Offset, Acquired] = {}
    # Acknowledging what lies below the SPSO is a no-op answered NONE; the holder's own accept may have moved it there
    # though its answer was an error or got lost.
    settled: set[Offset] = set()
    for event in watch.events:
        if isinstance(event, Acquired):
            holders.update(((event.topic, event.partition, offset), event) for offset in _range(event))
            continue
        if isinstance(event, Asked):
            names = [(event.topic, event.partition, offset) for offset in finals(event.batches)]
            settled.update(name for name in names if name in holders and holders[name].member == event.member)
            continue
        for offset in event.finals() if event.code == 0 else ():
            name = (event.topic, event.partition, offset)
            last = holders.get(name)
            if name not in settled and last is not None and last.member != event.member and last.at < event.asked_at:
                found.append(
                    f"INV-6: {event.partition}/{offset} settled for {event.member}, asked {event.asked_at:.3f} and "
                    f"answered {event.at:.3f} on {event.node}; {last.member} had acquired it at {last.at:.3f}"
                )
            settled.add(name)
    return found


def _range(event: Acquired) -> range:
    return range(event.first, event.last + 1)


def _given_again(books: Books) -> list[str]:
    """INV-4 for the application: a confirmed record does not come back."""
    return [
        f"INV-4: {member} was given {(partition, offset)} at {at:.3f}, long after its accept was confirmed"
        for at, member, partition, offset, _, _ in books.delivered
        if at > books.confirmed.get((partition, offset), at) + BUFFERED_S
    ]
