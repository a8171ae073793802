"""The threads of blocking handlers: which one takes a job, and which one waits for which."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, cast

import pytest

from sharegroups.messages import Message
from sharegroups.worker import Retry, threads
from sharegroups.worker.job import Job, JobSpec
from sharegroups.worker.pools import Finished
from sharegroups.worker.threads import ThreadPool

_BOUND_S = 30.0


class Record:
    """The part of a message that a thread needs."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        """The record's value."""
        return self._value

    def delivery_count(self) -> int:
        """The number of this delivery."""
        return 1


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on its own event loop."""

    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


def job(handler: Callable[[int], Any], number: int = 0) -> Job:
    spec = JobSpec("jobs", handler, int, None, Retry(), {}, is_async=False, in_process=False)
    return Job(spec, cast(Message, Record(str(number).encode())), cast(Any, None), 0.0)


async def until(reached: Callable[[], bool]) -> None:
    """Wait until the threads have reached this state; fail if that takes too long."""
    for _ in range(int(_BOUND_S * 1000)):
        if reached():
            return
        await asyncio.sleep(0.001)
    pytest.fail("the threads have not come so far")


@on_a_loop
async def test_each_job_runs_once_however_they_come() -> None:
    runs: Counter[int] = Counter()
    reported: list[Finished] = []
    pool = ThreadPool(4, reported.extend)
    await pool.start()
    number = 0
    for size in (1, 3, 40, 2, 0, 500, 1, 1) * 5:  # fewer jobs than idle threads, as well as more
        pool.submit([job(lambda which: runs.update([which]), number + index) for index in range(size)])
        number += size
        await asyncio.sleep(0)
    await until(lambda: len(reported) == number)
    await pool.stop()
    assert runs == Counter(range(number))
    assert pool.running == pool.waiting == 0


@on_a_loop
async def test_submit_goes_on_once_an_idle_thread_has_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_YIELD_S", _BOUND_S)
    may_end = threading.Event()
    reported: list[Finished] = []
    pool = ThreadPool(2, reported.extend)
    await pool.start()
    await until(lambda: len(pool._idle) == 2)
    pool.submit([job(lambda _: may_end.wait(_BOUND_S))])
    assert pool.waiting == 0, "the loop went on before a thread had taken the job"
    pool.submit([job(lambda _: may_end.wait(_BOUND_S))])
    assert pool.waiting == 0
    pool.submit([job(lambda _: None)])
    assert pool.waiting == 1, "no thread was idle, so there was nothing to wait for"
    may_end.set()
    await until(lambda: len(reported) == 3)
    await pool.stop()


@on_a_loop
async def test_a_thread_that_worked_last_works_next() -> None:
    names: list[str] = []
    reported: list[Finished] = []
    pool = ThreadPool(4, reported.extend)
    await pool.start()
    for number in range(1, 6):
        await until(lambda: len(pool._idle) == 4)
        pool.submit([job(lambda _: names.append(threading.current_thread().name))])
        await until(lambda count=number: len(reported) == count)  # type: ignore[misc]
    await pool.stop()
    assert len(set(names)) == 1


@on_a_loop
async def test_stop_ends_the_idle_threads_at_once_and_the_others_after_their_job() -> None:
    may_end = threading.Event()
    pool = ThreadPool(3, lambda _: None)
    await pool.start()
    await until(lambda: len(pool._idle) == 3)
    pool.submit([job(lambda _: may_end.wait(_BOUND_S))])
    await until(lambda: pool.running == 1)
    await pool.stop()
    await until(lambda: sum(thread.is_alive() for thread in pool._threads) == 1)
    may_end.set()
    await until(lambda: not any(thread.is_alive() for thread in pool._threads))
