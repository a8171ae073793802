"""The network of a simulated cluster: connections between named processes, and the faults that strike them.

It follows gRPC's contract: bytes are copied, a handler is cancelled when its caller is gone, statuses are gRPC's, a
stream's messages arrive in order, and a broken connection ends all its calls and streams; the next call opens a new
connection with a new id (PL-524). A handler runs in a task of the serving process.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

from google.protobuf.descriptor import ServiceDescriptor

from kip932.acls import ANONYMOUS
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, TransportError, TransportStatus
from shard_runtime.rpc.access import Access, Needs, Rights
from shard_runtime.rpc.binding import BoundMethod, CallContext, bind
from shard_runtime.rpc.quotas import ClientQuotas
from tests.simulation.aging import TOO_OLD, Aging, ConnectionAge
from tests.simulation.calls import Call, Running, Stream
from tests.simulation.clock import Life, SimLoop, context_of
from tests.simulation.points import CrashPoints

#: How long a peer may be silent before its connections break: gRPC's keepalive interval plus its timeout.
KEEPALIVE_S: Final = 30.0
#: The minimum and maximum delay of a message while no fault is active.
DELAY_MS: Final = (0.1, 2.0)


class Served:
    """The services of one life of a process at its address. `access`: its access control, `quotas`: those of clients,
    `aging`: the ages of its connections; None without them."""

    def __init__(
        self, life: Life, address: str, access: Access | None, quotas: ClientQuotas | None, aging: Aging | None
    ) -> None:
        self.life = life
        self.address = address
        self.access = access
        self.quotas = quotas
        self.aging = aging
        self.methods: dict[str, BoundMethod] = {}
        self.accepting = True


class Connection:
    """One connection of one transport to one served address. It ends once, together with its calls and streams."""

    def __init__(self, network: SimNetwork, number: int, client: Life, served: Served, principal: str | None) -> None:
        self.id = f"sim:{number}"
        self.network = network
        self.client = client
        self.served = served
        self.principal = principal
        self.open = True
        #: True once its client wants a newer one for later calls (CL-144).
        self.left = False
        #: Since its first message has arrived, where connections have an age.
        self.age: ConnectionAge | None = None
        self._up_s = self._down_s = 0.0
        #: Its current calls and streams, in the order in which they started.
        self.running: dict[Running, None] = {}

    def caller(self, needs: Needs, remaining: Callable[[], float | None]) -> CallContext:
        """Describe the caller of an RPC that comes over this connection; its host is the client's name."""
        host, access = self.client.name, self.served.access
        rights = None if access is None else Rights(access, self.principal or ANONYMOUS, host, needs)
        quotas, move_in_s = self.served.quotas, None if self.age is None else self.age.move_in_s()
        return CallContext(host, self.id, remaining, self.principal, rights=rights, quotas=quotas, move_in_s=move_in_s)

    def reached(self) -> None:
        """Note that a message of it has arrived."""
        if self.age is None and self.served.aging is not None:
            self.age = self.served.aging.begin(self)

    def ends(self) -> tuple[str, str]:
        """Return the names of both ends."""
        return self.client.name, self.served.life.name

    def up(self, deliver: Callable[[], None], after_s: float = 0.0) -> float:
        """Send towards the server; return the arrival time."""
        due_s = self.network.send(self.client.name, self.served.life.name, deliver, after_s)
        self._up_s = max(self._up_s, due_s)
        return due_s

    def down(self, deliver: Callable[[], None], after_s: float = 0.0) -> float:
        """Send towards the client; return the arrival time."""
        due_s = self.network.send(self.served.life.name, self.client.name, deliver, after_s)
        self._down_s = max(self._down_s, due_s)
        return due_s

    def leave(self) -> None:
        """Use another one for later calls; it is closed when its last call has ended."""
        self.left = True
        self.close_if_unused()

    def close_if_unused(self) -> None:
        """Close it if its client has left it, and no call is under way on it."""
        if self.left and self.open and not self.running:
            self.close()

    def too_old(self) -> None:
        """Close it from the server's side, because it has reached its age and the grace is over."""
        running = self._end(TOO_OLD)

        def arrived() -> None:
            for each in running:
                each.fail(TransportStatus.UNAVAILABLE, "max_age")

        for each in running:
            each.abandoned()
        if running:
            self.down(arrived, self._down_s)

    def close(self) -> None:
        """Close it from the client's side; handlers are cancelled when the server learns of it."""
        running = self._end("closed")
        for each in running:
            each.fail(TransportStatus.CANCELLED, "the transport is closed")
        self._notify_server(running)

    def broken(self, why: str) -> None:
        """Break it; both ends notice."""
        for each in self._end(why):
            each.fail(TransportStatus.UNAVAILABLE, why)
            each.abandoned()

    def lost_client(self) -> None:
        """End it because the client's process is gone; its machine notifies the server."""
        self._notify_server(self._end("the client is gone"))

    def lost_server(self, why: str) -> None:
        """End it because the server's process is gone; its machine notifies the client."""
        running = self._end(why)

        def arrived() -> None:
            for each in running:
                each.fail(TransportStatus.UNAVAILABLE, why)

        if running:
            self.down(arrived, self._down_s)  # after the responses in transit

    def _end(self, why: str) -> list[Running]:
        """Mark it as ended; return the calls and streams that were on it."""
        if self.open and self.age is not None:
            self.age.ended(why)
        self.open = False
        self.network.forget(self)
        running, self.running = list(self.running), {}
        return running

    def _notify_server(self, running: list[Running]) -> None:
        def arrived() -> None:
            for each in running:
                each.abandoned()

        if running:
            self.up(arrived, self._up_s)


