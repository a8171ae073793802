"""The states and filters of the list of transactions."""

from __future__ import annotations

import pytest

from kip932.ids import TopicIdPartition
from transaction_coordinator.core.listing import UNREADABLE, Asked, open_ms, state_name
from transaction_coordinator.core.transaction import (
    Cause,
    Identity,
    Transaction,
    ended,
    expired,
    finished,
    initialised,
    joined,
)

ONE = Identity(71, 0)
P = TopicIdPartition(b"p" * 16, 0)


def _open(now_ms: int = 1_000) -> Transaction:
    return joined(initialised(None, None, 5_000, 71), ONE, [P], now_ms)


def _done(known: Transaction | None) -> Transaction:
    assert known is not None
    found = finished(known, known.identity, 72)
    assert found is not None
    return found


@pytest.mark.rule("CM-157")
def test_a_state_has_kafkas_name() -> None:
    known = _open()
    commit, abort = (ended(known, ONE, [], commit=each) for each in (True, False))
    begun = initialised(_done(abort), None, 5_000, 73)
    states = [initialised(None, None, 5_000, 71), known, commit, abort, _done(commit), _done(abort), begun]
    assert [state_name(each) for each in states] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty",
    ]  # fmt: skip
    assert state_name(_done(expired(known, 6_000))) == "CompleteAbort"
    assert state_name(_done(ended(known, ONE, [], commit=False, cause=Cause.OPERATOR))) == "CompleteAbort"


@pytest.mark.rule("CM-157")
def test_what_is_open_longer_than_asked_passes_and_nothing_else() -> None:
    known, idle = _open(), initialised(None, None, 5_000, 71)
    assert [Asked(longer_than_ms=500).passes(known, now_ms) for now_ms in (900, 1_500, 1_501)] == [False, False, True]
    assert not Asked(longer_than_ms=0).passes(idle, 10**9)
    assert Asked(longer_than_ms=-1).passes(idle, 0)
    assert (open_ms(idle, 10**9), open_ms(known, 900), open_ms(known, 1_700)) == (-1, 0, 700)


@pytest.mark.rule("CM-157")
def test_every_filter_given_must_pass() -> None:
    known = _open()
    assert Asked({"Ongoing"}, {71}).passes(known, 0)
    assert not Asked({"Empty"}, {71}).passes(known, 0)
    assert not Asked({"Ongoing"}, {72}).passes(known, 0)
    assert Asked().matches_unreadable()
    assert Asked({UNREADABLE}).matches_unreadable()
    assert not Asked({"Ongoing"}).matches_unreadable()
