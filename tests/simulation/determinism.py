"""One seeded random source and one virtual clock for all code of a run: the same seed gives the same history.

Inside `run` every source of random bits in the standard library is seeded, every clock shows virtual time, nothing is
written to logs, and the garbage collector is off, so that memory usage does not determine when a finaliser runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from logging import Handler, LogRecord, getLogger
from random import Random
from typing import Any, Final, TypeVar
from unittest import mock

import structlog

from tests.simulation.clock import LIFE, WALL_START_MS, SimLoop, begin_serials
from tests.simulation.process import wired
from tests.support.collector import many_objects

T = TypeVar("T")

_RANDOM_SEED: Final = Random.seed
#: Log lines of these levels report things that should never happen, even during faults.
_ERROR_LEVELS: Final = frozenset({"error", "exception", "critical", "fatal"})
#: The exceptions: errors that a fail-over causes. Operators must be notified of them, but there is no bug (CM-17,
#: CM-47).
_FORESEEN: Final = frozenset(
    {
        "shard_tail_loss_suspected",
        "log_end_jumped",
    }
)


class Scribe:
    """Receives every log line of a run: error lines are complaints; the others are kept only if requested."""

    def __init__(self, loop: SimLoop, lines: list[str] | None) -> None:
        self.complaints: list[str] = []
        self._loop = loop
        self._lines = lines

    def process(self, _logger: object, method: str, event: Any) -> Any:
        """Process a structlog event: note it, then drop it."""
        wrong = method in _ERROR_LEVELS and event.get("event") not in _FORESEEN
        if self._lines is not None or wrong:
            said = " ".join(f"{name}={_shown(name, value)}" for name, value in event.items() if name != "event")
            line = f"{self._loop.now_ms:>8} {LIFE.get()} {method}: {event.get('event')} {said}"
            if self._lines is not None:
                self._lines.append(line)
            if wrong:
                self.complaints.append(line)
        raise structlog.DropEvent

    def client(self, record: LogRecord) -> None:
        """Note a log record of the client library, if requested."""
        if self._lines is not None:
            said = f"{record.levelname.lower()}: {record.getMessage()}"
            self._lines.append(f"{self._loop.now_ms:>8} {LIFE.get()} {said}")

    def exception(self, _loop: object, context: dict[str, Any]) -> None:
        """Handle an exception that reached the loop."""
        error = context.get("exception")
        where = _innermost(error) if isinstance(error, BaseException) else ""
        self.complaints.append(f"{self._loop.now_ms:>8} {context.get('message')}: {error!r}{where}")


def _shown(name: str, value: object) -> str:
    error = sys.exc_info()[1] if name == "exc_info" and value is True else value
    return f"{error!r}{_innermost(error)}" if isinstance(error, BaseException) else repr(value)


def _innermost(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"


#: The scribe of the current run.
_scribe: Scribe | None = None


def scribe() -> Scribe:
    """Return the scribe of the current run."""
    assert _scribe is not None, "only inside determinism.run"
    return _scribe


def run(seed: int, main: Callable[[], Coroutine[Any, Any, T]], log_lines: list[str] | None = None) -> T:
    """Run a coroutine with virtual time and seeded randomness; tasks that it leaves pending are dropped, not cleaned
    up.

    `log_lines`: receives everything that was logged. Not reentrant. The iteration order of sets of strings and bytes
    depends on the interpreter's hash seed, so two processes produce the same history only with the same PYTHONHASHSEED
    (`pool.py`).
    """
    global _scribe  # noqa: PLW0603 - one run at a time; logging cannot find it otherwise
    begin_serials()
    loop = SimLoop()
    loop_scribe = _scribe = Scribe(loop, log_lines)
    loop.set_exception_handler(loop_scribe.exception)
    logging = _logging(loop_scribe, log_lines is not None)
    with seeded(seed, loop), logging, _unlisted_tasks(), _resting_collector(), _quiet_end(), wired():
        try:
            return loop.run_until_complete(main())
        finally:
            with _unheard():
                _forget(loop)
            _scribe = None


def _forget(loop: SimLoop) -> None:
    """Drop the rest of a run: tasks that never end are not errors here, and their clean-up must do nothing.

    The clean-up is forced to happen here, where its messages are silenced, not whenever the last reference is dropped.
    """
    loop.drop_all()
    loop.close()
    for task in loop.pending():
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with suppress(BaseException):
            task.get_coro().close()
    loop.drop_all()


@contextmanager
def seeded(seed: int, loop: SimLoop) -> Iterator[None]:
    """Seed every source of random bits with `seed`, and make every clock show the loop's time."""
    bits = Random(f"bits {seed}")

    def seed_of(self: Random, a: Any = None, version: int = 2) -> None:
        _RANDOM_SEED(self, bits.getrandbits(64) if a is None else a, version)

    def wall_ns(*_: object) -> int:
        return WALL_START_MS * 1_000_000 + int(loop.time() * 1e9)

    def steady_ns(*_: object) -> int:
        return int(loop.time() * 1e9)

    state = random.getstate()
    with ExitStack() as stack:
        for owner, name, new in (
            (os, "urandom", bits.randbytes),
            (random, "_urandom", bits.randbytes),
            (Random, "seed", seed_of),
            (time, "time", lambda: wall_ns() / 1e9),
            (time, "time_ns", wall_ns),
            (time, "monotonic", loop.time),
            (time, "monotonic_ns", steady_ns),
            (time, "perf_counter", loop.time),
            (time, "perf_counter_ns", steady_ns),
            (time, "clock_gettime", lambda _clock: loop.time()),
            (time, "clock_gettime_ns", steady_ns),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


@contextmanager
def _logging(loop_scribe: Scribe, keep: bool) -> Iterator[None]:
    before = structlog.get_config()
    level = 0 if keep else 40
    structlog.configure(
        processors=[loop_scribe.process],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    client, heard = getLogger("sharegroups"), Handler()
    heard.emit = loop_scribe.client  # type: ignore[method-assign]  # the only method that is needed
    spreads, client.propagate = client.propagate, False
    client.addHandler(heard)
    try:
        yield
    finally:
        client.removeHandler(heard)
        client.propagate = spreads
        structlog.configure(**before)


@contextmanager
def _unlisted_tasks() -> Iterator[None]:
    """Keep asyncio from listing all tasks in a weak set, which is slow and only needed by debuggers. Here every life
    knows its own tasks."""
    everyone = getattr(asyncio.tasks, "_all_tasks", None)  # later versions keep the list elsewhere, at less cost
    if everyone is None:
        yield
        return
    with mock.patch.object(everyone, "add", hash):  # a task gets its number when it is first hashed: at creation
        yield


@contextmanager
def _resting_collector() -> Iterator[None]:
    """Collect garbage only at the end of the run, and then skip objects that are older than the run.

    Objects that the previous run still held at its end are collected first: once frozen, they would never be collected.
    If the collector is off anyway, as in a worker that has frozen its initial objects, the collection at this run's end
    covers both. In a pytest process most objects are frozen before the run and stay frozen; collecting the rest is
    quick.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    with _unheard():
        gc.collect()
    much = many_objects()
    if much:
        gc.freeze()
    try:
        yield
    finally:
        if much:
            gc.unfreeze()
        gc.enable()


@contextmanager
def _quiet_end() -> Iterator[None]:
    """Silence the messages that dropped coroutines cause when they are collected."""
    try:
        yield
    finally:
        with _unheard():
            gc.collect()


@contextmanager
def _unheard() -> Iterator[None]:
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # "coroutine … was never awaited"
            yield
    finally:
        sys.unraisablehook = before
