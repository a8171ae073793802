"""Tests the checker of rights that are taken away: it finds its violations, and reports nothing in a correct
history."""

from __future__ import annotations

import pytest

from kip932.errors import GroupAuthorizationFailedError, InvalidRecordStateError, NetworkError
from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulation.checkers.rights import Rights
from tests.simulation.connection_events import PrincipalKnown, RightsSeen
from tests.simulation.history import (
    AckBatchSeen,
    Administered,
    FaultStruck,
    HeartbeatAnswered,
    ProcessChanged,
    SessionAnswered,
    SessionAsked,
    SessionEnded,
)
from tests.simulation.made import TOPIC, Made, found
from tests.simulation.rights import GUEST

WRONG = ["INV-23"]
DENIED = GroupAuthorizationFailedError.code


class Kept(Made):
    """A history with the guest `A` of group `g`, which may read it and the topic `t`."""

    def __init__(self) -> None:
        super().__init__()
        self.add(Administered, "CreateTopics", "t", TOPIC, "")
        self.add(PrincipalKnown, GUEST, "g", "A")
        self.allows("g", "t")

    def allows(self, group: str = "", topic: str = "") -> Kept:
        """Let the guests read these from now on, and nothing else."""
        self.add(RightsSeen, 1, GUEST, (group,) if group else (), (topic,) if topic else ())
        return self

    def fetches(self, epoch: int = 1, code: int = 0, wait_ms: int = 5_000) -> Kept:
        """Receive a fetch of the guest."""
        self.requests += 1
        accepted = 0 if code else 7
        self.add(SessionAsked, 1, self.requests, "ShareFetch", "g", "A", "1", epoch, (), 7, accepted, code, wait_ms)
        return self

    def beaten(self, epoch: int, code: int = 0) -> Kept:
        """Answer a heartbeat of the guest."""
        self.add(HeartbeatAnswered, 1, "g", "A", epoch, max(epoch, 1), None, code)
        return self

    def later(self, ms: int) -> Kept:
        """Advance to a time, at which something is seen."""
        self.at(ms).add(RightsSeen, 2, GUEST, (), ())
        return self


@pytest.mark.rule("INV-23", "PL-531")
def test_what_may_not_be_read_is_not_given() -> None:
    made = Kept()
    made.acquires("A", 1)
    assert not found(Rights(), made)
    for taken in (("g", ""), ("", "t")):
        made = Kept().allows(*taken)
        made.acquires("A", 1)
        assert found(Rights(), made) == WRONG
        made = Kept().allows(*taken)
        made.acquires("B", 1)
        assert not found(Rights(), made), "a member without a principal"
        made = Kept().allows(*taken).allows("g", "t")
        made.acquires("A", 1)
        assert not found(Rights(), made)


@pytest.mark.rule("INV-23", "PL-531")
@pytest.mark.parametrize("taken", [("g", ""), ("", "t")])
def test_what_is_held_comes_back(taken: tuple[str, str]) -> None:
    def held(lock_ms: int = 5_000) -> Kept:
        made = Kept()
        made.locks("A", 1, lock_ms=lock_ms)
        return made.allows(*taken)

    assert found(Rights(), held().later(501)) == WRONG
    assert not found(Rights(), held().later(500))
    assert not found(Rights(), held(lock_ms=400).later(501)), "its time was over"
    made = held()
    made.gives_back("A")
    assert not found(Rights(), made.later(501))
    made = held()
    made.at(200)
    assert not found(Rights(), made.allows("g", "t").later(900))
    made = held()
    made.add(ProcessChanged, "paused", 1)
    assert not found(Rights(), made.later(501))


