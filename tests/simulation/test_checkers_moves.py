"""Tests the checkers of connections that grow old: each finds its violations, and reports nothing in a correct
history."""

from __future__ import annotations

import pytest

from kip932.errors import GroupAuthorizationFailedError, InvalidShareSessionEpochError
from tests.simulation.aging import TOO_OLD
from tests.simulation.checkers.moves import AgesEnd, Moves
from tests.simulation.connection_events import (
    ConnectionEnded,
    ConnectionReached,
    MoveAsked,
    ShareStreamLost,
    ShareStreamMade,
)
from tests.simulation.history import Configured, FaultStruck, PhaseBegan, ProcessChanged, SessionAsked, SessionEnded
from tests.simulation.made import Made, found
from tests.simulation.shape import AGE_FLAG

AGE_MS = 1_000
CLIENT = "g.0.1"
WRONG = ["INV-22"]


class Old(Made):
    """A history with connections `c1` and `c2` of a consumer, `A` in group `g`, and a share stream on each."""

    def __init__(self, client: str = CLIENT) -> None:
        super().__init__()
        self.client = client
        self.epoch = 0
        self.session = 6
        self.add(Configured, ((AGE_FLAG, str(AGE_MS)),))

    def opens(self, number: int, connection: str) -> Old:
        """Open a share stream on a new connection."""
        self.add(ConnectionReached, 1, connection, self.client)
        self.add(ShareStreamMade, 1, str(number), f"{connection}/1")
        return self

    def moves(self, connection: str) -> Old:
        """Ask the client to move."""
        self.add(MoveAsked, 1, connection, self.client, f"{connection}/1", "ShareStream")
        return self

    def sends(
        self, number: int, epoch: int | None = None, code: int = 0, session: int | None = None, *, acks: bool = False
    ) -> Old:
        """Receive the session's next request, or one of this epoch, over a stream; accept it, or refuse it. `session`:
        the one that it names, if not the newest. Epoch 0 opens another one. `acks`: whether it acknowledges records."""
        asked = self.epoch if epoch is None else epoch
        self.requests += 1
        if asked == 0 and not code:
            self.session += 1
        named = 0 if asked == 0 else session or self.session
        accepted = 0 if code else self.session
        acked = (("t", 0, (0, 4, (1,))),) if acks else ()
        self.add(
            SessionAsked, 1, self.requests, "ShareFetch", "g", "A", str(number), asked, acked, named, accepted, code, 0
        )
        self.epoch += 0 if code else 1
        return self

    def loses(self, number: int, *, session: bool = False) -> Old:
        """Lose a stream, perhaps with the session."""
        if session:
            self.add(SessionEnded, 1, "g", "A")
        self.add(ShareStreamLost, 1, str(number), (("g", "A"),) if session else ())
        return self

    def closes(self, connection: str, why: str = "closed") -> Old:
        """End a connection."""
        self.add(ConnectionEnded, 1, connection, self.client, why)
        return self

    def old(self, ms: int) -> Old:
        """Advance to a time."""
        self.at(ms)
        return self

    def over(self) -> Old:
        """End the run at this time."""
        self.add(PhaseBegan, "rest")
        return self


def moved() -> Old:
    """Return a history in which a session has just moved from stream 1 to stream 2."""
    return Old().opens(1, "c1").sends(1).old(750).moves("c1").old(800).opens(2, "c2").sends(2)


@pytest.mark.rule("INV-22", "CM-194")
def test_a_connection_ends_at_its_age_and_the_grace() -> None:
    for over_ms, rules in ((2_050, []), (2_051, WRONG)):
        made = Old()
        made.add(ConnectionReached, 1, "c1", CLIENT)
        assert found(AgesEnd(), made.old(over_ms).closes("c1", TOO_OLD)) == rules
        made = Old()
        made.add(ConnectionReached, 1, "c1", CLIENT)
        assert found(AgesEnd(), made.old(over_ms).over()) == rules


@pytest.mark.rule("INV-22", "CM-194")
@pytest.mark.parametrize("what", ["paused", "killed"])
def test_a_server_that_is_away_ends_no_connection(what: str) -> None:
    made = Old()
    made.add(ConnectionReached, 1, "c1", CLIENT)
    made.old(1_500).add(ProcessChanged, what, 1)
    assert not found(AgesEnd(), made.old(9_000).over())


@pytest.mark.rule("INV-22", "PL-533")
def test_a_stream_is_asked_once_and_in_time() -> None:
    asked = Old().opens(1, "c1").old(750).moves("c1")
    assert not found(AgesEnd(), asked.old(1_500).closes("c1"))
    assert found(AgesEnd(), Old().opens(1, "c1").old(750).moves("c1").moves("c1").closes("c1")) == WRONG
    assert found(AgesEnd(), Old().opens(1, "c1").old(900).moves("c1").closes("c1")) == WRONG
    assert found(AgesEnd(), Old().opens(1, "c1").old(1_500).closes("c1")) == WRONG
    assert not found(AgesEnd(), Old().opens(1, "c1").old(700).loses(1).closes("c1").old(1_500).over())
    late = Old()
    late.add(ConnectionReached, 1, "c1", late.client)
    late.old(600).add(ShareStreamMade, 1, "1", "c1/1")
    assert not found(AgesEnd(), late.old(1_350).moves("c1").closes("c1")), "its node knows it from its first call on"


