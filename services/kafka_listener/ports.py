"""What the handlers of Kafka's requests see of their connection and of the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from google.protobuf.message import Message

from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.binding import CallContext

#: The id of a topic that is not known.
NO_TOPIC_ID: Final = bytes(16)

_Request = TypeVar("_Request", bound=Message)
#: Makes a request for a stream, in slices, when those before it have been handed on; None if there is nothing to ask.
Making = Callable[[], Awaitable[_Request | None]]


@dataclass(frozen=True, slots=True)
class Broker:
    """A node that has a Kafka listener, as Kafka's clients see it. `rack`: "" if it has none."""

    node_id: int
    host: str
    port: int
    rack: str = ""


class Cluster(Protocol):
    """The cluster, as this node knows it."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        ...

    @property
    def node_id(self) -> int:
        """The id of this node."""
        ...

    def brokers(self) -> Sequence[Broker]:
        """Return the live nodes that have a Kafka listener, in the order of their ids."""
        ...

    def broker(self, node_id: int) -> Broker | None:
        """Return one of the `brokers`; None when there is no such node, or it has no Kafka listener."""
        ...

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of a topic that exists; "" when it is not known."""
        ...

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic that exists; NO_TOPIC_ID when it is not known."""
        ...


class Connection(Protocol):
    """One client's connection, as the handler of one of its requests sees it."""

    @property
    def context(self) -> CallContext:
        """The caller, with the client id of this request. Its rights need nothing: `call` checks those of the RPC."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        ...

    @property
    def lines(self) -> RateLimitedLog:
        """The node's log of what clients want and do not get, where an answer has no room for the reason; limited,
        since clients cause its lines."""
        ...

    async def call(self, rpc: str, request: Message) -> Any:
        """Call a unary RPC of this node by its name in snake case, such as `create_topics`, with the rights that its
        row of the table of RPCs needs, and with the caller's quotas.

        Raises KafkaError: also NotCoordinatorError and NotLeaderOrFollowerError, when this node lacks the RPC's role.
        """
        ...

    async def produce(self, make: Making[ProduceRequest]) -> ProduceResponse | None:
        """Send records through the connection's one ProduceStream. Requests are made, and go to the node, in the order
        of this method's calls, also when the connection is lost meanwhile. Returns None for a request that is None.
        Raises KafkaError, and what `make` raises."""
        ...

    async def share_fetch(
        self, group: str, member: str, epoch: int, make: Making[ShareFetchRequest]
    ) -> ShareFetchResponse:
        """Send a ShareFetch through the connection's ShareStream of this member, as `produce` does. `epoch`: the
        session epoch of the request."""
        ...

    async def share_acknowledge(
        self, group: str, member: str, epoch: int, make: Making[ShareAcknowledgeRequest]
    ) -> ShareAcknowledgeResponse:
        """Send a ShareAcknowledge through the connection's ShareStream of this member, as `share_fetch` does."""
        ...


class Paced(NamedTuple):
    """An answer that is held back, since all it has to say is that partitions are refused (KL-16). `delay_ms`: for how
    long, at most `core.pacing.PAUSE_MS`. A handler returns this in place of the response."""

    response: Any
    delay_ms: int