class SimNetwork:
    """All addresses of one simulated world, the messages in transit, and the faults that strike them.

    `lose` is the probability that a call's request or reply is lost, or that a message breaks its connection;
    `duplicate` the probability that a unary request arrives twice.
    """

    def __init__(self, loop: SimLoop, points: CrashPoints, rng: Random) -> None:
        self.delay_ms: tuple[float, float] = DELAY_MS
        self.lose = 0.0
        self.duplicate = 0.0
        self.keepalive_s = KEEPALIVE_S
        self.points = points
        self.loop = loop
        self.rng = rng
        self._served: dict[str, Served] = {}
        self._connections: dict[Connection, None] = {}
        self._numbers = itertools.count(1)
        self._cuts: dict[tuple[str, str], bool] = {}
        self._held: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._nowhere = context_of(None)

    # ---- addresses

    def serve(
        self,
        life: Life,
        address: str,
        descriptor: ServiceDescriptor,
        service: object,
        access: Access | None = None,
        *,
        quotas: ClientQuotas | None = None,
        aging: Aging | None = None,
    ) -> None:
        """Serve the RPCs for which `service` has methods, in addition to those that this life already serves there."""
        served = self._served.get(address)
        if served is None or served.life is not life:
            served = self._served[address] = Served(life, address, access, quotas, aging)
        for bound in bind(descriptor, service):
            served.methods[bound.method.path] = bound

    def refuse(self, life: Life) -> None:
        """Accept no more calls at this life's address; open ones continue."""
        for served in list(self._served.values()):
            if served.life is life:
                served.accepting = False
                del self._served[served.address]

    def busy(self, life: Life) -> bool:
        """Return True if calls or streams are open at this life."""
        return any(each.running for each in self._connections if each.served.life is life)

    def gone(self, life: Life, why: str) -> None:
        """Note that a process ended, or its machine closed its sockets; peers learn of it as quickly as a message
        arrives."""
        self.refuse(life)
        for connection in list(self._connections):
            if connection.served.life is life:
                connection.lost_server(why)
            elif connection.client is life:
                connection.lost_client()

    def transport(self, life: Life, principal: str | None = None) -> SimTransport:
        """Return a transport for a process, with its own connections, on which it is known as `principal`."""
        return SimTransport(self, life, principal)

    # ---- faults

    def cut(self, a: str, b: str, *, refused: bool = False) -> None:
        """Let nothing pass from `a` to `b`. Silent: messages wait for `heal`, and connections break when the cut has
        lasted as long as keepalive allows. Refused: connections between the two break, and no new one can be opened."""
        self._cuts[(a, b)] = refused
        if refused:
            self._break_between(a, b, "connection refused")
        else:
            self._watch((a, b))

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """End the cut from `a` to `b`, or every cut. Held messages arrive now, in order."""
        for pair in [pair for pair in self._cuts if a is None or pair == (a, b)]:
            del self._cuts[pair]
            due_s = 0.0
            for deliver in self._held.pop(pair, []):
                due_s = self.send(*pair, deliver, due_s)

    def unheard(self, life: Life) -> None:
        """Note that a process stopped responding; if it still does not respond when keepalive expires, its connections
        break."""

        pauses = life.pauses

        def check() -> None:
            if life.paused and life.pauses == pauses:
                for connection in list(self._connections):
                    if life in (connection.client, connection.served.life):
                        connection.broken("keepalive watchdog timeout")

        self.loop.call_later(self.keepalive_s, check, context=self._nowhere)

    def break_streams(self, rng: Random, share: float) -> None:
        """Break a fraction of the connections that carry streams."""
        for connection in list(self._connections):
            if any(isinstance(each, Stream) for each in connection.running) and rng.random() < share:
                connection.broken("connection reset by peer")

    def calm(self) -> None:
        """End all faults."""
        self.lose = self.duplicate = 0.0
        self.delay_ms = DELAY_MS
        self.heal()

    def _watch(self, pair: tuple[str, str]) -> None:
        cuts = self._cuts

        def check() -> None:
            if cuts.get(pair) is False:
                self._break_between(*pair, "keepalive watchdog timeout")

        self.loop.call_later(self.keepalive_s, check, context=self._nowhere)

    def _break_between(self, a: str, b: str, why: str) -> None:
        for connection in list(self._connections):
            if connection.ends() in ((a, b), (b, a)):
                connection.broken(why)

    # ---- messages

    def send(self, source: str, target: str, deliver: Callable[[], None], after_s: float = 0.0) -> float:
        """Carry a message; call `deliver` when it arrives, not before the time `after_s`. Return its arrival time."""
        low, high = self.delay_ms
        due_s = max(self.loop.time() + (low + self.rng.random() * (high - low)) / 1000, after_s)

        def arrive() -> None:
            if self._cuts and (source, target) in self._cuts:
                self._held.setdefault((source, target), []).append(deliver)
            else:
                deliver()

        self.loop.carry(due_s, arrive, (), self._nowhere)
        return due_s

    def loses(self) -> bool:
        """Decide randomly whether this message is lost."""
        return self.lose > 0 and self.rng.random() < self.lose

    def refused(self, a: str, b: str) -> bool:
        """Return True if no connection can be opened between the two."""
        return bool(self._cuts) and (self._cuts.get((a, b), False) or self._cuts.get((b, a), False))

    # ---- connections

    def connect(self, client: Life, address: str, principal: str | None = None) -> Connection | None:
        """Return a new connection; None if the address is not served or the connection is refused."""
        served = self._served.get(address)
        if served is None or client.severed or self.refused(client.name, served.life.name):
            return None
        connection = Connection(self, next(self._numbers), client, served, principal)
        self._connections[connection] = None
        return connection

    def forget(self, connection: Connection) -> None:
        """Drop a connection that ended."""
        self._connections.pop(connection, None)


