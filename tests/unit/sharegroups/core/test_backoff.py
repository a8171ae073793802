"""Delays double, up to a bound."""

from __future__ import annotations

import pytest

from sharegroups.core.backoff import Backoff


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
