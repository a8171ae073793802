"""INV-22: connections end at their maximum age, and share sessions go on over others (CM-194, PL-533, CL-144).

That nothing is given twice, lost or applied twice meanwhile is checked by the other checkers, in every run. A session
cannot move while its member may not read the group; it holds nothing then (PL-531), and may end with its connection.
A consumer whose partitions come back opens another session without waiting until it has closed the one before it
(CL-37): that one is not lost, and its close may be refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kip932.errors import GroupAuthorizationFailedError, InvalidShareSessionEpochError, ShareSessionNotFoundError
from tests.simulation.aging import TOO_OLD
from tests.simulation.checkers import Violation
from tests.simulation.checkers.undisturbed import Running, Undisturbed
from tests.simulation.connection_events import (
    ConnectionEnded,
    ConnectionReached,
    MoveAsked,
    ShareStreamLost,
    ShareStreamMade,
)
from tests.simulation.final import Final as FinalState
from tests.simulation.history import Configured, History, SessionAsked, SessionEnded
from tests.simulation.shape import AGE_FLAG

RULE: Final = "INV-22"
#: The grace of a connection that has reached its age, and the part of the age at which its streams have been asked.
_GRACE_MAX_MS: Final = 30_000
_ASKED_AT: Final = 0.8
#: How late a timer may be.
_LATE_MS: Final = 50
#: How long after a move the client may keep the previous stream open: until it has the response, and its end arrives.
_FORMER_MS: Final = 500
#: A session that is opened again this soon after the ask was lost by the move, unless its consumer closed it.
_AGAIN_MS: Final = 1_500
#: How long after the opening of another session a consumer's close of the one before it may arrive.
_CLOSE_MS: Final = 500
_OPENING: Final = 0
_CLOSING: Final = -1
_REFUSALS: Final = frozenset({InvalidShareSessionEpochError.code, ShareSessionNotFoundError.code})

Life = tuple[str, int]
#: A share session: the leader's life, group and member.
Key = tuple[str, int, str, str]


@dataclass(slots=True)
class _Stream:
    """A share stream at its leader, with the connection below it, if that has an age."""

    made: ShareStreamMade
    reached: ConnectionReached | None
    asked: MoveAsked | None = None
    lost_ms: int | None = None

    def serves(self, group_id: str) -> bool:
        """Return True if a consumer of this group opened it, and no client that breaks the rules of the protocol."""
        return self.reached is not None and self.reached.client.startswith(f"{group_id}.")


class AgesEnd:
    """A connection ends at its maximum age and the grace, and its share streams are asked to move before."""

    rules: tuple[str, ...] = (RULE,)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check every connection and every share stream, as long as its server runs."""
        del final
        age_ms = _age_ms(history)
        if age_ms is None:
            return
        running, end_ms = Running(history), history.events[-1].at_ms
        ended = {event.connection: event for event in history.of(ConnectionEnded)}
        for reached in history.of(ConnectionReached):
            over_ms = reached.at_ms + age_ms + min(age_ms, _GRACE_MAX_MS) + _LATE_MS
            end = ended.get(reached.connection)
            last_ms = end_ms if end is None else end.at_ms
            if last_ms > over_ms and running.through(reached.process, reached.at_ms, over_ms):
                yield Violation(
                    RULE,
                    f"the connection {reached.connection} of {reached.client} has been open at {reached.process} since "
                    f"{reached.at_ms}, and still is after {over_ms}, with a maximum age of {age_ms} ms",
                    (reached,),
                )
        yield from _asked(history, age_ms, running)


def _asked(history: History, age_ms: int, running: Running) -> Iterator[Violation]:
    """Report share streams that were asked twice, or not in time. A node knows a connection from its first call on
    (CM-194 (e)), which may arrive long after the connection: at the latest with its first stream."""
    streams = _streams(history)
    asked: dict[str, MoveAsked] = {}
    for event in history.of(MoveAsked):
        if event.stream in asked:
            sentence = f"{event.process} asked the client of stream {event.stream} to move again at {event.at_ms}"
            yield Violation(RULE, sentence, (asked[event.stream], event))
        asked.setdefault(event.stream, event)
    end_ms = history.events[-1].at_ms
    known: dict[str, int] = {}
    for stream in streams.values():
        if stream.reached is None:
            continue
        made = stream.made
        known_ms = known.setdefault(stream.reached.connection, made.at_ms)
        due_ms = max(made.at_ms, known_ms + int(_ASKED_AT * age_ms)) + _LATE_MS
        over_ms = end_ms if stream.lost_ms is None else stream.lost_ms
        late = stream.asked is None or stream.asked.at_ms > due_ms
        if late and over_ms > due_ms and running.through(made.process, stream.reached.at_ms, due_ms):
            yield Violation(
                RULE,
                f"{made.process} has not asked the client of stream {made.stream} to move by {due_ms}, though its "
                f"connection is that old",
                (stream.reached, made),
            )


