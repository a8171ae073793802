"""One process of the cluster: its roles, on one store, with one RPC server for clients and one for nodes.

Start: check the store, bind the ports, join the cluster, claim shards, accept calls, become ready. Stop (CM-4): become
`leaving`, turn readiness off, answer waiting requests, flush, release the shards, leave the node list.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import CollectorRegistry

from kip932.http_endpoint import HttpEndpoint
from kip932.metrics_page import metrics_pages
from kip932.principal_rules import parse_rules
from kip932.rpc.loopback import is_loopback
from kip932.store_settings import STORE_PASSWORD, STORE_SENTINEL_PASSWORD, STORE_SENTINEL_SSL_KEY, STORE_SSL_KEY
from shard_runtime.clock import Clock
from shard_runtime.cluster.external_names import ExternalNames
from shard_runtime.cluster.metadata import MetadataImage
from shard_runtime.cluster.node import ClusterNode
from shard_runtime.cluster.nodes import NodeDescription
from shard_runtime.config.kafka_configs import ACCESS_CONTROL, SUPER_USERS
from shard_runtime.config.process_settings import (
    ALLOW_PLAINTEXT,
    CALLS_MAX,
    CONNECTION_AGE_MS,
    CONNECTIONS_MAX,
    DRAIN_GRACE_MS,
    EXTERNAL_LISTEN_PORT,
    HEALTH_LISTEN_PORT,
    INTERNAL_LISTEN_PORT,
    KAFKA_EXTERNAL_LISTEN_PORT,
    KAFKA_LISTEN_PORT,
    LEASE_MS,
    LISTEN_HOST,
    LISTEN_PORT,
    MEMORY_BYTES,
    MESSAGE_MAX_BYTES,
    METRICS_HOST,
    METRICS_PORT,
    NODE_RACK,
    NODE_ROLES,
    PRINCIPAL_RULES,
    REQUEST_MAX_BYTES,
    SSL_CLIENT_AUTH,
    SSL_KEY,
    Settings,
)
from shard_runtime.metrics.loop_time import LoopTime
from shard_runtime.metrics.process import ProcessMetrics
from shard_runtime.metrics.runtime import (
    AccessMetrics,
    AuthenticationMetrics,
    CallMemory,
    CertificateMetrics,
    QuotaMetrics,
)
from shard_runtime.record_log.cluster_store import NodeRecord
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.budget import Budget, default_bytes
from shard_runtime.rpc.passwords import Passwords
from shard_runtime.rpc.quotas import ClientQuotas
from shard_runtime.rpc.server import HealthServer, ListenError, RpcOptions, RpcServer
from shard_runtime.topic_names import TOPIC_NAMES
from shard_runtime.tracing import tracing
from share_node.node.internal import (
    client_address,
    external_address,
    internal_address,
    internal_host,
    kafka_address,
    kafka_external_address,
    node_access,
    node_authentication,
    node_certificates,
    warn_of_plain_credentials,
    warn_of_readable_secrets,
)
from share_node.node.process_store import StoreClient
from share_node.node.roles import Roles
from share_node.node.views import KafkaCluster
from share_node.store.data_directory import NodeIdentity

if TYPE_CHECKING:
    from kafka_listener.listener import KafkaListener

log = structlog.get_logger(__name__)

READY_POLL_S: Final = 0.02
#: How long streams get for their last answers, s, and at most drain.grace.ms: clients would keep them open.
STREAMS_WAIT_S: Final = 1.0
#: How often within a lease the store's settings and clock are checked (CM-170, CM-171).
_CHECKS_PER_LEASE: Final = 3


#: The largest number that gRPC takes as a limit.
_UNLIMITED: Final = 2**31 - 1
#: The soft limit on open files that a node sets at most.
FILES_MAX: Final = 65_536


def _rpc_options(settings: Settings) -> RpcOptions:
    return RpcOptions(
        message_max_bytes=settings[MESSAGE_MAX_BYTES],
        request_max_bytes=settings[REQUEST_MAX_BYTES],
        concurrent_calls_max=settings[CALLS_MAX],
        connection_age_ms=settings[CONNECTION_AGE_MS],
        allow_plaintext=settings[ALLOW_PLAINTEXT],
        connections_max=connections_max(settings),
    )


def connections_max(settings: Settings) -> int:
    """Return how many connections each of this process's ports for clients may have (CM-203, KL-8)."""
    given = settings[CONNECTIONS_MAX] or default_connections_max()
    others = (KAFKA_LISTEN_PORT, EXTERNAL_LISTEN_PORT, KAFKA_EXTERNAL_LISTEN_PORT)
    return max(1, given // (1 + sum(settings[port] >= 0 for port in others)))


def default_connections_max() -> int:
    """Return three quarters of the files that this process may have open: the store, other nodes and the logs need
    some, whatever clients do (CM-203)."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if files == resource.RLIM_INFINITY else max(1, files * 3 // 4)


def raise_file_limit() -> None:
    """Let this process have as many files open as its hard limit allows, 65,536 at most (CM-203): the usual soft limit,
    1,024, is meant for programs that use select(), and would leave clients 768 connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class NodeProcess:
    """A process of the cluster. `ended` is set, with the reason, when it can no longer run."""

    def __init__(self, settings: Settings, identity: NodeIdentity, store: StoreClient, clock: Clock) -> None:
        tracing.refresh()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.registry: Final = CollectorRegistry()
        options = _rpc_options(settings)
        warn_of_readable_secrets(
            settings, SSL_KEY, STORE_SSL_KEY, STORE_PASSWORD, STORE_SENTINEL_SSL_KEY, STORE_SENTINEL_PASSWORD
        )
        self.certificates: Final = node_certificates(settings)
        self.authentication: Final = node_authentication(settings)
        self.access: Final = node_access(settings, self.certificates, self.authentication)
        self.quotas: Final = ClientQuotas(clock.now_ms)
        #: Checks users' passwords (CM-190).
        self.passwords: Final = Passwords()
        self.authentication.take_passwords(self.passwords.check, lambda: self.passwords.version)
        self.passwords.subscribe(self.authentication.changed)
        for_nodes = Authentication(rules=parse_rules(settings[PRINCIPAL_RULES]), for_nodes=True)
        self.server: Final = self._server_for_clients(settings, options, settings[LISTEN_PORT])
        #: For clients from elsewhere, within the bounds of `server`; None without it.
        self.external: Final = self._external_server(settings, options)
        host, port = internal_host(settings), settings[INTERNAL_LISTEN_PORT]
        #: For other nodes only (CM-80), with a byte budget of its own, so that clients cannot use up what nodes need.
        self.internal: Final = RpcServer(
            host,
            port,
            replace(options, connections_max=0),
            self.certificates,
            failed=self._end,
            budget=Budget(settings[MEMORY_BYTES] or default_bytes()),
            access=self.access,
            peers_only=True,
            authentication=for_nodes,
        )
        #: For Kafka's clients; None without it.
        self.kafka: Final = self._kafka_listener(settings, settings[KAFKA_LISTEN_PORT])
        self.kafka_external: Final = self._kafka_listener(settings, settings[KAFKA_EXTERNAL_LISTEN_PORT], external=True)
        self._count_kafka()
        #: The `host:port` at which Kafka's clients reach it, from its start on; empty without a Kafka listener.
        self.kafka_address = ""
        self.external_address = ""
        self.kafka_external_address = ""
        self._health: HealthServer | None = None
        self._renewals: list[asyncio.Task[None]] = []
        self._settings = settings
        self._identity = identity
        self._store = store
        watch = store.watch
        self._clock = clock if watch is None else watch.time
        self._node: ClusterNode | None = None
        self._roles: Roles | None = None
        self._metrics: HttpEndpoint | None = None
        #: The `host:port` at which it serves its metrics, from its start on; empty if it serves none.
        self.metrics_address = ""
        self._ready: asyncio.Task[None] | None = None
        self._register_metrics((self.authentication, for_nodes))

    @property
    def node(self) -> ClusterNode:
        """This process in the cluster; only after `start`."""
        assert self._node is not None, "start first"
        return self._node

    async def start(self) -> str:
        """Bind the ports, join, claim shards, accept calls. Returns the advertised address. Raises ListenError,
        LogError.

        Calls may come before every shard is served; `wait_ready` waits for that.
        """
        settings = self._settings
        address = client_address(settings, self.server.listen())
        self.internal_address = internal_address(settings, self.internal.listen())
        self._listen_for_others(settings)
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
        TOPIC_NAMES.follow(self._topic_name)
        node.metadata.subscribe(lambda image, _: self._follow(image))
        self._follow(node.metadata.image)
        self._warn_of_entries(len(node.metadata.image.acls))
        self._roles = Roles(node, settings, self._store, self._clock, self.registry, certificates=self.certificates)
        self._roles.serve(self._servers, self.internal)
        node.metadata.subscribe(self._roles.metadata_changed)
        if self.access is not None:
            self.access.subscribe(self._roles.rights_changed)
        node.start()
        if self._store.watch is not None:
            self._store.watch.start(settings[LEASE_MS] // _CHECKS_PER_LEASE)
        self._roles.start()
        for server in (*self._servers, self.internal):
            await server.start()
        for listener in self._listeners:
            listener.start()
        if settings[HEALTH_LISTEN_PORT] >= 0:
            self._health = HealthServer(settings[LISTEN_HOST], settings[HEALTH_LISTEN_PORT], self.server.health)
            await self._health.start()
        takes = self.authentication.takes_tokens or bool(node.metadata.image.credentials)
        warn_of_plain_credentials(settings, takes=takes and self.certificates is None)
        self._renewals = [asyncio.get_running_loop().create_task(self.authentication.watch())]
        if self.certificates is not None:
            self._renewals.append(asyncio.get_running_loop().create_task(self.certificates.watch()))
        self._ready = asyncio.get_running_loop().create_task(self._become_ready(node))
        if settings[METRICS_PORT] >= 0:
            self._metrics = await self._open_metrics(settings[METRICS_HOST], settings[METRICS_PORT])
        log.info(
            "node_listening",
            address=address,
            internal=self.internal_address,
            node=self._identity.name,
            roles=settings.text(NODE_ROLES.name),
            **({"kafka": self.kafka_address} if self.kafka_address else {}),
            **({"external": self.external_address} if self.external_address else {}),
            **({"kafka_external": self.kafka_external_address} if self.kafka_external_address else {}),
        )
        return address

    @property
    def _servers(self) -> list[RpcServer]:
        """The servers for clients."""
        return [self.server] if self.external is None else [self.server, self.external]

    @property
    def _listeners(self) -> list[KafkaListener]:
        """The listeners for Kafka's clients."""
        return [each for each in (self.kafka, self.kafka_external) if each is not None]

    def _listen_for_others(self, settings: Settings) -> None:
        """Bind the ports for Kafka's clients and for those from elsewhere, where there are any."""
        if self.kafka is not None:
            self.kafka_address = kafka_address(settings, self.kafka.listen())
        if self.external is not None:
            self.external_address = external_address(settings, self.external.listen())
        if self.kafka_external is not None:
            self.kafka_external_address = kafka_external_address(settings, self.kafka_external.listen())

    async def wait_ready(self) -> None:
        """Wait until every shard that targets this node is served."""
        assert self._ready is not None, "start first"
        await asyncio.shield(self._ready)

    async def stop(self) -> None:
        """Leave in good order (CM-4). Safe to call after a failed start.

        Shards are released before the server stops: if they were released only after the clients' long-lived streams
        end, the new owners would wait for that long. After the release every call is answered NOT_COORDINATOR or
        NOT_LEADER_OR_FOLLOWER, which sends the clients to the new owners.
        """
        if self._ready is not None:
            self._ready.cancel()
        if self._node is not None and self._roles is not None:
            await self._node.leave()
            await self._set_ready(False)
            self.quotas.waiting.end()
            self._roles.drain()
            await self._node.stop()
        grace_s = self._settings[DRAIN_GRACE_MS] / 1000
        kafka = [each.drain(min(grace_s, STREAMS_WAIT_S)) for each in self._listeners]
        servers = (*self._servers, self.internal)
        await asyncio.gather(*(each.drain(grace_s, STREAMS_WAIT_S) for each in servers), *kafka)
        if self._roles is not None:
            await self._roles.stop()
        await self._store.close()
        self.passwords.close()
        for each in self._renewals:
            each.cancel()
        if self._health is not None:
            await self._health.stop()
        if self._metrics is not None:
            await self._metrics.close()
        self._identity.release()
        TOPIC_NAMES.forget(self._topic_name)

    def _server_for_clients(
        self,
        settings: Settings,
        options: RpcOptions,
        port: int,
        *,
        renamed: ExternalNames | None = None,
        beside: RpcServer | None = None,
    ) -> RpcServer:
        return RpcServer(
            settings[LISTEN_HOST],
            port,
            options,
            self.certificates,
            client_required=settings[SSL_CLIENT_AUTH] == "required",
            failed=self._end,
            budget=Budget(settings[MEMORY_BYTES] or default_bytes()),
            access=self.access,
            quotas=self.quotas,
            authentication=self.authentication,
            renamed=renamed,
            beside=beside,
        )

    def _external_server(self, settings: Settings, options: RpcOptions) -> RpcServer | None:
        """Return the server for clients from elsewhere (CM-237), which shares the bounds of `server` (CM-246)."""
        port = settings[EXTERNAL_LISTEN_PORT]
        if port < 0:
            return None
        names = ExternalNames(self._node_of)
        return self._server_for_clients(settings, options, port, renamed=names, beside=self.server)

    def _node_of(self, node_id: int) -> NodeRecord | None:
        """Return a node's entry in the list; this one's also before it has read the list."""
        registry = self.node.registry
        return registry.record if node_id == registry.record.node_id else registry.node(node_id)

    def _kafka_listener(self, settings: Settings, port: int, *, external: bool = False) -> KafkaListener | None:
        if port < 0:
            return None
        from share_node.node.kafka_port import listener_of  # noqa: PLC0415 - a tenth of a second, where it is wanted

        return listener_of(
            settings,
            self.server,
            KafkaCluster(lambda: self.node, external=external),
            self.passwords,
            self.certificates,
            port=port,
            connections_max=connections_max(settings),
        )

    def _count_kafka(self) -> None:
        if self._listeners:
            from share_node.node.kafka_port import count_listeners  # noqa: PLC0415 - as above

            count_listeners(self.registry, self._listeners)

    def _topic_name(self, topic_id: bytes) -> str:
        return self.node.metadata.image.name_of(topic_id)

    def _follow(self, image: MetadataImage) -> None:
        """Judge callers by the users, quotas and access control entries of the cluster, as they are in this image."""
        self.passwords.follow(image.credentials)
        self.quotas.follow(image.quotas)
        if self.access is not None:
            self.access.follow(image.acls)

    def _warn_of_entries(self, entries: int) -> None:
        """Log that so many access control entries have no effect here, or that no one can change them."""
        if self.access is None and entries:
            log.warning(
                "access_control_off",
                entries=entries,
                effect="the entries have no effect at this node, where every caller may do everything",
                try_next=f"set {ACCESS_CONTROL.name}=true, or remove the entries: sharegroups acls remove",
            )
        if self.access is not None and not self.access.has_administrator:
            log.warning(
                "access_control_without_administrator",
                cause=f"{SUPER_USERS.name} is empty, and no entry allows ALTER on the cluster",
                effect="every client is refused, and none can add entries",
                try_next=f"set {SUPER_USERS.name}=User:NAME, with the common name of an administrator's certificate",
            )

    def _register_metrics(self, authentications: Sequence[Authentication]) -> None:
        """Register the metrics of the process itself; roles register theirs."""
        self.registry.register(CallMemory(self.server))
        self.registry.register(QuotaMetrics(self.quotas))
        self.registry.register(AuthenticationMetrics(authentications))
        if self.certificates is not None:
            self.registry.register(CertificateMetrics(self.certificates))
        if self.access is not None:
            self.registry.register(AccessMetrics(self.access))
        self.registry.register(LoopTime())
        self.registry.register(ProcessMetrics())

    async def _open_metrics(self, host: str, port: int) -> HttpEndpoint:
        endpoint = HttpEndpoint(metrics_pages(self.registry))
        try:
            taken = await endpoint.open(host, port)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{port} for metrics: {error.strerror}. "
                f"Choose another {METRICS_PORT.name}, 0 for any free one, or -1 for none."
            ) from error
        self.metrics_address = f"{host}:{taken}"
        if not is_loopback(host):
            log.warning(
                "plaintext_metrics_served",
                host=host,
                port=taken,
                effect="anyone who reaches this address can read the metrics",
            )
        log.info("metrics_served", address=f"http://{self.metrics_address}/metrics")
        return endpoint

    def _description(self, address: str) -> NodeDescription:
        roles: tuple[str, ...] = self._settings[NODE_ROLES]
        return NodeDescription(
            name=self._identity.name,
            incarnation=self._identity.incarnation,
            address=address,
            roles=frozenset(roles),
            rack=self._settings[NODE_RACK],
            dead=self._identity.dead,
            internal_address=self.internal_address,
            access_control=self.access is not None,
            kafka_address=self.kafka_address,
            external_address=self.external_address,
            kafka_external_address=self.kafka_external_address,
        )

    async def _become_ready(self, node: ClusterNode) -> None:
        """Turn readiness on when all shards that target this node are served, except those that cannot be (CM-86)."""
        while node.ownership is None or not node.ownership.settled(except_faulty=True):  # noqa: ASYNC110 - no single event says so
            await asyncio.sleep(READY_POLL_S)
        await self._set_ready(True)

    async def _set_ready(self, serving: bool) -> None:
        for server in (*self._servers, self.internal):
            await server.ready(serving)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
