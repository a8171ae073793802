"""INV-21: a record is not delivered before its delay is over, and no record is delayed without a reason.

A delay is promised by a NONE response to a release that requested it or to which the group's back-off applies, by a
lock that expires under a back-off, and by stored state that a leader reads (PL-930 … PL-937). Within an object it is
measured on a clock that never jumps. From one object to the next it is converted using the wall clocks of two
processes, which `ClockSet` records; so the checker knows the result of each conversion, and tolerates no more than the
clocks' difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kip932.ids import ACK_RELEASE, ACK_RENEW, STATE_AVAILABLE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import Changes
from tests.simulation.checkers.reading import (
    AT_THE_END,
    REFUSALS,
    ObjectKey,
    RequestKey,
    StateKey,
    doomed,
    numbered,
    offsets,
    request_of,
    typed,
)
from tests.simulation.checkers.retrying import Backoffs, Clocks, delays_of
from tests.simulation.clock import WALL_START_MS
from tests.simulation.delay_events import ReleaseAsked, RetriesSeen, StateLoaded
from tests.simulation.final import Final
from tests.simulation.history import Event, History, Share, StateAnswered
from tests.simulation.leader_events import AckDone, GivenBack, Locked


@dataclass(slots=True)
class _Held:
    """An unsettled delivery: its position in the history, and the earliest time at which its lock can end. `unsure`:
    whether an acknowledgement of unknown outcome may have ended it; its member may then acknowledge it again."""

    given: Locked
    position: int
    until_ms: int
    unsure: bool = False

    @property
    def count(self) -> int:
        """Return its delivery count."""
        return self.given.delivery_count


@dataclass(slots=True)
class _Wait:
    """A record is delayed until `until_ms` after `count` deliveries, for the reason `why`."""

    count: int
    until_ms: int
    why: Event


@dataclass(slots=True)
class _Stored:
    """The earliest end of a delay that a response promised for the stored state, by its leader's clock."""

    count: int
    instant_ms: int
    why: AckDone


@dataclass
class _Object:
    """One share-partition object: its deliveries, and its delayed records."""

    held: dict[int, _Held] = field(default_factory=dict)
    waits: dict[int, _Wait] = field(default_factory=dict)


@dataclass
class _Life:
    """A share-partition's state from one Initialize to the next. `written`: count and end of delay of each offset that
    was last written as Available; `instants`: by offset and delivery count, the latest end of a delay that any release
    requested so far may cause; `given`: all deliveries."""

    stored: dict[int, _Stored] = field(default_factory=dict)
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    instants: dict[tuple[int, int], int] = field(default_factory=dict)
    given: dict[tuple[int, int], list[_Held]] = field(default_factory=lambda: defaultdict(list))


