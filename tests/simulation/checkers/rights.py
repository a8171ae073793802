"""INV-23: a right that is taken away frees what it had allowed (PL-531), at each leader that follows the change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kip932.errors import GroupAuthorizationFailedError
from kip932.ids import ACK_RENEW, EPOCH_LEAVE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import TopicNames
from tests.simulation.checkers.reading import REFUSALS, RequestKey, object_of, offsets, request_of, typed
from tests.simulation.checkers.undisturbed import Running, Undisturbed
from tests.simulation.connection_events import PrincipalKnown, RightsSeen
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    Acquired,
    Event,
    HeartbeatAnswered,
    History,
    SessionAnswered,
    SessionAsked,
    SessionEnded,
    Share,
)
from tests.simulation.leader_events import AckDone, GivenBack, Locked, ObjectDropped
from tests.simulation.member_events import MemberRemoved

RULE: Final = "INV-23"
#: How long a leader may take to check its sessions after a change (CM-96), which are few in a run.
_FREED_MS: Final = 500
_CLOSING: Final = -1
_DENIED: Final = GroupAuthorizationFailedError.code

Life = tuple[str, int]


def _life(event: Event) -> Life:
    return event.process, getattr(event, "incarnation", 0)


@dataclass(slots=True, eq=False)
class _Held:
    """A range that a guest has locked. `until`: the offsets of it that it still holds, and when each lock runs out."""

    given: Locked
    until: dict[int, int]

    def gives_back(self, ranges: Iterable[tuple[int, int]] | None) -> None:
        """End the locks on these ranges, or on all of it."""
        if ranges is None:
            self.until.clear()
            return
        for first, last in ranges:
            for offset in offsets(first, last):
                self.until.pop(offset, None)

    def settles(self, event: AckDone) -> None:
        """Apply a completed acknowledgement: a renewal extends the lock, every other type ends it, and an unknown
        outcome may have ended it (PL-707). A refused one has no effect."""
        if event.code in REFUSALS:
            return
        for offset, kind in typed(event.batches):
            if offset not in self.until:
                continue
            if kind == ACK_RENEW and not event.code:
                self.until[offset] = event.begun_ms + event.lock_ms
            else:
                del self.until[offset]

    def after(self, at_ms: int) -> list[int]:
        """Return the offsets that it still holds after a time."""
        return [offset for offset, until_ms in self.until.items() if until_ms > at_ms]


class Rights:
    """What members with a principal are given, hold and wait for, beside what they may read at that time."""

    rules: tuple[str, ...] = (RULE,)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check the members whose principal is known."""
        del final
        guests = {event.member_id for event in history.of(PrincipalKnown)}
        if not guests:
            return
        leaders = _Leaders(history, guests)
        locks = (Acquired, Locked, AckDone, GivenBack, ObjectDropped)
        for event in history.of(RightsSeen, *locks, SessionAsked, SessionAnswered, SessionEnded):
            yield from leaders.late(event.at_ms)
            yield from leaders.note(event)
        yield from leaders.late(history.events[-1].at_ms)
        yield from _leaves(history, guests)


