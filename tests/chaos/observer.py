"""Observes start offsets and lags from outside while an experiment runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kip932.errors import KafkaError
from sharegroups import Admin
from tests.chaos.history import HistoryWriter, Observed, now_ms
from tests.chaos.workers import REQUEST_TIMEOUT_MS, TimedTransport

OBSERVE_S: Final = 0.4


class Observer:
    """Polls the group's offsets every `every_s` seconds; each successful poll goes into the history."""

    def __init__(
        self,
        bootstrap: str,
        history: Path,
        group: str,
        partitions: int,
        *,
        reach: Mapping[str, str] | None = None,
        every_s: float = OBSERVE_S,
        security: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "request.timeout.ms": REQUEST_TIMEOUT_MS,
            "default.api.timeout.ms": 3_000,
            **(security or {}),
        }
        self._group = group
        self._partitions = partitions
        self._reach = reach
        self._every_s = every_s
        self._security = security
        self._history = HistoryWriter(history)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._drained = threading.Event()
        self._draining = False
        self._thread.start()

    def wait_drained(self, timeout_s: float) -> bool:
        """Return whether within the time every partition had lag 0 at the same poll."""
        self._drained.clear()
        self._draining = True
        return self._drained.wait(timeout_s)

    def close(self) -> None:
        """Stop polling."""
        self._stop.set()
        self._thread.join(15)
        self._history.close()

    def _run(self) -> None:
        with Admin(self._settings, transport=TimedTransport(self._reach, security=self._security)) as admin:
            while not self._stop.wait(self._every_s):
                with contextlib.suppress(KafkaError):
                    self._observe(admin)

    def _observe(self, admin: Admin) -> None:
        draining, asked_ms = self._draining, now_ms()
        offsets = admin.list_share_group_offsets({self._group: None})[self._group]
        if isinstance(offsets, KafkaError):
            return
        seen = [
            Observed(at.topic, at.partition, found.start_offset, found.lag, now_ms(), asked_ms)
            for at, found in offsets.items()
            if found is not None and found.lag is not None
        ]
        self._history.write(seen)
        if draining and len(seen) >= self._partitions and all(event.lag == 0 for event in seen):
            self._drained.set()
