"""INV-14: a share session accepts only the next epoch, and requests with another epoch have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kip932.errors import InvalidShareSessionEpochError, ShareSessionNotFoundError
from tests.simulation.checkers import Violation
from tests.simulation.checkers.reading import RequestKey, request_of
from tests.simulation.final import Final as FinalState
from tests.simulation.history import (
    AckAnswered,
    Acquired,
    History,
    SessionAsked,
    SessionEnded,
)
from tests.simulation.leader_events import AckDone

_REFUSALS: Final = frozenset({InvalidShareSessionEpochError.code, ShareSessionNotFoundError.code})
_OPENING: Final = 0
_CLOSING: Final = -1
_LAST_EPOCH: Final = 2**31 - 1

Key = tuple[str, int, str, str]


@dataclass(slots=True)
class _Session:
    session_id: int
    connection: str
    expected: int
    opened: SessionAsked

    def named_by(self, event: SessionAsked) -> bool:
        """Return True if a request refers to this session: by its id, or by its connection if the request has no id
        (PL-502a)."""
        if event.session_id:
            return event.session_id == self.session_id
        return event.connection == self.connection


class Sessions:
    """The sessions of every leader, replayed from its requests and from the session ends that it recorded."""

    rules: tuple[str, ...] = ("INV-14",)

    def check(self, history: History, final: FinalState) -> Iterator[Violation]:
        """Check requests in order of arrival, and that refused ones have no effect."""
        del final
        sessions: dict[Key, _Session] = {}
        refused: dict[RequestKey, SessionAsked] = {}
        for event in history.of(SessionAsked, SessionEnded, AckDone, AckAnswered, Acquired):
            if isinstance(event, SessionAsked):
                if not event.accepted:
                    refused[request_of(event)] = event
                yield from self._asked(event, sessions)
            elif isinstance(event, SessionEnded):
                sessions.pop((event.process, event.incarnation, event.group_id, event.member_id), None)
            else:
                yield from self._effect(event, refused)

    @staticmethod
    def _asked(event: SessionAsked, sessions: dict[Key, _Session]) -> Iterator[Violation]:
        key = (event.process, event.incarnation, event.group_id, event.member_id)
        session = sessions.get(key)
        fits = session is not None and session.named_by(event) and event.session_epoch in (session.expected, _CLOSING)
        if event.accepted:
            if event.session_epoch == _OPENING and event.call == "ShareFetch":
                sessions[key] = _Session(event.accepted, event.connection, 1, event)
                return
            if not fits or session is None:
                yield _wrong(event, session, "was accepted")
            if session is None or event.session_epoch == _CLOSING:
                sessions.pop(key, None)
            else:
                session.expected = 1 if event.session_epoch == _LAST_EPOCH else event.session_epoch + 1
        elif fits and event.code in _REFUSALS:
            yield _wrong(event, session, f"was refused with {event.code}")

    @staticmethod
    def _effect(
        event: AckDone | AckAnswered | Acquired, refused: dict[RequestKey, SessionAsked]
    ) -> Iterator[Violation]:
        asked = refused.get(request_of(event))
        if asked is not None and (isinstance(event, AckDone | Acquired) or event.code == 0):
            yield Violation(
                "INV-14",
                f"request {asked.request} of {asked.member_id} was refused with {asked.code} at {asked.at_ms}, and yet "
                f"something came of it",
                (asked, event),
            )


def _wrong(event: SessionAsked, session: _Session | None, what: str) -> Violation:
    known = "there is no session" if session is None else f"session {session.session_id} expects {session.expected}"
    return Violation(
        "INV-14",
        f"request {event.request} of {event.member_id} at {event.process}, epoch {event.session_epoch} of session "
        f"{event.session_id}, {what} at {event.at_ms}, though {known}",
        (event,) if session is None else (session.opened, event),
    )
