"""Producers that a program does not close: a blocking one still sends its records; what is lost is told (CL-140)."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger(__name__)

#: For how long the end of a program waits for the records of a blocking producer, s.
LEFT_OPEN_S: Final = 5.0

_HOWTO: Final = "Use the producer as `with` or `async with`, or call close()"


class Waiting(Protocol):
    """What counts the records that wait for their delivery."""

    records: int


def tell_if_left(producer: object, buffer: Waiting) -> Callable[[], object]:
    """Say in the log how many records wait in `buffer` when `producer` is collected, or the program ends.

    Call what it returns when the producer is closed.
    """
    return weakref.finalize(producer, _tell_lost, buffer, os.getpid()).detach


def _tell_lost(buffer: Waiting, process_id: int) -> None:
    if buffer.records > 0 and process_id == os.getpid():  # else a forked process has a copy of its parent's
        log.error("%d records of a producer that was not closed may be lost: no answer came for them. %s",
                  buffer.records, _HOWTO)  # fmt: skip


class FlushAtEnd:
    """Has a blocking producer send its records, and run its callbacks, when the program ends before it was closed."""

    def __init__(self, flush: Callable[[float], int], buffer: Waiting) -> None:
        self._flush = flush
        self._buffer = buffer
        self._process_id = os.getpid()
        atexit.register(self._end)

    def done(self) -> None:
        """The producer was closed."""
        atexit.unregister(self._end)

    def _end(self) -> None:
        if self._process_id != os.getpid():
            return  # a forked process has a copy of its parent's records, and no loop
        if (waiting := self._buffer.records) > 0:
            log.warning(
                "the program ends, and a producer with %d records that wait for their delivery was not closed: waiting "
                "for them, up to %g s. %s", waiting, LEFT_OPEN_S, _HOWTO,
            )  # fmt: skip
        self._flush(LEFT_OPEN_S)