class Delays:
    """A promised delay is kept, whichever process leads; every stored delay has a reason."""

    rules: tuple[str, ...] = ("INV-21",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check, in order, the requests, deliveries, reads and writes of objects."""
        del final
        if any(seen.backoff.initial_ms for seen in history.of(RetriesSeen)) or any(history.of(ReleaseAsked)):
            yield from _Judge(history).violations(history)


class _Judge:
    def __init__(self, history: History) -> None:
        self._clocks = Clocks(history)
        self._backoffs = Backoffs(history)
        self._changes = Changes(history)
        self._doomed = doomed(history)
        self._objects: dict[ObjectKey, _Object] = defaultdict(_Object)
        self._lives: dict[StateKey, _Life] = defaultdict(_Life)
        self._reads: dict[tuple[Share, int, int], StateAnswered] = {}
        self._asked: dict[tuple[RequestKey, Share], ReleaseAsked] = {}

    def violations(self, history: History) -> Iterator[Violation]:
        kinds = (Locked, ReleaseAsked, AckDone, GivenBack, StateAnswered, StateLoaded)
        steps: list[tuple[float, Event]] = []
        for position, event in numbered(history, *kinds):
            steps.append((position, event))
            if isinstance(event, AckDone):
                steps.append((event.begun - 0.5, event))
        for step, event in sorted(steps, key=lambda each: each[0]):
            for found in self._step(step, event):
                if not self._excused(found[0], event.at_ms):
                    yield found[1]

    def _excused(self, share: Share, at_ms: int) -> bool:
        return at_ms >= self._doomed.get(share.topic_id, AT_THE_END) or self._changes.touches(share, at_ms)

    def _step(self, step: float, event: Event) -> Iterator[tuple[Share, Violation]]:
        if isinstance(event, Locked):
            yield from ((event.share, wrong) for wrong in self._given(int(step), event))
        elif isinstance(event, ReleaseAsked):
            self._ask(event)
        elif isinstance(event, AckDone):
            if step % 1:
                self._renew(event)
            else:
                yield from ((event.share, wrong) for wrong in self._done(event))
        elif isinstance(event, GivenBack):
            self._take_back(event)
        elif isinstance(event, StateAnswered) and event.code == 0:
            if event.call == "Read":
                self._reads[event.share, event.leader_epoch, event.generation] = event
            elif event.call == "Write":
                yield from ((event.share, wrong) for wrong in self._written(event))
            elif event.call == "Delete":
                for key in [key for key in self._lives if key.share == event.share]:
                    del self._lives[key]
        elif isinstance(event, StateLoaded):
            yield from ((event.share, wrong) for wrong in self._loaded(event))

    # ---- deliveries

    def _given(self, position: int, event: Locked) -> Iterator[Violation]:
        one = self._objects[_key(event)]
        life = self._lives[StateKey(event.share, event.state_epoch)]
        early: Violation | None = None
        for offset in offsets(event.first_offset, event.last_offset):
            wait, before = one.waits.pop(offset, None), one.held.get(offset)
            if wait is None or wait.count + 1 != event.delivery_count:
                wait = self._after(before, event)
            if wait is not None and event.at_ms < wait.until_ms:
                early = early or _early(event, offset, wait)
            held = one.held[offset] = _Held(event, position, event.at_ms + event.lock_ms)
            life.given[offset, event.delivery_count].append(held)
        if early is not None:
            yield early

    def _after(self, before: _Held | None, event: Locked) -> _Wait | None:
        """Return the delay that started when the lock expired, if nothing else ended the previous delivery (T12)."""
        if before is None or before.unsure or before.count + 1 != event.delivery_count:
            return None
        least_ms = self._backoffs.least_ms(event, before.count, before.given.at_ms)
        return _Wait(before.count, before.until_ms + least_ms, before.given) if least_ms else None

    # ---- acknowledgements

    def _ask(self, event: ReleaseAsked) -> None:
        """Note that from now on a state may show these records as delayed."""
        self._asked[request_of(event), event.share] = event
        one = self._objects[_key(event)]
        life = self._lives[StateKey(event.share, event.state_epoch)]
        ahead_ms = max(self._clocks.between(event.process, event.at_ms, AT_THE_END))
        for offset, given in delays_of(event.batches):
            held = one.held.get(offset)
            if held is not None and held.given.member_id == event.member_id:
                delay_ms = event.backoff.most_ms(held.count) if given < 0 else given
                instant_ms = WALL_START_MS + event.at_ms + delay_ms + ahead_ms
                if delay_ms:
                    name = (offset, held.count)
                    life.instants[name] = max(instant_ms, life.instants.get(name, 0))

    def _renew(self, event: AckDone) -> None:
        """Apply renewals: they take effect on request, whatever the outcome, and may shorten a lock."""
        for offset, kind in typed(event.batches):
            held = self._own(event, offset)
            if held is not None and kind == ACK_RENEW:
                held.until_ms = min(held.until_ms, event.begun_ms + event.lock_ms)

    def _done(self, event: AckDone) -> Iterator[Violation]:
        asked = self._asked.pop((request_of(event), event.share), None)
        if event.code in REFUSALS:
            return
        one = self._objects[_key(event)]
        waits = dict(delays_of(asked.batches)) if asked is not None and event.code == 0 else {}
        for offset, kind in typed(event.batches):
            held = self._own(event, offset)
            if held is None:
                continue
            if kind == ACK_RENEW:
                if event.code == 0:
                    held.until_ms = event.begun_ms + event.lock_ms
                continue
            if event.code:
                held.unsure = True
                continue
            del one.held[offset]
            if asked is not None and kind == ACK_RELEASE and offset in waits:
                yield from self._promised(event, asked, offset, held, waits[offset])

    def _promised(
        self, event: AckDone, asked: ReleaseAsked, offset: int, held: _Held, given: int
    ) -> Iterator[Violation]:
        """Yield violations for a release with the response NONE: its delay must apply here and be in the store. Offsets
        below the start offset, where a release has no effect (PL-404), and records at the delivery limit (T6) are
        exempt."""
        delay_ms = asked.backoff.least_ms(held.count) if given < 0 else given
        if not delay_ms or held.count >= event.limit or offset < event.start_offset:
            return
        until_ms = event.begun_ms + delay_ms
        self._objects[_key(event)].waits[offset] = _Wait(held.count, until_ms, event)
        late_ms = min(self._clocks.between(event.process, event.begun_ms, event.at_ms))
        instant_ms = WALL_START_MS + until_ms + late_ms
        life = self._lives[StateKey(event.share, event.state_epoch)]
        stored = life.stored[offset] = _Stored(held.count, instant_ms, event)
        count, written_ms = life.written.get(offset, (-1, 0))
        if count == held.count and written_ms < instant_ms:
            yield _missing(event, offset, written_ms, stored)

    def _own(self, event: AckDone, offset: int) -> _Held | None:
        held = self._objects[_key(event)].held.get(offset)
        if held is None or held.given.member_id != event.member_id or held.position > event.begun:
            return None
        return held

    def _take_back(self, event: GivenBack) -> None:
        """Clear the delays of records whose member's session ended, or whose range could not be delivered (PL-936)."""
        one = self._objects[_key(event)]
        ranges = event.ranges or ()
        meant = list(one.held) if event.ranges is None else [at for span in ranges for at in offsets(*span)]
        for offset in meant:
            held = one.held.get(offset)
            if held is not None and held.given.member_id == event.member_id:
                del one.held[offset]

    # ---- the stored state

    def _loaded(self, event: StateLoaded) -> Iterator[Violation]:
        read = self._reads.get((event.share, event.leader_epoch, event.generation))
        if read is None:
            return
        one = self._objects[_key(event)]
        promised = self._lives[StateKey(event.share, read.state_epoch)].stored
        missing: Violation | None = None
        wall_ms = WALL_START_MS + event.at_ms + event.ahead_ms
        for first, last, state, count, *rest in read.batches:
            instant_ms = rest[0] if rest else 0
            for offset in offsets(first, last) if state == STATE_AVAILABLE else ():
                stored = promised.get(offset)
                if stored is not None and stored.count == count and instant_ms < stored.instant_ms:
                    missing = missing or _missing(event, offset, instant_ms, stored)
                if instant_ms > wall_ms:
                    left_ms = min(instant_ms - wall_ms, event.delay_max_ms)
                    one.waits[offset] = _Wait(count, event.at_ms + left_ms, event)
        if missing is not None:
            yield missing

    def _written(self, event: StateAnswered) -> Iterator[Violation]:
        life = self._lives[StateKey(event.share, event.state_epoch)]
        for first, last, state, count, *rest in event.batches:
            instant_ms = rest[0] if rest else 0
            for offset in offsets(first, last) if state == STATE_AVAILABLE else ():
                name = (offset, count)
                life.written[offset] = (count, instant_ms)
                if instant_ms and instant_ms > max(
                    life.instants.get(name, 0), self._expired(event, life.given.get(name, []))
                ):
                    yield Violation(
                        "INV-21",
                        f"{event.share} offset {offset}, delivered {count} times, is stored to wait until {instant_ms} "
                        "though neither a release that was asked for nor the end of a lock makes it wait so long",
                        (event, *(held.given for held in life.given.get(name, []))),
                    )
                    return

    def _expired(self, event: StateAnswered, given: list[_Held]) -> int:
        """Return the latest end of a delay that an expired lock can have caused by now; 0 if none of these locks has
        expired."""
        latest = 0
        for held in given:
            if held.until_ms <= event.at_ms:
                most_ms = self._backoffs.most_ms(event.share.group_id, held.count)
                ahead_ms = max(self._clocks.between(held.given.process, held.until_ms, event.at_ms))
                latest = max(latest, WALL_START_MS + event.at_ms + most_ms + ahead_ms if most_ms else 0)
        return latest


def _key(event: Locked | AckDone | GivenBack | ReleaseAsked | StateLoaded) -> ObjectKey:
    return event.process, event.incarnation, event.object_id


def _early(event: Locked, offset: int, wait: _Wait) -> Violation:
    return Violation(
        "INV-21",
        f"{event.share} offset {offset} went to {event.member_id} at {event.at_ms}, delivery {event.delivery_count}, "
        f"though it was to wait until {wait.until_ms} at least",
        (wait.why, event),
    )


def _missing(event: StateLoaded | AckDone, offset: int, instant_ms: int, stored: _Stored) -> Violation:
    return Violation(
        "INV-21",
        f"{event.share} offset {offset} is stored with {instant_ms} for the end of its delay after delivery "
        f"{stored.count}, though its release was answered NONE and must wait until {stored.instant_ms} by the clock of "
        f"{stored.why.process}",
        (stored.why, event),
    )
