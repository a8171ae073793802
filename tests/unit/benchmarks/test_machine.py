"""The costs of processes that the kernel is asked for, with this process as the example. Nothing here is timed."""

from __future__ import annotations

import os
import threading

import pytest

from benchmarks.machine import cpu_seconds, memory_mib, peak_memory_mib, process_seconds


def test_cpu_time_includes_threads_that_ended() -> None:
    thread = threading.Thread(target=lambda: sum(range(3_000_000)))
    before = process_seconds(os.getpid())
    thread.start()
    thread.join()
    assert process_seconds(os.getpid()) - before > 0.005  # far less than the sum takes
    assert process_seconds(os.getpid()) >= cpu_seconds(os.getpid()) - 0.02  # the coarse clock counts ticks of 10 ms


def test_a_process_that_ended_has_no_memory_while_its_parent_has_not_waited_for_it() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert memory_mib(child) == 0
    os.waitpid(child, 0)
    with pytest.raises(FileNotFoundError):
        memory_mib(child)


def test_a_process_that_ended_has_no_clock() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(OSError, match="Invalid argument"):
        process_seconds(child)


def test_memory_is_what_a_process_has_now() -> None:
    block = bytearray(os.urandom(1 << 20) * 64)
    held = memory_mib(os.getpid())
    assert 64 < held <= peak_memory_mib(os.getpid())
    del block
    assert memory_mib(os.getpid()) < held - 32
