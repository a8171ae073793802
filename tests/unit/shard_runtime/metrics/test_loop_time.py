"""The idle share of the event loop's thread, over a window, from the kernel's counters."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from shard_runtime.metrics.loop_time import SAMPLES_MAX, LoopTime, busy_ns_of_this_thread

SECOND = 1_000_000_000


class Thread:
    """A thread whose busy time is set by a test."""

    def __init__(self) -> None:
        self.now_ns = self.busy_ns = 0
        self.registry = CollectorRegistry()
        self.collector = LoopTime(lambda: self.busy_ns, lambda: self.now_ns)
        self.registry.register(self.collector)

    def scrape(self, seconds: float, idle: float) -> float | None:
        """Advance by `seconds`, of which the share `idle` is idle; return the idle share that a scrape then reports."""
        self.now_ns += int(seconds * SECOND)
        self.busy_ns += int(seconds * SECOND * (1 - idle))
        return self.registry.get_sample_value("sharegroups_event_loop_idle_ratio")


@pytest.mark.rule("CM-172")
def test_the_share_is_that_since_the_newest_scrape_that_is_a_window_old() -> None:
    thread = Thread()
    assert thread.scrape(10, 0.5) == pytest.approx(0.5)  # since the start
    assert thread.scrape(20, 0.2) == pytest.approx(0.3)
    assert thread.scrape(20, 0.8) == pytest.approx(0.5)  # since the scrape at 10 s
    assert thread.scrape(300, 1.0) == pytest.approx(1.0)  # since the scrape at 50 s
    assert thread.registry.get_sample_value("sharegroups_event_loop_busy_seconds_total") == pytest.approx(5 + 16 + 4)


@pytest.mark.rule("CM-172")
def test_many_scrapers_change_nothing_and_take_no_more_memory() -> None:
    often, seldom = Thread(), Thread()
    for _ in range(6_000):
        found = often.scrape(0.01, 0.25)
    assert found == pytest.approx(seldom.scrape(60, 0.25))
    assert len(often.collector._samples) <= SAMPLES_MAX
    assert often.scrape(30, 0.75) == pytest.approx(0.75, abs=0.01)


def test_a_scrape_at_the_moment_of_the_start_finds_it_idle_and_rounding_leaves_it_between_0_and_1() -> None:
    thread = Thread()
    assert thread.scrape(0, 1.0) == 1.0
    assert thread.scrape(1, -0.01) == 0.0


@pytest.mark.rule("CM-172")
def test_the_time_is_that_of_the_thread_that_asked() -> None:
    found: list[tuple[int, int]] = []

    def work() -> None:
        busy_ns, began = busy_ns_of_this_thread(), time.thread_time_ns()
        before = busy_ns()
        while time.thread_time_ns() - began < 50_000_000:
            pass
        found.append((before, busy_ns()))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()  # this thread is idle meanwhile
    before, after = found[0]
    assert after - before >= 40_000_000  # the kernel counts in ticks


@pytest.mark.rule("CM-172")
def test_where_the_kernel_counts_no_wait_running_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: "0 0 0\n")
    counted = busy_ns_of_this_thread()()
    assert 0 < counted <= time.thread_time_ns()
