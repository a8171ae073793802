"""The loop of a blocking client: the noise that it keeps out of the log, and the errors that it does not."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from sharegroups.loop_thread import LoopThread

POLLER = "Exception in callback functools.partial(<bound method PollerCompletionQueue._handle_events of …>)"


@pytest.mark.parametrize(
    ("message", "exception", "reported"),
    [
        (POLLER, RuntimeError("Event loop is closed"), False),
        (POLLER, BlockingIOError(11, "Resource temporarily unavailable"), False),
        ("Exception in callback something_of_ours()", RuntimeError("Event loop is closed"), True),
        (POLLER, ValueError("unforeseen"), True),
    ],
)
def test_only_the_noise_of_grpcs_shared_poller_is_kept_quiet(
    message: str, exception: Exception, reported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def report() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": exception})

    thread = LoopThread("test")
    try:
        thread.call(report())
    finally:
        thread.stop()
    assert [record.getMessage() for record in caplog.records] == ([message] if reported else [])


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


class Interrupted:
    """A lock whose holder is interrupted once `ready`."""

    ready = threading.Event()

    def acquire(self) -> None:
        assert self.ready.wait(10)
        raise KeyboardInterrupt

    def release(self) -> None:
        pass


def interrupted(thread: LoopThread, work: Coroutine[Any, Any, object], take_back: Callable[[], object]) -> None:
    """Run `work`, which sets `Interrupted.ready` at the moment when its caller is to be interrupted."""
    Interrupted.ready = threading.Event()
    with mock.patch("sharegroups.loop_thread._over", Interrupted), pytest.raises(KeyboardInterrupt):
        thread.call(work, take_back)


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("test")
    yield made
    made.stop()


@pytest.mark.rule("CL-21")
def test_an_interrupted_call_cancels_its_coroutine(thread: LoopThread) -> None:
    ended = threading.Event()

    async def wait() -> None:
        Interrupted.ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    interrupted(thread, wait(), lambda: None)
    assert ended.wait(10)


@pytest.mark.rule("CL-21")
def test_what_an_interrupted_call_has_brought_is_taken_back_before_the_next_call(thread: LoopThread) -> None:
    reported: list[str] = []

    async def bring() -> None:
        reported.append("brought")
        Interrupted.ready.set()

    async def next_call() -> None:
        reported.append("next call")

    interrupted(thread, bring(), lambda: reported.append("taken back"))
    thread.call(next_call())
    assert reported == ["brought", "taken back", "next call"]


@pytest.mark.rule("CL-21")
def test_what_the_next_call_brings_is_not_taken_back_for_the_interrupted_one(thread: LoopThread) -> None:
    """Both reach the loop in the same turn: the next call has its result by the time the first one has ended."""
    in_hand: list[str] = []
    held, go_on = threading.Event(), threading.Event()

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(hold)
        await asyncio.Event().wait()

    def hold() -> None:
        Interrupted.ready.set()
        held.set()
        assert go_on.wait(10)

    async def next_call() -> None:
        in_hand.append("record")

    interrupted(thread, wait(), in_hand.clear)
    assert held.wait(10)
    handed = threading.Event()
    hand = thread._loop.call_soon_threadsafe

    def hand_over(function: Callable[[], object]) -> None:
        hand(function)
        handed.set()

    caller = threading.Thread(target=lambda: thread.call(next_call()))
    with mock.patch.object(thread._loop, "call_soon_threadsafe", hand_over):
        caller.start()
        assert handed.wait(10)
    go_on.set()
    caller.join(10)
    assert not caller.is_alive()
    thread.run(lambda: None)  # everything that was due has now run
    assert in_hand == ["record"]


@pytest.mark.rule("P-15")
def test_a_client_runs_on_uvloop_where_it_is_installed_and_on_asyncio_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Loop(asyncio.SelectorEventLoop):
        pass

    for module in (SimpleNamespace(new_event_loop=Loop), None):
        monkeypatch.setitem(sys.modules, "uvloop", module)
        thread = LoopThread("test")
        try:
            assert isinstance(thread.call(_running_loop()), Loop) is (module is not None)
        finally:
            thread.stop()


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
