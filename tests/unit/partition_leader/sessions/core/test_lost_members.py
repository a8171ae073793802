"""Reports about lost members: which wait, which are sent, and which are too old to be sent (PL-527)."""

from __future__ import annotations

import pytest

from partition_leader.sessions.core.lost_members import MEMBERS_MAX, REPORTED_KEPT_MS, WORTH_MS, LostMembers, Report
from partition_leader.sessions.core.session import SessionKey

A, B = SessionKey("g", "A"), SessionKey("g", "B")


@pytest.mark.rule("PL-527")
def test_each_member_is_told_once_with_the_newest_report() -> None:
    members = LostMembers()
    members.lost(A, 100)
    members.lost(B, 110)
    members.lost(A, 120)
    assert members.take(130, 10) == [Report(A, False, 120), Report(B, False, 110)]
    assert members.take(140, 10) == []


@pytest.mark.rule("PL-527")
def test_a_member_that_is_back_before_it_was_told_as_lost_is_not_told_at_all() -> None:
    members = LostMembers()
    members.lost(A, 100)
    members.back(A, 110)
    members.back(B, 110)
    assert len(members) == 0


@pytest.mark.rule("PL-527")
def test_a_member_that_was_told_as_lost_is_told_as_back_for_a_minute() -> None:
    members = LostMembers()
    members.lost(A, 100)
    members.take(110, 10)
    members.back(A, 120)
    members.back(A, 130)
    assert members.take(140, 10) == [Report(A, True, 130)]
    members.back(A, 150)
    assert len(members) == 0, "it was told"
    members.lost(A, 200)
    members.take(210, 10)
    members.lost(B, 210 + REPORTED_KEPT_MS)
    members.take(210 + REPORTED_KEPT_MS, 10)
    members.back(A, 220 + REPORTED_KEPT_MS)
    assert len(members) == 0


@pytest.mark.rule("PL-527")
def test_what_could_not_be_told_waits_again_unless_there_is_something_newer() -> None:
    members = LostMembers()
    members.lost(A, 100)
    members.lost(B, 100)
    taken = members.take(110, 10)
    members.back(A, 120)
    members.failed(taken)
    assert members.take(130, 10) == [Report(A, True, 120), Report(B, False, 100)]


@pytest.mark.rule("PL-527")
def test_old_reports_and_those_beyond_the_bound_are_dropped_and_counted() -> None:
    members = LostMembers()
    for number in range(MEMBERS_MAX + 2):
        members.lost(SessionKey("g", str(number)), 0)
    members.lost(SessionKey("g", "0"), 0)
    assert (len(members), members.dropped) == (MEMBERS_MAX, 2)
    taken = members.take(WORTH_MS - 1, MEMBERS_MAX)
    assert len(taken) == MEMBERS_MAX
    members.lost(A, 0)
    members.failed(taken)
    assert (len(members), members.dropped) == (MEMBERS_MAX, 3)
    assert members.take(WORTH_MS, MEMBERS_MAX) == []
    assert members.dropped == 3 + MEMBERS_MAX
