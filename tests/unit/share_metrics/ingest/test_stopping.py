"""The first signal requests a stop; a second one has its usual effect."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from share_metrics.ingest.stopping import Stop


@pytest.mark.rule("PM-39")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_one_is_as_before(number: signal.Signals) -> None:
    seen: list[int] = []
    before = signal.signal(number, lambda signum, _frame: seen.append(signum))
    try:
        stop = Stop()
        with stop.on_signals():
            assert not stop.asked
            os.kill(os.getpid(), number)
            assert stop.asked
            assert (stop.signal, seen) == (number, [])
            os.kill(os.getpid(), number)
            assert seen == [number]
        os.kill(os.getpid(), number)
        assert seen == [number, number]
    finally:
        signal.signal(number, before)


def test_without_a_signal_everything_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = Stop()
    with stop.on_signals():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    assert not stop.asked


def test_another_thread_may_run_a_job_too() -> None:
    """Python delivers signals only to the main thread."""
    ended = threading.Event()

    def work() -> None:
        with Stop().on_signals():
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert ended.is_set()
