"""Which of the machine's clocks a process goes by."""

from __future__ import annotations

import time

import pytest

from shard_runtime.clock import SystemClock


@pytest.mark.rule("CM-3", "PL-309")
def test_leases_are_measured_by_the_clock_that_goes_on_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def told(clock: int) -> int:
        asked.append(clock)
        return 7_000_000

    monkeypatch.setattr(time, "clock_gettime_ns", told)
    assert SystemClock().now_ms() == 7
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
