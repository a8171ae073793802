"""How long a node is left alone."""

from __future__ import annotations

import pytest

from sharegroups.connection.core.throttle import THROTTLE_MAX_MS, Throttle


@pytest.mark.parametrize(("wish_ms", "until_ms"), [(-1, 0), (0, 0), (1, 102), (THROTTLE_MAX_MS + 5, 30_101)])
def test_a_wish_counts_from_one_millisecond_up_to_a_bound(wish_ms: int, until_ms: int) -> None:
    throttle = Throttle()
    throttle.note("a", wish_ms, 100)
    assert throttle.until_ms("a") == until_ms
    assert throttle.until_ms("b") == throttle.until_ms(None) == 0


def test_the_latest_end_of_several_wishes_counts() -> None:
    throttle = Throttle()
    throttle.note("a", 50, 100)
    throttle.note("a", 10, 101)
    assert throttle.until_ms("a") == 151
    throttle.note("b", 1, 200)
    assert throttle.until_ms("a") == 0, "a wish that is over is forgotten"


@pytest.mark.rule("CL-86")
def test_wishes_that_follow_each_other_end_half_a_minute_after_the_first() -> None:
    throttle = Throttle()
    for now_ms in range(100, 30_000, 5_000):
        throttle.note("a", 20_000, now_ms)
    assert throttle.until_ms("a") == 100 + THROTTLE_MAX_MS + 1
    throttle.note("a", 20_000, 30_101)
    assert throttle.until_ms("a") == 30_101 + 20_000 + 1, "what was sent in between may be refused again"
