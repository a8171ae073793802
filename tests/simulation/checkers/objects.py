"""INV-3, INV-7: a share-partition object, whose loss means that its deliveries are forgotten, is dropped only for a
cause that the history shows.

Everything that the other checkers tolerate when an object changes (locks that end, counts that repeat) depends on this
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kip932.ids import STATE_ARCHIVING
from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import Changes
from tests.simulation.checkers.reading import doomed, numbered
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    FaultStruck,
    History,
    ProcessChanged,
    SessionAsked,
    SessionEnded,
    Share,
    StateAnswered,
)
from tests.simulation.leader_events import Locked, ObjectDropped, ObjectMade

#: How long after a fault, or after a process started or ended, leadership may still move and the outcome of a write may
#: be unknown: by then leases, hand-overs and state operations are over.
_AFTERMATH_MS: Final = 20_000

Node = tuple[str, int]


@dataclass
class _Trouble:
    """Faults and process changes: whether one is still going on, and when the last one was."""

    lasting: int = 0
    last_ms: int = -_AFTERMATH_MS - 1

    def note(self, event: FaultStruck | ProcessChanged) -> None:
        """Note that one more started or ended."""
        self.last_ms = event.at_ms
        if isinstance(event, FaultStruck):
            self.lasting += -1 if event.ended else 1

    def explains(self, at_ms: int) -> bool:
        """Return True if one of them may still have effects."""
        return self.lasting > 0 or at_ms <= self.last_ms + _AFTERMATH_MS


@dataclass
class _Sessions:
    """Open sessions by process and group, and since when a group has had none there."""

    open: dict[tuple[Node, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    emptied: dict[tuple[Node, str], int] = field(default_factory=dict)

    def note(self, position: int, event: SessionAsked | SessionEnded) -> None:
        """Note an accepted request or the end of a session."""
        key = ((event.process, event.incarnation), event.group_id)
        if isinstance(event, SessionEnded):
            self.open[key].discard(event.member_id)
            if not self.open[key]:
                self.emptied[key] = position
        elif event.accepted:
            self.open[key].add(event.member_id)


class Objects:
    """A process has one object per share-partition at a time; a dropped object gives a reason that the history
    explains. After an object that was handed over or lost its leadership, the next one has another leader epoch."""

    rules: tuple[str, ...] = ("INV-3", "INV-7")

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check objects as they are made, lock ranges and are dropped."""
        del final
        judge = _Judge(history)
        kinds = (
            ObjectMade, ObjectDropped, Locked, FaultStruck, ProcessChanged, SessionAsked, SessionEnded, StateAnswered,
        )  # fmt: skip
        for position, event in numbered(history, *kinds):
            if isinstance(event, FaultStruck | ProcessChanged):
                judge.trouble.note(event)
            elif isinstance(event, SessionAsked | SessionEnded):
                judge.sessions.note(position, event)
            elif isinstance(event, Locked):
                judge.gave.add(event.object_id)
            elif isinstance(event, StateAnswered):
                judge.answered(event)
            elif isinstance(event, ObjectMade):
                yield from judge.made(position, event)
            else:
                yield from judge.dropped(event)


class _Judge:
    def __init__(self, history: History) -> None:
        self.trouble = _Trouble()
        self.sessions = _Sessions()
        self.gave: set[int] = set()
        self._gone = doomed(history)
        self._changes = Changes(history)
        self._born: dict[int, int] = {}
        self._alive: dict[tuple[Node, Share], ObjectMade] = {}
        self._newest: dict[Share, ObjectMade] = {}
        self._handed_over: dict[Share, ObjectDropped] = {}
        self._letters: dict[Share, bool] = {}

    def answered(self, event: StateAnswered) -> None:
        """Note whether dead letters are pending in the state that a leader last received."""
        if event.call == "Read":
            self._letters[event.share] = any(batch[2] == STATE_ARCHIVING for batch in event.batches)

    def made(self, position: int, event: ObjectMade) -> Iterator[Violation]:
        """Check that the process has no other live object for the share-partition, and that leadership moved for a
        cause."""
        key = ((event.process, event.incarnation), event.share)
        before, newest = self._alive.get(key), self._newest.get(event.share)
        if before is not None:
            yield Violation("INV-3", f"{event.share} has a second object at {event.process}", (before, event))
        elif newest is not None and newest.leader_epoch != event.leader_epoch and not self._moved(newest):
            yield Violation(
                "INV-3", f"the leadership of {event.share} moved, and nothing explains that", (newest, event)
            )
        given_up = self._handed_over.pop(event.share, None)
        if given_up is not None and given_up.leader_epoch == event.leader_epoch:
            sentence = f"{event.share} was {given_up.reason}, and yet its leader has not changed"
            yield Violation("INV-7", sentence, (given_up, event))
        self._born[event.object_id] = position
        self._alive[key] = self._newest[event.share] = event

    def dropped(self, event: ObjectDropped) -> Iterator[Violation]:
        """Check an object that is dropped."""
        self._alive.pop(((event.process, event.incarnation), event.share), None)
        if event.reason == "leadership_lost" or (event.reason == "released" and not self._left(event)):
            self._handed_over[event.share] = event
        if not self._explained(event):
            yield Violation(
                "INV-7",
                f"{event.process} let object {event.object_id} of {event.share} go as {event.reason} at {event.at_ms}, "
                "and nothing in the history explains that",
                (event,),
            )

    def _explained(self, event: ObjectDropped) -> bool:
        if event.reason == "initialize_failed":
            return event.object_id not in self.gave  # it was never in use: nothing is forgotten
        if event.reason == "illegal_transition":
            return False
        if event.reason == "released":
            return self._left(event) or self._troubled(event)
        if event.reason == "state_replaced" and self._changes.touches(event.share, event.at_ms):
            return True
        gone = event.at_ms >= self._gone.get(event.share.topic_id, event.at_ms + 1)
        return gone or self._troubled(event)

    def _moved(self, before: ObjectMade) -> bool:
        """Return True if something since the previous object was made may have moved leadership, however long ago,
        since the next object is made only at the next fetch."""
        return self.trouble.lasting > 0 or before.at_ms <= self.trouble.last_ms + _AFTERMATH_MS

    def _left(self, event: ObjectDropped) -> bool:
        """Return True if at some time since the object was made the group had no session at the process; or if the
        object was loaded for its pending dead letters, delivered nothing, and so forgets nothing (PL-922)."""
        if event.object_id not in self.gave and self._letters.get(event.share, False):
            return True
        key = ((event.process, event.incarnation), event.share.group_id)
        return self.sessions.emptied.get(key, -1) > self._born.get(event.object_id, -1)

    def _troubled(self, event: ObjectMade | ObjectDropped) -> bool:
        return self.trouble.explains(event.at_ms)