@pytest.mark.rule("INV-22", "PL-533", "PL-522")
def test_a_session_ends_with_the_stream_of_its_newest_request_and_with_no_other() -> None:
    assert not found(Moves(), moved().loses(1).old(900).loses(2, session=True))
    assert found(Moves(), moved().loses(1, session=True)) == WRONG
    assert found(Moves(), moved().loses(1).loses(2)) == WRONG


@pytest.mark.rule("INV-22", "CL-144")
def test_a_consumer_sends_nothing_over_a_stream_that_it_has_left() -> None:
    assert found(Moves(), moved().sends(1).loses(2)) == WRONG
    assert not found(Moves(), moved().sends(2).loses(1))


@pytest.mark.rule("INV-22", "CL-144")
def test_a_consumer_closes_the_stream_that_it_has_left() -> None:
    for over_ms, rules in ((1_300, []), (1_301, WRONG)):
        assert found(Moves(), moved().old(over_ms).loses(1)) == rules
    assert found(Moves(), moved().old(5_000).over()) == WRONG


@pytest.mark.rule("INV-22", "CL-144")
def test_a_move_without_hindrance_costs_no_session() -> None:
    refused = InvalidShareSessionEpochError.code
    assert (
        found(Moves(), Old().opens(1, "c1").sends(1).old(750).moves("c1").sends(1, 9, refused).loses(1, session=True))
        == WRONG
    )
    assert not found(Moves(), Old().opens(1, "c1").sends(1).old(750).sends(1, 9, refused).loses(1, session=True))

    def lost(client: str = CLIENT, fault: str = "", away: str = "") -> Old:
        made = Old(client).opens(1, "c1").sends(1).old(750).moves("c1")
        if fault:
            made.add(FaultStruck, fault)
        if away:
            made.process = away
            made.add(ProcessChanged, "paused", 1)
            made.process = "a"
        return made.old(2_000).closes("c1", TOO_OLD).loses(1, session=True)

    assert found(Moves(), lost()) == WRONG
    assert not found(Moves(), lost(fault="the store goes away"))
    assert not found(Moves(), lost(away=CLIENT))
    assert not found(Moves(), lost(away="a"))
    assert not found(Moves(), lost("rogue"))
    denied = GroupAuthorizationFailedError.code
    for before, rules in ((True, WRONG), (False, [])):
        made = Old().opens(1, "c1").sends(1).old(700)
        made = made.sends(1, None, denied).old(750).moves("c1") if before else made.moves("c1").sends(2, None, denied)
        assert found(Moves(), made.old(2_000).closes("c1", TOO_OLD).loses(1, session=True)) == rules, before
    closed = Old().opens(1, "c1").sends(1).old(750).moves("c1").old(2_000).closes("c1").loses(1, session=True)
    assert not found(Moves(), closed), "its client has closed it"


@pytest.mark.rule("INV-22", "CL-144")
def test_a_session_that_is_opened_again_soon_after_a_move_was_lost_by_it() -> None:
    assert found(Moves(), moved().loses(1).sends(2, 0).loses(2, session=True)) == WRONG
    assert not found(Moves(), moved().loses(1).old(2_251).sends(2, 0).loses(2, session=True))
    assert not found(Moves(), Old().opens(1, "c1").sends(1).sends(1, 0).loses(1, session=True))
    closed = moved().loses(1).sends(2, -1).old(900).sends(2, 0).loses(2, session=True)
    assert not found(Moves(), closed), "its consumer had closed it"


def reopened(close_ms: int | None, session: int, *, acks: bool = False) -> Old:
    """Return a history in which a member opens another session soon after a move, and then asks to close one."""
    made = moved().loses(1).old(900).opens(3, "c3")
    made.add(SessionEnded, 1, "g", "A")
    made.sends(3, 0)
    if close_ms is not None:
        made.old(close_ms).sends(2, -1, InvalidShareSessionEpochError.code, session, acks=acks)
    return made.old(1_650).moves("c3").loses(2)


@pytest.mark.rule("INV-22")
def test_a_session_that_its_consumer_closes_while_it_opens_another_was_not_lost() -> None:
    first, second = 7, 8
    assert not found(Moves(), reopened(901, first))
    assert not found(Moves(), reopened(1_400, first))
    assert found(Moves(), reopened(1_401, first)) == WRONG, "it had opened another one long before"
    assert found(Moves(), reopened(None, first)) == WRONG
    assert found(Moves(), reopened(901, second)) == WRONG, "it closed the other one"
    assert found(Moves(), reopened(901, first, acks=True)) == WRONG, "it was not done with it"


@pytest.mark.rule("INV-22", "CL-144")
def test_only_a_request_of_the_newest_session_that_comes_after_the_ask_is_refused_because_of_the_move() -> None:
    refused = InvalidShareSessionEpochError.code

    def history(session: int | None, asked_first: bool) -> Old:
        made = Old().opens(1, "c1").sends(1).old(750)
        if asked_first:
            made.moves("c1")
        made.sends(1, 9, refused, session).old(760)
        return made if asked_first else made.moves("c1")

    assert found(Moves(), history(None, asked_first=True)) == WRONG
    assert not found(Moves(), history(6, asked_first=True))
    assert not found(Moves(), history(None, asked_first=False))
