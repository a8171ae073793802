"""Finds a shard's owner by the hints (CM-14), for FindCoordinator, Metadata, and responses that name the owner.

A hint that names no live node is not used. A wrong hint costs the caller one redirect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

from shard_runtime.clock import Clock
from shard_runtime.ownership.placement import ROLE_OF_KIND
from shard_runtime.record_log.cluster_store import ClusterStore, NodeRecord
from shard_runtime.record_log.protocol import LogError, ShardId, ShardKind

log = structlog.get_logger(__name__)

_FRESH_MS: Final = 200
#: Hints of this age are read again if they name no live owner: a new shard's hint is often published soon after a read.
_ABSENT_MS: Final = 400
_STALE_MS: Final = 1_000


class Owner(NamedTuple):
    """A shard's owner and the epoch of its claim."""

    node: NodeRecord
    epoch: int


class OwnerAddress(NamedTuple):
    """The node that owns a shard, and its address."""

    node_id: int
    host: str
    port: int


class HostPort(NamedTuple):
    """Host and port of an advertised address."""

    host: str
    port: int


def host_port(address: str) -> HostPort:
    """Split `host:port`; an IPv6 host may be in brackets."""
    host, _, port = address.rpartition(":")
    return HostPort(host.strip("[]"), int(port))


class Owners:
    """Caches the hints of all kinds; a refresh reads those older than 200 ms, with one read at a time per kind."""

    def __init__(self, store: ClusterStore, clock: Clock, node: Callable[[int], NodeRecord | None]) -> None:
        self._store = store
        self._clock = clock
        self._node = node
        self._hints: dict[ShardKind, dict[str, tuple[int, int]]] = {}
        self._read_ms: dict[ShardKind, int] = {}
        self._locks = {kind: asyncio.Lock() for kind in ShardKind}
        self._refreshing: set[asyncio.Task[None]] = set()

    def note(self, shard: ShardId, node_id: int, epoch: int) -> None:
        """Note an owner that this process learned of without a hint."""
        known = self._hints.setdefault(shard.kind, {})
        if known.get(shard.name, (0, -1))[1] < epoch:
            known[shard.name] = (node_id, epoch)

    def peek(self, shard: ShardId) -> Owner | None:
        """Return the owner by the hints read last, without asking the store; None when no live node is known."""
        hint = self._hints.get(shard.kind, {}).get(shard.name)
        node = self._node(hint[0]) if hint is not None else None
        if hint is None or node is None or ROLE_OF_KIND[shard.kind] not in node.roles:
            return None
        return Owner(node, hint[1])

    def lookup(self, shard: ShardId) -> Owner | None:
        """Return what `peek` does; if the hints are old, also start a refresh for the next call."""
        found = self.peek(shard)
        oldest_ms = _STALE_MS if found is not None else _ABSENT_MS
        if self._age_ms(shard.kind) >= oldest_ms and not self._locks[shard.kind].locked():
            task = asyncio.get_running_loop().create_task(self.refresh(shard.kind))
            self._refreshing.add(task)
            task.add_done_callback(self._refreshing.discard)
        return found

    async def find(self, shard: ShardId) -> Owner | None:
        """Return the owner by fresh hints; None when no live node is known to own the shard."""
        await self.refresh(shard.kind)
        return self.peek(shard)

    async def warm(self) -> None:
        """Read the hints before requests arrive, so that the first request for another node is redirected to it.

        These hints are not treated as fresh: shards requested soon after a start have often been claimed since.
        """
        for kind in ShardKind:
            await self.refresh(kind)
        self._read_ms.clear()

    async def refresh(self, kind: ShardKind) -> None:
        """Read the hints of a kind again, unless they are fresh. Keep the old ones when the store cannot be reached."""
        async with self._locks[kind]:
            if self._age_ms(kind) < _FRESH_MS:
                return
            try:
                self._hints[kind] = await self._store.hints(kind)
                self._read_ms[kind] = self._clock.now_ms()
            except LogError as error:
                log.warning("owner_hints_read_failed", kind=kind.value, cause=str(error))

    def _age_ms(self, kind: ShardKind) -> int:
        return self._clock.now_ms() - self._read_ms.get(kind, -_STALE_MS)
