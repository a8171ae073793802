"""INV-7 and INV-8: delivery counts increase by one and never exceed the limit, and attempts are bounded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.checkers import Violation
from tests.simulation.checkers.limits import Limits
from tests.simulation.checkers.reading import ObjectKey, StateKey, numbered, object_of, offsets
from tests.simulation.delay_events import TakeBackAsked
from tests.simulation.final import Final as FinalState
from tests.simulation.history import History, Share, StateAnswered
from tests.simulation.leader_events import Locked

#: PL-941
_IN_A_ROW_MAX: Final = 10
#: The delivery counts by offset in a stored state.
Counts = dict[int, int]


@dataclass(slots=True)
class _Given:
    count: int
    position: int
    event: Locked
    taken_back: bool = False
    in_a_row: int = 0


@dataclass
class _Object:
    """One share-partition object: its last delivery of each offset, and the state it has read."""

    given: dict[int, _Given] = field(default_factory=dict)
    read: Counts = field(default_factory=dict)
    generation: int = 0


@dataclass
class _Attempts:
    """One record's deliveries under one state. `lost`: how many of them later objects may not know about (PL-105)."""

    deliveries: int = 0
    lost: int = 0
    last_object: ObjectKey | None = None
    last_count: int = 0
    highest_limit: int = 0


@dataclass
class _Life:
    """A share-partition's state from one Initialize to the next. `stored`: the counts that a confirmed write
    contained."""

    stored: Counts = field(default_factory=dict)
    attempts: dict[int, _Attempts] = field(default_factory=lambda: defaultdict(_Attempts))


class DeliveryCounts:
    """Within an object each delivery count is one more than the previous one; a new object continues from the stored
    state. A delivery that its holder took back is repeated with the same count, at most ten times in a row (PL-941).

    No count exceeds the current limit, except for a record that was released under a higher limit (PL-104). In total, a
    record is delivered at most as many times as the limit allows, plus, for each change of object, the deliveries that
    were not stored. Of PL-104, it is not checked here that a raised limit does allow more deliveries, and that no limit
    is applied when records are acquired: the unit tests of the core show that.
    """

    rules: tuple[str, ...] = ("INV-7", "INV-8")

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check reads, writes and locks in order."""
        del final
        yield from _Counting(history).violations(history)


class _Counting:
    def __init__(self, history: History) -> None:
        self._limits = Limits(history)
        self._objects: dict[ObjectKey, _Object] = {}
        self._lives: dict[StateKey, _Life] = defaultdict(_Life)
        self._reads: dict[tuple[Share, int], list[StateAnswered]] = defaultdict(list)

    def violations(self, history: History) -> Iterator[Violation]:
        for position, event in numbered(history, Locked, StateAnswered, TakeBackAsked):
            if isinstance(event, Locked):
                yield from self._locked(position, event)
            elif isinstance(event, TakeBackAsked):
                self._take_back(event)
            elif isinstance(event, StateAnswered) and event.code == 0:
                self._answered(event)

    def _answered(self, event: StateAnswered) -> None:
        if event.call == "Delete":
            for key in [key for key in self._lives if key.share == event.share]:
                del self._lives[key]
        elif event.call == "Read":
            self._reads[event.share, event.leader_epoch].append(event)
        elif event.call == "Write":
            stored = self._lives[StateKey(event.share, event.state_epoch)].stored
            for first, last, _, count, *_ in event.batches:
                for offset in offsets(first, last):
                    stored[offset] = max(count, stored.get(offset, 0))

    def _take_back(self, event: TakeBackAsked) -> None:
        """Note that a delivery is taken back. If this is refused or its write fails, the delivery counts."""
        one = self._objects.get((event.process, event.incarnation, event.object_id))
        for first, last in event.ranges if one is not None else ():
            for offset in offsets(first, last):
                given = one.given.get(offset) if one is not None else None
                if given is not None and given.event.member_id == event.member_id:
                    given.taken_back = True

    def _locked(self, position: int, event: Locked) -> Iterator[Violation]:
        name = object_of(event)
        one = self._objects.get(name)
        if one is None:
            one = self._objects[name] = _Object()
        self._take_reads(one, event)
        life = self._lives[StateKey(event.share, event.state_epoch)]
        wrong: dict[str, Violation] = {}
        for offset in offsets(event.first_offset, event.last_offset):
            for found in (
                self._step(event, offset, one) or self._limit(position, event, offset, one),
                self._attempt(event, offset, name, life, _repeats(event, one.given.get(offset))),
            ):
                if found is not None:
                    wrong.setdefault(found.rule, found)
            former = one.given.get(offset)
            row = former.in_a_row + 1 if former is not None and _repeats(event, former) else 0
            one.given[offset] = _Given(event.delivery_count, position, event, in_a_row=row)
        yield from wrong.values()

    def _take_reads(self, one: _Object, event: Locked) -> None:
        """Apply the state this object has read since: reads under its leader epoch, up to its generation, that no older
        object made."""
        if event.generation <= one.generation:
            return
        reads = self._reads[event.share, event.leader_epoch]
        for read in [read for read in reads if read.generation <= event.generation]:
            reads.remove(read)
            if read.state_epoch == event.state_epoch:
                for first, last, _, count, *_ in read.batches:
                    one.read.update(dict.fromkeys(offsets(first, last), count))
        one.generation = event.generation

    @staticmethod
    def _step(event: Locked, offset: int, one: _Object) -> Violation | None:
        before = one.given.get(offset)
        read = one.read.get(offset, 0)
        expected = {read + 1} if before is None else {before.count + 1, max(read, before.count) + 1}
        if before is not None and _repeats(event, before) and before.in_a_row < _IN_A_ROW_MAX:
            return None
        if event.delivery_count in expected:
            return None
        known = f"after its delivery {before.count}" if before is not None else f"stored with count {read}"
        sentence = f"{event.share} offset {offset}, {known}, was given out with count {event.delivery_count}"
        return Violation("INV-7", sentence, (event,) if before is None else (before.event, event))

    def _limit(self, position: int, event: Locked, offset: int, one: _Object) -> Violation | None:
        if event.delivery_count <= event.limit:
            return None
        before = one.given.get(offset)
        since = before.position if before is not None else -1
        highest = self._limits.highest(event.share.group_id, since, position)
        if event.delivery_count <= highest:
            return None
        return Violation(
            "INV-7",
            f"{event.share} offset {offset} was given out with count {event.delivery_count}, though the limit since "
            f"its former delivery was {highest} at most",
            (event,) if before is None else (before.event, event),
        )

    @staticmethod
    def _attempt(event: Locked, offset: int, name: ObjectKey, life: _Life, repeats: bool) -> Violation | None:
        attempts = life.attempts[offset]
        if attempts.last_object not in (None, name):
            attempts.lost += max(1, attempts.last_count - life.stored.get(offset, 0))
        attempts.deliveries += not repeats
        attempts.last_object, attempts.last_count = name, event.delivery_count
        attempts.highest_limit = max(attempts.highest_limit, event.limit)
        if attempts.deliveries <= max(attempts.highest_limit, event.delivery_count) + attempts.lost:
            return None
        return Violation(
            "INV-8",
            f"{event.share} offset {offset} was given out {attempts.deliveries} times; the limit was "
            f"{attempts.highest_limit}, and changes of its leader explain {attempts.lost} more",
            (event,),
        )


def _repeats(event: Locked, before: _Given | None) -> bool:
    """Return True if the delivery repeats the count of one taken back."""
    return before is not None and before.taken_back and before.count == event.delivery_count
