"""Reports about lost members: whose return is reported, and which of two reports is the newer one (PL-527)."""

from __future__ import annotations

import pytest

from partition_leader.sessions.core.lost_members import MEMBERS_MAX, REPORTED_KEPT_MS, LostMembers
from partition_leader.sessions.core.session import SessionKey

A, B = SessionKey("g", "A"), SessionKey("g", "B")

# Of PL-527 these cover (b), the period for which a report applies, and which of two reports (c) and (d) keep. Which
# sessions are reported, (a), is in test_lost_streams.py. How reports are gathered, sent, retried, bounded and counted,
# (c) to (e), is in test_member_reports.py and rpc/test_peer_notices.py.


@pytest.mark.rule("PL-527")
def test_a_member_counts_as_lost_for_a_minute_from_when_its_report_was_sent() -> None:
    members = LostMembers()
    lost = members.report(A, False, 100)
    assert not members.was_reported(A), "it was made, and not sent"
    members.sent([lost], 110)
    assert (members.was_reported(A), members.was_reported(B)) == (True, False)
    members.sent([], 109 + REPORTED_KEPT_MS)
    assert members.was_reported(A)
    members.sent([], 110 + REPORTED_KEPT_MS)
    assert not members.was_reported(A)


@pytest.mark.rule("PL-527")
def test_a_member_whose_return_was_reported_is_lost_no_more() -> None:
    members = LostMembers()
    members.sent([members.report(A, False, 100)], 110)
    members.sent([members.report(A, True, 120)], 130)
    assert not members.was_reported(A)
    members.sent([members.report(A, False, 140)], 150)
    assert members.was_reported(A)


@pytest.mark.rule("PL-527")
def test_a_report_is_outdated_once_a_newer_one_of_its_member_was_sent() -> None:
    members = LostMembers()
    lost, other = members.report(A, False, 100), members.report(B, False, 100)
    back = members.report(A, True, 100)
    assert lost.newness < other.newness < back.newness
    members.sent([lost, other], 110)
    assert members.is_newest(lost)
    assert members.is_newest(back)
    members.sent([back], 120)
    assert (members.is_newest(lost), members.is_newest(other), members.is_newest(back)) == (False, True, True)


@pytest.mark.rule("PL-527")
def test_the_number_of_members_that_are_remembered_is_bounded() -> None:
    members = LostMembers()
    reports = [members.report(SessionKey("g", str(number)), False, 0) for number in range(MEMBERS_MAX + 2)]
    members.sent(reports, 1)
    assert sum(members.was_reported(each.key) for each in reports) == MEMBERS_MAX
    assert members.is_newest(reports[0]), "the report of a forgotten member must still be retried"
