"""The loop behind a blocking client: what it keeps from the log, and what it does not."""

from __future__ import annotations

import asyncio
import threading
from unittest import mock

import pytest

from sharegroups.loop_thread import LoopThread

POLLER = "Exception in callback functools.partial(<bound method PollerCompletionQueue._handle_events of …>)"


@pytest.mark.parametrize(
    ("message", "exception", "told"),
    [
        (POLLER, RuntimeError("Event loop is closed"), False),
        (POLLER, BlockingIOError(11, "Resource temporarily unavailable"), False),
        ("Exception in callback something_of_ours()", RuntimeError("Event loop is closed"), True),
        (POLLER, ValueError("unforeseen"), True),
    ],
)
def test_only_the_noise_of_grpcs_shared_poller_is_kept_quiet(
    message: str, exception: Exception, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def report() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": exception})

    thread = LoopThread("test")
    try:
        thread.call(report())
    finally:
        thread.stop()
    assert [record.getMessage() for record in caplog.records] == ([message] if told else [])


def test_a_call_gives_what_its_coroutine_returns_or_raises() -> None:
    async def answer(value: int) -> int:
        await asyncio.sleep(0)
        if value < 0:
            raise ValueError(f"{value} is negative")
        return value

    thread = LoopThread("test")
    try:
        assert thread.call(answer(7)) == 7
        with pytest.raises(ValueError, match="-1 is negative"):
            thread.call(answer(-1))
        assert thread.run(lambda: 8) == 8
    finally:
        thread.stop()


@pytest.mark.rule("CL-21")
def test_an_interrupted_call_cancels_its_coroutine_and_then_takes_back_what_it_may_have_brought() -> None:
    told: list[str] = []
    begun, told_all = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    def take_back() -> None:
        told.append("taken back")
        told_all.set()

    class Interrupted:
        """A lock whose holder is interrupted once the coroutine waits."""

        def acquire(self) -> None:
            assert begun.wait(10)
            raise KeyboardInterrupt

        def release(self) -> None:
            told.append("over")

    thread = LoopThread("test")
    try:
        with mock.patch("sharegroups.loop_thread._over", Interrupted), pytest.raises(KeyboardInterrupt):
            thread.call(wait(), take_back)
        assert told_all.wait(10)
        assert told == ["cancelled", "over", "taken back"]
    finally:
        thread.stop()