class SimTransport:
    """`Transport` of one process over a `SimNetwork`."""

    def __init__(self, network: SimNetwork, life: Life, principal: str | None = None) -> None:
        self._network = network
        self._life = life
        self._principal = principal
        self._connections: dict[str, Connection] = {}
        self._left: list[Connection] = []
        self._closed = False

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Make one unary call."""
        connection = await self._connected(address)
        data = await Call(connection, method, request.SerializeToString(), timeout_s).answer()
        return method.response_type.FromString(data)

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a duplex stream; its handler starts when the opening message arrives."""
        stream = Stream(await self._connected(address), method)
        stream.begin()
        return stream

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        connections, self._connections = [*self._connections.values(), *self._left], {}
        self._left = []
        for connection in connections:
            if connection.open:
                connection.close()

    async def _connected(self, address: str) -> Connection:
        if self._closed or self._life.dead or self._life.severed:
            raise TransportError(TransportStatus.CANCELLED, address, "the transport is closed")
        connection = self._connections.get(address)
        if connection is not None and connection.left:
            self._left = [each for each in (*self._left, connection) if each.open]
        if connection is None or not connection.open or connection.left:
            connection = self._network.connect(self._life, address, self._principal)
            if connection is None:
                await asyncio.sleep(self._network.delay_ms[1] / 1000)
                raise TransportError(TransportStatus.UNAVAILABLE, address, "connection refused")
            self._connections[address] = connection
        return connection
