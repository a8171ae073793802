"""Ends a job on signals: the first is only noted, so that no call into Java is interrupted; a second one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """The signal that requests the end of the job, if one was received."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def asked(self) -> bool:
        """True if the job should end."""
        return self.signal is not None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Only note the first signal inside the block; later ones go to the previous handlers.

        It has no effect outside the main thread.
        """
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
