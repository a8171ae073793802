"""Exports what the kernel says of this process, under the names that Prometheus' own clients use, and its memory limit.

A board or an alert for processes works without a change, so these names lack the prefix of all others.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from prometheus_client.core import Metric

from shard_runtime.metrics.families import ComputedMetrics, counter, gauge
from shard_runtime.rpc.budget import memory_bytes

#: The process's start in /proc/PID/stat, in clock ticks since the machine's, counted after the process's name.
_START_FIELD: Final = 19
_PAGE_BYTES: Final = resource.getpagesize()


class ProcessMetrics(ComputedMetrics):
    """Reads the process's memory, processor time, open files and start when the metrics are collected (CM-226). What
    needs /proc has no sample on a system without it."""

    resident = gauge("process_resident_memory_bytes", "Memory of this process that is in RAM.")
    virtual = gauge("process_virtual_memory_bytes", "Size of this process's address space.")
    processor = counter("process_cpu_seconds_total", "Processor time of all threads of this process.")
    started = gauge("process_start_time_seconds", "When this process started; seconds since 1970.")
    files = gauge("process_open_fds", "Open files and sockets of this process.")
    files_max = gauge("process_max_fds", "How many files and sockets this process may have open.")
    limit = gauge(
        "sharegroups_memory_limit_bytes", "Memory that this process may use: its container's limit, or the machine's."
    )

    def __init__(self, proc: Path = Path("/proc"), limit_bytes: Callable[[], int] = memory_bytes) -> None:
        self._self = proc / "self"
        self._limit_bytes = limit_bytes
        self._started_s: float | None = None
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._started_s = _started_s(self._self / "stat")

    def collect(self) -> Iterable[Metric]:
        """Yield each family whose value is known."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield self.processor.of(usage.ru_utime + usage.ru_stime)
        yield self.limit.of(self._limit_bytes())
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        yield self.files_max.of(float("inf") if files == resource.RLIM_INFINITY else files)
        if self._started_s is not None:
            yield self.started.of(self._started_s)
        with contextlib.suppress(OSError, ValueError):
            virtual, resident, *_ = (int(pages) for pages in (self._self / "statm").read_text().split())
            yield self.virtual.of(virtual * _PAGE_BYTES)
            yield self.resident.of(resident * _PAGE_BYTES)
        with contextlib.suppress(OSError):
            yield self.files.of(_open_files(self._self / "fd"))


def _started_s(stat: Path) -> float:
    """Return when the process of this stat file started, in seconds since 1970. Raises OSError, ValueError,
    IndexError."""
    after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    since_boot_s = int(after_name[_START_FIELD]) / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot_s


def _open_files(folder: Path) -> int:
    """Return how many files are open. Newer kernels say so as the size of the folder, however many there are; others
    have to list them. Raises OSError."""
    return folder.stat().st_size or len(os.listdir(folder))
