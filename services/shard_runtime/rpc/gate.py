"""What every call has to pass, at whichever listener it came in: who calls, what it may do, how many calls and bytes it
may have. The listeners for gRPC (`rpc.adapter`) and for Kafka's protocol share it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from kip932.acls import ANONYMOUS
from kip932.errors import ThrottlingQuotaExceededError
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.access import Access, Needs, Rights
from shard_runtime.rpc.authentication import Authentication, Identity
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.budget import THROTTLE_MS, Budget, Holder, Share
from shard_runtime.rpc.connection_ages import ConnectionAges
from shard_runtime.rpc.quotas import ClientQuotas
from shard_runtime.rpc.unfinished import Unfinished

#: How many calls and streams one user may have for each one that is left to others.
USER_CALLS_PER_FREE: Final = 3


class Caller(NamedTuple):
    """Who makes a call, and over which connection. `client_id`: the name that it gives itself; `time_remaining` returns
    the seconds until its deadline, None without one."""

    connection: str
    host: str
    client_id: str
    identity: Identity
    time_remaining: Callable[[], float | None] = lambda: None


class OpenCalls:
    """Counts the calls and streams that a server is answering, at most `calls_max`, and how many each user has.

    `on_refused` is called with the user and the number of its calls when a further one is refused; `refused` counts
    these.
    """

    def __init__(self, calls_max: int) -> None:
        self.refused = 0
        self.on_refused: Callable[[str, int], None] = lambda user, calls: None
        self._calls_max = calls_max
        self._total = 0
        self._of: Counter[str] = Counter()
        self._unary = 0
        self._none = asyncio.Event()
        self._none.set()

    def counted(self, handle: Callable[[bytes, Any], Awaitable[bytes]]) -> Callable[[bytes, Any], Awaitable[bytes]]:
        """Wrap `handle` so that its call counts as open while it runs. Streams, which end when their clients end them,
        are not counted here."""

        async def answer(data: bytes, context: Any) -> bytes:
            self._unary += 1
            self._none.clear()
            try:
                return await handle(data, context)
            finally:
                data = b""  # as in `rpc.adapter`
                self._unary -= 1
                if not self._unary:
                    self._none.set()

        return answer

    async def none(self) -> None:
        """Wait until no call is open, except streams."""
        await self._none.wait()

    def begin(self, user: str) -> None:
        """Count a call or stream of this user until `end`. Raises ThrottlingQuotaExceededError, and counts nothing, if
        the user has three times as many as there are left (CM-202)."""
        left = self._calls_max - self._total
        if self._of[user] >= USER_CALLS_PER_FREE * max(left, 0):
            self.refused += 1
            self.on_refused(user, self._of[user])
            raise ThrottlingQuotaExceededError(
                f"{user} has {self._of[user]} calls and streams at this node, which serves {self._calls_max} at the "
                f"same time (rpc.concurrent.calls.max) and keeps some for others; try again in {THROTTLE_MS} ms, with "
                "fewer connections"
            )
        self._total += 1
        self._of[user] += 1

    def end(self, user: str) -> None:
        """Note the end of a call or stream."""
        self._total -= 1
        self._of[user] -= 1
        if not self._of[user]:
            del self._of[user]


@dataclass(frozen=True, slots=True)
class Gate:
    """The parts that all calls of a server share: the byte budget (CM-92, CM-93), the messages that are not whole,
    the log of failures and the count of open calls. `tls`: whether callers may have certificates. `access`: None
    without access control; `peers_only`: whether only nodes may call (CM-61). `quotas`: those of clients (CM-192).
    `authentication` says who calls. `ages`: those of its connections (CM-194). `renamed` returns an answer with the
    addresses of nodes by which its callers reach them; None: those that the answer has (CM-237). `begins`: how the
    names of its connections begin, so that those of two ports with one budget differ."""

    budget: Budget
    unfinished: Unfinished
    failures: RateLimitedLog
    calls: OpenCalls
    tls: bool = False
    access: Access | None = None
    peers_only: bool = False
    quotas: ClientQuotas | None = None
    authentication: Authentication = field(default_factory=Authentication)
    ages: ConnectionAges | None = None
    renamed: Callable[[Message], Message] | None = None
    begins: str = ""

    def holder(self, connection: str, identity: Identity) -> Holder:
        """Return who holds the bytes of a connection's calls. All nodes may have one principal: at their port
        connections share alike."""
        return Holder(connection, "" if self.peers_only else identity.principal or "")

    def context(self, caller: Caller, needs: Needs, move_in_s: float | None = None) -> CallContext:
        """Describe a caller to a handler whose RPC needs these operations. `move_in_s`: as for CallContext."""
        connection, host, client_id, identity, time_remaining = caller
        rights = None
        if self.access is not None and not self.peers_only:
            rights = Rights(self.access, identity.principal or ANONYMOUS, host, needs, identity.kind)
        return CallContext(
            host,
            connection,
            time_remaining,
            identity.principal,
            client_id,
            Share(self.budget, self.holder(connection, identity)),
            rights=rights,
            quotas=self.quotas,
            move_in_s=move_in_s,
        )

    def admit(self, caller: CallContext) -> None:
        """Raise ClusterAuthorizationFailedError for a caller that is not a node at a port for nodes. Without TLS nodes
        have no principals: then the port is on loopback, and everyone there may call it (CM-61 (f))."""
        if self.peers_only and self.tls and self.access is not None:
            error = self.access.peer_refusal(caller.principal, caller.peer)
            if error is not None:
                raise error

    def user_of(self, caller: CallContext) -> str:
        """Return whose calls count together (CM-202): those of a principal, and of all unknown callers of one host.
        All nodes may have one principal, so at their port those of a connection."""
        return caller.connection_id if self.peers_only else caller.principal or caller.peer
