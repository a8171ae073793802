"""INV-1, INV-5, INV-9: nothing is finished without a reason, and the start offset passes only finished offsets.

A record may be finished because the last member that held it requested that, because it had reached the delivery limit,
or because it has left the log. The relevant holder is the one at the newest share-partition object that delivered the
record: by reading the stored state, that object has fenced all operations that older ones had in flight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kip932.ids import ACK_GAP, TERMINAL_STATES
from tests.simulation.checkers import Violation
from tests.simulation.checkers.limits import Limits
from tests.simulation.checkers.reading import (
    AT_THE_END,
    FINISHING,
    Applied,
    Records,
    StateKey,
    doomed,
    object_of,
    offsets,
    partition_of,
    typed,
)
from tests.simulation.delay_events import TakeBackAsked
from tests.simulation.final import Final
from tests.simulation.history import (
    Delivered,
    Event,
    History,
    Place,
    SessionAsked,
    Share,
    StateAnswered,
    StateBatchSeen,
    StateSeen,
)
from tests.simulation.leader_events import Locked

Pair = tuple[int, int]
#: Finished offsets, with the delivery count at which each was finished.
Counts = dict[int, int]

_ANY_GENERATION = 1 << 31


@dataclass(slots=True)
class _Given:
    """A delivery of a record. `taken_back`: its holder asked for that, so it need not count (PL-941)."""

    pair: Pair
    position: int
    event: Locked
    taken_back: bool = False

    @property
    def count_min(self) -> int:
        """The least delivery count at which the record may be finished from now on."""
        return self.event.delivery_count - self.taken_back


@dataclass(slots=True)
class _Seen:
    """The position and time at which a state was seen."""

    position: int
    at_ms: int
    pair: Pair
    event: Event | None


@dataclass
class _Life:
    """A share-partition's state from one Initialize to the next. `judged_to`: records below it have been checked
    already."""

    given: dict[int, list[_Given]] = field(default_factory=lambda: defaultdict(list))
    judged_to: int = -1
    judged: set[int] = field(default_factory=set)


class _Judge:
    """Replays one history."""

    def __init__(self, history: History, final: Final) -> None:
        self.records = Records(history, final)
        self._doomed = doomed(history)
        self._applied = Applied(history)
        self._limits = Limits(history)
        self._lives: dict[StateKey, _Life] = defaultdict(_Life)
        self._asked: dict[Share, dict[int, list[tuple[int, SessionAsked]]]] = defaultdict(lambda: defaultdict(list))
        self._delivered: set[tuple[str, Place]] = set()

    # ---- events

    def locked(self, position: int, event: Locked) -> None:
        """Note a range that was locked."""
        given = self._lives[StateKey(event.share, event.state_epoch)].given
        pair = (event.leader_epoch, event.generation)
        for offset in offsets(event.first_offset, event.last_offset):
            given[offset].append(_Given(pair, position, event))

    def taken_back(self, event: TakeBackAsked) -> None:
        """Note that a holder takes its delivery back. If this is refused or its write fails, the delivery counts."""
        name = (event.process, event.incarnation, event.object_id)
        for life in (life for key, life in self._lives.items() if key.share == event.share):
            for first, last in event.ranges:
                for offset in offsets(first, last):
                    given = life.given.get(offset)
                    if given and object_of(given[-1].event) == name and given[-1].event.member_id == event.member_id:
                        given[-1].taken_back = True

    def delivered(self, event: Delivered) -> None:
        """Note that an application received a record; from now on its member may acknowledge it in any way."""
        self._delivered.add((event.member_id, event.place))

    def asked(self, position: int, event: SessionAsked) -> None:
        """Note acknowledgements that finish records, if they are applied. A GAP means an offset without a record, so
        for a record that the client never passed to its application it is not a reason."""
        for topic_id, partition, batch in event.acks:
            share = Share(event.group_id, topic_id, partition)
            if self._applied.possible(event, share):
                asked = self._asked[share]
                for offset, kind in typed([batch]):
                    shown = kind != ACK_GAP or (event.member_id, Place(topic_id, partition, offset)) in self._delivered
                    if kind in FINISHING and shown:
                        asked[offset].append((position, event))

    def deleted(self, share: Share) -> None:
        """Note that the state was deleted; the next one may have the same epoch."""
        for key in [key for key in self._lives if key.share == share]:
            del self._lives[key]

    # ---- checks

    def state(self, key: StateKey, start_offset: int, terminal: Counts, seen: _Seen) -> Iterator[Violation]:
        """Check a state that was seen or confirmed: each offset that is finished in it for the first time must have a
        reason."""
        life = self._lives[key]
        partition = partition_of(key.share)
        newly = [offset for offset in terminal if offset >= life.judged_to and offset not in life.judged]
        if start_offset > life.judged_to:
            if life.judged_to >= 0:
                newly += self.records.between(partition, life.judged_to, start_offset)
            life.judged_to = start_offset
        if seen.at_ms >= self._doomed.get(key.share.topic_id, AT_THE_END):
            return
        log_start = self.records.log_start(partition)
        for offset in dict.fromkeys(newly):
            if offset in life.judged:
                continue
            life.judged.add(offset)
            if offset >= log_start and self.records.holds(partition, offset):
                last = _holder(life.given.get(offset, ()), seen)
                count = terminal.get(offset)
                if last is not None and count is not None and count < last.count_min:
                    yield _outdated(key, offset, count, last.event, seen)
                else:
                    yield from self._unfounded(key, last, offset, count, seen)

    def _unfounded(
        self, key: StateKey, last: _Given | None, offset: int, count: int | None, seen: _Seen
    ) -> Iterator[Violation]:
        shown = (seen.event,) if seen.event is not None else ()
        if last is None:
            yield Violation("INV-1", f"{key.share} offset {offset} is finished, but no member was given it", shown)
            return
        given, asked = last.event, self._asked[key.share].get(offset, [])
        if any(_by(request, given) and last.position < when < seen.position for when, request in asked):
            return
        reached = given.delivery_count if count is None else count
        if reached >= self._limits.lowest(key.share.group_id, last.position, seen.at_ms):
            return
        earlier = [request for when, request in asked if when < last.position]
        why = "an older request of another holder asked for that" if earlier else "no holder asked for that"
        yield Violation(
            "INV-5" if earlier else "INV-9",
            f"{key.share} offset {offset} is finished at {seen.at_ms}, but {why}: {given.member_id} was given it at "
            f"{given.at_ms}, delivery {given.delivery_count}",
            (*earlier[-1:], given, *shown),
        )


def _outdated(key: StateKey, offset: int, count: int, given: Locked, seen: _Seen) -> Violation:
    return Violation(
        "INV-5",
        f"{key.share} offset {offset} is finished at {seen.at_ms} as of its delivery {count}, though {given.member_id} "
        f"was given delivery {given.delivery_count} at {given.at_ms}",
        (given,) if seen.event is None else (given, seen.event),
    )


def _holder(given: Iterable[_Given], seen: _Seen) -> _Given | None:
    """Return the last member that received a record from the newest object that can have written the state seen."""
    found: _Given | None = None
    for one in given:
        possible = one.pair <= seen.pair and one.position < seen.position
        if possible and (found is None or (one.pair, one.position) > (found.pair, found.position)):
            found = one
    return found


def _counts(batches: Iterable[StateBatchSeen]) -> Counts:
    return {
        offset: count
        for first, last, state, count, *_ in batches
        if state in TERMINAL_STATES
        for offset in offsets(first, last)
    }


def _by(request: SessionAsked, last: Locked) -> bool:
    """Return True if the request came from the member that received the record, and went to the process that delivered
    it."""
    return (request.process, request.incarnation, request.member_id) == (
        last.process,
        last.incarnation,
        last.member_id,
    )


class NothingSkipped:
    """Every record that a state shows as finished is finished for a reason in the history."""

    rules: tuple[str, ...] = ("INV-1", "INV-5", "INV-9")

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check states in the order in which they were confirmed or seen, then the ones at the end."""
        judge = _Judge(history, final)
        for position, event in enumerate(history.events):
            if isinstance(event, Locked):
                judge.locked(position, event)
            elif isinstance(event, TakeBackAsked):
                judge.taken_back(event)
            elif isinstance(event, Delivered):
                judge.delivered(event)
            elif isinstance(event, SessionAsked):
                if event.acks:
                    judge.asked(position, event)
            elif isinstance(event, StateAnswered):
                if event.code == 0:
                    yield from self._answered(judge, position, event)
            elif isinstance(event, StateSeen):
                yield from self._seen(judge, position, event)
        for state in final.served.values():
            yield from self._seen(judge, AT_THE_END, state)

    @staticmethod
    def _answered(judge: _Judge, position: int, event: StateAnswered) -> Iterator[Violation]:
        key = StateKey(event.share, event.state_epoch)
        if event.call == "Delete":
            judge.deleted(event.share)
        elif event.call == "Initialize":
            yield from judge.state(key, event.start_offset, {}, _Seen(position, event.at_ms, (-1, 0), event))
        elif event.call in {"Read", "Write"}:
            seen = _Seen(position, event.at_ms, (event.leader_epoch, event.generation), event)
            yield from judge.state(key, event.start_offset, _counts(event.batches), seen)

    @staticmethod
    def _seen(judge: _Judge, position: int, state: StateSeen) -> Iterator[Violation]:
        seen = _Seen(position, state.at_ms, (state.leader_epoch, _ANY_GENERATION), state)
        key = StateKey(state.share, state.state_epoch)
        yield from judge.state(key, state.start_offset, _counts(state.batches), seen)
