"""Binds a service descriptor to a plain object: finds the RPCs that the object serves, and their paths.

A service is any object whose async methods are named in snake_case after the RPCs: `ShareFetch` is
`share_fetch(request, context) -> response`, `ShareStream` is `share_stream(stream)`. RPCs without a method are
UNIMPLEMENTED. Everything else about an RPC is in its row of `rpc.table`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Protocol

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from kip932.acls import OPERATIONS, Operation, ResourceType
from kip932.errors import KafkaError
from kip932.ids import topic_id_text
from kip932.rpc.transport import Method, service_methods
from shard_runtime.rpc.access import Needs, Rights
from shard_runtime.rpc.budget import UNBOUNDED, Share
from shard_runtime.rpc.fields import COUNTED_FROM_BYTES, ENTRY_BYTES, FIELDS_MAX, count, shape_of
from shard_runtime.rpc.quotas import CallerQuota, ClientQuotas
from shard_runtime.rpc.status import RpcFailureError, invalid_argument
from shard_runtime.rpc.table import RPCS, Effect, Port

UnaryHandler = Callable[[Any, "CallContext"], Awaitable[Message]]
StreamHandler = Callable[["ServerStream"], Awaitable[None]]

#: One thread: with more, the event loop would get a smaller share of the interpreter's time.
_COUNTING: Final = ThreadPoolExecutor(1, "count-fields")
_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(slots=True)
class CallContext:
    """The caller. `client_id`: the name it gives itself; `share`: its part of the node's byte budget (CM-92);
    `message_bytes`: the memory that the last message read from a stream takes (`BoundMethod.memory_bytes`).

    `rights`: what it may do; None if it may do everything (CM-61). `quotas`: those of this node's clients; None for
    callers that have none, as nodes (CM-192). `move_in_s`: when a stream should ask its client to move to another
    connection, s after its opening; None: never (CM-194).

    `connection_id` is the same for all calls and streams of one connection (PL-524).
    """

    peer: str
    connection_id: str
    time_remaining: Callable[[], float | None]
    principal: str | None = None
    client_id: str = ""
    share: Share = UNBOUNDED
    message_bytes: int = 0
    rights: Rights | None = None
    quotas: ClientQuotas | None = None
    move_in_s: float | None = None

    def quota(self, key: str) -> CallerQuota | None:
        """Return the quota that applies to the caller; None if there is none."""
        return None if self.quotas is None else self.quotas.of(key, self.principal, self.client_id)

    def may(self, resource: ResourceType, name: str, operation: Operation | None = None) -> bool:
        """Return whether the caller may do `operation`, by default the one that its RPC needs, on the resource (CM-61).
        Notes no refusal: for what is left out of an answer, and for one of several permissions."""
        return self.rights is None or self.rights.may(resource, name, operation)

    def may_on_any(self, resource: ResourceType) -> bool:
        """Return whether the caller may do the operation that its RPC needs on at least one name of this type."""
        return self.rights is None or self.rights.may_on_any(resource)

    def refusal(self, resource: ResourceType, name: str, operation: Operation | None = None) -> KafkaError | None:
        """Return the error for the response if `may` is not the case, else None. Refusals are logged and counted."""
        return None if self.rights is None else self.rights.refusal(resource, name, operation)

    def refusal_by_id(self, topic_id: bytes, name: str) -> KafkaError | None:
        """Like `refusal`, but for a topic that was named by its id: the error has the topic's name only for a caller
        that may DESCRIBE it (CM-61 (d))."""
        if self.rights is None:
            return None
        known = self.may(ResourceType.TOPIC, name, Operation.DESCRIBE)
        known_as = "" if known else f"the topic with the id {topic_id_text(topic_id)}"
        return self.rights.refusal(ResourceType.TOPIC, name, None, known_as)

    def may_write_nowhere(self) -> str:
        """Return the text of the error for a caller that may not write to any topic; "" without access control."""
        return "" if self.rights is None else self.rights.may_write_nowhere()

    def require(self, resource: ResourceType, name: str, operation: Operation | None = None) -> None:
        """Raise the error that `refusal` returns."""
        error = self.refusal(resource, name, operation)
        if error is not None:
            raise error

    def refused_lately(self, group_id: str, topic: str = "") -> str:
        """Return which consumers have recently been refused the group, or the topic; "" if none (PL-820, GC-127)."""
        named = {ResourceType.GROUP: group_id} | ({ResourceType.TOPIC: topic} if topic else {})
        return "" if self.rights is None else self.rights.access.refused_lately(named)

    def operations(self, resource: ResourceType, name: str) -> int:
        """Return the operations that the caller may do on the resource, as a bit set of their numbers (GC-128)."""
        return sum(1 << each for each in OPERATIONS[resource] if self.may(resource, name, each))

    @property
    def deadline_s(self) -> float | None:
        """Seconds until the caller's deadline; None without a deadline."""
        return self.time_remaining()


