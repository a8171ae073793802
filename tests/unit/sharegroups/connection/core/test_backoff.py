"""Delays double, up to a bound."""

from __future__ import annotations

from functools import partial

import pytest

from sharegroups.connection.core.backoff import Backoff


@pytest.mark.rule("CL-14")
def test_delays_double_up_to_the_cap_and_start_over_after_a_success() -> None:
    backoff = Backoff(100, 1000, lambda: 0.5)
    assert [backoff.next_ms() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    backoff.reset()
    assert backoff.next_ms() == 100
    assert Backoff(100, 1000, lambda: 0.0).next_ms() == 80


def test_a_delay_stops_doubling_after_thirty_times_whatever_the_cap() -> None:
    backoff = Backoff(1, 2**40, lambda: 0.5)
    assert [backoff.next_ms() for _ in range(33)][29:] == [2**29, 2**30, 2**30, 2**30]


@pytest.mark.rule("CL-14")
def test_at_its_maximum_it_is_spread_too_and_never_exceeds_it() -> None:
    for chance, expected_ms in ((0.0, 800), (0.5, 1_000), (0.999, 1_000)):
        backoff = Backoff(100, 1_000, partial(float, chance))
        assert [backoff.next_ms() for _ in range(40)][-20:] == [expected_ms] * 20
