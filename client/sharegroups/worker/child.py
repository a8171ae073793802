"""The process that runs blocking handlers, one job at a time. It ends when its worker ends.

It first sends "ready", or sends `Unable` and ends. For each job the worker sends (topic, info, value), and the process
replies with the verdict and how many seconds the handler ran. Once the worker closes `work`, the process exits as any
Python program does: its producers send their remaining records (CL-140), and its `atexit` functions run.

It leads its own process group, so that the worker can kill it together with all processes that its handlers have
started.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from sharegroups.forks import handle_signals
from sharegroups.worker.core.policy import described
from sharegroups.worker.hooks import Hooks
from sharegroups.worker.job import JobInfo, JobSpec, enter, run_blocking


class Unable(NamedTuple):
    """Reports that this process cannot import its handlers: the error as text, and its traceback."""

    error: str
    trace: str


def serve(work: Connection, alive: Connection, packed: bytes) -> None:
    """Run jobs until the worker closes `work`. `alive` is closed when the worker's process ends for any reason.

    `packed`: the job of each topic, pickled.
    """
    os.setpgid(0, 0)
    handle_signals(_ignore)  # a supervisor may signal every process, but the worker decides when to stop
    threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
    with suppress(EOFError, OSError):  # the worker has closed `work` or ended
        try:
            specs: Mapping[str, JobSpec] = pickle.loads(packed)
        except Exception as error:
            work.send(Unable(described(error), traceback.format_exc()))
            return
        hooks = next((spec.watch.hooks for spec in specs.values() if spec.watch is not None), Hooks())
        hooks.run("start")
        try:
            _work(work, specs)
        finally:
            hooks.run("stop")


def _work(work: Connection, specs: Mapping[str, JobSpec]) -> None:
    work.send("ready")
    while True:
        topic, info, value = work.recv()
        enter(_maker(info))
        spec = specs[topic]
        if spec.watch is not None:
            spec.watch.refresh()
        began = time.perf_counter()
        verdict = run_blocking(spec, value)
        work.send((verdict, time.perf_counter() - began))


def _maker(info: tuple[Any, ...]) -> Any:
    return lambda: JobInfo(*info)


def _ignore(*_: object) -> None:
    """Ignore a signal. SIG_IGN would be inherited by the commands that a job starts."""


def _end_with(alive: Connection) -> None:
    """Kill this process, and all that its handlers have started, when the worker ends.

    Child processes of the worker's other handlers may keep `alive` open, so the worker itself is watched if possible.
    """
    worker = multiprocessing.parent_process()
    assert worker is not None
    ends: list[Connection | int] = [alive]
    if worker.pid is not None and hasattr(os, "pidfd_open"):
        with suppress(OSError):
            ends.append(os.pidfd_open(worker.pid))
    if os.getppid() == worker.pid:  # otherwise it has already ended, and its process id may be reused
        wait(ends)
    os.killpg(0, signal.SIGKILL)
