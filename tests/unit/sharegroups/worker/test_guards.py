"""Exceptions whose own methods raise: the result is a failed job and a log line, in every kind of handler (CL-148)."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sharegroups.worker import Retry
from sharegroups.worker.core.policy import Kind, Verdict
from sharegroups.worker.job import JobSpec, run_async, run_blocking
from sharegroups.worker.pools import Finished
from sharegroups.worker.threads import ThreadPool

from .test_threads import job, on_a_loop, until


def _raises(kind: type[BaseException]) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise kind("from within")

    return method


def _named(kind: type[BaseException]) -> Any:
    class Named(type):
        __name__ = property(_raises(kind))

    return Named("Odd", (Exception,), {})


_ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError)


def _errors(kind: type[BaseException]) -> list[BaseException]:
    chained = ValueError("outer")
    chained.__cause__ = type("Cause", (Exception,), {"__str__": _raises(kind)})()
    grouped = type("Many", (ExceptionGroup,), {"__str__": _raises(kind)})("many", [ValueError("one")])
    return [
        kind("itself"),
        type("NoText", (Exception,), {"__str__": _raises(kind)})(),
        type("NoRepr", (Exception,), {"__str__": _raises(kind), "__repr__": _raises(kind)})(),
        type("NoCause", (Exception,), {"__cause__": property(_raises(kind))})(),
        type("NoNotes", (Exception,), {"__notes__": property(_raises(kind))})(),
        _named(kind)(),
        chained,
        grouped,
    ]


def _spec(handler: Callable[..., Any], is_async: bool) -> JobSpec:
    return JobSpec("jobs", handler, None, None, Retry(), {}, is_async=is_async, in_process=False)


@pytest.mark.rule("CL-148")
@pytest.mark.parametrize("kind", _ENDS)
def test_an_exception_that_cannot_be_described_is_a_failed_job(kind: type[BaseException]) -> None:
    for error in _errors(kind):

        def blocking(_: bytes, error: BaseException = error) -> None:
            raise error

        async def on_the_loop(_: bytes, error: BaseException = error) -> None:
            raise error

        for verdict in (
            run_blocking(_spec(blocking, is_async=False), b""),
            asyncio.run(run_async(_spec(on_the_loop, is_async=True), b"")),
        ):
            assert isinstance(verdict, Verdict)
            assert verdict.kind is Kind.FAILED
            assert verdict.why


@pytest.mark.rule("CL-148")
@on_a_loop
async def test_a_thread_goes_on_after_an_exception_whose_text_ends_the_thread() -> None:
    reported: list[Finished] = []
    pool = ThreadPool(1, reported.extend)
    await pool.start()

    def fails(_: int) -> None:
        raise type("NoText", (Exception,), {"__str__": _raises(SystemExit)})

    pool.submit([job(fails), job(lambda _: None)])
    await until(lambda: len(reported) == 2)
    assert [one.verdict.kind for one in reported] == [Kind.FAILED, Kind.DONE]
    assert reported[0].verdict.why == "NoText: (its text cannot be read: SystemExit)"
    await pool.stop()


@pytest.mark.rule("CL-148")
@on_a_loop
async def test_a_thread_that_is_interrupted_outside_of_a_handler_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A library can cause this by setting an exception in a thread too late."""
    reported: list[Finished] = []
    pool = ThreadPool(1, reported.extend)
    await pool.start()
    (thread,) = [one for one in threading.enumerate() if one.name == "sharegroups-job-0"]
    # CPython 3.11 executes one line again and again while it is traced and another thread has an exception to raise.
    sys.settrace(None)
    ident = ctypes.c_ulong(thread.ident or 0)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(SystemExit)) == 1
    pool.submit([job(lambda _: None)])
    await until(lambda: len(reported) == 1)
    pool.submit([job(lambda _: None)])
    await until(lambda: len(reported) == 2)
    assert thread.is_alive()
    assert pool.in_hand == pool.running == 0
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "a handler thread was interrupted by SystemExit; the thread continues"
    await pool.stop()
