"""One process of the cluster: the roles it was given, on one store, behind one RPC server.

Start: check the store, take the port, join the cluster, take shards, accept calls, be ready. Stop (CM-4): be `leaving`,
readiness off, answer parked requests, flush, release the shards, leave the list.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from shard_runtime.clock import Clock
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.nodes import NodeDescription
from shard_runtime.metrics import MetricsEndpoint
from shard_runtime.rpc.server import ListenError, RpcOptions, RpcServer
from shard_runtime.settings import (
    ADVERTISED_HOST,
    ADVERTISED_PORT,
    ALLOW_PLAINTEXT,
    CALLS_MAX,
    DRAIN_GRACE_MS,
    LISTEN_HOST,
    LISTEN_PORT,
    MESSAGE_MAX_BYTES,
    METRICS_HOST,
    METRICS_PORT,
    NODE_RACK,
    NODE_ROLES,
    Settings,
)
from share_node.data_directory import NodeIdentity
from share_node.process_store import StoreClient
from share_node.roles import Roles

log = structlog.get_logger(__name__)

READY_POLL_S: Final = 0.02
#: Streams stay open as long as their clients like; the last answers are out well before this.
STREAMS_WAIT_S: Final = 1.0


class NodeProcess:
    """A process of the cluster. `ended` is set, with the reason, when it cannot go on."""

    def __init__(self, settings: Settings, identity: NodeIdentity, store: StoreClient, clock: Clock) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.registry: Final = CollectorRegistry()
        self.server: Final = RpcServer(
            settings[LISTEN_HOST],
            settings[LISTEN_PORT],
            RpcOptions(
                message_max_bytes=settings[MESSAGE_MAX_BYTES],
                concurrent_calls_max=settings[CALLS_MAX],
                allow_plaintext=settings[ALLOW_PLAINTEXT],
            ),
        )
        self._settings = settings
        self._identity = identity
        self._store = store
        self._clock = clock
        self._node: ClusterNode | None = None
        self._roles: Roles | None = None
        self._metrics: MetricsEndpoint | None = None
        self._ready: asyncio.Task[None] | None = None

    @property
    def node(self) -> ClusterNode:
        """This process in the cluster; only once started."""
        assert self._node is not None, "start first"
        return self._node

    async def start(self) -> str:
        """Take the port, join, take shards, accept calls; the advertised address. Raises ListenError, LogError.

        Calls may come before every shard is served; `wait_ready` tells when that is so.
        """
        settings = self._settings
        port = self.server.listen()
        address = f"{settings[ADVERTISED_HOST] or settings[LISTEN_HOST]}:{settings[ADVERTISED_PORT] or port}"
        node = ClusterNode(
            self._store.record_log,
            self._store.cluster,
            self._clock,
            settings,
            me=self._description(address),
            cluster_id=self._store.cluster_id,
            taken=self._end,
        )
        await node.join()
        self._node = node
        self._roles = Roles(node, settings, self._store, self._clock, self.registry)
        self._roles.serve(self.server)
        node.metadata.subscribe(self._roles.metadata_changed)
        node.start()
        self._roles.start()
        await self.server.start()
        self._ready = asyncio.get_running_loop().create_task(self._become_ready(node))
        if settings[METRICS_PORT] >= 0:
            self._metrics = self._open_metrics(settings[METRICS_HOST], settings[METRICS_PORT])
        log.info("listening", address=address, node=self._identity.name, roles=settings.text(NODE_ROLES.name))
        return address

    async def wait_ready(self) -> None:
        """Until every shard that targets this node is served."""
        assert self._ready is not None, "start first"
        await asyncio.shield(self._ready)

    async def stop(self) -> None:
        """Leave in good order (CM-4). Safe to call after a failed start.

        Shards are released before the server stops: clients hold long-lived streams, and waiting for these to end would
        keep the successors waiting. From the release on every call is answered NOT_COORDINATOR or
        NOT_LEADER_OR_FOLLOWER, which sends the clients to them.
        """
        if self._ready is not None:
            self._ready.cancel()
        if self._node is not None and self._roles is not None:
            await self._node.leave()
            await self.server.ready(False)
            self._roles.drain()
            await self._node.stop()
        await self.server.drain(min(STREAMS_WAIT_S, self._settings[DRAIN_GRACE_MS] / 1000))
        if self._roles is not None:
            await self._roles.stop()
        await self._store.close()
        if self._metrics is not None:
            self._metrics.close()
        self._identity.release()

    def _open_metrics(self, host: str, port: int) -> MetricsEndpoint:
        try:
            return MetricsEndpoint(self.registry, host, port)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port} for metrics: {error.strerror}. "
                f"Choose another {METRICS_PORT.name}, 0 for any free one, or -1 for none."
            ) from error

    def _description(self, address: str) -> NodeDescription:
        roles: tuple[str, ...] = self._settings[NODE_ROLES]
        return NodeDescription(
            name=self._identity.name,
            incarnation=self._identity.incarnation,
            address=address,
            roles=frozenset(roles),
            rack=self._settings[NODE_RACK],
            dead=self._identity.dead,
        )

    async def _become_ready(self, node: ClusterNode) -> None:
        """Readiness follows the shards: on once all that target this node are served."""
        while node.ownership is None or not node.ownership.settled():  # noqa: ASYNC110 - no one event tells it
            await asyncio.sleep(READY_POLL_S)
        await self.server.ready(True)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
