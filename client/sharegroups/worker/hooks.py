"""A worker's hooks: functions that are called around its jobs, for error reporters and the like (CL-177, CL-178)."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kip932.nearest_name import did_you_mean

log = logging.getLogger("sharegroups.worker")

#: What each event's functions are called with.
EVENTS: Final = {
    "start": (),
    "stop": (),
    "before": ("job",),
    "after": ("job",),
    "failed": ("job", "error"),
}


class JobInterrupted(Exception):  # noqa: N818 - what happened to the job
    """What a `failed` hook gets for a job that ended without an exception of its handler: it exceeded its timeout, its
    process died, or its record could not be read. The text says which."""


class Hooks:
    """The functions of a worker by event. Pickled for handler processes."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Callable[..., Any]]] = {}
        #: The functions whose exception is in the log already, by event and position.
        self._logged: set[tuple[str, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._functions)

    def __getstate__(self) -> dict[str, list[Callable[..., Any]]]:
        return self._functions

    def __setstate__(self, state: dict[str, list[Callable[..., Any]]]) -> None:
        self._functions, self._logged = state, set()

    def add(self, event: str, function: Callable[..., Any]) -> None:
        """Add a function. Raises ValueError if it cannot be called with the event's arguments, or is async."""
        name = getattr(function, "__qualname__", repr(function))
        call = f"def {name}({', '.join(EVENTS[event])})"
        if not callable(function):
            raise ValueError(f"@worker.on({event!r}) decorates {function!r}; expected a function")
        if inspect.iscoroutinefunction(function):
            raise ValueError(f"@worker.on({event!r}): {name} is async; expected a plain function: {call}")
        _check_arguments(event, function, name, call)
        self._functions.setdefault(event, []).append(function)

    def has(self, event: str) -> bool:
        """Return whether a function is to be called."""
        return event in self._functions

    def run(self, event: str, *arguments: object) -> None:
        """Call the event's functions in the order in which they were added. What one raises is logged, the first time
        in this process; it affects neither the job nor the other functions."""
        for number, function in enumerate(self._functions.get(event, ())):
            try:
                function(*arguments)
            except BaseException as error:
                if (event, number) not in self._logged:
                    self._logged.add((event, number))
                    _log(event, function, error)


def checked_event(event: object) -> str:
    """Return the name of an event. Raises ValueError for anything else."""
    if isinstance(event, str) and event in EVENTS:
        return event
    hint = did_you_mean(event, EVENTS) if isinstance(event, str) else ""
    raise ValueError(f"worker.on: event is {event!r}; expected one of {', '.join(EVENTS)}.{hint}")


def _check_arguments(event: str, function: Callable[..., Any], name: str, call: str) -> None:
    """Raise ValueError if a function of known signature cannot be called with the event's arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*EVENTS[event])
    except TypeError:
        raise ValueError(f"@worker.on({event!r}): {name}{signature} does not fit; write {call}") from None


def _log(event: str, function: Callable[..., Any], error: BaseException) -> None:
    with suppress(BaseException):  # the exception's own methods may raise, too
        name = getattr(function, "__qualname__", repr(function))
        log.error(
            "the hook %s for %r raised an exception. The jobs go on; this process logs no other exception of it",
            name, event, exc_info=error,
        )  # fmt: skip
