"""Times as they are typed and printed."""

from __future__ import annotations

import pytest

from sharegroups.cli.dlq.times import duration_ms, time_ms, time_text
from sharegroups.cli.output import UsageFailure


@pytest.mark.rule("CT-122")
@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:01.250+01:00", 1_250),
        ("1969-12-31T23:00:00-01", 0),
        (" 2h ", 100_000_000 - 7_200_000),
        ("90s", 100_000_000 - 90_000),
        ("15m", 100_000_000 - 900_000),
        ("1d", 100_000_000 - 86_400_000),
    ],
)
def test_a_time_is_a_date_or_so_long_ago(text: str, ms: int) -> None:
    assert time_ms("--since", text, 100_000_000) == ms


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 h", "1.5h", "٣h", "2025-01-01", "2025-02-30T00:00:00", "now"])
def test_other_texts_are_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageFailure, match="as in 90s, 15m, 2h or 7d"):
        time_ms("--since", text, 0)
    with pytest.raises(UsageFailure, match="as in 90s, 15m, 2h or 7d"):
        duration_ms("--older-than", text)


def test_a_printed_time_can_be_typed_again_and_nonsense_is_a_number() -> None:
    for ms in (0, 1_700_000_000_000, 253_402_300_799_000):
        assert time_ms("--since", time_text(ms), 0) == ms
    assert (time_text(-1), time_text(253_402_300_800_000)) == ("-1ms", "253402300800000ms")
