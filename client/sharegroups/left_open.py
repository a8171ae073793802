"""Clients that a program does not close: blocking ones end their work as it ends, and what is lost is told.

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

#: For how long the end of a program waits for each blocking client, s.
LEFT_OPEN_S: Final = 5.0

_HOWTO: Final = "Use the producer as `with` or `async with`, or call close()"


class Waiting(Protocol):
    """What counts the records that wait for their delivery."""

    records: int


class LeftRecords:
    """The records of one producer, which alone holds this: the log says how many wait in `buffer` when the producer is
    collected, or the program ends, unless `done` was called."""

    def __init__(self, buffer: Waiting) -> None:
        self._buffer: Waiting | None = buffer
        self._process_id = os.getpid()
        _open.add(self)

    def done(self) -> None:
        """The producer was closed."""
        self._buffer = None

    def tell(self) -> None:
        """Nobody will send the records any more."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None and buffer.records > 0 and self._process_id == os.getpid():  # else its parent's
            log.error("%d records of a producer that was not closed may be lost: no answer came for them. %s",
                      buffer.records, _HOWTO)  # fmt: skip

    __del__ = tell


#: Those of producers that are not collected; weak, so that a producer that nobody closes does not stay for that.
_open: weakref.WeakSet[LeftRecords] = weakref.WeakSet()


@atexit.register
def _tell_all() -> None:
    for left in list(_open):
        left.tell()


class AtEnd:
    """Runs `action` when the program ends before `done` was called, but not in a process that was forked from it: that
    one has a copy of its parent's client, and none of its threads."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._process_id = os.getpid()
        atexit.register(self._run)

    def done(self) -> None:
        """The client was closed."""
        atexit.unregister(self._run)

    def _run(self) -> None:
        if self._process_id == os.getpid():
            self._action()


def flush_at_end(flush: Callable[[float], int], buffer: Waiting) -> AtEnd:
    """Have a blocking producer send its records, and run its callbacks."""

    def run() -> None:
        if (waiting := buffer.records) > 0:
            log.warning(
                "the program ends, and a producer with %d records that wait for their delivery was not closed: waiting "
                "for them, up to %g s. %s", waiting, LEFT_OPEN_S, _HOWTO,
            )  # fmt: skip
        flush(LEFT_OPEN_S)

    return AtEnd(run)


def close_at_end(close: Callable[[float], None], has_polled: Callable[[], bool], group_id: str) -> AtEnd:
    """Have a blocking consumer that has polled send its acknowledgements and leave its group (CL-141)."""

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
