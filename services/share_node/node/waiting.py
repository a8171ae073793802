"""Lets a role wait for what it needs: it is alive, not ready, and logs what it waits for (CM-130).

Meanwhile its ports for clients and for health answer the health services, so that its supervisor sees a living process
and does not restart it. Any other call is answered UNAVAILABLE, which sends the caller to another node. A port of 0 is
not opened, since no caller knows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from shard_runtime.config.process_settings import (
    HEALTH_LISTEN_PORT,
    LEASE_MS,
    LISTEN_HOST,
    LISTEN_PORT,
    SSL_CLIENT_AUTH,
    Settings,
)
from shard_runtime.record_log.protocol import NameTakenError
from shard_runtime.rpc.grpc_server import GuardedServer, Handler, UnknownGrpcError
from shard_runtime.rpc.server import LIVENESS, READINESS, STARTUP, HealthServer, ListenError, RpcOptions, not_listening
from share_node.node.internal import node_certificates
from share_node.node.process_store import awaited

log = structlog.get_logger(__name__)

T = TypeVar("T")

#: An attempt that takes longer than this, s, is treated as a wait: the port is opened, since probes start with the
#: container.
AT_ONCE_S: Final = 1.0
#: The pause between two attempts, s: it doubles from the first value to the second. Attempts also wait themselves
#: (`check_store`).
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 5.0
#: The same cause is logged again after this time, s: a wait may last hours.
LOG_AGAIN_S: Final = 600.0
#: How long open calls may take when the port closes, s: there is nothing to finish for them.
_CLOSE_S: Final = 0.0


async def _refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    await context.abort(
        grpc.StatusCode.UNAVAILABLE, "this node waits for its store, or for a cluster in it; its log says more"
    )


class WaitingPort:
    """The ports of a process that waits: liveness SERVING, readiness and startup NOT_SERVING."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open = contextlib.AsyncExitStack()
        self._is_open = False

    async def open(self) -> None:
        """Open the ports; safe to repeat. Raises ListenError, also for certificates that cannot be used."""
        if self._is_open:
            return
        servicer = health.aio.HealthServicer()
        status = health_pb2.HealthCheckResponse
        for name in ("", LIVENESS, READINESS, STARTUP):
            await servicer.set(name, status.SERVING if name == LIVENESS else status.NOT_SERVING)
        async with contextlib.AsyncExitStack() as opening:
            await self._open_for_clients(servicer, opening)
            port = self._settings[HEALTH_LISTEN_PORT]
            if port > 0:
                server = HealthServer(self._settings[LISTEN_HOST], port, servicer)
                await server.start()
                opening.push_async_callback(server.stop)
            self._open = opening.pop_all()
        self._is_open = True

    async def close(self) -> None:
        """Close the ports, so that the process's own servers can bind them; safe to repeat."""
        self._is_open = False
        await self._open.aclose()

    async def _open_for_clients(self, servicer: object, opening: contextlib.AsyncExitStack) -> None:
        host, port = self._settings[LISTEN_HOST], self._settings[LISTEN_PORT]
        if port == 0:
            return
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        certificates = node_certificates(self._settings)
        options = RpcOptions()
        not_yet: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
        try:
            server = GuardedServer(options.channel_arguments(), options.concurrent_calls_max, otherwise=not_yet)
        except UnknownGrpcError as error:
            raise ListenError(str(error)) from error
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        try:
            if certificates is None:
                server.add_insecure_port(address)
            else:
                required = self._settings[SSL_CLIENT_AUTH] == "required"
                server.add_secure_port(address, certificates.for_server(client_required=required))
        except RuntimeError as error:
            raise not_listening(address, certificates) from error
        if certificates is not None:
            renewals = asyncio.get_running_loop().create_task(certificates.watch())
            opening.callback(renewals.cancel)
        await server.start()
        opening.push_async_callback(server.stop, _CLOSE_S)


class Waiting:
    """Repeats attempts while a missing thing may still become available; one object for one start of a process."""

    def __init__(self, settings: Settings, stop: asyncio.Event, now: Callable[[], float] = time.monotonic) -> None:
        self.port: Final = WaitingPort(settings)
        self._stop = stop
        self._now = now
        self._lease_s = settings[LEASE_MS] / 1000
        self._name_taken_since: float | None = None
        self._began = now()
        self._said: dict[str, float] = {}
        self._pause_s = PAUSE_S

    async def attempt(self, work: Awaitable[T]) -> T | None:
        """Return the result of `work`; None when the process must stop first: then `work` is cancelled and has ended.

        Raises what `work` raises, and ListenError when the port cannot be opened.
        """
        doing = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([doing, stopped], timeout=AT_ONCE_S, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done() and not stopped.done():
                await self.port.open()
                await asyncio.wait([doing, stopped], return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            for task in (doing, stopped):
                task.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)

    async def after(self, error: Exception) -> None:
        """Log what is missing, then pause before the next attempt, or until the process must stop. Raises `error` when
        waiting does not help, ListenError when the port cannot be opened."""
        cause, now = awaited(error), self._now()
        if not cause or (isinstance(error, NameTakenError) and self._is_living(now)):
            raise error
        await self.port.open()
        if now - self._said.get(cause, -LOG_AGAIN_S) >= LOG_AGAIN_S:
            self._said[cause] = now
            log.warning(
                "dependency_missing",
                waits_for=cause,
                cause=str(error),
                waited_s=int(now - self._began),
                effect="this process waits, alive and not ready",
            )
        try:
            await asyncio.wait_for(self._stop.wait(), self._pause_s)
        except TimeoutError:
            self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def _is_living(self, now: float) -> bool:
        """Return whether the name's holder renews its entry: a dead process's entry would have lapsed after one
        lease."""
        if self._name_taken_since is None:
            self._name_taken_since = now
        return now - self._name_taken_since > 2 * self._lease_s

    def over(self) -> None:
        """Log that the process continues, if a wait was logged."""
        if self._said:
            log.info("dependency_available", waited_s=int(self._now() - self._began), effect="this process goes on")
            self._said.clear()
