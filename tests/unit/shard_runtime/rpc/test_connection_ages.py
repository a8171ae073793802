"""When the streams of a connection are asked to move, and how many connections are remembered (CM-194)."""

from __future__ import annotations

import pytest

from shard_runtime.rpc.connection_ages import ConnectionAges, grace_ms, grpc_age_ms

MINUTE_MS = 60_000


@pytest.mark.rule("CM-194")
@pytest.mark.parametrize(("drawn", "at_s"), [(0.0, 42.0), (1.0, 48.0)])
def test_streams_move_at_70_to_80_percent_of_the_age_counted_from_the_first_call(drawn: float, at_s: float) -> None:
    ages = ConnectionAges(MINUTE_MS, lambda: drawn)
    assert [ages.move_at_s("a", now_s) for now_s in (100.0, 130.0, 170.0)] == [pytest.approx(100 + at_s)] * 3
    assert ages.move_at_s("b", 130.0) == pytest.approx(130 + at_s)


@pytest.mark.rule("CM-194")
def test_grpc_ends_connections_between_82_and_100_percent_of_the_age_so_moves_come_first() -> None:
    for age_ms in (1_000, MINUTE_MS, 1_800_000):
        given = grpc_age_ms(age_ms)
        assert 0.81 * age_ms < 0.9 * given
        assert 1.1 * given <= age_ms
        assert ConnectionAges(age_ms, lambda: 1.0).move_at_s("a", 0.0) * 1000 <= 0.8 * age_ms


@pytest.mark.rule("CM-194")
def test_the_grace_is_30_s_or_the_age_if_that_is_less() -> None:
    assert [grace_ms(age_ms) for age_ms in (1_000, 30_000, 1_800_000)] == [1_000, 30_000, 30_000]


@pytest.mark.rule("CM-194")
def test_an_address_that_is_used_again_after_its_connection_was_closed_is_another_connection() -> None:
    ages = ConnectionAges(MINUTE_MS, lambda: 0.0)
    first = ages.move_at_s("a", 0.0)
    assert ages.move_at_s("a", 90.0) == first
    assert ages.move_at_s("a", 90.1) == pytest.approx(90.1 + 42.0)


@pytest.mark.rule("CM-194")
def test_only_the_newest_connections_are_remembered_and_none_that_was_closed() -> None:
    ages = ConnectionAges(MINUTE_MS, lambda: 0.0, connections_max=3)
    for number in range(5):
        ages.move_at_s(str(number), float(number))
    assert list(ages._known) == ["2", "3", "4"]
    ages.move_at_s("late", 93.5)
    assert list(ages._known) == ["4", "late"]
