"""The demo's workers in the parent process: it starts them, reads their reports, kills and dismisses them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from share_node.demo.jobs import Tally
from share_node.demo.ledger import Place, Report

_DISMISS_WAIT_S: Final = 20.0


class Worker:
    """One worker process; each result line that it prints becomes a Report."""

    def __init__(self, number: int, topic: str, command: list[str], on_report: Callable[[Report], None]) -> None:
        self.number = number
        self._topic = topic
        self._on_report = on_report
        # A session of its own: so Ctrl-C at the terminal only reaches the demo, which dismisses its workers. When the
        # demo is killed, their standard input closes.
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                fields = json.loads(line)
            except ValueError:
                continue  # the line a SIGKILL cut short
            place = Place(self._topic, fields["partition"], fields["offset"])
            self._on_report(Report(place, self.number, fields["count"], fields["outcome"], Tally(fields["tally"])))

    def kill(self) -> None:
        """Send SIGKILL: the worker does not leave its group."""
        self.process.kill()

    def dismiss(self) -> None:
        """Ask the worker to leave in good order; kill it after a bounded wait."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(_DISMISS_WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


def hire(number: int, topic: str, arguments: Sequence[str], on_report: Callable[[Report], None]) -> Worker:
    """Start worker `number`; `arguments` are those of `share_node.demo.worker`."""
    return Worker(number, topic, [sys.executable, "-m", "share_node.demo.worker", *arguments], on_report)
