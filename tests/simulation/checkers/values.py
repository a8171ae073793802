"""INV-2, CM-43, INV-1: every delivered record was produced once; every record confirmed to its producer is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kip932.ids import ACK_RENEW
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import doomed, offsets, shortened, typed
from tests.simulation.final import Final
from tests.simulation.history import (
    AckAnswered,
    Acquired,
    Administered,
    Delivered,
    Event,
    History,
    Place,
    Produced,
    ProduceSent,
)


class NoInvention:
    """Values come from producers, an offset has one value, and every delivery has its own acquisition by its member.

    A renewed record is returned to its application (CL-27), perhaps after its next delivery; it may be returned again.
    """

    rules: tuple[str, ...] = ("INV-2",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check producers, leaders and applications, in order."""
        sent = {event.value for event in history.of(ProduceSent)}
        values: dict[Place, tuple[bytes, Event | None]] = {
            Place(*partition, offset): (value, None)
            for partition, found in final.values.items()
            for offset, value in found.items()
        }
        given = _Given()
        for event in history.of(Produced, Acquired, AckAnswered, Delivered):
            if isinstance(event, Acquired):
                given.acquired(event)
                continue
            if isinstance(event, AckAnswered):
                given.answered(event)
                continue
            value, witness = values.setdefault(event.place, (event.value, event))
            if value != event.value:
                shown = (event,) if witness is None else (witness, event)
                yield Violation("INV-2", f"{event.place} holds {value!r}, and is reported as {event.value!r}", shown)
            if isinstance(event, Delivered):
                yield from self._delivered(event, sent, given)

    @staticmethod
    def _delivered(event: Delivered, sent: set[bytes], given: _Given) -> Iterator[Violation]:
        if event.value not in sent:
            yield Violation("INV-2", f"{event.member_id} was given {event.value!r}, which no producer sent", (event,))
        if not given.take(event):
            yield Violation(
                "INV-2",
                f"{event.member_id} was given {event.place}, delivery {event.delivery_count}, which it had not "
                "acquired (again)",
                (event,),
            )


class _Given:
    """The records that leaders gave to each member, and those that reached its application."""

    def __init__(self) -> None:
        self._left: Counter[tuple[str, str, Place, int]] = Counter()
        self._renewed: set[tuple[str, str, Place]] = set()

    def acquired(self, event: Acquired) -> None:
        """Note a range that a member acquired."""
        topic_id, partition = event.share[1:]
        for offset in offsets(event.first_offset, event.last_offset):
            place = Place(topic_id, partition, offset)
            self._left[event.share.group_id, event.member_id, place, event.delivery_count] += 1

    def answered(self, event: AckAnswered) -> None:
        """Note those of a member's renewals that may have been confirmed."""
        if event.code == 0 and any(ACK_RENEW in types for _, _, types in event.batches):
            group_id, topic_id, partition = event.share
            for offset, kind in typed(event.batches):
                if kind == ACK_RENEW:
                    self._renewed.add((group_id, event.member_id, Place(topic_id, partition, offset)))

    def take(self, event: Delivered) -> bool:
        """Match a delivery with an acquisition that no other delivery has used, or with a renewal; return False if
        there is none."""
        key = (event.group_id, event.member_id, event.place, event.delivery_count)
        if key not in self._left:
            return False
        self._left[key] -= 1
        return self._left[key] >= 0 or key[:3] in self._renewed


class StoredOnce:
    """However often a produce request is retried, its record is stored once (all values in a run are different)."""

    rules: tuple[str, ...] = ("CM-43",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the logs at the end, then what producers and applications saw."""
        places: dict[bytes, tuple[Place, Event | None]] = {}
        for partition, found in sorted(final.values.items()):
            for offset, value in sorted(found.items()):
                place = Place(*partition, offset)
                before, witness = places.setdefault(value, (place, None))
                if before != place:
                    yield _twice(value, before, place, witness, None)
        for event in history.of(Produced, Delivered):
            before, witness = places.setdefault(event.value, (event.place, event))
            if before != event.place:
                yield _twice(event.value, before, event.place, witness, event)


def _twice(value: bytes, one: Place, other: Place, *events: Event | None) -> Violation:
    shown = tuple(event for event in events if event is not None)
    return Violation("CM-43", f"{value!r} is at {one} and at {other}", shown)


class ProducedStays:
    """A record confirmed to its producer stays in its log as long as the log starts at or before it."""

    rules: tuple[str, ...] = ("INV-1",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check every confirmed record of a topic that still exists."""
        gone = doomed(history)
        for event in history.of(Produced):
            log = final.logs.get(event.place[:2])
            if log is None or event.place.topic_id in gone or event.place.offset < log.log_start_offset:
                continue
            if event.place.offset not in final.values.get(event.place[:2], {}):
                yield Violation(
                    "INV-1",
                    f"{event.value!r} was confirmed at {event.place}, and is not in the log, which goes from "
                    f"{log.log_start_offset} to {log.high_watermark}",
                    (event,),
                )


class LogBegins:
    """A log starts at 0, or at most at the offset to which records were deleted, unless its topic's retention was
    changed."""

    rules: tuple[str, ...] = ("INV-1",)

    def check(self, history: History, final: Final) -> Iterator[Violation]:
        """Check the logs at the end. Requested deletions may have been done, whatever the response."""
        short = shortened(history)
        cut: dict[tuple[str, int], int] = {}
        for event in history.of(Administered):
            if event.call == "DeleteRecords":
                where, _, first = event.detail.partition(" ")
                topic_id, _, number = where.partition("/")
                cut[topic_id, int(number)] = max(int(first), cut.get((topic_id, int(number)), 0))
        for partition, log in sorted(final.logs.items()):
            if log.log_start_offset > cut.get(partition, 0) and partition[0] not in short:
                yield Violation(
                    "INV-1",
                    f"the log of {partition} begins at {log.log_start_offset}; records below "
                    f"{cut.get(partition, 0)} were deleted, and it keeps all",
                )
