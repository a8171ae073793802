"""A blocked event loop: the log lines, and when they are written."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharegroups.worker.standstill import STILL_S, Standstill, standstill_logged

BOUND_S = 30.0


def test_a_standstill_is_logged_once_while_it_lasts_and_once_as_it_ends() -> None:
    state = Standstill(100.0)
    assert state.beat(100.5) is None
    assert [state.woke(100.5 + each) for each in (1.0, 4.9)] == [None, None]
    assert state.woke(100.5 + STILL_S) == STILL_S
    assert state.woke(107.0) is None
    assert state.beat(112.5) == (12.0, True)
    assert state.woke(112.6) is None
    assert state.beat(113.0) is None


def test_another_one_is_logged_again() -> None:
    state = Standstill(0.0)
    for since in (0.0, 10.0):
        assert state.woke(since + 4.0) is None
        assert state.woke(since + 8.0) == 8.0
        assert state.beat(since + 10.0) == (10.0, True)


def test_where_the_thread_could_not_run_either_the_next_beat_alone_says_so() -> None:
    state = Standstill(0.0)
    assert state.woke(0.5) is None
    assert state.woke(12.0) is None, "it woke late itself"
    assert state.beat(12.0) == (12.0, False)


class Clock:
    """A clock that advances only when it is read."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.mark.rule("CL-151")
def test_a_handler_that_blocks_the_loop_is_named_with_its_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sharegroups.worker.standstill.time", SimpleNamespace(monotonic=Clock(1.0)))
    monkeypatch.setattr("sharegroups.worker.standstill._BEAT_S", 0.001)
    logged = threading.Event()

    class Reported(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "on_loop" in record.getMessage():  # on a busy machine the loop also stands still as the thread starts
                logged.set()

    async def blocks_the_loop() -> None:
        until = time.monotonic() + BOUND_S
        while not logged.wait(0.2):  # a standstill that had begun before it is logged under another name, and once
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    async def main() -> None:
        with standstill_logged(list):
            await asyncio.create_task(blocks_the_loop(), name="on_loop (t-0@3)")
            await asyncio.sleep(0.01)

    reported = Reported()
    log = logging.getLogger("sharegroups.worker")
    log.addHandler(reported)
    try:
        asyncio.run(main())
    finally:
        log.removeHandler(reported)
    first = next(message for message in caplog.messages if "on_loop" in message)
    assert "s in on_loop (t-0@3), at " in first
    assert ": no heartbeats or renewals are sent meanwhile" in first
    assert any(message.startswith("the event loop runs again, after ") for message in caplog.messages)


@pytest.mark.rule("CL-151")
def test_when_all_threads_stood_still_the_handlers_at_work_are_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr("sharegroups.worker.standstill._BEAT_S", 0.001)
    monkeypatch.setattr("sharegroups.worker.standstill.time", SimpleNamespace(monotonic=clock))
    job = cast(Any, SimpleNamespace(spec=SimpleNamespace(name="crunch"), place="t-0@7"))

    async def main() -> None:
        with standstill_logged(lambda: [job] * 7):
            clock.now_s += 12.0  # as if no thread had run in this time
            await asyncio.sleep(0.01)

    monkeypatch.setattr(
        "sharegroups.worker.standstill.threading.Thread", lambda **_: SimpleNamespace(start=lambda: None)
    )
    asyncio.run(main())
    (message,) = caplog.messages
    assert message.startswith("this process was stopped for 12 s, with all of its threads")
    assert "At work: crunch (t-0@7), crunch (t-0@7)" in message
    assert " and 2 more. C code" in message
