"""A master, its replicas and the Sentinels that watch them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import redis

from tests.chaos.drivers.runs import Run
from tests.chaos.stores.node import (
    CLIENT_USER,
    HOST,
    PASSWORD,
    SENTINEL_USER,
    ValkeyNode,
    server_lines,
    store_url,
    until,
)

SERVICE: Final = "main"
DOWN_AFTER_MS: Final = 3_000  # with less, a master on a busy machine would be replaced


class SentinelStore:
    """A `StoreUnderTest` with one master and replicas; the Sentinels promote one if more than half miss the master."""

    fsync_always = False

    def __init__(self, run: Run, folder: Path, replicas: int = 2, sentinels: int = 3, fsync: str = "everysec") -> None:
        self.replicas = replicas
        names = [f"store-{number}" for number in range(1 + replicas)]
        self.nodes = [ValkeyNode(run, folder, name, self._server_lines(name, names, fsync)) for name in names]
        for node in self.nodes[1:]:
            node.configure(f"replicaof {HOST} {self.port_of(self.nodes[0])}")
        watch = [
            f"sentinel monitor {SERVICE} {HOST} {self.port_of(self.nodes[0])} {sentinels // 2 + 1}",
            f"sentinel auth-user {SERVICE} {SENTINEL_USER}",
            f"sentinel auth-pass {SERVICE} {PASSWORD}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 6000",
            f"sentinel parallel-syncs {SERVICE} {replicas}",
            "protected-mode no",
            *self._sentinel_lines(),
        ]
        self.sentinels = [
            ValkeyNode(run, folder, f"sentinel-{number}", watch, "--sentinel") for number in range(sentinels)
        ]

    def _server_lines(self, name: str, names: Sequence[str], fsync: str) -> list[str]:
        return server_lines(name, names, fsync)

    def _sentinel_lines(self) -> list[str]:
        return [f"user {CLIENT_USER} on >{PASSWORD} ~* &* +@all"]

    def port_of(self, node: ValkeyNode) -> int:
        """Return the port at which a node is reached, and which Sentinels name."""
        return node.port

    @property
    def access(self) -> Mapping[str, str]:
        """The settings by which services reach it, besides `store.url`."""
        return {}

    @property
    def url(self) -> str:
        """`store.url` with the Sentinels' addresses and the service."""
        return store_url("redis+sentinel", self.sentinels, f"/{SERVICE}")

    def start(self) -> None:
        """Start the servers first, then the Sentinels."""
        for node in self.nodes:
            node.start()
        until(lambda: all(node.follows_in_step() for node in self.nodes[1:]), "the replicas to be in step")
        for sentinel in self.sentinels:
            sentinel.start()
        self._wait_watched()

    def _wait_watched(self) -> None:
        def watched() -> bool:
            states = [sentinel.ask("SENTINEL", "MASTER", SERVICE) for sentinel in self.sentinels]
            return all(
                int(state["num-slaves"]) >= self.replicas
                and int(state["num-other-sentinels"]) >= len(self.sentinels) - 1
                and state["flags"] == "master"  # neither down nor being replaced
                for state in states
            )

        until(watched, "every Sentinel to know the servers and the other Sentinels")

    def _named(self) -> ValkeyNode | None:
        """Return the master that the Sentinels name, if they agree."""
        ports = {int(sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for sentinel in self.sentinels}
        return next((node for node in self.nodes if {self.port_of(node)} == ports), None)

    def master_of(self, key: str) -> ValkeyNode:
        """Return the one master."""
        return self._master_but(None)

    def _master_but(self, old: ValkeyNode | None) -> ValkeyNode:
        found: list[ValkeyNode] = []

        def there_is_one() -> bool:
            node = self._named()
            if node is None or node is old or not node.is_master:
                return False
            found.append(node)
            return True

        until(there_is_one, "a master that all Sentinels name")
        return found[-1]

    def replicas_of(self, master: ValkeyNode) -> list[ValkeyNode]:
        """Return all other running servers."""
        return [node for node in self.nodes if node is not master and node.running]

    def lag(self, replica: ValkeyNode) -> None:
        """Make the replica's master refuse it from now on."""
        self.master_of("").throw_out(replica.name)

    def cut_off(self, master: ValkeyNode) -> None:
        """Cut a master off from replicas and Sentinels, in both directions."""
        for user in (SENTINEL_USER, *(node.name for node in self.nodes)):
            master.throw_out(user)

    def hide(self, master: ValkeyNode) -> None:
        """Cut the master off from the Sentinels."""
        master.throw_out(SENTINEL_USER)

    def heal(self) -> None:
        """Start ended nodes, admit every peer again, and wait until all follow the one master."""
        for node in self.nodes:
            node.start()
            for user in (SENTINEL_USER, *(other.name for other in self.nodes)):
                node.let_in(user)
            node.ask("CLIENT", "KILL", "USER", "default")  # Sentinels do not log in again by themselves

        def whole() -> bool:
            master = self._named()
            return master is not None and all(
                node.is_master if node is master else _follows(node, self.port_of(master)) for node in self.nodes
            )

        until(whole, "every server to follow the master")
        self._wait_watched()

    def promoted(self, old: ValkeyNode, key: str) -> ValkeyNode:
        """Return the new master."""
        return self._master_but(old)

    def fail_over(self, *how: str) -> None:
        """Request a fail-over from a Sentinel: COORDINATED, or without waiting until the replica has everything."""

        def begun() -> bool:
            return self.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE, *how) in {True, "OK"}

        until(begun, "a Sentinel to begin a fail-over")

    def close(self) -> None:
        """End all nodes."""
        for node in (*self.sentinels, *self.nodes):
            with contextlib.suppress(redis.RedisError):
                node.kill()


def _follows(node: ValkeyNode, port: int) -> bool:
    info = node.info()
    return bool(info["role"] == "slave" and info["master_port"] == port and info["master_link_status"] == "up")
