"""One process's gRPC server: services, health, reflection, limits, and a drain that ends in bounded time (CM-4).

Plaintext listens on loopback only, unless a flag says otherwise (CM-60).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # it ships no types

from shard_runtime.rpc.adapter import generic_handler
from shard_runtime.rpc.binding import bind

log = structlog.get_logger(__name__)

STARTUP: Final = "startup"
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"


class ListenError(Exception):
    """The server cannot listen where it was told to."""


@dataclass(frozen=True, slots=True)
class RpcOptions:
    """Limits of the server (CM-62); keepalive is equal on both sides (`kip932.rpc.grpc_transport`)."""

    message_max_bytes: int = 64 * 1024 * 1024
    concurrent_calls_max: int = 20_000
    keepalive_ms: int = 20_000
    keepalive_timeout_ms: int = 10_000
    connection_age_ms: int = 30 * 60 * 1000
    allow_plaintext: bool = False

    def channel_arguments(self) -> list[tuple[str, int]]:
        """gRPC's options. A connection past its age takes no new calls; its open streams go on."""
        return [
            ("grpc.so_reuseport", 0),  # else a second server on the same port would start and take half the calls
            ("grpc.max_receive_message_length", self.message_max_bytes),
            ("grpc.max_send_message_length", self.message_max_bytes),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", self.keepalive_ms // 2),
            ("grpc.max_connection_age_ms", self.connection_age_ms),
        ]


class RpcServer:
    """A gRPC server for services that are plain objects (`rpc.binding`)."""

    def __init__(
        self,
        host: str,
        port: int = 0,
        options: RpcOptions | None = None,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._options = options or RpcOptions()
        self._credentials = credentials
        self._names: list[str] = []
        self._listening = False
        self._on_drain: list[Callable[[], None]] = []
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(
            options=self._options.channel_arguments(), maximum_concurrent_rpcs=self._options.concurrent_calls_max
        )

    @property
    def address(self) -> str:
        """`host:port` it listens on, once started."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def add(self, descriptor: ServiceDescriptor, service: object) -> None:
        """Serve the RPCs of `descriptor` that `service` has methods for; before `start`."""
        self._server.add_generic_rpc_handlers((generic_handler(descriptor.full_name, bind(descriptor, service)),))
        self._names.append(descriptor.full_name)

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the server stops accepting: services finish or fail their parked requests then."""
        self._on_drain.append(callback)

    async def start(self) -> int:
        """Listen; the port in force. Raises ListenError. Readiness stays off until `ready(True)`."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for name in (STARTUP, READINESS):
            await self._set(name, False)
        await self._set(LIVENESS, True)
        reflection.enable_server_reflection([*self._names, reflection.SERVICE_NAME, health.SERVICE_NAME], self._server)
        self.listen()
        await self._server.start()
        return self.port

    def listen(self) -> int:
        """Take the port, without accepting calls yet: a process must know its address before it joins a cluster.

        Safe to repeat. Raises ListenError.
        """
        if not self._listening:
            self.port = self._listen()
            self._listening = True
        return self.port

    async def ready(self, serving: bool) -> None:
        """Turn readiness on or off; the first time it is on, startup is done too."""
        await self._set(READINESS, serving)
        if serving:
            await self._set(STARTUP, True)

    async def drain(self, grace_s: float) -> None:
        """Readiness off, accept no more calls, tell the services, then wait for open calls for `grace_s` at most."""
        await self._health.enter_graceful_shutdown()
        for callback in self._on_drain:
            callback()
        await self._server.stop(grace_s)

    def _listen(self) -> int:
        if self._credentials is None:
            refuse_plaintext(self.host, self._options.allow_plaintext)
        if self._credentials is None and not is_loopback(self.host):
            log.warning("listening without TLS on a reachable address", host=self.host)
        try:
            if self._credentials is None:
                return self._server.add_insecure_port(self.address)
            return self._server.add_secure_port(self.address, self._credentials)
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {self.address}: another process may have the port, or the address is not this "
                "machine's. Choose another port, or 0 for any free one."
            ) from error

    async def _set(self, name: str, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self._health.set(name, status.SERVING if serving else status.NOT_SERVING)


def refuse_plaintext(host: str, allowed: bool) -> None:
    """Raise ListenError when listening on `host` without TLS needs a permission that was not given (CM-60)."""
    if not allowed and not is_loopback(host):
        raise ListenError(
            f"listening on {host} without TLS would let anyone on the network read and write records. "
            "Give a certificate, listen on 127.0.0.1, or allow it with the setting allow.plaintext=true."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
