"""The loop behind a blocking client: what it keeps from the log, and what it does not."""

from __future__ import annotations

import asyncio

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
