"""The number of records that a worker requests: one per handler while jobs are slow, hundreds while they are quick."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroups.worker.core.prefetch import AHEAD_S, Prefetch


def after(seconds: float, jobs: int = 200, handlers: int = 4, most: int = 500) -> Prefetch:
    prefetch = Prefetch(handlers, most)
    for _ in range(jobs):
        prefetch.finished(seconds)
    return prefetch


@pytest.mark.rule("CL-124")
@pytest.mark.parametrize(
    ("seconds", "capacity"), [(90, 4), (1, 4), (0.1, 8), (0.01, 44), (0.001, 204), (0.000_001, 204)]
)
def test_the_pace_decides(seconds: float, capacity: int) -> None:
    assert after(seconds).capacity(30) == capacity


@pytest.mark.rule("CL-124")
def test_before_it_knows_a_pace_it_asks_for_one_record_a_handler_and_grows_with_what_it_has_seen() -> None:
    assert Prefetch(4, 500).wanted(0, 30) == 4
    assert after(0, jobs=4).capacity(30) == 8
    assert after(0, jobs=1000).capacity(30) == 504


@pytest.mark.rule("CL-124")
def test_a_request_waits_until_it_brings_more_than_a_few() -> None:
    quick = after(0.001)
    assert quick.wanted(204, 30) == 0
    assert quick.wanted(180, 30) == 0
    assert quick.wanted(150, 30) == 54
    slow = after(10)
    assert [slow.wanted(busy, 30) for busy in range(6)] == [4, 3, 2, 1, 0, 0], "an idle handler does not wait"


@pytest.mark.rule("CL-124")
def test_the_slowest_tenth_decides_and_not_the_mean() -> None:
    prefetch = Prefetch(4, 500)
    for number in range(200):
        prefetch.finished(3.0 if number % 10 == 0 else 0.001)
    assert prefetch.capacity(30) == 4
    for _ in range(100):
        prefetch.finished(0.001)
    assert prefetch.capacity(30) == 304, "the last hundred jobs decide"


@pytest.mark.rule("CL-126")
def test_a_stall_forgets_the_pace() -> None:
    prefetch = after(0.001)
    prefetch.stalled()
    assert prefetch.capacity(30) == 4


@pytest.mark.rule("CL-124")
@given(
    handlers=st.integers(1, 64),
    most=st.integers(0, 2000),
    times=st.lists(st.floats(0, 100), max_size=300),
    lock_s=st.floats(1, 3600),
)
def test_what_waits_is_begun_within_a_small_part_of_the_lock_and_bounded(
    handlers: int, most: int, times: list[float], lock_s: float
) -> None:
    prefetch = Prefetch(handlers, most)
    for seconds in times:
        prefetch.finished(seconds)
    ahead = prefetch.capacity(lock_s) - handlers
    assert 0 <= ahead <= most
    last = times[-100:]
    if last:
        slowest = sorted(last, reverse=True)[: (len(last) + 9) // 10]
        assert ahead * sum(slowest) / len(slowest) / handlers <= min(AHEAD_S, lock_s / 10) * 1.001 + 1e-6
    for in_hand in range(0, 100, 7):
        assert prefetch.wanted(in_hand, lock_s) + in_hand <= max(in_hand, prefetch.capacity(lock_s))
