"""Notices of removals: each leader gets each one once, the newest of a member; old ones are dropped (GC-39b)."""

from __future__ import annotations

import pytest

from group_coordinator.core.removals import CALL_ORDERS_MAX, ORDERS_MAX, WORTH_MS, Order, Removals

ONE, TWO = "one:9093", "two:9093"
A, B = Order("g", "A", 6, 100), Order("g", "B", 7, 200)


@pytest.mark.rule("GC-39b")
def test_every_leader_is_told_each_removal_once() -> None:
    removals = Removals()
    removals.removed(A, (ONE, TWO))
    removals.removed(B, (ONE,))
    assert removals.take({ONE, TWO}, 300) == {ONE: [A, B], TWO: [A]}
    assert not removals
    assert removals.take({ONE, TWO}, 300) == {}
    assert removals.dropped == 0


@pytest.mark.rule("GC-39b")
def test_of_a_member_the_newest_removal_waits_whatever_the_order_in_which_they_come() -> None:
    later = A._replace(group_epoch=9, at_ms=400)
    for first, second in ((A, later), (later, A)):
        removals = Removals()
        removals.removed(first, (ONE,))
        removals.failed(ONE, [second])
        assert removals.take({ONE}, 500) == {ONE: [later]}


@pytest.mark.rule("GC-39b")
def test_what_a_leader_did_not_get_waits_for_it_alone_until_it_is_worth_nothing() -> None:
    removals = Removals()
    removals.removed(A, (ONE, TWO))
    removals.take({ONE, TWO}, 300)
    removals.failed(ONE, [A])
    assert removals.take({ONE, TWO}, A.at_ms + WORTH_MS - 1) == {ONE: [A]}
    removals.failed(ONE, [A])
    assert removals.take({ONE, TWO}, A.at_ms + WORTH_MS) == {}
    assert (removals.dropped, bool(removals)) == (1, False)
    removals.removed(B, (ONE, TWO))
    assert removals.take({TWO}, 300) == {TWO: [B]}, "the other one is listed no more"
    assert (removals.dropped, bool(removals)) == (2, False)


@pytest.mark.rule("GC-39b")
def test_a_call_has_no_more_than_its_bound_and_no_more_wait_than_theirs() -> None:
    removals = Removals()
    for number in range(ORDERS_MAX + 3):
        removals.removed(Order("g", f"m{number}", 6, 0), (ONE,))
    assert removals.dropped == 3
    told: list[Order] = []
    while removals:
        orders = removals.take({ONE}, 1)[ONE]
        assert len(orders) <= CALL_ORDERS_MAX
        told += orders
    assert [order.member_id for order in told] == [f"m{number}" for number in range(ORDERS_MAX)]
