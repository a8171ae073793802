"""Handles clients that a program leaves open: blocking ones finish their work as the program ends, and lost records are
logged.

Rules CL-140 and CL-141.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from kip932.errors import KafkaError
from sharegroups.errors import ConcurrentModificationError, IllegalStateError

log = logging.getLogger(__name__)

#: How long a program that ends waits for each blocking client, in seconds.
LEFT_OPEN_S: Final = 5.0

_HOWTO: Final = "Use the producer as `with` or `async with`, or call close()"


class Waiting(Protocol):
    """Counts the records that have not been delivered yet."""

    records: int


class LeftRecords:
    """Logs how many records are still in `buffer` when their producer is garbage-collected or the program ends, unless
    `done` was called. Only the producer may refer to it."""

    def __init__(self, buffer: Waiting) -> None:
        self._buffer: Waiting | None = buffer
        self._process_id = os.getpid()
        _open.add(self)

    def done(self) -> None:
        """Stop watching the records, since the producer was closed."""
        self._buffer = None

    def warn(self) -> None:
        """Log how many records were left, since nothing will send them any more."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None and buffer.records > 0 and self._process_id == os.getpid():  # else they are the parent's
            log.error("%d records of a producer that was not closed may be lost: no answer came for them. %s",
                      buffer.records, _HOWTO)  # fmt: skip

    __del__ = warn


#: The records of all producers that still exist; a weak set, so that it does not keep an unclosed producer alive.
_open: weakref.WeakSet[LeftRecords] = weakref.WeakSet()


@atexit.register
def _log_all() -> None:
    for left in list(_open):
        left.warn()


class AtEnd:
    """Runs `action` when the program ends, unless `done` was called first. It does not run in a forked process, which
    has a copy of the client but none of its threads."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._process_id = os.getpid()
        atexit.register(self._run)

    def done(self) -> None:
        """Cancel the action, since the client was closed."""
        atexit.unregister(self._run)

    def _run(self) -> None:
        if self._process_id == os.getpid():
            self._action()


def flush_at_end(flush: Callable[[float], int], buffer: Waiting) -> AtEnd:
    """Have a blocking producer send its records and run its callbacks when the program ends (CL-140)."""

    def run() -> None:
        if (waiting := buffer.records) > 0:
            log.warning(
                "the program ends, and a producer with %d records that wait for their delivery was not closed: waiting "
                "for them, up to %g s. %s", waiting, LEFT_OPEN_S, _HOWTO,
            )  # fmt: skip
        flush(LEFT_OPEN_S)

    return AtEnd(run)


def close_at_end(close: Callable[[float], None], has_polled: Callable[[], bool], group_id: str) -> AtEnd:
    """Have a blocking consumer that has polled send its acknowledgements and leave its group when the program ends
    (CL-141)."""

    def run() -> None:
        if not has_polled():
            return
        log.warning(
            "the program ends, and a consumer of group %s was not closed: closing it, within %g s. "
            "Use it as `with`, or call close()", group_id, LEFT_OPEN_S,
        )  # fmt: skip
        try:
            close(LEFT_OPEN_S)
        except (KafkaError, ConcurrentModificationError, IllegalStateError) as error:
            log.warning("the consumer of group %s was not closed: %s", group_id, error)

    return AtEnd(run)