class Moves:
    """A share session is bound to the stream of its newest request: it ends with that stream, and with no other. A
    consumer that was asked to move loses nothing by it."""

    rules: tuple[str, ...] = (RULE,)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Follow every session from stream to stream."""
        del final
        sessions = _Sessions(history)
        for event in history.of(SessionAsked, SessionEnded, ShareStreamLost):
            if isinstance(event, SessionAsked):
                yield from sessions.asked(event)
            elif isinstance(event, SessionEnded):
                sessions.ended(event)
            else:
                yield from sessions.lost(event)
        yield from sessions.left_open(history.events[-1].at_ms)


class _Sessions:
    def __init__(self, history: History) -> None:
        self._calm = Undisturbed(history)
        self._running = Running(history)
        self._streams = _streams(history)
        self._too_old = {event.connection for event in history.of(ConnectionEnded) if event.why == TOO_OLD}
        #: When requests to close sessions have arrived, by the id of the session, whether they were accepted or not.
        #: Those with acknowledgements are left out: if such a close is refused, the consumer has lost their outcome.
        self._closes_ms = {
            (event.process, event.incarnation, event.session_id): event.at_ms
            for event in history.of(SessionAsked)
            if event.session_epoch == _CLOSING and not event.acks
        }
        self._bound: dict[Key, str] = {}
        #: The id of each member's newest session at each leader.
        self._ids: dict[Key, int] = {}
        #: The stream to which a session was bound when it ended.
        self._at_end: dict[Key, str] = {}
        self._former: dict[Key, set[str]] = defaultdict(set)
        #: The stream of each member's session at each leader that was last asked to move, when it moved or ended.
        self._asked: dict[Key, _Stream] = {}
        self._moves: list[tuple[SessionAsked, _Stream]] = []
        #: When a request of the session was last refused because its member may not read the group.
        self._denied_ms: dict[Key, int] = {}

    def asked(self, event: SessionAsked) -> Iterator[Violation]:
        key = (event.process, event.incarnation, event.group_id, event.member_id)
        bound = self._bound.get(key)
        if not event.accepted:
            if event.code == GroupAuthorizationFailedError.code:
                self._denied_ms[key] = event.at_ms
            yield from self._refused(event, key, bound)
        elif event.session_epoch == _CLOSING:
            self._at_end[key] = event.connection
            self._bound.pop(key, None)
            self._asked.pop(key, None)
        elif event.session_epoch == _OPENING:
            yield from self._opened(event, key)
            self._bound[key], self._ids[key] = event.connection, event.accepted
        else:
            if bound is not None and bound != event.connection:
                yield from self._moved(event, key, bound)
            self._bound[key], self._ids[key] = event.connection, event.accepted

    def ended(self, event: SessionEnded) -> None:
        key = (event.process, event.incarnation, event.group_id, event.member_id)
        self._former.pop(key, None)
        if (bound := self._bound.pop(key, None)) is not None:
            self._at_end[key] = bound
            self._note_asked(key, bound, event.at_ms)

    def lost(self, event: ShareStreamLost) -> Iterator[Violation]:
        for names in event.ended:
            key = (event.process, event.incarnation, *names)
            if self._at_end.get(key) != event.number:
                yield self._wrong(event, key, f"ended, but its newest request came over {self._at_end.get(key)}")
            yield from self._aged(event, key)
        for key, number in list(self._bound.items()):
            if number == event.number and key[:2] == (event.process, event.incarnation):
                del self._bound[key]
                yield self._wrong(event, key, "went on without a stream")

    def left_open(self, end_ms: int) -> Iterator[Violation]:
        """Report streams that consumers have left but not closed."""
        for event, former in self._moves:
            over_ms = event.at_ms + _FORMER_MS
            if over_ms < min(end_ms, 1 << 62 if former.lost_ms is None else former.lost_ms) and self._quiet(
                former, event.at_ms, over_ms
            ):
                yield Violation(
                    RULE,
                    f"{event.member_id} went on over another stream to {event.process} at {event.at_ms}, and has not "
                    f"closed {former.made.stream} by {over_ms}",
                    (former.made, event),
                )

    def _moved(self, event: SessionAsked, key: Key, bound: str) -> Iterator[Violation]:
        former = self._streams.get((event.process, event.incarnation, bound))
        self._former[key].add(bound)
        self._note_asked(key, bound, event.at_ms)
        if former is None or not former.serves(event.group_id):
            return
        self._moves.append((event, former))
        if event.connection in self._former[key]:
            yield Violation(
                RULE,
                f"{event.member_id} sent request {event.request} to {event.process} at {event.at_ms} over stream "
                f"{event.connection}, which it had left for {bound}",
                (event,),
            )

    def _note_asked(self, key: Key, number: str, at_ms: int) -> None:
        stream = self._streams.get((*key[:2], number))
        if stream is not None and stream.asked is not None and stream.asked.at_ms <= at_ms:
            self._asked[key] = stream

    def _opened(self, event: SessionAsked, key: Key) -> Iterator[Violation]:
        """Report a session that is opened again soon after its consumer was asked to move the one before it."""
        stream = self._asked.pop(key, None)
        if stream is None or stream.asked is None or event.at_ms > stream.asked.at_ms + _AGAIN_MS:
            return
        if self._denied_ms.get(key, -1) >= stream.asked.at_ms:
            return
        if self._closes_ms.get((*key[:2], self._ids[key]), 1 << 62) <= event.at_ms + _CLOSE_MS:
            return
        if stream.serves(event.group_id) and self._quiet(stream, stream.asked.at_ms, event.at_ms):
            yield Violation(
                RULE,
                f"{event.member_id} was asked to move at {stream.asked.at_ms}, and opened another session at "
                f"{event.process} at {event.at_ms}",
                (stream.asked, event),
            )

    def _refused(self, event: SessionAsked, key: Key, bound: str | None) -> Iterator[Violation]:
        """Report a request of the member's newest session that was refused because of a move."""
        stream = self._streams.get((event.process, event.incarnation, bound or ""))
        if event.code not in _REFUSALS or stream is None or event.session_id != self._ids[key]:
            return
        if stream.asked is None or stream.asked.at_ms > event.at_ms:
            return
        if stream.serves(event.group_id) and self._quiet(stream, stream.asked.at_ms, event.at_ms):
            yield Violation(
                RULE,
                f"{event.member_id} was asked to move at {stream.asked.at_ms}, and {event.process} refused its request "
                f"{event.request} with {event.code} at {event.at_ms}",
                (stream.asked, event),
            )

    def _aged(self, event: ShareStreamLost, key: Key) -> Iterator[Violation]:
        """Report a session that ended because its connection became too old, though its client could move."""
        stream = self._streams.get((event.process, event.incarnation, event.number))
        if stream is None or stream.asked is None or stream.asked.connection not in self._too_old:
            return
        if self._denied_ms.get(key, -1) >= stream.asked.at_ms:
            return
        if stream.serves(key[2]) and self._quiet(stream, stream.asked.at_ms, event.at_ms):
            yield Violation(
                RULE,
                f"{key[3]} lost its session at {event.process} at {event.at_ms} with its old connection: it was asked "
                f"to move at {stream.asked.at_ms}, and nothing was in its way",
                (stream.asked, event),
            )

    def _quiet(self, stream: _Stream, first_ms: int, last_ms: int) -> bool:
        """Return True if neither end was away in this time, and no fault had effects."""
        assert stream.reached is not None
        ends = (stream.made.process, stream.reached.client)
        return self._calm.between(first_ms, last_ms) and all(
            self._running.through(each, first_ms, last_ms) for each in ends
        )

    @staticmethod
    def _wrong(event: ShareStreamLost, key: Key, what: str) -> Violation:
        sentence = f"stream {event.number} to {event.process} was lost at {event.at_ms}; the session of {key[3]} {what}"
        return Violation(RULE, sentence, (event,))


def _streams(history: History) -> dict[tuple[str, int, str], _Stream]:
    """Return all share streams by leader and number."""
    reached = {event.connection: event for event in history.of(ConnectionReached)}
    asked: dict[str, MoveAsked] = {}
    for ask in history.of(MoveAsked):
        asked.setdefault(ask.stream, ask)
    found: dict[tuple[str, int, str], _Stream] = {}
    for made in history.of(ShareStreamMade):
        stream = _Stream(made, reached.get(made.stream.rpartition("/")[0]), asked.get(made.stream))
        found[made.process, made.incarnation, made.number] = stream
    for lost in history.of(ShareStreamLost):
        known = found.get((lost.process, lost.incarnation, lost.number))
        if known is not None:
            known.lost_ms = lost.at_ms
    return found


def _age_ms(history: History) -> int | None:
    for event in history.of(Configured):
        return next((int(value) for name, value in event.flags if name == AGE_FLAG), None)
    return None
