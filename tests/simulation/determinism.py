"""One seeded source of chance and one virtual clock for all code of a run: same seed, same history.

Inside `run` every way of the standard library to random bits is seeded, every clock tells virtual time, nothing is
written to logs, and the garbage collector rests, so that no finaliser runs at a moment that depends on memory.
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
#: What a log line of at least this level is about should not be seen, not even under faults.
_ERROR_LEVELS: Final = frozenset({"error", "exception", "critical", "fatal"})
#: Errors all the same that a fail-over brings about: people must hear of them, and nothing is wrong (CM-17, CM-47).
_FORESEEN: Final = frozenset(
    {
        "the store may have lost this shard's tail",
        "log end jumped: a tail of this log may have been lost with the store",
    }
)


class Scribe:
    """Hears every log line of a run: those of level error are complaints; the others are kept only for a reader."""

    def __init__(self, loop: SimLoop, lines: list[str] | None) -> None:
        self.complaints: list[str] = []
        self._loop = loop
        self._lines = lines

    def process(self, _logger: object, method: str, event: Any) -> Any:
        """A structlog processor that lets nothing through."""
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
        """What the client library logs, for a reader."""
        if self._lines is not None:
            said = f"{record.levelname.lower()}: {record.getMessage()}"
            self._lines.append(f"{self._loop.now_ms:>8} {LIFE.get()} {said}")

    def exception(self, _loop: object, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
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


#: The scribe of the run that goes on now.
_scribe: Scribe | None = None


def scribe() -> Scribe:
    """The scribe of the run that goes on now."""
    assert _scribe is not None, "only inside determinism.run"
    return _scribe


def run(seed: int, main: Callable[[], Coroutine[Any, Any, T]], log_lines: list[str] | None = None) -> T:
    """Run a coroutine under virtual time and seeded chance; what it leaves pending is forgotten, not cleaned up.

    `log_lines`: receives everything that was logged. Not reentrant. Sets of strings and bytes are walked by the
    interpreter's hash seed: histories of two processes are the same only under the same PYTHONHASHSEED (`pool.py`).
    """
    global _scribe  # noqa: PLW0603 - one run at a time, and logging has no other way to find it
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
    """Let the rest of a run go: tasks that never end are no fault here, and their clean-up must do nothing.

    It is made to happen here, where nobody hears it, and not whenever the last reference goes.
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
    """Every source of random bits draws from `seed`, every clock tells the loop's time."""
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
    heard.emit = loop_scribe.client  # type: ignore[method-assign]  # all that a handler is needed for
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
    """asyncio keeps a list of all tasks, weakly and dearly, for debuggers. Here every life knows its own."""
    everyone = getattr(asyncio.tasks, "_all_tasks", None)  # elsewhere in later versions, and cheaper
    if everyone is None:
        yield
        return
    with mock.patch.object(everyone, "add", hash):  # a task is numbered when it is first hashed: when it is made
        yield


@contextmanager
def _resting_collector() -> Iterator[None]:
    """No collection but the one at the end, and what is older than the run is not looked at then.

    What the run before was still holding at its own end goes first: once frozen, nobody would look at it again. Where
    the collector rests anyway, in a worker that has frozen what it began with, the one at this run's end takes both.
    In a process of pytest most is frozen before the run, and stays so; a look at the rest is quick.
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
    """What a forgotten coroutine says when it is thrown away concerns nobody."""
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
