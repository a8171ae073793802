"""A connection whose node answers with what a test says: for handlers alone, without a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

import structlog
from google.protobuf.message import Message
from kio.serial import entity_reader

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Broker, Making
from kip932.acls import Acl, Operation, PatternType, Permission, ResourceType
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.access import Access, Rights
from shard_runtime.rpc.binding import CallContext, snake_case

ORDERS: Final = b"o" * 16
PAYMENTS: Final = b"p" * 16
TOPICS: Final[Mapping[str, bytes]] = {"orders": ORDERS, "payments": PAYMENTS}
BROKERS: Final = (Broker(1, "one.example", 9092), Broker(2, "two.example", 9093, "r2"))
USER: Final = "User:ann"

#: What the node answers to an RPC: a response, an error to raise, or a function of the request.
Answer = Message | Exception | Callable[[Any], Message]


class ScriptedCluster:
    """Two nodes with Kafka listeners, and two topics. Node 3 has no listener."""

    cluster_id = "a-cluster"
    node_id = 1

    def __init__(self, brokers: Iterable[Broker] = BROKERS) -> None:
        self._brokers = {each.node_id: each for each in brokers}

    def brokers(self) -> list[Broker]:
        return list(self._brokers.values())

    def broker(self, node_id: int) -> Broker | None:
        return self._brokers.get(node_id)

    def topic_name(self, topic_id: bytes) -> str:
        return next((name for name, known in TOPICS.items() if known == topic_id), "")

    def topic_id(self, name: str) -> bytes:
        return TOPICS.get(name, NO_TOPIC_ID)


class ScriptedConnection:
    """A connection; `calls` has the RPCs that were called, each with its request. Without access control, or for a
    caller that may do what `allowed` says."""

    def __init__(self, allowed: Iterable[Acl] | None = None, **answers: Answer) -> None:
        self.cluster = ScriptedCluster()
        self.calls: list[tuple[str, Any]] = []
        self.lines = RateLimitedLog(structlog.get_logger())
        self.context = CallContext("127.0.0.1:1", "1", lambda: None, client_id="a-client")
        if allowed is not None:
            access = Access()
            access.follow(frozenset(allowed))
            self.context.principal = USER
            self.context.rights = Rights(access, USER, "127.0.0.1", {})
        self._answers = answers

    async def call(self, rpc: str, request: Message) -> Any:
        self.calls.append((rpc, request))
        answer = self._answers[rpc]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Message) else answer(request)

    async def produce(self, make: Making[ProduceRequest]) -> ProduceResponse | None:
        request = await make()
        if request is None:
            return None
        response = await self.call("produce", request)
        assert isinstance(response, ProduceResponse)
        return response

    async def share_fetch(
        self, group: str, member: str, epoch: int, make: Making[ShareFetchRequest]
    ) -> ShareFetchResponse:
        raise NotImplementedError("none of these handlers needs it")

    async def share_acknowledge(
        self, group: str, member: str, epoch: int, make: Making[ShareAcknowledgeRequest]
    ) -> ShareAcknowledgeResponse:
        raise NotImplementedError("none of these handlers needs it")

    @property
    def request(self) -> Any:
        """The request of the only call."""
        ((_, request),) = self.calls
        return request


def allow(operation: Operation, name: str, resource: ResourceType = ResourceType.TOPIC) -> Acl:
    """Return an entry that allows the caller of these tests an operation."""
    return Acl(resource, name, PatternType.LITERAL, USER, "*", operation, Permission.ALLOW)


def asked(name: str, version: int, value: Any) -> Any:
    """Return a request as a handler gets it: it has gone over the wire."""
    found = api(name)
    return found.decode_request(version, b"".join(found.encode_request(version, value)))


def in_kio(name: str, version: int, response: Any) -> Any:
    """Return an answer as kio reads it, all of it to its last byte."""
    data = b"".join(api(name).encode_response(version, response))
    module = import_module(f"kio.schema.{snake_case(name)}.v{version}.response")
    value, size = entity_reader(getattr(module, f"{name}Response"))(data, 0)
    assert size == len(data), f"{len(data) - size} bytes are left of the answer"
    return value


async def answered(
    name: str, version: int, value: Any, connection: ScriptedConnection, answer: Callable[..., Awaitable[Any]]
) -> Any:
    """Return what kio reads of the answer to a request; None when there is no answer."""
    response = await answer(asked(name, version, value), version, connection)
    return None if response is None else in_kio(name, version, response)