@pytest.mark.rule("INV-23", "PL-531", "PL-508")
def test_what_was_acknowledged_is_held_no_more() -> None:
    """Nothing is released when the rights change: the session has ended, and it had forgotten the partition."""

    def acknowledged(*batches: AckBatchSeen, code: int = 0) -> list[str]:
        made = Kept()
        made.locks("A", 1, 3, lock_ms=5_000)
        made.does(made.asks("A", *batches), code)
        return found(Rights(), made.allows().later(501))

    assert not acknowledged((1, 1, (ACK_ACCEPT,)), (2, 3, (ACK_RELEASE, ACK_REJECT)))
    assert not acknowledged((1, 3, (ACK_RELEASE,)), code=NetworkError.code), "the outcome is unknown"
    assert acknowledged((1, 2, (ACK_RELEASE,))) == WRONG, "not all of it"
    assert acknowledged((1, 3, (ACK_RELEASE,)), code=InvalidRecordStateError.code) == WRONG
    assert acknowledged((1, 3, (ACK_RENEW,))) == WRONG
    made = Kept()
    made.locks("A", 1, lock_ms=5_000).settles("B", 1)
    assert found(Rights(), made.allows().later(501)) == WRONG, "by another member"


@pytest.mark.rule("INV-23", "PL-531", "PL-326")
@pytest.mark.parametrize(("renewed_ms", "expected"), [(400, []), (5_000, WRONG)])
def test_a_renewed_lock_ends_by_its_renewal(renewed_ms: int, expected: list[str]) -> None:
    made = Kept()
    made.locks("A", 1, lock_ms=1_000)
    made.at(100)
    made.does(made.asks("A", (1, 1, (ACK_RENEW,))), lock_ms=renewed_ms)
    assert found(Rights(), made.allows().later(700)) == expected


@pytest.mark.rule("INV-23", "PL-531", "PL-508", "PL-520")
def test_what_a_session_had_forgotten_waits_for_its_time_when_it_has_ended() -> None:
    """Of PL-508 and PL-520 it shows what the check takes from them: locks that remain when their own session ends are
    no violation. It does not show that a leader releases what is still in the session, or keeps what was forgotten."""

    def ended(group_id: str, member_id: str) -> list[str]:
        made = Kept()
        made.locks("A", 1, lock_ms=5_000)
        made.add(SessionEnded, 1, group_id, member_id)
        return found(Rights(), made.allows().later(501))

    assert not ended("g", "A")
    assert ended("g", "B") == ended("other", "A") == WRONG


@pytest.mark.rule("INV-23", "PL-531")
def test_what_was_locked_on_the_way_comes_back_too() -> None:
    made = Kept().allows()
    made.locks("A", 1, lock_ms=5_000)
    assert found(Rights(), made.later(501)) == WRONG
    made = Kept().allows()
    made.locks("A", 1, lock_ms=5_000)
    made.gives_back("A", (1, 1))
    assert not found(Rights(), made.later(501))
    made = Kept().allows()
    made.locks("A", 1, 2, lock_ms=5_000)
    made.gives_back("A", (1, 1))
    assert found(Rights(), made.later(501)) == WRONG, "only a part of it"


@pytest.mark.rule("INV-23", "PL-531")
def test_a_fetch_that_waits_for_the_group_ends() -> None:
    assert found(Rights(), Kept().fetches().allows(topic="t").later(501)) == WRONG
    assert not found(Rights(), Kept().fetches(wait_ms=400).allows(topic="t").later(501))
    made = Kept().fetches().allows(topic="t")
    made.at(100).add(SessionAnswered, 1, made.requests, 0, "ShareFetch", "g", "A", 1, 0)
    assert not found(Rights(), made.later(501))


@pytest.mark.rule("INV-23", "PL-531")
def test_a_session_may_be_closed_without_the_right() -> None:
    assert found(Rights(), Kept().fetches(0).allows().fetches(-1, DENIED, 0)) == WRONG
    assert not found(Rights(), Kept().allows().fetches(-1, DENIED, 0)), "there is none"
    assert not found(Rights(), Kept().fetches(0).allows().fetches(2, DENIED, 0))


@pytest.mark.rule("INV-23", "GC-23b")
def test_a_member_may_leave_without_the_right() -> None:
    assert found(Rights(), Kept().beaten(0).beaten(-1, DENIED)) == WRONG
    assert not found(Rights(), Kept().beaten(-1, DENIED)), "it had not joined"
    made = Kept().beaten(0)
    made.add(FaultStruck, "the store goes away")
    assert not found(Rights(), made.beaten(-1, DENIED))
