"""Each cause is logged once, and again after five minutes with the number of occurrences since."""

from __future__ import annotations

import pytest

from kip932.errors import NetworkError
from sharegroups.consuming.core.lock_warnings import Hold, LockWarnings

HOLD = Hold("t-0", 15_000, 30_000)


@pytest.mark.rule("CL-81")
def test_a_cause_is_reported_again_after_five_minutes_with_the_count_of_what_happened_meanwhile() -> None:
    warnings = LockWarnings("Poll fewer.")
    first = warnings.held(HOLD, 7, 1, 1_000)
    assert first is not None
    assert "t-0 offset 7 has been held for 15.0 s" in first
    assert "more records" not in first
    assert warnings.held(HOLD, 8, 3, 2_000) is None
    assert warnings.held(HOLD, 11, 4, 300_999) is None
    assert warnings.refused(HOLD, [(0, 1)], 2_000) is not None, "another cause"
    again = warnings.held(HOLD, 15, 1, 301_000)
    assert again is not None
    assert "offset 15" in again
    assert again.endswith("(7 more records since the last such warning)")
    assert warnings.rest() == []
    assert warnings.failed("t-0", [(2, 3)], NetworkError("gone"), 302_000) is not None
    assert warnings.failed("t-0", [(4, 6)], NetworkError("gone"), 303_000) is None
    (rest,) = warnings.rest()
    assert rest.startswith("3 more records since the last warning of their kind")


@pytest.mark.parametrize(("ranges", "words"), [([(7, 7)], "gets it next"), ([(7, 8)], "gets them next")])
def test_the_warning_distinguishes_one_record_from_several(ranges: list[tuple[int, int]], words: str) -> None:
    line = LockWarnings("Poll fewer.").refused(HOLD, ranges, 1_000)
    assert line is not None
    assert words in line
