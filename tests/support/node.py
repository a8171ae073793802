"""Real clusters for tests: processes started as users start them, each on a store of its own in a short directory.

A test without special needs shares the session's cluster for a settings profile and uses only its own topics and
groups. Only processes started here are ended, by their pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.ports import free_port

#: The limit of every wait for a process; far longer than needed, so that a slow machine does not fail a test.
BOUND_S = 60

#: The exit status of a command that shuts down cleanly after `stop`'s SIGTERM (CT-80); a role process exits with 0.
TERMINATED = 143

#: Defaults, with minimums low enough for a test to shorten the times of its own group.
QUICK = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}
#: As QUICK, with Kafka trunk's group epochs and assignor.
KAFKA = {**QUICK, "group.share.fast.first.assignment": "false", "group.share.assignors": "simple"}


def ready_address(line: str) -> str:
    """Return the address in the ready line of a service: JSON where JSON was chosen for what it prints (CM-241)."""
    if line.startswith("{"):
        found = json.loads(line)
        assert found["event"] == "ready", line
        return str(found["address"])
    word, address = line.split()
    assert word == "ready", line
    return address


class StartedProcess:
    """`python -m <words>`; its standard error goes to a file."""

    def __init__(self, words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._errors = folder / f"stderr-{uuid.uuid4().hex[:8]}"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**_environment(), **(environment or {})},
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def errors(self) -> str:
        """Return its standard error."""
        return self._errors.read_text(errors="replace")

    def line(self) -> str:
        """Return its next line on standard output."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], BOUND_S)
        assert readable, f"process {self.pid} said nothing within {BOUND_S} s:\n{self.errors}"
        line = self._process.stdout.readline().decode()
        assert line, f"process {self.pid} ended with status {self._process.wait(BOUND_S)}:\n{self.errors}"
        return line

    def send_line(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def first_line(self) -> str:
        """Return its first line, which reports that it is ready. If there is none, the process is ended before the
        error is raised."""
        try:
            return self.line()
        except BaseException:
            self.kill()
            raise

    def ended(self) -> int:
        """Wait until it ends by itself; return its exit status."""
        status = self._process.wait(BOUND_S)
        self._close()
        return status

    def kill(self) -> None:
        """Kill it, as a crash would."""
        if self._process.poll() is None:
            self._process.kill()
        self.ended()

    def stop(self) -> int:
        """Stop it cleanly and return the exit status. It is killed if it does not exit in time."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self.ended()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Cluster:
    """`sharegroups up` on its own directory, and further partition leaders that a test adds on the same store."""

    def __init__(self, settings: Mapping[str, str] = QUICK, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sg-"))
        #: The node's address for other nodes (CM-80).
        self.internal = f"127.0.0.1:{free_port()}"
        self._settings = {"internal.listen.port": self.internal.rpartition(":")[2], **settings}
        self._options = options
        self._others: list[StartedProcess] = []
        try:
            self.start()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the node, for the first time or again on the same data."""
        self.node = StartedProcess(up_words(self.folder / "data", self._settings, *self._options), self.folder)
        self.ready: dict[str, Any] = json.loads(self.node.first_line())

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers for clients."""
        return str(self.ready["bootstrap"])

    @property
    def store_url(self) -> str:
        """The store's URL, for processes and for reading the logs."""
        return str(self.ready["store"])

    @property
    def store_socket(self) -> str:
        """Path of the embedded store's socket."""
        return self.store_url.removeprefix("unix://")

    @property
    def leaders(self) -> int:
        """How many partition leaders run."""
        return 1 + len(self._others)

    def add_leader(self, name: str) -> str:
        """Start one more partition leader on the same store; return its address."""
        settings = {
            **self._settings,
            "internal.listen.port": "0",
            "node.name": name,
            "store.url": self.store_url,
            "store.fsync.always": "true",
        }
        words = [f"{key}={value}" for key, value in settings.items()]
        process = StartedProcess(["share_node", "serve", "partition_leader", *words], self.folder)
        self._others.append(process)
        return ready_address(process.first_line())

    def kill_leader(self) -> None:
        """SIGKILL the partition leader that was added last."""
        self._others.pop().kill()

    def close(self) -> None:
        """End every process, the newest first, and remove the data."""
        try:
            for process in (*reversed(self._others), self.node):
                process.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class Clusters:
    """The session's clusters, one for each requested profile, started with these options."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._running: dict[tuple[tuple[str, str], ...], Cluster] = {}

    def of(self, profile: Mapping[str, str]) -> Cluster:
        """Return the shared cluster with these settings."""
        key = tuple(sorted(profile.items()))
        if key not in self._running:
            self._running[key] = Cluster(profile, *self._options)
        return self._running[key]

    def close(self) -> None:
        """End all clusters."""
        for cluster in self._running.values():
            cluster.close()


def up_words(data: Path, settings: Mapping[str, str] | None = None, *options: str) -> list[str]:
    """Return the arguments of `sharegroups up` for a program that reads the ready line."""
    words = ["share_node", "up", "--data", str(data), "--output", "json", "--log-level", "warning"]
    if "--port" not in options:
        words += ["--port", "0"]
    for name, value in (settings or {}).items():
        words += ["--set", f"{name}={value}"]
    return [*words, *options]


def unique(word: str) -> str:
    """Return a name that no other test uses."""
    return f"{word}-{uuid.uuid4().hex[:10]}"


def _environment() -> dict[str, str]:
    """Return this process's environment without settings that would affect the started process by accident."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SHAREGROUPS_")}
