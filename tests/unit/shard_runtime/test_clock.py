"""The clocks of the machine that a process uses."""

from __future__ import annotations

import time

import pytest

from shard_runtime.clock import COMPARED_MAX_MS, STEADY_MS, StoreTime, SystemClock


@pytest.mark.rule("CM-3", "PL-309")
def test_leases_are_measured_by_the_clock_that_goes_on_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def reported(clock: int) -> int:
        asked.append(clock)
        return 7_000_000

    monkeypatch.setattr(time, "clock_gettime_ns", reported)
    assert SystemClock().now_ms() == 7
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]


class Host:
    """The two clocks of a host, each moved by the test."""

    def __init__(self) -> None:
        self.wall, self.boot = 1_780_000_000_000, 5_000

    def wall_ms(self) -> int:
        return self.wall

    def now_ms(self) -> int:
        return self.boot

    def pass_ms(self, ms: int) -> None:
        self.wall += ms
        self.boot += ms


_DAY_MS = 86_400_000


def compared(host: Host, store_ahead_ms: int = 0) -> StoreTime:
    time = StoreTime(host, 10_000)
    time.compare(host.wall + store_ahead_ms, host.boot)
    return time


@pytest.mark.rule("CM-170")
def test_time_is_the_stores_carried_on_by_the_deadline_clock_whatever_this_host_believes() -> None:
    host = Host()
    right = host.wall
    host.wall += 8 * _DAY_MS
    time = StoreTime(host, 10_000)
    assert time.wall_ms() == host.wall, "before the first comparison there is no other"
    asked_ms = host.boot
    host.pass_ms(200)
    time.compare(right + 100, asked_ms)
    assert time.wall_ms() == right + 200, "the store answered half way between question and answer"
    found, _, todo = time.doubt().partition("; ")
    assert found == "this host's clock is 691200 s ahead of the store's"
    assert todo == "expected at most 10 s: set the wrong one right"
    host.pass_ms(1_000)
    host.wall -= 30 * _DAY_MS
    assert time.wall_ms() == right + 1_200
    time.compare(right + 1_200, host.boot)
    assert time.wall_ms() == right + 1_200
    assert "behind the store's" in time.doubt()
    host.wall = right + 1_200
    time.compare(right + 1_200, host.boot)
    assert time.doubt() == "", "the clock was set right, and time itself never made a step"


@pytest.mark.rule("CM-170")
@pytest.mark.parametrize("by_ms", [-_DAY_MS, 10_001, 8 * _DAY_MS])
def test_a_store_whose_clock_is_set_is_not_followed_while_this_hosts_goes_on(by_ms: int) -> None:
    host = Host()
    time = compared(host)
    for _ in range(3):
        host.pass_ms(1_000)
        time.compare(host.wall + by_ms, host.boot)
        assert time.wall_ms() == host.wall
        assert time.doubt() != ""
    time.compare(host.wall, host.boot)
    assert time.doubt() == ""


@pytest.mark.rule("CM-170")
def test_both_clocks_set_at_once_are_followed_and_nothing_is_deleted_by_age_for_an_hour() -> None:
    """A machine that also runs the store: its clock may be wrong now, or may have been wrong before."""
    host = Host()
    time = compared(host)
    host.wall += 8 * _DAY_MS
    time.compare(host.wall, host.boot)
    assert time.wall_ms() == host.wall
    assert time.doubt() == "the clocks of this host and of the store were set within the last 60 minutes"
    host.pass_ms(STEADY_MS - 1)
    time.compare(host.wall, host.boot)
    assert time.doubt() != ""
    host.pass_ms(1)
    assert time.doubt() == ""


@pytest.mark.rule("CM-170")
def test_a_difference_within_the_bound_is_followed_without_doubt() -> None:
    host = Host()
    time = compared(host, 10_000)
    assert (time.wall_ms(), time.doubt(), time.store_ahead_ms) == (host.wall + 10_000, "", 10_000)
    time.compare(host.wall - 10_000, host.boot)
    assert (time.wall_ms(), time.doubt()) == (host.wall, ""), "twenty seconds at once are a step of the store's alone"
    time = compared(host, 5_000)
    time.compare(host.wall - 5_000, host.boot)
    assert (time.wall_ms(), time.doubt()) == (host.wall - 5_000, "")


@pytest.mark.rule("CM-170")
def test_a_comparison_counts_for_a_minute_and_one_that_took_too_long_not_at_all() -> None:
    host = Host()
    time = StoreTime(host, 10_000)
    assert "not compared" in time.doubt()
    host.pass_ms(10_001)
    time.compare(host.wall - 3_000, host.boot - 10_001)
    assert "not compared" in time.doubt()
    time.compare(host.wall, host.boot)
    host.pass_ms(COMPARED_MAX_MS)
    assert time.doubt() == ""
    host.pass_ms(1)
    assert "not compared" in time.doubt()


@pytest.mark.rule("CM-156")
def test_an_answer_of_the_store_is_the_time_unless_its_clock_was_set_since() -> None:
    host = Host()
    time = compared(host, 2_000)
    assert time.judged(host.wall + 2_300) == (host.wall + 2_300, True)
    assert time.judged(host.wall + _DAY_MS) == (host.wall + 2_000, False), "before the next comparison"
    time.compare(host.wall + _DAY_MS, host.boot)
    assert time.judged(host.wall + _DAY_MS) == (host.wall, False), "the host agrees with the time until now"
    assert StoreTime(host, 10_000).judged(host.wall) == (host.wall, False), "never compared"


@pytest.mark.rule("CM-170")
def test_a_slow_reply_moves_nothing_that_it_does_not_contradict() -> None:
    host = Host()
    time = compared(host, store_ahead_ms=300)
    right = time.wall_ms() - host.boot
    for late_ms in (0, 400):  # the reply is late on one of its two ways
        asked_ms = host.boot
        host.pass_ms(400)
        time.compare(right + asked_ms + late_ms, asked_ms)
        assert time.wall_ms() == right + host.boot
    asked_ms = host.boot
    host.pass_ms(400)
    time.compare(right + asked_ms + 401, asked_ms)
    assert time.wall_ms() == right + host.boot + 201, "no clock that was right could have sent this"
