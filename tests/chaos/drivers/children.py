"""Processes that are killed, paused and restarted with the same command: services, stores and workers.

None outlives the test's process: services and workers end when their standard input closes, and
`share_node.store.store_watcher` ends a store, as it does the embedded one.
"""

from __future__ import annotations

import contextlib
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import share_node.store.store_watcher
from tests.chaos.processes import Handle

READY_WAIT_S: Final = 60.0
STOP_WAIT_S: Final = 20.0
END_WAIT_S: Final = 20.0
ROOT: Final = Path(__file__).resolve().parents[3]
_WATCHER_GRACE_S: Final = "5"


class Child:
    """One command, run repeatedly, one process at a time; its standard error goes to `log`."""

    def __init__(self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        #: The command that `launch` starts; a change takes effect at the next launch.
        self.command = list(command)
        #: Called with the process id of each new process before it has done anything.
        self.after_launch: Callable[[int], None] = lambda pid: None
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._handle: Handle | None = None

    @property
    def running(self) -> bool:
        """Return whether it runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The last process's exit status; None while it is running, and before the first."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """The running process's id; 0 when none runs."""
        return self._handle.pid if self._handle is not None and self.running else 0

    def launch(self) -> None:
        """Start the process."""
        self._let_go()
        with self.log.open("a") as errors:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,  # nothing is read ahead, so `line` can use select to check for more
                cwd=ROOT,
                env=dict(self._environment),
                start_new_session=True,  # Ctrl-C at the terminal reaches only the experiment, which ends these cleanly
            )
        self._handle = Handle(self._reported_pid() or self._process.pid)
        self.after_launch(self._handle.pid)

    def line(self) -> str:
        """Return its next line on standard output. Raises AssertionError with the end of its log if none comes within a
        bounded time."""
        assert self._process is not None
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], READY_WAIT_S)
        line = self._process.stdout.readline().decode() if readable else ""
        assert line, (
            f"{self.name} said nothing within {READY_WAIT_S:.0f} s (status {self.status}):\n{self.last_words()}"
        )
        return line

    def last_words(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def signal(self, number: int) -> None:
        """Send a signal; do nothing if it has ended."""
        if self._handle is not None and self.running:
            self._handle.signal(number)

    def kill(self) -> None:
        """SIGKILL it; it has ended when this returns."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(END_WAIT_S)
            self._let_go()

    def stop(self) -> bool:
        """SIGTERM, a bounded wait, then SIGKILL. Returns whether SIGTERM sufficed and the exit status was 0."""
        self.signal(signal.SIGTERM)
        orderly = self.wait(STOP_WAIT_S) == 0
        self.kill()
        return orderly

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status; None if it is still running after that time, or never ran."""
        if self._process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def say(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def close_input(self) -> None:
        """Close its standard input: a worker leaves."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def _reported_pid(self) -> int | None:
        """Return the process to signal if it is not the one that was started, else None."""
        return None

    def _let_go(self) -> None:
        """Close the resources of an ended process; its status remains available."""
        if self._handle is not None:
            self._handle.close()
            self._handle = None
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


class WatchedChild(Child):
    """A child that does not watch its parent, such as a store: a watcher between them ends it when the parent has
    ended."""

    def __init__(
        self, name: str, enter: Sequence[str], command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        watcher = [sys.executable, "-I", "-S", share_node.store.store_watcher.__file__, _WATCHER_GRACE_S]
        super().__init__(name, [*enter, *watcher, *command], log, environment)

    def _reported_pid(self) -> int:
        return int(self.line())


class Worker:
    """A producer or consumer from `tests.chaos.workers`."""

    def __init__(self, child: Child) -> None:
        self._child = child
        child.launch()

    @property
    def name(self) -> str:
        """The name it was started with."""
        return self._child.name

    def leave(self) -> None:
        """Ask it to leave cleanly; does not wait."""
        self._child.close_input()

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit status; None if it is still running after that time."""
        return self._child.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL it; it has ended when this returns."""
        self._child.kill()

    def pause(self) -> None:
        """Pause it with SIGSTOP."""
        self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it with SIGCONT."""
        self._child.signal(signal.SIGCONT)
