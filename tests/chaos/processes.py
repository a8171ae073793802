"""A cluster of real processes that can be killed and paused: `up --processes` and further role processes.

Processes are found as descendants of those started here and held by pidfd, so that no signal reaches any other process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

READY_WAIT_S: Final = 20.0
STOP_WAIT_S: Final = 15.0
RESTART_WAIT_S: Final = 10.0
STORE: Final = "store"


class Handle:
    """A process held by its pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def signal(self, number: int) -> None:
        """Send a signal; do nothing if the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the process ends within the time."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000))

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self._fd)


def _processes() -> Iterator[tuple[int, int, list[str]]]:
    """Yield (pid, parent's pid, command line) of every process on this machine."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                yield int(entry.name), int(parent), command


def descendants(of: int) -> dict[int, list[str]]:
    """Return the live processes below a process, with their command lines."""
    found: dict[int, list[str]] = {}
    everything = list(_processes())
    parents = {of}
    while parents:
        below = {pid: command for pid, parent, command in everything if parent in parents and pid not in found}
        found.update(below)
        parents = set(below)
    return found


class ClusterProcesses:
    """`up --processes` on one data directory, and further role processes that the experiment starts."""

    def __init__(self, folder: Path, settings: Mapping[str, str], up_options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.bootstrap = ""
        self._up_options = list(up_options)
        self._settings = dict(settings)
        self._store_url = ""
        self._up: subprocess.Popen[str] | None = None
        self._own: dict[str, subprocess.Popen[str]] = {}
        self._paused: list[Handle] = []

    def start(self) -> None:
        """Start, or start again with the same port, and wait until everything serves."""
        port = self.bootstrap.rpartition(":")[2] or str(_free_port())
        assignments = [f"--set={name}={value}" for name, value in self._settings.items()]
        command = ["share_node", "up", "--data", str(self.folder / "data"), "--port", port, "--output", "json"]
        self._up = self._run([*command, "--processes", *self._up_options, *assignments], "cluster.log")
        ready: dict[str, Any] = json.loads(_first_line(self._up))
        self.bootstrap, self._store_url = ready["bootstrap"], ready["store"]

    def start_second(self, role: str) -> None:
        """Start one more node of a role, with a different name."""
        flags = {
            **self._settings,
            "store.url": self._store_url,
            "store.fsync.always": "true",
            "data.dir": str(self.folder / "data"),
            "node.name": f"second_{role}",
            "listen.port": "0",
        }
        words = [f"{name}={value}" for name, value in flags.items()]
        self._own[role] = self._run(["share_node", "serve", role, *words], "second.log")
        _first_line(self._own[role])

    def _run(self, arguments: list[str], log: str) -> subprocess.Popen[str]:
        with (self.folder / log).open("a") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    # ---- faults

    def kill(self, target: str) -> None:
        """SIGKILL a role's process under `up`, or the embedded store, found by its current process id."""
        handle = self._find(target)
        handle.signal(signal.SIGKILL)
        handle.close()

    def kill_everything(self) -> None:
        """SIGKILL the whole of `up`: parent, roles, store and the store's watcher. All have ended when this returns."""
        assert self._up is not None
        handles = [_hold(pid) for pid in [self._up.pid, *descendants(self._up.pid)]]
        alive = [handle for handle in handles if handle is not None]
        for handle in alive:
            handle.signal(signal.SIGKILL)
        self._up.wait(STOP_WAIT_S)
        for handle in alive:
            assert handle.wait(STOP_WAIT_S), f"process {handle.pid} outlived SIGKILL"
            handle.close()
        _close_pipes(self._up)

    def kill_parent(self) -> list[Handle]:
        """SIGKILL only the parent; return the processes below it."""
        assert self._up is not None
        below = [handle for pid in descendants(self._up.pid) if (handle := _hold(pid)) is not None]
        self._up.kill()
        self._up.wait(STOP_WAIT_S)
        _close_pipes(self._up)
        return below

    def pause(self, target: str) -> Callable[[], None]:
        """SIGSTOP a role's process under `up`; call the result to resume it."""
        handle = self._find(target)
        handle.signal(signal.SIGSTOP)
        self._paused.append(handle)
        return lambda: handle.signal(signal.SIGCONT)

    def _find(self, target: str) -> Handle:
        assert self._up is not None
        deadline = time.monotonic() + RESTART_WAIT_S
        while time.monotonic() < deadline:
            for pid, command in descendants(self._up.pid).items():
                if _plays(command, target) and (handle := _hold(pid)) is not None:
                    return handle
            time.sleep(0.02)
        raise AssertionError(f"no process of {target} within {RESTART_WAIT_S:.0f} s; see {self.folder}/cluster.log")

    # ---- the end

    def stop(self) -> None:
        """End everything, cleanly if possible. Raises AssertionError if that was not possible."""
        for paused in self._paused:
            paused.signal(signal.SIGCONT)
            paused.close()
        self._paused.clear()
        late = [name for name, process in self._own.items() if not _end(process)]
        if self._up is not None and self._up.poll() is None:
            below = [handle for pid in descendants(self._up.pid) if (handle := _hold(pid)) is not None]
            late += [] if _end(self._up) else ["up"]
            for child in below:
                if not child.wait(5):
                    child.signal(signal.SIGKILL)
                    late.append(f"process {child.pid} under up")
                child.close()
        assert not late, f"did not leave in good order: {', '.join(late)}; logs are in {self.folder}"


def _free_port() -> int:
    """Return a port below the range for outgoing connections, so that none of those holds it when it is needed
    again."""
    for port in random.sample(range(12_000, 30_000), 50):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port among 50")


def _hold(pid: int) -> Handle | None:
    try:
        return Handle(pid)
    except ProcessLookupError:
        return None


def _plays(command: list[str], target: str) -> bool:
    if target == STORE:
        return Path(command[0].partition(" ")[0]).name in {"valkey-server", "redis-server"}  # they set their titles
    return command[1:5] == ["-m", "share_node", "serve", target]


def _end(process: subprocess.Popen[str]) -> bool:
    """SIGTERM, then SIGKILL after a bounded wait. Returns whether SIGTERM sufficed."""
    orderly = True
    process.terminate()
    try:
        process.wait(STOP_WAIT_S)
    except subprocess.TimeoutExpired:
        orderly = False
        process.kill()
        process.wait()
    _close_pipes(process)
    return orderly


def _close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _first_line(process: subprocess.Popen[str]) -> str:
    """Return the line that reports that the process is ready."""
    out: IO[str] | None = process.stdout
    assert out is not None
    readable, _, _ = select.select([out], [], [], READY_WAIT_S)
    line = out.readline() if readable else ""
    assert line, f"{process.args!r} was not ready within {READY_WAIT_S:.0f} s (status {process.poll()})"
    return line
