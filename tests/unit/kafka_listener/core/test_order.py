"""The order of a connection's answers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_listener.core.order import UNDER_WAY_MAX, Order


@pytest.mark.rule("KL-4")
@given(st.integers(1, UNDER_WAY_MAX), st.integers())
def test_answers_leave_in_the_order_of_their_requests(count: int, seed: int) -> None:
    order: Order[int] = Order()
    places = [(number, order.begin()) for number in range(count)]
    random.Random(seed).shuffle(places)
    left: list[int] = []
    for number, place in places:
        order.settle(place, number)
        left += order.ready()
    assert left == list(range(count))
    assert order.under_way == 0


@pytest.mark.rule("KL-4")
def test_a_request_without_an_answer_holds_up_none() -> None:
    order: Order[str] = Order()
    first, second, third = order.begin(), order.begin(), order.begin()
    order.settle(second, None)
    order.settle(third, "c")
    assert list(order.ready()) == []
    order.settle(first, "a")
    assert list(order.ready()) == ["a", "c"]


@pytest.mark.rule("KL-4")
def test_no_more_than_64_are_under_way() -> None:
    order: Order[str] = Order()
    places = [order.begin() for _ in range(UNDER_WAY_MAX)]
    assert order.is_full
    with pytest.raises(RuntimeError, match="64 requests are under way"):
        order.begin()
    order.settle(places[1], "b")
    assert list(order.ready()) == []
    assert order.is_full
    order.settle(places[0], "a")
    assert list(order.ready()) == ["a", "b"]
    assert order.under_way == UNDER_WAY_MAX - 2
