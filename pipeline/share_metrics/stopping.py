"""Ends a job on a signal: the first one is noted, so that no call into Java is interrupted; a second one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether a signal has asked the job to end, and which."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether the job should end."""
        return self.signal is not None

    @contextmanager
    def heeding(self) -> Iterator[None]:
        """Inside, the first signal is only noted; later ones do what they did before. Works in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            yield
        finally:
            self._restore()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