#: The caller of a handler that is called without one, as by the node itself.
NO_CALLER: Final = CallContext("", "", lambda: None)


class ServerStream(Protocol):
    """The server's end of a duplex stream.

    When the connection is lost, the handler is cancelled: clean up in `finally`. The stream ends when the handler
    returns.
    """

    @property
    def context(self) -> CallContext:
        """The caller that opened the stream."""
        ...

    async def read(self) -> Any:
        """Return the next message; None when the client ended the stream: then write the last responses and return."""
        ...

    async def write(self, message: Message) -> None:
        """Send one message. Several tasks may call it; messages are sent in the order of the calls."""
        ...


@dataclass(frozen=True, slots=True)
class BoundMethod:
    """One RPC and the method that serves it: a UnaryHandler, or a StreamHandler when `method.streaming`.

    `request_bytes_max`, `effect` and `needs` are those of its row in `rpc.table`.
    """

    method: Method[Message, Message]
    handler: Callable[..., Awaitable[Any]]
    request_bytes_max: int | None
    effect: Effect
    needs: Needs

    def memory_bytes(self, data: bytes, fields_max: int = FIELDS_MAX) -> int | None:
        """Return the bytes that a request takes in memory once it is parsed, its own bytes included.

        Returns None when it has more than `fields_max` fields, those of its entries included. Raises RpcFailureError
        when it is too large.
        """
        size, limit = len(data), self.request_bytes_max
        if limit is not None and size > limit:
            raise invalid_argument(f"the request of {self.method.name} has {size} bytes; at most {limit}")
        if size < COUNTED_FROM_BYTES:
            return size
        fields, entries = count(data, shape_of(self.method.request_type.DESCRIPTOR), fields_max)
        return None if fields > fields_max else size + entries * ENTRY_BYTES

    async def memory_bytes_in_thread(self, data: bytes) -> int:
        """Return what `memory_bytes` does, for a request of many fields: a thread counts them, one request at a time.

        Raises RpcFailureError when it is too large, or has more fields than any request needs.
        """
        size = await asyncio.get_running_loop().run_in_executor(_COUNTING, self.memory_bytes, data)
        if size is None:
            raise self._too_many()
        return size

    def parse(self, data: bytes) -> Message:
        """Parse a request. Raises DecodeError if it is malformed, RpcFailureError for too many bytes or fields."""
        if self.memory_bytes(data) is None:
            raise self._too_many()
        return self.method.request_type.FromString(data)

    def _too_many(self) -> RpcFailureError:
        return invalid_argument(
            f"the request of {self.method.name} has more than {FIELDS_MAX} fields, those of its entries included; "
            "send it in parts"
        )


def snake_case(name: str) -> str:
    """Turn `ShareGroupHeartbeat` into `share_group_heartbeat`."""
    return _WORD.sub("_", name).lower()


def bind(descriptor: ServiceDescriptor, service: object) -> list[BoundMethod]:
    """Return the RPCs of `descriptor` that `service` has methods for.

    Raises TypeError when there are none, and for an RPC without a row in the table.
    """
    bound = []
    for name, method in service_methods(descriptor).items():
        handler = getattr(service, snake_case(name), None)
        if handler is None:
            continue
        row = RPCS.get(method.path)
        if row is None:
            raise TypeError(f"{method.path} has no row in shard_runtime.rpc.table; add one beside its service's")
        bound.append(BoundMethod(method, handler, row.request.value, row.effect, row.needs))
    if not bound:
        raise TypeError(
            f"{type(service).__name__} has no method of {descriptor.full_name}; expected names such as "
            f"{snake_case(next(iter(service_methods(descriptor))))!r}"
        )
    return bound


def check_whole(descriptor: ServiceDescriptor, service: object, port: Port) -> None:
    """Check that `service` has methods for exactly those RPCs of `descriptor` that the table has for `port`.

    Raises a TypeError that names the RPCs for which this does not hold: the documentation repeats the table, so the
    table must be right.
    """
    tabled = {row.path for row in RPCS.values() if row.service == descriptor.full_name and port in row.ports}
    served = {bound.method.path for bound in bind(descriptor, service)}
    if wrong := sorted(tabled ^ served):
        raise TypeError(
            f"{type(service).__name__} and shard_runtime.rpc.table disagree about {', '.join(wrong)} at the port for "
            f"{port.name}; an RPC has a method and the port in its row, or neither"
        )
