"""Makes a terminated run of experiments remove everything that it started."""

from __future__ import annotations

import signal
import sys


def exit_on_sigterm() -> None:
    """Make SIGTERM end this process as Ctrl-C does, through every `with` and `finally`."""
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)
