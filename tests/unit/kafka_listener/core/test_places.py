"""How many connections there may be."""

from __future__ import annotations

import pytest

from kafka_listener.core.places import Places


@pytest.mark.rule("KL-8")
def test_an_address_has_three_connections_for_each_that_is_left() -> None:
    places = Places(8)
    assert [places.take("a") for _ in range(8)] == [True] * 6 + [False] * 2
    assert places.take("b")
    assert not places.take("a")
    places.give("a")
    assert places.take("b")
    assert places.total == 7


@pytest.mark.rule("KL-8")
def test_there_are_no_more_than_there_may_be() -> None:
    places = Places(4)
    taken = [places.take(address) for address in "abcdef"]
    assert taken == [True] * 4 + [False] * 2
    places.give("a")
    assert places.take("f")
