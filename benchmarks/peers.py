"""Starts other systems' servers for one run, and reports what is missing if it cannot.

NATS and RabbitMQ come from the distribution (Debian: nats-server, rabbitmq-server), their clients and Kafka's from the
extra `bench`, possibly in another interpreter. All files are in the given folder; no daemon outlives a run.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.processes import ROOT, BenchmarkError, Crew, Process

_START_S: Final = 60.0
#: Searched before PATH, where Debian's script runs the server as another user, who does not own the run's folder.
_RABBIT_FOLDERS: Final = ("/usr/lib/rabbitmq/bin",)


def missing(python: str, modules: Sequence[str] = (), programs: Sequence[str] = ()) -> str:
    """Return the names of what is not installed, for a message; empty when nothing is missing."""
    found = [f"the program {name}" for name in programs if find_program(name) is None]
    for module in modules:
        known = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0
        found += [] if known else [f"the module {module} of the extra `bench`"]
    return ", ".join(found)


def find_program(name: str) -> str | None:
    """Return the path of a server's program, or None."""
    return shutil.which(name, path=os.pathsep.join([*_RABBIT_FOLDERS, os.environ.get("PATH", ""), "/usr/sbin"]))


def client(python: str, module: str, role: str, settings: str, crew: Crew) -> Process:
    """Start a worker of `benchmarks.<module>` with an interpreter that has its client library."""
    own = os.environ.get("PYTHONPATH", "") if python == sys.executable else ""
    words = ["env", f"PYTHONPATH={os.pathsep.join(filter(None, [str(ROOT), own]))}", python]
    return Process(f"{module} {role}", [*words, "-m", f"benchmarks.{module}", role, settings], crew)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that are free at present."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def start_nats(folder: Path, crew: Crew) -> tuple[list[Process], str]:
    """Start a NATS server with JetStream in the folder. Returns its processes and URL. Raises BenchmarkError."""
    (port,) = free_ports(1)
    program = find_program("nats-server")
    assert program is not None
    words = [
        program,
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-js",
        "-sd",
        str(folder / "nats"),
        "-l",
        str(folder / "nats.log"),
    ]
    server = Process("nats-server", words, crew, is_server=True)
    await_port("nats-server", port, crew)
    return [server], f"nats://127.0.0.1:{port}"


def start_rabbit(folder: Path, crew: Crew) -> tuple[list[Process], str]:
    """Start a RabbitMQ node with its own name service. Returns its processes and URL. Raises BenchmarkError."""
    names, port, between = free_ports(3)
    program, epmd = find_program("rabbitmq-server"), find_program("epmd")
    assert program is not None
    assert epmd is not None
    base = folder / "rabbit"
    base.mkdir()
    (base / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = false\n")
    settings = {
        "HOME": str(base), "ERL_EPMD_PORT": str(names), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"bench-{port}@localhost", "RABBITMQ_DIST_PORT": str(between),
        "RABBITMQ_MNESIA_BASE": str(base / "mnesia"), "RABBITMQ_LOG_BASE": str(base / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "plugins"), "RABBITMQ_CONFIG_FILE": str(base / "rabbitmq.conf"),
    }  # fmt: skip
    given = ["env", *(f"{name}={value}" for name, value in settings.items())]
    service = Process("epmd", [*given, epmd], crew, is_server=True)
    await_port("epmd", names, crew)
    server = Process("rabbitmq-server", [*given, program], crew, is_server=True)
    await_port("rabbitmq-server", port, crew)
    return [server, service], f"amqp://guest:guest@127.0.0.1:{port}/"


def await_port(name: str, port: int, crew: Crew) -> None:
    """Wait until the server accepts connections. Raises BenchmarkError."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        crew.check()
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise BenchmarkError(f"{name} took no connection on port {port} within {_START_S:g} s")


__all__ = ["await_port", "client", "find_program", "free_ports", "missing", "start_nats", "start_rabbit"]