class _Leaders:
    """What guests hold and wait for at every leader, and what has had to end since a right was taken."""

    def __init__(self, history: History, guests: set[str]) -> None:
        self._guests = guests
        self._names = TopicNames(history)
        self._running = Running(history)
        self._seen: dict[Life, RightsSeen] = {}
        self._locks: dict[_Held, None] = {}
        self._fetches: dict[RequestKey, SessionAsked] = {}
        self._sessions: set[tuple[Life, str, str]] = set()
        #: The time since which each of these has had to end.
        self._over: dict[_Held | SessionAsked, int] = {}

    def note(self, event: Event) -> Iterator[Violation]:
        if isinstance(event, RightsSeen):
            self._changed(event)
        elif isinstance(event, Acquired):
            yield from self._acquired(event)
        elif isinstance(event, Locked):
            self._locked(event)
        elif isinstance(event, AckDone | GivenBack | ObjectDropped):
            self._returned(event)
        elif isinstance(event, SessionAsked):
            yield from self._asked(event)
        elif isinstance(event, SessionAnswered):
            self._end(self._fetches.pop(request_of(event), None))
        elif isinstance(event, SessionEnded):
            self._session_ended(event)

    def late(self, now_ms: int) -> Iterator[Violation]:
        """Report what should have ended by now, at leaders that ran meanwhile."""
        for each, since_ms in list(self._over.items()):
            if since_ms + _FREED_MS >= now_ms:
                continue
            del self._over[each]
            event = each.given if isinstance(each, _Held) else each
            if not self._running.through(event.process, since_ms, since_ms + _FREED_MS):
                continue
            if not isinstance(each, _Held):
                yield self._kept(event, since_ms, f"still waits for its fetch {event.request}")
            elif left := each.after(since_ms + _FREED_MS):
                yield self._kept(event, since_ms, f"still holds {each.given.share} {min(left)} to {max(left)}")

    def _kept(self, event: Locked | SessionAsked, since_ms: int, what: str) -> Violation:
        sentence = (
            f"{event.member_id} may not read that at {event.process} since {since_ms}, and {what} {_FREED_MS} ms later"
        )
        return Violation(RULE, sentence, (event,))

    def _changed(self, event: RightsSeen) -> None:
        life = _life(event)
        self._seen[life] = event
        for lock in self._locks:
            if _life(lock.given) == life:
                self._judge(lock, event.at_ms, self._may_read(life, lock.given.share))
        for asked in self._fetches.values():
            if _life(asked) == life:
                self._judge(asked, event.at_ms, asked.group_id in event.groups)

    def _judge(self, each: _Held | SessionAsked, at_ms: int, allowed: bool) -> None:
        if allowed:
            self._over.pop(each, None)
        else:
            self._over.setdefault(each, at_ms)

    def _may_read(self, life: Life, share: Share) -> bool:
        seen = self._seen.get(life)
        return seen is not None and share.group_id in seen.groups and self._names.of.get(share.topic_id) in seen.topics

    def _acquired(self, event: Acquired) -> Iterator[Violation]:
        if event.member_id in self._guests and not self._may_read(_life(event), event.share):
            named = [each for each in (self._seen.get(_life(event)),) if each is not None]
            yield Violation(
                RULE,
                f"{event.member_id} was given {event.share} {event.first_offset} to {event.last_offset} at "
                f"{event.at_ms}, which it may not read there",
                (*named, event),
            )

    def _locked(self, event: Locked) -> None:
        if event.member_id not in self._guests:
            return
        until_ms = event.at_ms + event.lock_ms
        held = _Held(event, dict.fromkeys(offsets(event.first_offset, event.last_offset), until_ms))
        self._locks[held] = None
        if not self._may_read(_life(event), event.share):
            self._over[held] = event.at_ms

    def _returned(self, event: AckDone | GivenBack | ObjectDropped) -> None:
        for lock in list(self._locks):
            if object_of(lock.given) != object_of(event):
                continue
            if isinstance(event, ObjectDropped):
                lock.gives_back(None)
            elif lock.given.member_id != event.member_id:
                continue
            elif isinstance(event, AckDone):
                lock.settles(event)
            else:
                lock.gives_back(event.ranges)
            self._drop_ended(lock)

    def _drop_ended(self, lock: _Held) -> None:
        if not lock.until:
            del self._locks[lock]
            self._end(lock)

    def _end(self, each: _Held | SessionAsked | None) -> None:
        if each is not None:
            self._over.pop(each, None)

    def _asked(self, event: SessionAsked) -> Iterator[Violation]:
        if event.member_id not in self._guests:
            return
        session = _life(event), event.group_id, event.member_id
        if event.session_epoch == _CLOSING and not event.acks and event.code == _DENIED and session in self._sessions:
            yield Violation(RULE, f"{event.member_id} may not close its session at {event.process}", (event,))
        if not event.accepted:
            return
        if event.session_epoch == _CLOSING:
            self._sessions.discard(session)
            return
        self._sessions.add(session)
        if event.call == "ShareFetch" and event.max_wait_ms > _FREED_MS and not event.acks:
            self._fetches[request_of(event)] = event

    def _session_ended(self, event: SessionEnded) -> None:
        self._sessions.discard((_life(event), event.group_id, event.member_id))
        names = _life(event), event.group_id, event.member_id
        for request, asked in list(self._fetches.items()):
            if (_life(asked), asked.group_id, asked.member_id) == names:
                self._end(self._fetches.pop(request))
        for lock in list(self._locks):  # what it had forgotten is not released: it waits for its time (PL-508)
            if (_life(lock.given), lock.given.share.group_id, lock.given.member_id) == names:
                lock.gives_back(None)
                self._drop_ended(lock)


def _leaves(history: History, guests: set[str]) -> Iterator[Violation]:
    """Report members that could not leave a group which they had joined, in a time without faults."""
    calm, joined = Undisturbed(history), dict[str, int]()
    for event in history.of(HeartbeatAnswered, MemberRemoved):
        if event.member_id not in guests:
            continue
        if isinstance(event, MemberRemoved):
            joined.pop(event.member_id, None)
        elif event.sent_epoch == EPOCH_LEAVE:
            since_ms = joined.pop(event.member_id, None)
            if event.code == _DENIED and since_ms is not None and calm.between(since_ms, event.at_ms):
                sentence = f"{event.member_id} may not leave group {event.group_id}"
                yield Violation(RULE, sentence, (event,))
        elif event.code <= 0:
            joined[event.member_id] = event.at_ms
