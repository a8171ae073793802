"""INV-3: a record is locked to one member at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kip932.ids import ACK_RENEW
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import REFUSALS, ObjectKey, numbered, object_of, offsets, typed
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.leader_events import AckDone, GivenBack, Locked


@dataclass(slots=True)
class _Lock:
    """A record's lock: its latest possible end, the event that granted it, and when it was last cut short."""

    until_ms: int
    given: Locked
    cut_ms: int = -1

    def cut(self, at_ms: int) -> None:
        """Note that it ends now."""
        self.until_ms, self.cut_ms = min(self.until_ms, at_ms), at_ms


@dataclass
class _Locks:
    """The locks of one share-partition object. The object that follows a retired one does not know them (PL-631)."""

    held: dict[int, _Lock] = field(default_factory=dict)

    def give(self, event: Locked) -> Iterator[Violation]:
        """Lock a range for a member; a lock that ends at this very moment counts as ended (PL-303)."""
        until_ms = event.at_ms + event.lock_ms
        clash: dict[int, _Lock] = {}
        for offset in offsets(event.first_offset, event.last_offset):
            before = self.held.get(offset)
            if before is not None and before.until_ms > event.at_ms:
                clash[offset] = before
            self.held[offset] = _Lock(until_ms, event)
        if clash:
            offset, before = next(iter(clash.items()))
            yield Violation(
                "INV-3",
                f"{event.share} offset {offset} went to {event.member_id} at {event.at_ms} though "
                f"{before.given.member_id} has held it since {before.given.at_ms} and may until {before.until_ms}",
                (before.given, event),
            )

    def ask(self, event: AckDone) -> None:
        """Apply renewals at the time of the request, whatever its outcome and however late (PL-326). They shorten a
        lock if the group's lock duration was reduced meanwhile."""
        for offset, kind in typed(event.batches):
            lock = self._own(event, offset)
            if lock is not None and kind == ACK_RENEW:
                lock.until_ms = min(lock.until_ms, event.begun_ms + event.lock_ms)

    def settle(self, event: AckDone) -> None:
        """Apply a completed acknowledgement: a renewal extends the lock, every other type ends it. One of unknown
        outcome may end it when the stored state has been read back (PL-707); a refused one has no effect."""
        if event.code in REFUSALS:
            return
        for offset, kind in typed(event.batches):
            lock = self._own(event, offset)
            if lock is None:
                continue
            if kind != ACK_RENEW or event.code:
                lock.cut(event.at_ms)
            elif lock.cut_ms < event.begun_ms:  # it took effect on request, and later changes still hold
                lock.until_ms = event.begun_ms + event.lock_ms

    def _own(self, event: AckDone, offset: int) -> _Lock | None:
        lock = self.held.get(offset)
        return None if lock is None or lock.given.member_id != event.member_id else lock

    def take_back(self, event: GivenBack) -> None:
        """End the locks of a member whose session ended, or on a range that could not be delivered."""
        for offset in self._meant(event):
            lock = self.held.get(offset)
            if lock is not None and lock.given.member_id == event.member_id:
                lock.cut(event.at_ms)

    def _meant(self, event: GivenBack) -> Iterable[int]:
        if event.ranges is None:
            return self.held
        return [offset for first, last in event.ranges for offset in offsets(first, last)]


class MutualExclusion:
    """Within one share-partition object no lock is granted on a record while another one is held."""

    rules: tuple[str, ...] = ("INV-3",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check, in order, the requests to the objects, and the ranges they locked and took back."""
        del final
        objects: dict[ObjectKey, _Locks] = defaultdict(_Locks)
        steps: list[tuple[float, Locked | AckDone | GivenBack]] = []
        for position, event in numbered(history, Locked, AckDone, GivenBack):
            steps.append((position, event))
            if isinstance(event, AckDone):
                steps.append((event.begun - 0.5, event))
        for step, event in sorted(steps, key=lambda step: step[0]):
            locks = objects[object_of(event)]
            if isinstance(event, Locked):
                yield from locks.give(event)
            elif isinstance(event, GivenBack):
                locks.take_back(event)
            elif step % 1:
                locks.ask(event)
            else:
                locks.settle(event)
