"""Runs Docker's and Compose's command lines with a time limit, for the tests of the image; tests remove what they
start."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMPOSE_FILE = ROOT / "deploy" / "compose.yaml"
#: The time limit of every command and of every wait for a container; far longer than they take.
BOUND_S = 120


def run(words: Sequence[str], *, text: str = "", environ: dict[str, str] | None = None) -> str:
    """Run a command and return its standard output. If it fails, the test fails with that output."""
    done = subprocess.run(
        words,
        input=text,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Container:
    """One running container, known to Docker by `name`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def inspect(self, template: str) -> str:
        """Apply a Go template to the container's description."""
        return run(["docker", "inspect", "--format", template, self.name]).strip()

    def exec(self, *words: str, text: str = "") -> str:
        """Run a command inside and return its standard output."""
        return run(["docker", "exec", "-i", self.name, *words], text=text)

    def wait_healthy(self) -> None:
        """Wait until Docker's own health check of it has passed."""
        until = time.monotonic() + BOUND_S
        while (status := self.inspect("{{.State.Health.Status}}")) != "healthy":
            assert time.monotonic() < until, f"{self.name} is {status}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """Return its output on both streams."""
        done = subprocess.run(
            ["docker", "logs", self.name], capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        return done.stdout + done.stderr

    def kill(self) -> None:
        """Kill it, as a crash would; Docker's restart policy does not apply to this."""
        run(["docker", "kill", self.name])

    def start(self) -> None:
        """Start it again with its data."""
        run(["docker", "start", self.name])

    def stop(self) -> int:
        """Send SIGTERM and return its exit status."""
        run(["docker", "stop", "--time", "30", self.name])
        return int(self.inspect("{{.State.ExitCode}}"))


class Started(Container):
    """A container of the image, started by `docker run` with a read-only root, no capabilities and no way to gain
    any."""

    def __init__(self, image: str, *options: str, command: Sequence[str] = ()) -> None:
        super().__init__(f"sharegroups-test-{uuid.uuid4().hex[:8]}")
        hard = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        run(["docker", "run", "--detach", "--name", self.name, *hard, *options, image, *command])

    def remove(self) -> None:
        """End and remove it, and its volume."""
        run(["docker", "rm", "--force", "--volumes", self.name])


class Composed:
    """deploy/compose.yaml as a separate project, published on a loopback address that no cluster uses."""

    def __init__(self, image: str) -> None:
        self._project = f"sharegroups-test-{uuid.uuid4().hex[:8]}"
        self._environ = {"IMAGE": image, "PUBLISH_ON": f"127.{os.getpid() % 200 + 20}.32.1"}

    def compose(self, *words: str) -> str:
        """Run one docker-compose command."""
        base = ["docker-compose", "--project-name", self._project, "--file", str(COMPOSE_FILE)]
        return run([*base, *words], environ=self._environ)

    def container(self, service: str) -> Container:
        """Return the only container of a service."""
        (name,) = self.compose("ps", "--quiet", service).split()
        return Container(name)

    def remove(self) -> None:
        """End everything and remove the data."""
        self.compose("down", "--volumes", "--timeout", "20")
