"""Finds a shard's coordinator: by a cache, the node's own hints, then FindCoordinator (PL-720, GC-74, SC-91)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final

from kip932.api.v1 import cluster_service_pb2
from kip932.api.v1.find_coordinator_pb2 import FindCoordinatorRequest
from kip932.errors import CoordinatorNotAvailableError, UnknownServerError, error_for
from kip932.ids import KEY_TYPE_SHARE, SharePartitionKey
from kip932.rpc.transport import Transport, TransportError, service_methods
from share_persister.retry_rules import from_transport

_FIND: Final = service_methods(cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"])["FindCoordinator"]

#: Returns a shard's address by this node's hints; None when it has none.
Resolve = Callable[[int], str | None]
#: Returns addresses of nodes that answer FindCoordinator.
Nodes = Callable[[], Sequence[str]]


class NoNodesError(Exception):
    """No node that answers FindCoordinator is known: do not retry (SC-91)."""


class CoordinatorFinder:
    """Finds and caches coordinators' addresses, by shard. At most one lookup per shard is in flight; other callers
    share its result."""

    def __init__(
        self, transport: Transport, nodes: Nodes, resolve: Resolve | None, rng: Random, timeout_s: float
    ) -> None:
        self._transport = transport
        self._nodes = nodes
        self._resolve = resolve
        self._rng = rng
        self._timeout_s = timeout_s
        self._known: dict[int, str] = {}
        self._doubted: dict[int, str] = {}
        self._lookups: dict[int, asyncio.Task[str]] = {}

    async def find(self, shard: int, key: SharePartitionKey) -> str:
        """Return the address of a shard's coordinator. Raises KafkaError when the lookup fails, or NoNodesError."""
        address = self._known.get(shard)
        if address is not None:
            return address
        local = self._resolve(shard) if self._resolve is not None else None
        if local is not None and (local != self._doubted.get(shard) or not self._nodes()):
            self._known[shard] = local
            return local
        lookup = self._lookups.get(shard)
        if lookup is None:
            lookup = self._lookups[shard] = asyncio.get_running_loop().create_task(self._ask(shard, key))
            lookup.add_done_callback(partial(self._lookup_done, shard))
        try:
            return await asyncio.shield(lookup)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if lookup.cancelled() and (task is None or not task.cancelling()):
                raise CoordinatorNotAvailableError("the persister was closed") from None
            raise

    def doubt(self, shard: int, address: str) -> None:
        """Forget `address`, which did not serve, and do not use this node's own hint if it is the same (SC-93)."""
        self._doubted[shard] = address
        if self._known.get(shard) == address:
            del self._known[shard]

    def note(self, shard: int, address: str) -> None:
        """Note the coordinator's address, which came with a refusal (CM-14) or from FindCoordinator."""
        self._known[shard] = address
        self._doubted.pop(shard, None)

    def close(self) -> None:
        """End the lookups in flight."""
        for lookup in self._lookups.values():
            lookup.cancel()

    async def _ask(self, shard: int, key: SharePartitionKey) -> str:
        nodes = self._nodes()
        if not nodes:
            raise NoNodesError
        request = FindCoordinatorRequest(key_type=KEY_TYPE_SHARE, coordinator_keys=[key.text])
        try:
            response: Any = await self._transport.call(self._rng.choice(nodes), _FIND, request, self._timeout_s)
        except TransportError as error:
            raise from_transport(error) from error
        found = next((entry for entry in response.coordinators if entry.key == key.text), None)
        if found is None:
            raise UnknownServerError(f"FindCoordinator answered without an entry for {key.text}")
        refusal = error_for(found.error_code, found.error_message)
        if refusal is not None:
            raise refusal
        self.note(shard, f"{found.host}:{found.port}")
        return self._known[shard]

    def _lookup_done(self, shard: int, lookup: asyncio.Task[str]) -> None:
        del self._lookups[shard]
        if not lookup.cancelled():
            lookup.exception()  # retrieve it, since all callers may have left
