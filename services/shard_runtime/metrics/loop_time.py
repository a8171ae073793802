"""How busy the thread of the event loop is: Kafka's `thread-idle-ratio-avg`, for a process with one such thread.

Busy is what the kernel counts for the thread: the time on a processor, and the time ready to run without one. A thread
that waits inside a system call counts as idle, be it for requests or for a disk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

#: Kafka's window for this average.
WINDOW_NS: Final = 30_000_000_000
#: Scrapes that are remembered: more of them within a window do not take more memory.
SAMPLES_MAX: Final = 64


def busy_ns_of_this_thread() -> Callable[[], int]:
    """A function that says, to any thread, how long the calling thread has been busy since it began."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def busy_ns() -> int:
        with contextlib.suppress(OSError, ValueError):
            running, waiting, *_ = (int(word) for word in path.read_text().split())
            if running:
                return running + waiting
        return time.clock_gettime_ns(clock)  # a kernel that does not count the wait for a processor

    return busy_ns


class LoopTime(Collector):
    """Reads the thread's time when the metrics are collected (CM-172)."""

    def __init__(self, busy_ns: Callable[[], int] | None = None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._busy_ns = busy_ns or busy_ns_of_this_thread()
        self._now_ns = now_ns
        self._samples: deque[tuple[int, int]] = deque([(now_ns(), self._busy_ns())], maxlen=SAMPLES_MAX)

    def collect(self) -> Iterable[Metric]:
        """The busy time as a counter, and the idle share since the newest scrape that is a window old, else since the
        start."""
        now, busy = self._now_ns(), self._busy_ns()
        samples = self._samples
        while len(samples) > 1 and now - samples[1][0] >= WINDOW_NS:
            samples.popleft()
        since, busy_then = samples[0]
        elapsed = now - since
        idle = 1.0 - (busy - busy_then) / elapsed if elapsed > 0 else 1.0
        if now - samples[-1][0] >= WINDOW_NS // (SAMPLES_MAX - 1):
            samples.append((now, busy))
        yield CounterMetricFamily(
            "event_loop_busy_seconds", "Time that the event loop's thread ran, or waited for a processor.", busy / 1e9
        )
        yield GaugeMetricFamily(
            "thread_idle_ratio_avg",
            "Share of the time that the event loop's thread was idle, over the last 30 s or since the scrape before.",
            min(1.0, max(0.0, idle)),
        )
