"""The times at which the cluster has no faults, so that being late can be distinguished from never happening."""

from __future__ import annotations

import re
from typing import Final

from tests.simulation.history import FaultStruck, History, ProcessChanged

#: A paused client does not excuse a server.
_CLIENT: Final = re.compile(r"client \d+ is frozen")
#: How long a fault still has effects after its end: leases expire, leaders change, calls are retried.
_AFTER_MS: Final = 6_000


class Undisturbed:
    """The faults of a history as intervals."""

    def __init__(self, history: History) -> None:
        self._spans: list[tuple[int, int]] = []
        struck: dict[str, list[int]] = {}
        for event in history.of(FaultStruck):
            if _CLIENT.match(event.fault):
                continue
            if event.ended and struck.get(event.fault):
                self._spans.append((struck[event.fault].pop(), event.at_ms + _AFTER_MS))
            elif not event.ended:
                struck.setdefault(event.fault, []).append(event.at_ms)
        self._spans += [(began, 1 << 62) for each in struck.values() for began in each]

    def between(self, first_ms: int, last_ms: int) -> bool:
        """Return True if no fault had effects in this time."""
        return all(last_ms < began or ended < first_ms for began, ended in self._spans)


class Running:
    """When the processes of a history, nodes and clients, ran without a pause."""

    def __init__(self, history: History) -> None:
        self._changed: dict[str, list[tuple[int, str]]] = {}
        for event in history.of(ProcessChanged):
            self._changed.setdefault(event.process, []).append((event.at_ms, event.what))

    def through(self, process: str, first_ms: int, last_ms: int) -> bool:
        """Return True if a process that ran at some time before `first_ms` was neither paused nor ended until
        `last_ms`."""
        before = "started"
        for at_ms, what in self._changed.get(process, ()):
            if at_ms < first_ms:
                before = what
            elif at_ms <= last_ms:
                return False
        return before in {"started", "resumed"}
