"""A node's Kafka listener, from its settings. Imported only where one is wanted: the requests that it serves take a
tenth of a second to import."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from kafka_listener.limits import Limits
from kafka_listener.listener import KafkaListener, ListenerOptions
from kafka_listener.metrics import KafkaListenerMetrics
from shard_runtime.config.process_settings import (
    ALLOW_PLAINTEXT,
    CONNECTION_AGE_MS,
    LISTEN_HOST,
    MESSAGE_MAX_BYTES,
    REQUEST_MAX_BYTES,
    SSL_CLIENT_AUTH,
    Settings,
)
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.passwords import Passwords
from shard_runtime.rpc.server import RpcServer
from share_node.node.views import KafkaCluster


def listener_of(
    settings: Settings,
    server: RpcServer,
    cluster: KafkaCluster,
    passwords: Passwords,
    certificates: NodeCertificates | None,
    *,
    port: int,
    connections_max: int,
) -> KafkaListener:
    """Return a listener at this port. It calls the handlers that `server` is given before its start."""
    options = ListenerOptions(
        settings[LISTEN_HOST],
        port,
        connections_max,
        client_required=settings[SSL_CLIENT_AUTH] == "required",
        allow_plaintext=settings[ALLOW_PLAINTEXT],
        limits=Limits(
            records_bytes=min(settings[REQUEST_MAX_BYTES], settings[MESSAGE_MAX_BYTES]),
            age_s=settings[CONNECTION_AGE_MS] / 1000,
        ),
    )
    return KafkaListener(options, server, cluster, passwords, certificates, share_version=cluster.share_version)


def count_listeners(registry: CollectorRegistry, listeners: Sequence[KafkaListener]) -> None:
    """Register the metrics of a node's listeners."""
    registry.register(KafkaListenerMetrics(listeners))
