"""The demo's workers in the parent process: it starts them, reads their reports and logs, kills and dismisses them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import IO, Final

from share_node.demo.jobs import Tally
from share_node.demo.ledger import Place, Report
from share_node.demo.orders import Orders

_DISMISS_WAIT_S: Final = 30.0
_LINES_KEPT: Final = 20


class WorkerProcess:
    """One worker process; each result line that it prints becomes a Report, each line of its log is passed on."""

    def __init__(
        self,
        orders: Orders,
        command: list[str],
        on_report: Callable[[Report], None],
        on_log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.number = int(orders.number)
        self._topic = orders.topic
        self._on_report = on_report
        self._on_log = on_log
        self._last: deque[str] = deque(maxlen=_LINES_KEPT)
        # A session of its own: so Ctrl-C at the terminal only reaches the demo, which dismisses its workers. When the
        # demo is killed, their standard input closes.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | orders.environment(),
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        pipes: Mapping[Callable[[str], None], IO[str]] = {
            self._hear: self.process.stdout, self._hear_log: self.process.stderr
        }  # fmt: skip
        self._listeners = [
            threading.Thread(target=_listen, args=(pipe, hear), daemon=True) for hear, pipe in pipes.items()
        ]
        for listener in self._listeners:
            listener.start()

    def _hear(self, line: str) -> None:
        try:
            fields = json.loads(line)
        except ValueError:
            return  # the line a SIGKILL cut short
        place = Place(self._topic, fields["partition"], fields["offset"])
        self._on_report(Report(place, self.number, fields["count"], fields["outcome"], Tally(fields["tally"])))

    def _hear_log(self, line: str) -> None:
        self._last.append(line.rstrip())
        self._on_log(line.rstrip())

    @property
    def last_words(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._last)

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
        for listener in self._listeners:
            listener.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


def _listen(pipe: IO[str], hear: Callable[[str], None]) -> None:
    for line in pipe:
        hear(line)


def hire(orders: Orders, on_report: Callable[[Report], None], on_log: Callable[[str], None]) -> WorkerProcess:
    """Start a worker with these orders."""
    return WorkerProcess(orders, [sys.executable, "-m", "share_node.demo.worker"], on_report, on_log)
