"""The Transport protocol: unary calls and duplex streams to an address, by method.

It belongs to `kip932` because client and services both use it, and they share only `kip932`.
`kip932.rpc.grpc_transport` is the client side of gRPC; tests have one in memory, which implements both sides. Responses
carry Kafka's error codes; a TransportError only says that no response came (CM §1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)
RequestT_contra = TypeVar("RequestT_contra", bound=Message, contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", bound=Message, covariant=True)


class TransportStatus(StrEnum):
    """The reason why no response came, with gRPC's status names."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    ABORTED = "ABORTED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    UNAUTHENTICATED = "UNAUTHENTICATED"


#: The key of the call metadata that carries `client.id`. Services only show it to people; no decision depends on it.
CLIENT_ID_KEY = "sharegroups-client-id"

#: After these statuses the same call may be retried (CL-16).
RETRIABLE_STATUSES = frozenset(
    {
        TransportStatus.UNAVAILABLE,
        TransportStatus.DEADLINE_EXCEEDED,
        TransportStatus.CANCELLED,
        TransportStatus.ABORTED,
        TransportStatus.INTERNAL,
        TransportStatus.UNKNOWN,
        TransportStatus.RESOURCE_EXHAUSTED,
    }
)


class TransportError(Exception):
    """No response came from the peer. The request may have taken effect, unless the status says otherwise.

    `throttle_ms`: with RESOURCE_EXHAUSTED, how long not to send requests to the peer (CM-92); 0 when unspecified.
    `sent`: False if this side sent nothing, for a reason of its own, such as a secret that would go out without TLS.
    """

    def __init__(
        self, status: TransportStatus, address: str, message: str = "", throttle_ms: int = 0, *, sent: bool = True
    ) -> None:
        super().__init__(f"{address}: {status.value}{': ' + message if message else ''}")
        self.status = status
        self.address = address
        self.throttle_ms = throttle_ms
        self.sent = sent

    @property
    def refusal(self) -> str:
        """Say who refused a call that failed with UNAUTHENTICATED or another status that a retry cannot help."""
        return f"the node refused the call: {self}" if self.sent else f"the call was not sent: {self}"

    @property
    def retriable(self) -> bool:
        """True when a retry of the same request may help."""
        return self.status in RETRIABLE_STATUSES


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ResponseT]):
    """One RPC: its path `/package.Service/Method`, its message types, and whether both sides stream."""

    path: str
    request_type: type[RequestT]
    response_type: type[ResponseT]
    streaming: bool = False

    @property
    def name(self) -> str:
        """The method's name without its service."""
        return self.path.rpartition("/")[2]


def service_methods(service: ServiceDescriptor) -> dict[str, Method[Message, Message]]:
    """Every method of a service by name: `service_methods(pb2.DESCRIPTOR.services_by_name["ClusterService"])`."""
    return {
        method.name: Method(
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            method.client_streaming and method.server_streaming,
        )
        for method in service.methods
    }


class ClientStream(Protocol[RequestT_contra, ResponseT_co]):
    """The client's end of a duplex stream. After use, and after an error, call `close`."""

    async def write(self, message: RequestT_contra) -> None:
        """Send one message. Raises TransportError when the stream has ended; then open a new stream."""
        ...

    async def read(self) -> ResponseT_co | None:
        """The next message; None when the peer closed the stream. Raises TransportError when the stream broke.

        After None or an error no message follows.
        """
        ...

    def leave_connection(self) -> None:
        """Let later calls and streams to the peer use a connection newer than this stream's, which stays open for the
        calls that it has."""
        ...

    async def close(self) -> None:
        """End the stream from this side; the peer takes that as a lost connection (PL-524). Never raises."""
        ...


class Transport(Protocol):
    """Calls to peers by address (`host:port`), over one long-lived channel per peer. Its creator must call `close`."""

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        """Make one unary call. Raises TransportError. It never retries, so the caller must."""
        ...

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        """Open a duplex stream. Raises TransportError; for an unreachable peer the first read or write may raise it
        instead."""
        ...

    async def close(self) -> None:
        """Close every channel. Calls in flight fail with TransportError (CANCELLED)."""
        ...
