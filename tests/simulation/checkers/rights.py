"""INV-23: a right that is taken away frees what it had allowed (PL-531), at each leader that follows the change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kip932.errors import GroupAuthorizationFailedError
from kip932.ids import EPOCH_LEAVE
from tests.simulation.checkers import Violation
from tests.simulation.checkers.causes import TopicNames
from tests.simulation.checkers.reading import RequestKey, request_of
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
from tests.simulation.leader_events import GivenBack, Locked, ObjectDropped
from tests.simulation.member_events import MemberRemoved

RULE: Final = "INV-23"
#: How long a leader may take to check its sessions after a change (CM-96), which are few in a run.
_FREED_MS: Final = 500
_CLOSING: Final = -1
_DENIED: Final = GroupAuthorizationFailedError.code

Life = tuple[str, int]


def _life(event: Event) -> Life:
    return event.process, getattr(event, "incarnation", 0)


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
        kinds = (RightsSeen, Acquired, Locked, GivenBack, ObjectDropped, SessionAsked, SessionAnswered, SessionEnded)
        for event in history.of(*kinds):
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
        self._locks: dict[Locked, None] = {}
        self._fetches: dict[RequestKey, SessionAsked] = {}
        self._sessions: set[tuple[Life, str, str]] = set()
        #: The time since which each of these has had to end.
        self._over: dict[Locked | SessionAsked, int] = {}

    def note(self, event: Event) -> Iterator[Violation]:
        if isinstance(event, RightsSeen):
            self._changed(event)
        elif isinstance(event, Acquired):
            yield from self._acquired(event)
        elif isinstance(event, Locked):
            if event.member_id in self._guests:
                self._locks[event] = None
                if not self._may_read(_life(event), event.share):
                    self._over[event] = event.at_ms
        elif isinstance(event, GivenBack | ObjectDropped):
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
            if not self._running.through(each.process, since_ms, since_ms + _FREED_MS):
                continue
            if isinstance(each, Locked):
                if each.at_ms + each.lock_ms > since_ms + _FREED_MS:
                    what = f"still holds {each.share} {each.first_offset} to {each.last_offset}"
                    yield self._kept(each, since_ms, what)
            else:
                yield self._kept(each, since_ms, f"still waits for its fetch {each.request}")

    def _kept(self, event: Locked | SessionAsked, since_ms: int, what: str) -> Violation:
        sentence = (
            f"{event.member_id} may not read that at {event.process} since {since_ms}, and {what} {_FREED_MS} ms later"
        )
        return Violation(RULE, sentence, (event,))

    def _changed(self, event: RightsSeen) -> None:
        life = _life(event)
        self._seen[life] = event
        for lock in self._locks:
            if _life(lock) == life:
                self._judge(lock, event.at_ms, self._may_read(life, lock.share))
        for asked in self._fetches.values():
            if _life(asked) == life:
                self._judge(asked, event.at_ms, asked.group_id in event.groups)

    def _judge(self, each: Locked | SessionAsked, at_ms: int, allowed: bool) -> None:
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

    def _returned(self, event: GivenBack | ObjectDropped) -> None:
        ranges = event.ranges if isinstance(event, GivenBack) else None
        for lock in list(self._locks):
            same = (_life(lock), lock.object_id) == (_life(event), event.object_id)
            if isinstance(event, GivenBack):
                same = same and lock.member_id == event.member_id
            if same and (ranges is None or (lock.first_offset, lock.last_offset) in ranges):
                del self._locks[lock]
                self._end(lock)

    def _end(self, each: Locked | SessionAsked | None) -> None:
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
