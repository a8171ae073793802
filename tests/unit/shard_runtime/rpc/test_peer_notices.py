"""Notices waiting for other nodes: each node gets each notice once, and only the newest about a member; old ones are
dropped (GC-39b, PL-527)."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from shard_runtime.rpc.peer_notices import CALL_NOTICES_MAX, NOTICES_MAX, WaitingNotices

ONE, TWO = "one:9093", "two:9093"
WORTH_MS = 30_000


class Removal(NamedTuple):
    key: str
    newness: int
    at_ms: int


A, B = Removal("A", 6, 100), Removal("B", 7, 200)


def listed(*addresses: str) -> WaitingNotices[Removal]:
    """Notices about A, one for each of these addresses."""
    notices: WaitingNotices[Removal] = WaitingNotices(WORTH_MS)
    for address in addresses:
        notices.add(address, A)
    return notices


def nowhere(_: str) -> bool:
    return False


@pytest.mark.rule("GC-39b", "PL-527")
def test_every_node_gets_each_notice_once() -> None:
    notices = listed(ONE, TWO)
    notices.add(ONE, B)
    assert notices.take(300, (), nowhere) == {ONE: [A, B], TWO: [A]}
    assert not notices
    assert notices.take(300, (), nowhere) == {}
    assert notices.dropped == 0


@pytest.mark.rule("GC-39b", "PL-527")
def test_of_a_member_the_newest_notice_waits_whatever_the_order_in_which_they_come() -> None:
    later = Removal("A", 9, 400)
    for first, second in ((A, later), (later, A)):
        notices: WaitingNotices[Removal] = WaitingNotices(WORTH_MS)
        notices.add(ONE, first)
        notices.add(ONE, second)
        assert notices.take(500, (), nowhere) == {ONE: [later]}


@pytest.mark.rule("GC-39b", "PL-527")
def test_a_notice_that_failed_waits_for_its_node_alone_until_it_is_worth_nothing() -> None:
    notices = listed(ONE, TWO)
    notices.take(300, (), nowhere)
    notices.add(ONE, A)
    assert notices.take(A.at_ms + WORTH_MS - 1, (), nowhere) == {ONE: [A]}
    notices.add(ONE, A)
    assert notices.take(A.at_ms + WORTH_MS, (), nowhere) == {}
    assert (notices.dropped, bool(notices)) == (1, False)


@pytest.mark.rule("GC-39b")
def test_notices_for_a_node_that_is_listed_no_more_are_dropped() -> None:
    notices = listed(ONE, TWO)
    assert notices.take(300, (), lambda address: address == ONE) == {TWO: [A]}
    assert (notices.dropped, bool(notices)) == (1, False)


@pytest.mark.rule("GC-39b", "PL-527")
def test_notices_for_a_node_that_is_being_called_wait() -> None:
    notices = listed(ONE, TWO)
    assert notices.take(300, {ONE}, nowhere) == {TWO: [A]}
    assert notices.take(WORTH_MS + 500, {ONE}, nowhere) == {}
    assert (notices.dropped, bool(notices)) == (0, True)


@pytest.mark.rule("PL-527")
def test_a_notice_that_is_not_true_any_more_is_taken_back_everywhere() -> None:
    notices = listed(ONE, TWO)
    notices.add(ONE, B)
    notices.discard(A.key)
    assert notices.take(300, (), nowhere) == {ONE: [B]}
    notices.discard(B.key)
    assert not notices


@pytest.mark.rule("GC-39b", "PL-527")
def test_a_call_has_no_more_than_its_bound_and_no_more_wait_than_theirs() -> None:
    notices: WaitingNotices[Removal] = WaitingNotices(WORTH_MS)
    for number in range(NOTICES_MAX + 3):
        notices.add(ONE, Removal(f"m{number}", 6, 0))
    assert notices.dropped == 3
    reported: list[Removal] = []
    while notices:
        taken = notices.take(1, (), nowhere)[ONE]
        assert len(taken) <= CALL_NOTICES_MAX
        reported += taken
    assert [each.key for each in reported] == [f"m{number}" for number in range(NOTICES_MAX)]
