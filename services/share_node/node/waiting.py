"""Lets a role wait for what it needs: it is alive, not ready, and logs what it waits for (CM-130).

Meanwhile its port answers the health services, so that its supervisor sees a living process and does not restart it.
Any other call is answered UNAVAILABLE, which sends the caller to another node. A port of 0 is not opened, since no
caller knows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from shard_runtime.config.process_settings import LEASE_MS, LISTEN_HOST, LISTEN_PORT, Settings
from shard_runtime.record_log.protocol import NameTakenError
from shard_runtime.rpc.grpc_server import GuardedServer, Handler, UnknownGrpcError
from shard_runtime.rpc.server import LIVENESS, READINESS, STARTUP, ListenError, RpcOptions
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
    """The port of a process that waits: liveness SERVING, readiness and startup NOT_SERVING."""

    def __init__(self, settings: Settings) -> None:
        host = settings[LISTEN_HOST]
        self._address = f"[{host}]:{settings[LISTEN_PORT]}" if ":" in host else f"{host}:{settings[LISTEN_PORT]}"
        self._known = settings[LISTEN_PORT] != 0
        self._server: GuardedServer | None = None

    async def open(self) -> None:
        """Open the port; safe to repeat. Raises ListenError."""
        if self._server is not None or not self._known:
            return
        options = RpcOptions()
        not_yet: Handler = grpc.stream_stream_rpc_method_handler(_refuse)
        try:
            server = GuardedServer(options.channel_arguments(), options.concurrent_calls_max, otherwise=not_yet)
        except UnknownGrpcError as error:
            raise ListenError(str(error)) from error
        servicer = health.aio.HealthServicer()
        status = health_pb2.HealthCheckResponse
        for name in ("", LIVENESS, READINESS, STARTUP):
            await servicer.set(name, status.SERVING if name == LIVENESS else status.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        try:
            server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {self._address}: another process may have the port, or the address is not this "
                "machine's. Choose another port, or 0 for any free one."
            ) from error
        await server.start()
        self._server = server

    async def close(self) -> None:
        """Close the port, so that the process's own server can bind it; safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_CLOSE_S)


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
