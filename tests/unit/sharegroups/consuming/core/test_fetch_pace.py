"""The number of records that a consumer requests by default: few for slow jobs, many for small records."""

from __future__ import annotations

import pytest

from sharegroups.consuming.core.fetch_pace import Pace

_LOCK_MS = 30_000


def _after(pace: Pace, polls: int, ms_per_record: float) -> list[int]:
    limits = []
    for _ in range(polls):
        pace.held(pace.limit, int(pace.limit * ms_per_record), _LOCK_MS)
        limits.append(pace.limit)
    return limits


@pytest.mark.rule("CL-85")
@pytest.mark.parametrize(("ms", "most"), [(0.01, 500), (10, 200), (100, 20), (2_000, 1), (20_000, 1)])
def test_it_settles_at_what_is_worked_through_in_two_seconds(ms: float, most: int) -> None:
    pace = Pace(500, paced=True)
    assert pace.limit == 1
    limits = _after(pace, 20, ms)
    assert limits[-1] == most
    assert all(after <= 2 * before for before, after in zip([1, *limits], limits, strict=False))


@pytest.mark.rule("CL-85")
def test_one_slow_record_among_quick_ones_is_remembered_for_fifty_polls() -> None:
    pace = Pace(500, paced=True)
    _after(pace, 20, 0.01)
    pace.held(1, 20_000, _LOCK_MS)
    assert pace.limit == 1
    assert set(_after(pace, 49, 0.01)) == {1}
    assert _after(pace, 12, 0.01)[-1] == 500


@pytest.mark.rule("CL-85")
def test_with_a_short_lock_a_poll_brings_less() -> None:
    pace = Pace(500, paced=True)
    for _ in range(20):
        pace.held(pace.limit, pace.limit * 10, 1_600)
    assert pace.limit == 20  # 200 ms, an eighth of the lock


@pytest.mark.rule("CL-85")
def test_who_says_how_many_gets_so_many() -> None:
    pace = Pace(10, paced=False)
    pace.held(10, 50_000, _LOCK_MS)
    assert pace.limit == 10


@pytest.mark.rule("CL-85")
def test_whole_batches_come_to_who_is_quick_and_set_no_small_limit() -> None:
    quick, steady, few = Pace(500, paced=True), Pace(500, paced=True), Pace(10, paced=True)
    for pace, ms in ((quick, 0.1), (steady, 3), (few, 0.1)):
        _after(pace, 20, ms)
    assert (quick.limit, quick.whole) == (500, True)
    assert (steady.limit, steady.whole) == (500, False)
    assert (few.limit, few.whole) == (10, False)
    quick.held(500, 3_000, _LOCK_MS)
    assert (quick.limit, quick.whole) == (333, False)


@pytest.mark.parametrize(("held_ms", "whole"), [(1_000, True), (1_002, False)])
def test_whole_batches_come_to_who_is_done_with_just_a_thousand_records_in_two_seconds(
    held_ms: int, whole: bool
) -> None:
    pace = Pace(500, paced=True)
    _after(pace, 20, 0.1)
    pace.held(500, held_ms, _LOCK_MS)
    assert (pace.limit, pace.whole) == (500, whole)
