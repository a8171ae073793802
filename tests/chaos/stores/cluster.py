"""A Redis Cluster of masters with one replica each, which votes on promotions and makes them by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import redis

from shard_runtime.record_log.redis.keys import SLOTS, slot_of
from tests.chaos.drivers.runs import Run
from tests.chaos.stores.node import CLIENT_USER, HOST, PASSWORD, ValkeyNode, server_lines, store_url, until

NODE_TIMEOUT_MS: Final = 1_500
_MIGRATE_MS: Final = 5_000
_LOGIN: Final = ("AUTH2", CLIENT_USER, PASSWORD)
_NOTHING: Final = -1
_EVERYTHING: Final = -2


class ClusterStore:
    """A `StoreUnderTest` with several masters. `store-<i>` starts as a master, its replica is `store-<masters + i>`."""

    fsync_always = False
    replicas = 1

    def __init__(self, run: Run, folder: Path, masters: int = 3, fsync: str = "everysec") -> None:
        self._masters = masters
        names = [f"store-{number}" for number in range(2 * masters)]
        self._bus = {name: run.port() for name in names}
        self.nodes = [
            ValkeyNode(run, folder, name, [*server_lines(name, names, fsync), *_cluster_lines(self._bus[name])])
            for name in names
        ]
        self._ids: dict[str, str] = {}

    @property
    def access(self) -> Mapping[str, str]:
        """The settings by which services reach it, besides `store.url`."""
        return {}

    @property
    def url(self) -> str:
        """`store.url` with some of its nodes."""
        return store_url("redis+cluster", self.nodes)

    # ---- life

    def start(self) -> None:
        """Start the nodes, join them, and give each master slots and a replica."""
        for epoch, node in enumerate(self.nodes, 1):
            node.start()
            self._ids[node.name] = node.ask("CLUSTER", "MYID")
            meets = [("CLUSTER", "MEET", HOST, other.port, self._bus[other.name]) for other in self.nodes[: epoch - 1]]
            node.ask_all(("CLUSTER", "SET-CONFIG-EPOCH", epoch), *meets)
        masters, replicas = self.nodes[: self._masters], self.nodes[self._masters :]
        bounds = [number * SLOTS // self._masters for number in range(self._masters + 1)]
        for number, (master, replica) in enumerate(zip(masters, replicas, strict=True)):
            master.ask("CLUSTER", "ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
            until(partial(self._follow, replica, master), f"{replica.name} to know {master.name}")
        self._wait_whole()

    def _follow(self, replica: ValkeyNode, master: ValkeyNode) -> bool:
        return replica.ask("CLUSTER", "REPLICATE", self._ids[master.name]) in {True, "OK"}

    def _wait_whole(self) -> None:
        """Wait until all nodes agree and serve, and every replica has its master's data."""

        def whole() -> bool:
            views = {_view(node.ask("CLUSTER", "NODES")) for node in self.nodes}
            served = all("cluster_state:ok" in node.ask("CLUSTER", "INFO") for node in self.nodes)
            masters = [node for node in self.nodes if node.is_master]
            in_step = all(node.is_master or node.follows_in_step() for node in self.nodes)
            return len(views) == 1 and served and in_step and len(masters) == self._masters

        until(whole, "every node of the cluster to see the same and to be in step")

    def close(self) -> None:
        """End all nodes."""
        for node in self.nodes:
            with contextlib.suppress(redis.RedisError):
                node.kill()

    # ---- masters and replicas

    def master_of(self, key: str) -> ValkeyNode:
        """Return the master that most nodes name."""
        return self._holder(key, None)

    def promoted(self, old: ValkeyNode, key: str) -> ValkeyNode:
        """Return the elected replica."""
        return self._holder(key, old)

    def _holder(self, key: str, old: ValkeyNode | None) -> ValkeyNode:
        found: list[ValkeyNode] = []

        def there_is_one() -> bool:
            said = [self._said(node, key) for node in self.nodes]
            port = max(set(said) - {0}, key=said.count, default=0)
            node = next((node for node in self.nodes if node.port == port), None)
            if node is None or node is old or 2 * said.count(port) <= len(self.nodes) or not node.is_master:
                return False
            found.append(node)
            return True

        until(there_is_one, f"most nodes to name a master of {key}")
        return found[-1]

    @staticmethod
    def _said(node: ValkeyNode, key: str) -> int:
        """Return the port of the key's master as a node reports it; 0 if it reports none."""
        slot = slot_of(key)
        with contextlib.suppress(redis.RedisError):
            for first, last, master, *_replicas in node.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return int(master[1])
        return 0

    def replicas_of(self, master: ValkeyNode) -> list[ValkeyNode]:
        """Return the running nodes that replicate it."""
        found = []
        for node in self.nodes:
            if node is not master and node.running and node.info().get("master_port") == master.port:
                found.append(node)
        return found

    # ---- faults

    def lag(self, replica: ValkeyNode) -> None:
        """Make the replica's master refuse it from now on."""
        port = replica.info()["master_port"]
        next(node for node in self.nodes if node.port == port).throw_out(replica.name)

    def cut_off(self, master: ValkeyNode) -> None:
        """Cut a master off from all other nodes, in both directions; its clients still reach it."""
        self.hide(master)
        for node in self.nodes:
            master.throw_out(node.name)

    def hide(self, master: ValkeyNode) -> None:
        """Make the master drop every packet on the cluster bus; replication continues."""
        master.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", _EVERYTHING)

    def heal(self) -> None:
        """Start ended nodes, undo every cut, and wait until the cluster is whole."""
        for node in self.nodes:
            node.start()
            node.ask("DEBUG", "DROP-CLUSTER-PACKET-FILTER", _NOTHING)
            for other in self.nodes:
                node.let_in(other.name)
        self._wait_whole()

    def hand_over(self, replica: ValkeyNode) -> None:
        """Make a planned fail-over, in which the master waits until its replica has everything. Votes are requested
        repeatedly."""

        def elected() -> bool:
            if not replica.is_master:
                replica.ask("CLUSTER", "FAILOVER")
            return replica.is_master

        until(elected, f"{replica.name} to be handed its master's slots")

    def move_slot(self, key: str, target: ValkeyNode) -> None:
        """Move a key's slot with everything in it, as resharding does: key by key, while the keys are in use."""
        slot, here = slot_of(key), self.master_of(key)
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[here.name])
        here.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[target.name])
        while keys := here.ask("CLUSTER", "GETKEYSINSLOT", slot, 10):
            here.ask("MIGRATE", HOST, target.port, "", 0, _MIGRATE_MS, *_LOGIN, "KEYS", *keys)
        for node in (target, here):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", self._ids[target.name])
        until(lambda: self.master_of(key) is target, f"most nodes to know that {key} has moved")


def _cluster_lines(bus: int) -> list[str]:
    return [
        "cluster-enabled yes",
        f"cluster-port {bus}",
        f"cluster-announce-ip {HOST}",
        f"cluster-node-timeout {NODE_TIMEOUT_MS}",
        "cluster-allow-replica-migration no",  # a replica stays with its master; the experiments assume so
    ]


def _view(nodes: str) -> frozenset[tuple[str, ...]]:
    """Return the part of CLUSTER NODES on which all nodes must agree: each node's id, role, master, config epoch,
    slots."""
    words = [line.split() for line in nodes.splitlines()]
    return frozenset((w[0], str("master" in w[2]), w[3], w[6], *w[8:]) for w in words)
