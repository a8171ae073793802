"""Accepts Kafka's clients at a port of their own, and ends their connections when the node leaves (KL-7, KL-8, KL-26).

Without TLS it listens on loopback only, unless a flag allows more (CM-60).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import structlog

from kafka_listener.authentication import Checks
from kafka_listener.calls import Served
from kafka_listener.connection import KafkaConnection, Surroundings
from kafka_listener.core.places import Places
from kafka_listener.counts import Counts
from kafka_listener.limits import Limits
from kafka_listener.offers import Offers
from kafka_listener.ports import Cluster
from kafka_listener.tls import ServerContexts
from kip932.rpc.loopback import is_loopback
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.passwords import Passwords
from shard_runtime.rpc.server import ListenError, RpcServer, refuse_plaintext

log = structlog.get_logger(__name__)

_BACKLOG: Final = 1_024
#: How long a new connection has for TLS, s.
HANDSHAKE_S: Final = 10.0
#: How often the connections' time limits are checked, s, and how many before other tasks get a turn.
_CHECK_S: Final = 1.0
_SLICE: Final = 500
#: How long the listener waits where no connection can be accepted, as without file descriptors, s.
_ACCEPT_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """Where the listener listens, and its bounds. `connections_max`: how many connections there may be at a time;
    `client_required`: whether clients must have a certificate."""

    host: str
    port: int = 0
    connections_max: int = 10_000
    client_required: bool = False
    allow_plaintext: bool = False
    limits: Limits = field(default_factory=Limits)


class KafkaListener:
    """The Kafka listener of a node. `server`: the node's port for gRPC's clients, whose handlers it calls."""

    def __init__(
        self,
        options: ListenerOptions,
        server: RpcServer,
        cluster: Cluster,
        passwords: Passwords,
        certificates: NodeCertificates | None = None,
        *,
        share_version: Callable[[], int] = lambda: 1,
        offers: Offers | None = None,
    ) -> None:
        self.port = options.port
        self.counts: Final = Counts()
        self.places: Final = Places(options.connections_max)
        self._options = options
        self._contexts = (
            None if certificates is None else ServerContexts(certificates, client_required=options.client_required)
        )
        self._lines = RateLimitedLog(log)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="kafka-requests")
        gate = server.gate
        self._around = Surroundings(
            Served(server.methods, gate, cluster, self._lines),
            Checks(gate.authentication, passwords, gate.access),
            offers or Offers(share_version=share_version),
            options.limits,
            self.counts,
            self._lines,
            self._reader,
            self._opened,
            self._closed,
        )
        self._socket: socket.socket | None = None
        self._connections: set[KafkaConnection] = set()
        self._none = asyncio.Event()
        self._none.set()
        self._handshakes: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        passwords.subscribe(self._users_changed)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self.places.total

    @property
    def under_way(self) -> int:
        """How many requests are not answered."""
        return sum(connection.under_way for connection in self._connections)

    def listen(self) -> int:
        """Bind the port without accepting connections yet, and return it. Safe to repeat. Raises ListenError."""
        if self._socket is not None:
            return self.port
        host, options = self._options.host, self._options
        if self._contexts is None:
            refuse_plaintext(host, options.allow_plaintext)
            if not is_loopback(host):
                log.warning(
                    "plaintext_kafka_listener_opened",
                    host=host,
                    effect="requests to this reachable address are not encrypted",
                )
        else:
            self._contexts.current()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            found = socket.create_server((host.strip("[]"), options.port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {host}:{options.port} for Kafka's clients: {error.strerror or error}. "
                "Choose another kafka.listen.port, 0 for any free one, or -1 for none."
            ) from error
        found.setblocking(False)
        self._socket = found
        self.port = found.getsockname()[1]
        return self.port

    def start(self) -> None:
        """Accept connections. Call `listen` before."""
        assert self._socket is not None, "listen first"
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._accept(self._socket), name="kafka-accept"),
            loop.create_task(self._check(), name="kafka-checks"),
        ]

    async def drain(self, grace_s: float) -> None:
        """Accept no more connections and begin no more requests; wait for those under way, for at most `grace_s`, then
        close everything."""
        await self._stop_accepting()
        for connection in list(self._connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._none.wait()
        for connection in list(self._connections):
            connection.abort()
        await self._none.wait()
        await asyncio.gather(*self._ends, return_exceptions=True)
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._lines.close()

    async def _stop_accepting(self) -> None:
        for task in (*self._tasks, *self._handshakes):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._handshakes, return_exceptions=True)
        self._tasks = []
        if self._socket is not None:
            self._socket.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError as error:
                self._lines.warning("kafka_accept_failed", key="accept", cause=str(error))
                await asyncio.sleep(_ACCEPT_PAUSE_S)
                continue
            host, port = str(address[0]).removeprefix("::ffff:"), address[1]
            if not self.places.take(host):
                self._full(host)
                client.close()
                continue
            peer = f"kafka:{host}:{port}"
            connection = KafkaConnection(self._around, host, peer, client, tls=self._contexts is not None)
            task = loop.create_task(self._open(client, connection), name="kafka-connect")
            self._handshakes.add(task)
            task.add_done_callback(functools.partial(self._was_opened, client, connection))

    async def _open(self, client: socket.socket, connection: KafkaConnection) -> None:
        """Do the handshake of TLS, if there is one, and serve the connection."""
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=None if self._contexts is None else self._contexts.current(),
                ssl_handshake_timeout=None if self._contexts is None else HANDSHAKE_S,
            )
        except (OSError, ConnectionError, TimeoutError) as error:
            self.counts.refuse("handshake")
            self._lines.info(
                "kafka_handshake_failed", key=(connection.host, "handshake"), peer=connection.peer, cause=str(error)
            )

    def _was_opened(self, client: socket.socket, connection: KafkaConnection, task: asyncio.Task[None]) -> None:
        """Forget a connection that was not opened; the listener may have left before the first step of its opening."""
        self._handshakes.discard(task)
        if not connection.is_open:
            client.close()
            self.places.give(connection.host)
        elif task.cancelled():
            # Its transport was closed; uvloop then does not call this, asyncio does so once more.
            connection.connection_lost(None)

    def _full(self, host: str) -> None:
        self.counts.refuse("connections")
        self._lines.warning(
            "kafka_connections_used_up",
            key=(host, "connections"),
            host=host,
            connections=self.places.total,
            connections_max=self.places.places_max,
            cause="there are as many connections as there may be, or this address has three quarters of the free ones",
            effect="its new ones are closed at once",
            setting="max.connections",
        )

    def _opened(self, connection: KafkaConnection) -> None:
        self._connections.add(connection)
        self._none.clear()

    def _closed(self, connection: KafkaConnection, end: asyncio.Task[None]) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._none.set()
        self.places.give(connection.host)
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    def _users_changed(self) -> None:
        for connection in list(self._connections):
            connection.users_changed()

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_CHECK_S)
            for several in _slices(list(self._connections)):
                now_s = loop.time()
                for connection in several:
                    connection.check(now_s)
                await asyncio.sleep(0)


def _slices(connections: list[KafkaConnection]) -> Iterator[list[KafkaConnection]]:
    for begin in range(0, len(connections), _SLICE):
        yield connections[begin : begin + _SLICE]


__all__ = ["KafkaListener", "ListenError", "ListenerOptions"]
