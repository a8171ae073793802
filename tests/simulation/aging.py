"""How old the connections of one simulated server get (CM-194): the node's own decision when their streams are asked to
move, and gRPC's part, by the options that the node gives to it.

A connection's age counts from the arrival of its first message. At its maximum age its client learns that it takes no
new calls; what is still open on it after the grace is closed with it. A server that is paused does neither.

A server that has asked a client to move may refuse its next share streams, as one with too many connections does: at
most two, so that there is always time to move.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from shard_runtime.rpc.connection_ages import ConnectionAges
from shard_runtime.rpc.server import RpcOptions
from tests.simulation.clock import Life, SimLoop, context_of
from tests.simulation.connection_events import ConnectionEnded, ConnectionReached, MoveAsked, MoveRefused
from tests.simulation.history import Event

if TYPE_CHECKING:
    from tests.simulation.network import Connection

#: gRPC multiplies the age that it is given by a random number between these, one for each connection.
_JITTER: Final = (0.9, 1.1)
#: Why a connection ends that has reached its age and the grace.
TOO_OLD: Final = "max_age"
#: How many share streams a server refuses after it has asked a client to move.
_REFUSALS: Final = (0, 0, 1, 2)
_SHARE_STREAM: Final = "ShareStream"


@dataclass(frozen=True)
class Aging:
    """The ages of one server's connections. `add` records an event."""

    loop: SimLoop
    life: Life
    ages: ConnectionAges
    age_s: float
    grace_s: float
    rng: Random
    add: Callable[[Event], None]
    #: How many share streams are still refused, by client.
    refusals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, loop: SimLoop, life: Life, options: RpcOptions, rng: Random, add: Callable[[Event], None]) -> Aging:
        """Return the ages of a server with these options."""
        given = dict(options.channel_arguments())
        return cls(
            loop,
            life,
            ConnectionAges(options.connection_age_ms, rng.random),
            given["grpc.max_connection_age_ms"] / 1000,
            given["grpc.max_connection_age_grace_ms"] / 1000,
            rng,
            add,
        )

    def begin(self, connection: Connection) -> ConnectionAge:
        """Let the age of a connection begin, at the arrival of its first message."""
        return ConnectionAge(self, connection)


class ConnectionAge:
    """The age of one connection that has reached its server."""

    def __init__(self, aging: Aging, connection: Connection) -> None:
        self._aging = aging
        self._connection = connection
        self._streams = itertools.count(1)
        self._report(ConnectionReached)
        self._in(aging.age_s * aging.rng.uniform(*_JITTER), self._refuse)

    def move_in_s(self) -> float:
        """Return the number of seconds after which the streams should move, as the node's adapter does for each
        call."""
        now_s = self._aging.loop.time()
        return self._aging.ages.move_at_s(self._connection.id, now_s) - now_s

    def next_stream(self) -> str:
        """Return a name for a stream on the connection, unique in the run."""
        return f"{self._connection.id}/{next(self._streams)}"

    def asked(self, stream: str, method: str) -> None:
        """Note that the server asks a stream's client to move."""
        self._report(MoveAsked, stream, method)
        if method == _SHARE_STREAM:
            self._aging.refusals[self._connection.client.name] = self._aging.rng.choice(_REFUSALS)

    def refuses(self, method: str) -> bool:
        """Decide whether a new stream on the connection is refused, before anything is read from it."""
        refusals, client = self._aging.refusals, self._connection.client.name
        if method != _SHARE_STREAM or not refusals.get(client):
            return False
        refusals[client] -= 1
        self.move_in_s()  # the adapter has seen the connection
        self._report(MoveRefused)
        return True

    def ended(self, why: str) -> None:
        """Note the connection's end."""
        self._report(ConnectionEnded, why)

    def _refuse(self) -> None:
        """Make the client open another connection for its next call."""
        connection = self._connection
        if connection.open:
            connection.down(connection.leave)
            self._in(self._aging.grace_s, self._close)

    def _close(self) -> None:
        if self._connection.open:
            self._connection.too_old()

    def _in(self, seconds: float, act: Callable[[], object]) -> None:
        self._aging.loop.call_later(seconds, act, context=context_of(self._aging.life))

    def _report(self, kind: Callable[..., Event], *details: Any) -> None:
        aging, connection = self._aging, self._connection
        names = (aging.life.name, aging.life.incarnation, connection.id, connection.client.name)
        aging.add(kind(aging.loop.now_ms, *names, *details))
