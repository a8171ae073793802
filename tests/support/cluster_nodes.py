"""A Redis Cluster of six processes: three masters, one replica each. It is formed once, and the tests take turns.

Replicas log in as a user of their own, so that replication can be shut off while clients and the cluster bus go on.
They never take over by themselves: fail-overs happen only when a test requests one.
"""

from __future__ import annotations

import asyncio
import shutil
from bisect import bisect
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from shard_runtime.record_log.redis.connection import INFO_REPLICATION, Command, ErrorReply, parse_replication
from shard_runtime.record_log.redis.keys import SLOTS, slot_of
from tests.support.ports import free_port

from .stores import BOUND_S, Server

FIRST_SLOTS: Final = (0, 5461, 10_000)
"""The first slot of each master, chosen so that a group shard and the cluster id are on different nodes."""
_USER: Final = "replication"


async def until_true(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Poll servers until the condition holds; bounded."""
    for _ in range(BOUND_S * 50):
        if await condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {BOUND_S} s in vain until {what}")


async def ran(server: Server, *commands: Command) -> list[Any]:
    """Return the replies. Raises if any is an error."""
    replies = await server.run(*commands)
    assert not any(isinstance(reply, ErrorReply) for reply in replies), (commands, replies)
    return replies


@dataclass(eq=False)
class Pair:
    """A master and its replica, in their present roles."""

    master: Server
    replica: Server

    def swap(self) -> None:
        self.master, self.replica = self.replica, self.master


class ClusterNodes:
    """The processes, reached without clients' proxies. Not started before the first `ready`."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.pairs: list[Pair] = []
        self._ids: dict[int, str] = {}
        self._away: dict[int, Pair] = {}
        self._moving: set[int] = set()
        self._alone: set[Server] = set()
        self._whole = False  # set by every fault, and repaired by `ready`

    # -- life ---------------------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Make the cluster whole and empty after a test in any state."""
        if not self.pairs:
            self.stop()  # leftovers of a failed attempt
            await self._form()
        if not self._whole:
            await self._mend()
        for pair in self.pairs:
            await ran(pair.master, ("FLUSHALL",))
        for slot in list(self._away):
            await self.move_slot(slot, self._home(slot))
            del self._away[slot]
        await self._agreed()
        self._whole = True

    async def _mend(self) -> None:
        """Restore every node, so that it runs, sees the others, has its slots, accepts writes and replicates."""
        for server in self._alone:
            server.stop()  # a restarted node finds the others sooner than one that has given them up
        self._alone.clear()
        await self.revive()
        for server in self.servers:
            await server.run(("PING",), *(("CLUSTER", "SETSLOT", slot, "STABLE") for slot in self._moving))
        self._moving.clear()
        await self.let_replicate(True)
        await self._agreed()
        for pair in self.pairs:
            if await _role(pair.master) != "master":
                pair.swap()
        await self.refuse(None)
        await self.in_step()

    def stop(self) -> None:
        """End all processes and remove their data."""
        for server in self.servers:
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)

    async def _form(self) -> None:
        bus = [free_port() for _ in range(2 * len(FIRST_SLOTS))]
        self.servers = [self._node(port) for port in bus]
        await asyncio.gather(*(server.start() for server in self.servers))
        for epoch, server in enumerate(self.servers, 1):
            self._ids[id(server)] = (await ran(server, ("CLUSTER", "MYID")))[0].decode()
            await ran(server, ("CLUSTER", "SET-CONFIG-EPOCH", epoch))
            meets = [("CLUSTER", "MEET", "127.0.0.1", self.servers[i].port, bus[i]) for i in range(epoch - 1)]
            await ran(server, *meets, ("PING",))
        masters, replicas = self.servers[: len(FIRST_SLOTS)], self.servers[len(FIRST_SLOTS) :]
        pairs = [Pair(*pair) for pair in zip(masters, replicas, strict=True)]
        for pair, first, end in zip(pairs, FIRST_SLOTS, (*FIRST_SLOTS[1:], SLOTS), strict=True):
            await ran(pair.master, ("CLUSTER", "ADDSLOTSRANGE", first, end - 1))
            await until_true(partial(self._follows, pair), "a replica knows its master")
        self.pairs = pairs

    @staticmethod
    def _node(bus: int) -> Server:
        options = ["--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "3000"]
        options += ["--enable-debug-command", "yes"]
        options += ["--cluster-replica-no-failover", "yes", "--primaryuser", _USER, "--primaryauth", "secret"]
        return Server(*options, "--user", _USER, "on", ">secret", "~*", "&*", "+@all")

    async def _follows(self, pair: Pair) -> bool:
        (reply,) = await pair.replica.run(("CLUSTER", "REPLICATE", self._ids[id(pair.master)]))
        return bool(reply == b"OK")

    # -- the nodes' view ----------------------------------------------------------------------------------------------

    async def _agreed(self) -> None:
        """Wait until all nodes see the same masters, replicas and slots, and serve."""

        async def agree() -> bool:
            found = [await server.run(("CLUSTER", "NODES"), ("CLUSTER", "INFO")) for server in self.servers]
            views = {_view(nodes.decode()) for nodes, _ in found}
            return len(views) == 1 and all(b"cluster_state:ok" in info for _, info in found)

        await until_true(agree, "the nodes of the cluster agree")

    async def in_step(self) -> None:
        """Wait until every replica follows its master."""

        async def fed() -> bool:
            return all(await asyncio.gather(*(pair.master.feeds(pair.replica) for pair in self.pairs)))

        await self._agreed()
        await until_true(fed, "the replicas are in step")

    def pair_of(self, key: str) -> Pair:
        """Return the nodes that hold a key."""
        return self._holder(slot_of(key))

    def _holder(self, slot: int) -> Pair:
        return self._away.get(slot) or self._home(slot)

    def _home(self, slot: int) -> Pair:
        return self.pairs[bisect(FIRST_SLOTS, slot) - 1]

    # -- faults -------------------------------------------------------------------------------------------------------

    async def let_replicate(self, allowed: bool) -> None:
        """Let replicas log in, or disconnect them and refuse further logins."""
        self._whole = False
        for server in self.servers:
            await ran(server, ("ACL", "SETUSER", _USER, "on" if allowed else "off"))
            if not allowed:
                await ran(server, ("CLIENT", "KILL", "TYPE", "REPLICA"))

    async def refuse(self, code: str | None) -> None:
        """Make every master answer writes with OOM or NOREPLICAS; None ends that."""
        self._whole = False
        for server in self.servers:
            await ran(
                server,
                ("CONFIG", "SET", "maxmemory", 1 if code == "OOM" else 0),
                ("CONFIG", "SET", "min-replicas-to-write", 9 if code == "NOREPLICAS" else 0),
            )

    async def wipe(self) -> None:
        """Delete all data, and close the clients' connections."""
        for pair in self.pairs:
            await ran(pair.master, ("FLUSHALL",))
        for server in self.servers:
            await ran(server, ("CLIENT", "KILL", "TYPE", "NORMAL"))

    async def restart(self, pairs: Sequence[Pair]) -> None:
        """Restart masters at the same time. They answer CLUSTERDOWN for their first two seconds."""
        self._whole = False
        for pair in pairs:
            pair.master.stop()
        await asyncio.gather(*(pair.master.start() for pair in pairs))

    async def hand_over(self, pairs: Collection[Pair]) -> None:
        """Make planned fail-overs, one after another: an up-to-date replica asks its master to step down for it."""
        self._whole = False
        for pair in pairs:
            await self._elect(pair.replica)
            pair.swap()
            await self._agreed()

    @staticmethod
    async def _elect(replica: Server) -> None:
        """Request the fail-over repeatedly: votes may be refused, and the replica itself would not ask again soon
        enough."""
        for _ in range(4):
            await ran(replica, ("CLUSTER", "FAILOVER"))
            for _ in range(BOUND_S * 10):
                if await _role(replica) == "master":
                    return
                await asyncio.sleep(0.02)
        raise AssertionError("a replica asked for a planned fail-over, and was not elected")

    async def take_over(self, pairs: Collection[Pair]) -> None:
        """Make an unplanned fail-over: replicas declare themselves masters with the data they have."""
        self._whole = False
        for pair in pairs:
            await ran(pair.replica, ("CLUSTER", "FAILOVER", "TAKEOVER"))
            pair.swap()

    async def crash(self, pair: Pair) -> None:
        """Kill a master and let its replica take over; `revive` brings it back as the replica."""
        self._whole = False
        pair.master.stop()
        await self.take_over([pair])

    async def revive(self) -> None:
        """Start the nodes that are not running."""
        await asyncio.gather(*(server.start() for server in self.servers if not server.running))

    async def isolate(self, server: Server) -> None:
        """Cut a node off from the others; it serves its clients until it notices."""
        self._whole = False
        self._alone.add(server)
        await ran(
            server,
            ("CONFIG", "SET", "cluster-node-timeout", 300),
            ("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -2),
        )

    @staticmethod
    async def is_down(server: Server) -> bool:
        """Return whether a node knows that it must not serve."""
        return b"cluster_state:fail" in (await ran(server, ("CLUSTER", "INFO")))[0]

    async def move_slot(self, slot: int, target: Pair) -> None:
        """Move a slot with all its keys to another master."""
        await self.begin_move(slot, target)
        await self.end_move(slot, target)

    async def begin_move(self, slot: int, target: Pair) -> None:
        """Move a slot's keys, but not yet the slot, so that its master replies with ASK."""
        self._whole = False
        self._moving.add(slot)
        here, there = self._holder(slot).master, target.master
        await ran(there, ("CLUSTER", "SETSLOT", slot, "IMPORTING", self._ids[id(here)]))
        await ran(here, ("CLUSTER", "SETSLOT", slot, "MIGRATING", self._ids[id(there)]))
        (keys,) = await ran(here, ("CLUSTER", "GETKEYSINSLOT", slot, 100))
        if keys:
            await ran(here, ("MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "KEYS", *keys))

    async def end_move(self, slot: int, target: Pair) -> None:
        """Move the slot after its keys."""
        for server in (target.master, self._holder(slot).master):
            await ran(server, ("CLUSTER", "SETSLOT", slot, "NODE", self._ids[id(target.master)]))
        self._away[slot] = target
        self._moving.discard(slot)
        await self._agreed()


async def _role(server: Server) -> str:
    return parse_replication((await server.run(INFO_REPLICATION))[0]).role


def _view(nodes: str) -> frozenset[tuple[str, ...]]:
    """Return the part of CLUSTER NODES on which all nodes must agree: each node's id, role, master, config epoch,
    slots."""
    words = [line.split() for line in nodes.splitlines()]
    return frozenset((w[0], str("master" in w[2]), w[3], w[6], *w[8:]) for w in words)
