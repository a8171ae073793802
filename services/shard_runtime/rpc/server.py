"""One process's gRPC server: services, health, reflection, limits, and a drain that ends in bounded time (CM-4).

Without TLS it listens on loopback only, unless a flag allows more (CM-60). The process checks from inside whether the
server still accepts new clients (CM-85). `HealthServer` serves health alone, for probes that cannot use TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types
from grpc_reflection.v1alpha import reflection  # type: ignore[import-untyped]  # it ships no types

from kip932.rpc.loopback import is_loopback
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.adapter import method_handlers
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.binding import BoundMethod, bind, check_whole
from shard_runtime.rpc.budget import Budget, Holder, default_bytes
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.connection_ages import ConnectionAges, grace_ms, grpc_age_ms
from shard_runtime.rpc.gate import Gate, OpenCalls
from shard_runtime.rpc.grpc_server import GuardedServer, UnknownGrpcError
from shard_runtime.rpc.quotas import ClientQuotas
from shard_runtime.rpc.table import Port
from shard_runtime.rpc.unfinished import Unfinished

log = structlog.get_logger(__name__)

STARTUP: Final = "startup"
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
#: gRPC's bit set of permitted compression algorithms: identity alone, so only uncompressed messages.
_IDENTITY_ONLY: Final = 1
_TERMINATION_S: Final = 60.0

#: The process calls its own server every ACCEPT_CHECK_S. A call has ACCEPT_TURNS turns of the event loop, each at least
#: ACCEPT_TURN_S long; after ACCEPT_MISSES_MAX misses in a row the server counts as one that accepts no calls.
ACCEPT_CHECK_S: Final = 2.0
ACCEPT_TURN_S: Final = 0.1
ACCEPT_TURNS: Final = 100
ACCEPT_MISSES_MAX: Final = 3
#: File descriptors that a call to this server may need: both ends of its connection, and gRPC's own.
CALL_DESCRIPTORS: Final = 8
_HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"
_UNANSWERED: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
#: What gRPC says about a connection that was accepted and then refused, by this end or the other, for its certificate.
_CLOSED: Final = "Socket closed"
_REFUSED: Final = (_CLOSED, "handshake failed", "verification check failed", "security handshaker")
#: Use a new connection for each call, and no proxy.
_NEW_CONNECTION: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))

#: Probes send some bytes in few calls.
_HEALTH_LIMITS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4_096),
    ("grpc.max_concurrent_streams", 10),
)
_HEALTH_CALLS_MAX: Final = 1_000

#: How connections of a server that shares another one's budget are named: a client may use one port of its own for
#: connections to both.
BESIDE: Final = "external:"

#: Calls the server once; returns whether it answered.
Probe = Callable[[], Awaitable[bool]]


class ListenError(Exception):
    """The server cannot listen at its address; the message says why."""


@dataclass(frozen=True, slots=True)
class RpcOptions:
    """Limits of the server (CM-62); keepalive is equal on both sides (`kip932.rpc.grpc_transport`).

    `message_max_bytes`: the most bytes of an answer. `request_max_bytes`: the most bytes of a request, unless
    `message_max_bytes` is less. `handshake_ms`: how long a new connection has for TLS and for HTTP/2's first frames.
    `connections_max`: further ones are closed at once; 0 for no limit.
    """

    message_max_bytes: int = 64 * 1024 * 1024
    request_max_bytes: int = 8 * 1024 * 1024
    connection_calls_max: int = 1_000
    unread_bytes: int = 64 * 1024
    concurrent_calls_max: int = 20_000
    keepalive_ms: int = 20_000
    keepalive_timeout_ms: int = 10_000
    connection_age_ms: int = 1_800_000
    handshake_ms: int = 20_000
    connections_max: int = 0
    allow_plaintext: bool = False

    def channel_arguments(self) -> list[tuple[str, int]]:
        """Return gRPC's options. A connection ends at its maximum age and a grace (CM-194)."""
        limit = [("grpc.max_allowed_incoming_connections", self.connections_max)] if self.connections_max else []
        return [
            *limit,
            ("grpc.so_reuseport", 0),  # else a second server could start on the same port and take half the calls
            ("grpc.max_receive_message_length", min(self.request_max_bytes, self.message_max_bytes)),
            ("grpc.max_send_message_length", self.message_max_bytes),
            # gRPC refuses a compressed message at its first bytes, since 1 MiB could be unpacked to 64 MiB (CM-90).
            ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
            ("grpc.per_message_decompression", 0),
            ("grpc.keepalive_time_ms", self.keepalive_ms),
            ("grpc.keepalive_timeout_ms", self.keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", self.keepalive_ms // 2),
            ("grpc.max_connection_age_ms", grpc_age_ms(self.connection_age_ms)),
            ("grpc.max_connection_age_grace_ms", grace_ms(self.connection_age_ms)),
            # gRPC's default is two minutes, in which strangers could take every descriptor (CM-197).
            ("grpc.server_handshake_timeout_ms", self.handshake_ms),
            # These two make gRPC buffer at most `unread_bytes` of an unread stream (CM-93); with probing it was up to
            # 25 MB.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.http2.lookahead_bytes", self.unread_bytes),
            ("grpc.max_concurrent_streams", self.connection_calls_max),
        ]


class RpcServer:
    """A gRPC server for services that are plain objects (`rpc.binding`). Raises ListenError when it cannot be created.

    `failed` is called, at least once, with the reason when it no longer accepts calls although it was not stopped
    (CM-85). `access`: access control, None without it; `peers_only`: the port is for nodes (CM-61).
    `authentication` says who calls; by default it takes certificates alone. `renamed`: as for Gate. `beside`: another
    server of the node, with which it shares the byte budget, the watch over connections and the count of calls, so
    that the bounds hold for both together (CM-246); `budget` counts for nothing then.
    """

    def __init__(
        self,
        host: str,
        port: int = 0,
        options: RpcOptions | None = None,
        certificates: NodeCertificates | None = None,
        *,
        client_required: bool = True,
        failed: Callable[[str], None] = lambda why: None,
        budget: Budget | None = None,
        access: Access | None = None,
        peers_only: bool = False,
        quotas: ClientQuotas | None = None,
        authentication: Authentication | None = None,
        renamed: Callable[[Message], Message] | None = None,
        beside: RpcServer | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._options = options or RpcOptions()
        self._lines = RateLimitedLog(log)
        if beside is None:
            self.budget = budget if budget is not None else Budget(default_bytes())
            self.unfinished = Unfinished(self.budget, self._cut)
            self.budget.on_throttled = self._throttled
            calls = OpenCalls(self._options.concurrent_calls_max)
            calls.on_refused = self._too_many_calls
        else:
            self.budget, self.unfinished, calls = beside.budget, beside.unfinished, beside.gate.calls
        self.gate: Final[Gate] = Gate(
            self.budget,
            self.unfinished,
            RateLimitedLog(log),
            calls,
            tls=certificates is not None,
            access=access,
            peers_only=peers_only,
            quotas=quotas,
            authentication=authentication or Authentication(for_nodes=peers_only),
            ages=ConnectionAges(self._options.connection_age_ms, random.random),
            renamed=renamed,
            begins="" if beside is None else BESIDE,
        )
        self.connections_cut = 0
        self._certificates = certificates
        self._client_required = client_required
        self._names: list[str] = []
        #: What it serves, by the paths of the RPCs.
        self.methods: Final[dict[str, BoundMethod]] = {}
        self._listening = False
        self._started = False
        self.health: Final = health.aio.HealthServicer()
        self._failed = failed
        self._watchers: list[asyncio.Task[None]] = []
        try:
            self._server = GuardedServer(self._options.channel_arguments(), self._options.concurrent_calls_max)
        except UnknownGrpcError as error:
            raise ListenError(str(error)) from error

    @property
    def address(self) -> str:
        """The `host:port` it listens on, once started."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def add(self, descriptor: ServiceDescriptor, service: object) -> None:
        """Serve the RPCs of `descriptor` that `service` has methods for. Call it before `start`."""
        methods = bind(descriptor, service)
        self.methods.update((bound.method.path, bound) for bound in methods)
        self._server.serve(descriptor.full_name, method_handlers(methods, self.gate))
        self._names.append(descriptor.full_name)

    async def start(self) -> int:
        """Start serving and return the port. Raises ListenError. The server is not ready until `ready(True)`."""
        health_pb2_grpc.add_HealthServicer_to_server(_Checks(self.health), self._server)
        for name in (STARTUP, READINESS):
            await self._set(name, False)
        await self._set(LIVENESS, True)
        if self.gate.access is None:  # with access control nothing is served that asks for no right, but health
            names = [*self._names, reflection.SERVICE_NAME, health.SERVICE_NAME]
            reflection.enable_server_reflection(names, self._server)
        self.listen()
        await self._server.start()
        self._started = True
        self._watchers = [asyncio.get_running_loop().create_task(work) for work in (self._until_ended(), self._ask())]
        self.unfinished.add(self.port, self.gate.begins, self._counted)
        self.unfinished.start()
        return self.port

    def listen(self) -> int:
        """Bind the port without accepting calls yet: a process must know its address before it joins a cluster.

        Safe to repeat. Raises ListenError.
        """
        if not self._listening:
            self.port = self._listen()
            self._listening = True
        return self.port

    async def ready(self, serving: bool) -> None:
        """Turn readiness on or off; turning it on for the first time also completes startup."""
        await self._set(READINESS, serving)
        if serving:
            await self._set(STARTUP, True)

    async def drain(self, grace_s: float, streams_s: float | None = None) -> None:
        """Turn readiness off, accept no more calls, then wait for open calls for at most `grace_s`.

        `streams_s`: how long streams have for their last answers once no other call is open. Without it they have all
        of `grace_s`, and most clients use all of it.
        """
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        await self.health.enter_graceful_shutdown()
        if self._listening and not self._started:
            await self._server.start()  # gRPC frees a port only by stopping, and stops only a started server
        stopping = asyncio.ensure_future(self._server.stop(grace_s))
        if streams_s is not None:
            answered = asyncio.ensure_future(self.gate.calls.none())
            await asyncio.wait([stopping, answered], return_when=asyncio.FIRST_COMPLETED)
            answered.cancel()
            await asyncio.wait([stopping], timeout=streams_s)
            await self._server.stop(0)
        await stopping
        await self.unfinished.stop(self.port)

    def _throttled(self, holder: Holder) -> None:
        self._lines.warning(
            "call_throttled",
            cause="the memory for requests and answers is used up",
            effect="the caller is asked to try again later",
            key="throttled",
            peer=holder.connection,
            principal=holder.user or None,
            held_bytes=self.budget.held(holder),
            held_by_user_bytes=self.budget.held_by(holder.owner),
            used_bytes=self.budget.used_bytes,
            budget_bytes=self.budget.total_bytes,
            setting="rpc.memory.bytes",
        )

    def _too_many_calls(self, user: str, calls: int) -> None:
        self._lines.warning(
            "calls_of_user_refused",
            cause="one user has three quarters of the calls that are not taken by others",
            effect="it is asked to try again later",
            key=("calls", user),
            user=user,
            calls=calls,
            calls_max=self._options.concurrent_calls_max,
            setting="rpc.concurrent.calls.max",
        )

    def _counted(self, connections: int) -> None:
        if 0 < self._options.connections_max <= connections:
            self._lines.warning(
                "connections_used_up",
                cause="clients have as many connections as they may",
                effect="new ones are closed at once",
                key="connections",
                connections=connections,
                setting="max.connections",
            )

    @property
    def throttled(self) -> int:
        """How many calls were asked to come again later."""
        return self.budget.throttled + self.gate.calls.refused

    def _cut(self, peer: str, size: int) -> None:
        self.connections_cut += 1
        self._lines.warning(
            "connection_cut",
            cause="it holds most of the memory for requests and answers, half sent or not read",
            key="cut",
            peer=peer,
            its_bytes=size,
            budget_bytes=self.budget.total_bytes,
            setting="rpc.memory.bytes",
        )

    async def _until_ended(self) -> None:
        """Report when gRPC ends the server, which it does after an error in its accept loop, with all connections."""
        why = "gRPC ended it"
        try:
            # With a time-out, because cancelling this task without one would cancel gRPC's own future.
            while await self._server.wait_for_termination(_TERMINATION_S):
                pass
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self._report_failed(why)

    async def _ask(self) -> None:
        """Watch whether new clients are accepted."""
        probe = accept_probe(self.host, self.port, self._certificates, limited=self._options.connections_max > 0)
        await watch_accepting(probe, lambda: self._server.accepted)
        self._report_failed("calls to ourselves through the port stay unanswered")

    def _report_failed(self, why: str) -> None:
        self._failed(
            f"the listener at {self.address} takes no calls any more ({why}); this node gives its shards up and ends, "
            "to be started again"
        )

    def _listen(self) -> int:
        if self._certificates is None:
            refuse_plaintext(self.host, self._options.allow_plaintext)
        if self._certificates is None and not is_loopback(self.host):
            log.warning(
                "plaintext_listener_opened", host=self.host, effect="calls to this reachable address are not encrypted"
            )
        try:
            if self._certificates is None:
                return self._server.add_insecure_port(self.address)
            credentials = self._certificates.for_server(client_required=self._client_required)
            return self._server.add_secure_port(self.address, credentials)
        except RuntimeError as error:
            raise not_listening(self.address, self._certificates) from error

    async def _set(self, name: str, serving: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self.health.set(name, status.SERVING if serving else status.NOT_SERVING)


class _Checks(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # it has no types
    """Health without Watch: streams of strangers could use up the calls that probes need."""

    def __init__(self, servicer: health.aio.HealthServicer) -> None:
        self._servicer = servicer

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        return await self._servicer.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - gRPC's
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this port serves Check alone; call it again, as probes do")


class HealthServer:
    """Serves the health services only, without TLS, on a port of their own; `servicer` has the states."""

    def __init__(self, host: str, port: int, servicer: health.aio.HealthServicer) -> None:
        self.host = host
        self.port = port
        self._server = GuardedServer(_HEALTH_LIMITS, _HEALTH_CALLS_MAX)
        health_pb2_grpc.add_HealthServicer_to_server(_Checks(servicer), self._server)

    async def start(self) -> int:
        """Start serving and return the port. Raises ListenError."""
        address = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        try:
            self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise ListenError(
                f"cannot listen on {address} for health: another process may have the port, or the address is not "
                "this machine's. Choose another port, 0 for any free one, or -1 for none."
            ) from error
        await self._server.start()
        return self.port

    async def stop(self) -> None:
        """Stop serving at once."""
        await self._server.stop(0)


def add_whole(server: RpcServer, port: Port, descriptor: ServiceDescriptor, service: object) -> None:
    """Serve all RPCs that the table has for this port. Raises TypeError when `service` differs from it."""
    check_whole(descriptor, service, port)
    server.add(descriptor, service)


def refuse_plaintext(host: str, allowed: bool) -> None:
    """Raise ListenError when listening on `host` without TLS needs a permission that was not given (CM-60)."""
    if not allowed and not is_loopback(host):
        raise ListenError(
            f"listening on {host} without TLS would let anyone on the network read and write records. "
            "Listen on 127.0.0.1; or turn TLS on with the settings ssl.certificate.location, ssl.key.location and "
            "ssl.ca.location; or, where the network keeps others out, allow it with allow.plaintext=true."
        )


def not_listening(address: str, certificates: NodeCertificates | None) -> ListenError:
    """Return the error for an address that gRPC cannot listen on, which it says no more about."""
    refused = "" if certificates is None else " Or gRPC cannot use the certificate: try one with an RSA or P-256 key."
    return ListenError(
        f"cannot listen on {address}: another process may have the port, or the address is not this machine's. "
        f"Choose another port, or 0 for any free one.{refused}"
    )


class AcceptWatch:
    """Decides when to give up on a server that does not answer: after `misses_max` misses in a row. It never waits."""

    def __init__(self, misses_max: int = ACCEPT_MISSES_MAX) -> None:
        self._misses_max = misses_max
        self._misses = 0

    def seen(self, answered: bool, taken_meanwhile: bool) -> bool:
        """Note the outcome of a call to this server. Returns True when it has missed too many in a row."""
        self._misses = 0 if answered or taken_meanwhile else self._misses + 1
        return self._misses >= self._misses_max


async def watch_accepting(
    probe: Probe,
    accepted: Callable[[], int],
    *,
    every_s: float = ACCEPT_CHECK_S,
    turn_s: float = ACCEPT_TURN_S,
    turns: int = ACCEPT_TURNS,
    misses_max: int = ACCEPT_MISSES_MAX,
) -> None:
    """Call this server every `every_s` by its real port, on a new connection; return when it no longer accepts calls.

    Without this check, a server that accepts no clients would keep its leases for ever (CM-85). A busy event loop, a
    stopped process and a suspended machine do not count as misses: a call's time-out is counted in turns of the event
    loop, each at least `turn_s` long, so anything that stops the loop also stops the count. Nor does it count as a miss
    when other calls were accepted in the meantime, as in a flood of connections, or when this process has too few file
    descriptors for the call. `accepted` returns the number of calls accepted so far.
    """
    decides = AcceptWatch(misses_max)
    while True:
        await asyncio.sleep(every_s)
        if not _descriptors_left():
            continue
        before = accepted()
        answered = await _answer_in_turns(probe, turn_s, turns)
        if decides.seen(answered, accepted() > before):
            return


def accept_probe(host: str, port: int, certificates: NodeCertificates | None = None, *, limited: bool = False) -> Probe:
    """Return a probe that requests the server's health; any answer counts. `host` may be the wildcard address.

    With TLS a refused handshake counts, too: the port was served, but a certificate need not be one for clients. So
    does, where connections are `limited`, one that was accepted and closed: there are as many as there may be.
    """
    refusals = _REFUSED if certificates is not None else (_CLOSED,) if limited else ()
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    target = f"[{near}]:{port}" if ":" in near else f"{near}:{port}"
    request = health_pb2.HealthCheckRequest(service=LIVENESS).SerializeToString()

    def channel() -> grpc.aio.Channel:
        if certificates is None:
            return grpc.aio.insecure_channel(target, options=_NEW_CONNECTION)
        credentials, name = certificates.for_self()
        called = (("grpc.ssl_target_name_override", name),) if name else ()
        return grpc.aio.secure_channel(target, credentials, options=[*_NEW_CONNECTION, *called])

    async def probe() -> bool:
        async with channel() as open_channel:
            try:
                await open_channel.unary_unary(_HEALTH_CHECK)(request)
            except grpc.aio.AioRpcError as error:
                refused = any(word in (error.details() or "") for word in refusals)
                return refused or error.code() not in _UNANSWERED
            return True

    return probe


async def _answer_in_turns(probe: Probe, turn_s: float, turns: int) -> bool:
    """Return the probe's answer; False when there is none after `turns` turns of the event loop."""
    call = asyncio.ensure_future(probe())
    try:
        for _ in range(turns):
            await asyncio.wait({call}, timeout=turn_s)
            if call.done():
                return call.result()
        return False
    finally:
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call


def _descriptors_left() -> bool:
    """Return whether descriptors are left for both ends of a connection: with one, the call would be sent and never
    accepted."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(CALL_DESCRIPTORS):
                opened.enter_context(socket.socket())
        except OSError:
            return False
    return True
