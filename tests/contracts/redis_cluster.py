"""A Redis Cluster as a store under test: every client reaches every node through a proxy of its own.

A fault acts on whichever node receives the pipeline. The client learns the nodes' own addresses, as in production, but
connects to their proxies. A fault of "the store" in a test applies to all masters, since the keys of one test are
spread over several of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio.connection import Connection

from shard_runtime.record_log.redis.connection import Command, Store
from shard_runtime.record_log.redis.resp import StoreAddress
from shard_runtime.record_log.redis.topology import ClusterStoreMap
from tests.support.cluster_nodes import ClusterNodes, ran
from tests.support.store_proxy import Fault, Proxy


class _Detour(StoreAddress):
    """Connects to the client's proxy of a node instead of the node's own port."""

    def __init__(self, ways: Mapping[int, Proxy], protocol: int) -> None:
        super().__init__(Connection, {"protocol": protocol}, 2_000)
        self._ways = ways

    def at(self, host: str, port: int) -> StoreAddress:
        return super().at(host, self._ways[port].port)


class RedisCluster:
    """`Deployment` on the shared nodes, for the duration of one test."""

    def __init__(self, nodes: ClusterNodes, protocol: int = 3) -> None:
        self.name = "cluster"
        self._protocol = protocol
        self.nodes = nodes
        self._ways: dict[str, dict[int, Proxy]] = {}
        self._faults: dict[str, list[Fault]] = {}
        self._frozen = False

    async def start(self) -> None:
        await self.nodes.ready()

    async def client(self, name: str) -> Store:
        if name not in self._ways:
            faults = self._faults[name] = []
            self._ways[name] = {server.port: Proxy(server.port, faults) for server in self.nodes.servers}
            for proxy in self._ways[name].values():
                await proxy.start()
        seeds = [("127.0.0.1", pair.master.port) for pair in self.nodes.pairs]
        return ClusterStoreMap(_Detour(self._ways[name], self._protocol), seeds)

    async def raw(self, *commands: Command) -> list[Any]:
        replies = []
        for command in commands:
            replies += await ran(self.nodes.pair_of(str(command[1])).master, command)
        return replies

    async def order(self, name: str, word: str, kind: str) -> Fault:
        fault = Fault(word.encode(), kind)
        self._faults[name].append(fault)
        return fault

    async def restart(self) -> None:
        await self.nodes.restart(self.nodes.pairs)

    async def refuse(self, code: str | None) -> None:
        await self.nodes.refuse(code)

    async def freeze_replica(self) -> None:
        self._frozen = True
        await self.nodes.let_replicate(False)

    async def thaw_replica(self) -> None:
        self._frozen = False
        await self.nodes.let_replicate(True)
        await self.nodes.in_step()

    async def fail_over(self) -> None:
        """Make a planned fail-over while replicas are in step: clients keep their connections and are redirected with
        MOVED. Otherwise the masters are unreachable while their replicas take over.
        """
        if not self._frozen:
            await self.nodes.hand_over(self.nodes.pairs)
            await self.nodes.in_step()
            return
        self._reach(False)
        await self.nodes.take_over(self.nodes.pairs)
        await self.thaw_replica()
        self._reach(True)

    def _reach(self, open_: bool) -> None:
        for ways in self._ways.values():
            for proxy in ways.values():
                proxy.open = open_
                if not open_:
                    proxy.cut()

    async def demote_and_promote(self) -> None:
        """Let the replicas take over and the masters follow them; then let the masters take over again."""
        await self.nodes.take_over(self.nodes.pairs)
        await self.thaw_replica()
        await self.nodes.take_over(self.nodes.pairs)
        await self.nodes.in_step()

    async def wipe(self) -> None:
        await self.nodes.wipe()

    async def close(self) -> None:
        for ways in self._ways.values():
            for proxy in ways.values():
                await proxy.close()
