"""A connection for tests of single handlers: it keeps what is asked, and returns or raises what the test has set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from google.protobuf.message import Message

from kafka_listener.ports import NO_TOPIC_ID, Broker, Making
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.errors import KafkaError
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.binding import NO_CALLER, CallContext

TOPIC = bytes(15) + b"\x07"


class Brokers:
    """A cluster of these brokers, without topics."""

    def __init__(self, *brokers: Broker) -> None:
        self.cluster_id = "c"
        self.node_id = 1
        self._brokers = brokers

    def brokers(self) -> Sequence[Broker]:
        return self._brokers

    def broker(self, node_id: int) -> Broker | None:
        return next((each for each in self._brokers if each.node_id == node_id), None)

    def topic_name(self, topic_id: bytes) -> str:
        return ""

    def topic_id(self, name: str) -> bytes:
        return NO_TOPIC_ID


class Scripted:
    """Answers each request with `result`, or raises it."""

    def __init__(self, result: Message | KafkaError, *brokers: Broker) -> None:
        self.result = result
        self.asked: list[tuple[str, ...]] = []
        self.requests: list[Any] = []
        self.context: CallContext = NO_CALLER
        self.lines = RateLimitedLog(structlog.get_logger())
        self.cluster = Brokers(*brokers)

    async def call(self, rpc: str, request: Message) -> Any:
        return self._answer((rpc,), request)

    async def produce(self, make: Making[ProduceRequest]) -> ProduceResponse | None:
        raise AssertionError("no handler of share groups produces")

    async def share_fetch(
        self, group: str, member: str, epoch: int, make: Making[ShareFetchRequest]
    ) -> ShareFetchResponse:
        found: ShareFetchResponse = self._answer(("share_fetch", group, member, str(epoch)), await make())
        return found

    async def share_acknowledge(
        self, group: str, member: str, epoch: int, make: Making[ShareAcknowledgeRequest]
    ) -> ShareAcknowledgeResponse:
        found: ShareAcknowledgeResponse = self._answer(("share_acknowledge", group, member, str(epoch)), await make())
        return found

    def _answer(self, asked: tuple[str, ...], request: Message | None) -> Any:
        self.asked.append(asked)
        self.requests.append(request)
        if isinstance(self.result, KafkaError):
            raise self.result
        return self.result
