"""INV-6: only the holder of an unexpired lock gets an acknowledgement confirmed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from kip932.ids import ACK_RENEW
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import ObjectKey, Records, numbered, object_of, offsets, partition_of, typed
from tests.simulation.final import Final
from tests.simulation.history import History
from tests.simulation.leader_events import AckDone, Locked


@dataclass(slots=True)
class _Held:
    member_id: str
    until_ms: int
    position: int
    given: Locked


@dataclass
class _Holders:
    """The holders of one share-partition object's records, each as long as it may hold them."""

    records: Records
    held: dict[int, _Held] = field(default_factory=dict)

    def give(self, position: int, event: Locked) -> None:
        """Note that a lock starts, which ends every earlier one."""
        until_ms = event.at_ms + event.lock_ms
        for offset in offsets(event.first_offset, event.last_offset):
            self.held[offset] = _Held(event.member_id, until_ms, position, event)

    def begin(self, event: AckDone) -> Iterator[Violation]:
        """Check a request against the current locks; renewals take effect now, whatever follows."""
        renewed_ms = event.begun_ms + event.lock_ms
        for offset, kind in typed(event.batches):
            if offset < event.start_offset:
                continue  # a no-op (PL-404)
            lock = self.held.get(offset)
            owned = lock is not None and lock.member_id == event.member_id and lock.until_ms > event.begun_ms
            if owned and lock is not None:
                if kind == ACK_RENEW:
                    lock.until_ms = renewed_ms
            elif event.code == 0 and (lock is not None or self.records.holds(partition_of(event.share), offset)):
                yield _not_owned(event, offset, lock)
                return

    def end(self, event: AckDone) -> None:
        """End the locks that a confirmed acknowledgement settled; after an error the records may have been rolled back
        to their holder (PL-414)."""
        if event.code:
            return
        for offset, kind in typed(event.batches):
            lock = self.held.get(offset)
            if lock is not None and kind != ACK_RENEW and lock.position < event.begun:
                lock.until_ms = min(lock.until_ms, event.begun_ms)


def _not_owned(event: AckDone, offset: int, lock: _Held | None) -> Violation:
    if lock is None:
        held = "it was never given out by this share-partition object"
    else:
        held = f"{lock.member_id} held it, from {lock.given.at_ms} to {lock.until_ms} at most"
    sentence = (
        f"{event.share} offset {offset}: the acknowledgement of {event.member_id}, asked at {event.begun_ms}, was "
        f"confirmed at {event.at_ms}, but {held}"
    )
    return Violation("INV-6", sentence, (event,) if lock is None else (lock.given, event))


class Ownership:
    """For every offset, an acknowledgement with the response NONE came from the holder of the lock at the time of the
    request."""

    rules: tuple[str, ...] = ("INV-6",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check each object's locks and acknowledgements, in the order in which they were granted and requested."""
        records = Records(history, final)
        objects: dict[ObjectKey, _Holders] = defaultdict(lambda: _Holders(records))
        steps: list[tuple[float, Locked | AckDone]] = []
        for position, event in numbered(history, Locked, AckDone):
            steps.append((position, event))
            if isinstance(event, AckDone):
                steps.append((event.begun - 0.5, event))
        for step, event in sorted(steps, key=lambda step: step[0]):
            holders = objects[object_of(event)]
            if isinstance(event, Locked):
                holders.give(int(step), event)
            elif step % 1:
                yield from holders.begin(event)
            else:
                holders.end(event)
