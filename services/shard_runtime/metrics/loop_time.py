"""Measures how busy the event loop's thread is: Kafka's `thread-idle-ratio-avg`, for a process with one such thread.

Busy time is the kernel's count for the thread: the time on a processor, and the time ready to run without one. A thread
that waits inside a system call, for requests or for a disk, counts as idle.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric

from shard_runtime.metrics.families import ComputedMetrics, counter, gauge

#: Kafka's window for this average.
WINDOW_NS: Final = 30_000_000_000
#: How many scrapes are remembered, so that frequent ones do not take more memory.
SAMPLES_MAX: Final = 64


def busy_ns_of_this_thread() -> Callable[[], int]:
    """Return a function, callable from any thread, for the time that this thread has been busy since its start."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    clock = time.pthread_getcpuclockid(threading.get_ident())

    def busy_ns() -> int:
        with contextlib.suppress(OSError, ValueError):
            running, waiting, *_ = (int(word) for word in path.read_text().split())
            if running:
                return running + waiting
        return time.clock_gettime_ns(clock)  # this kernel does not count the time spent waiting for a processor

    return busy_ns


class LoopTime(ComputedMetrics):
    """Reads the thread's time when the metrics are collected (CM-172)."""

    busy = counter(
        "sharegroups_event_loop_busy_seconds_total", "Time that the event loop's thread ran, or waited for a processor."
    )
    idle = gauge(
        "sharegroups_event_loop_idle_ratio",
        "Share of the time that the event loop's thread was idle, over the last 30 s or since the scrape before.",
    )

    def __init__(self, busy_ns: Callable[[], int] | None = None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._busy_ns = busy_ns or busy_ns_of_this_thread()
        self._now_ns = now_ns
        self._samples: deque[tuple[int, int]] = deque([(now_ns(), self._busy_ns())], maxlen=SAMPLES_MAX)

    def collect(self) -> Iterable[Metric]:
        """Yield the busy time as a counter, and the idle share since the newest scrape that is at least a window old,
        else since the oldest one remembered."""
        now, busy = self._now_ns(), self._busy_ns()
        samples = self._samples
        while len(samples) > 1 and now - samples[1][0] >= WINDOW_NS:
            samples.popleft()
        since, busy_then = samples[0]
        elapsed = now - since
        idle = 1.0 - (busy - busy_then) / elapsed if elapsed > 0 else 1.0
        if now - samples[-1][0] >= WINDOW_NS // (SAMPLES_MAX - 1):
            samples.append((now, busy))
        yield self.busy.of(busy / 1e9)
        yield self.idle.of(min(1.0, max(0.0, idle)))
