"""Shared by the clients' scenarios: a topic, a group and their clients, the first records, and counts of what is
sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from kip932.rpc.grpc_transport import GrpcTransport
from sharegroups import AcknowledgeType, Messages, Producer, ShareConsumer
from sharegroups.loop_thread import LoopThread
from tests.integration.scenarios.wire import Batches, State, Wire
from tests.support.node import Cluster, unique

EXPLICIT = "explicit"
BOUND_S = 30


class World:
    """A topic, a group, and their clients."""

    def __init__(self, cluster: Cluster, partitions: int = 1) -> None:
        self.cluster = cluster
        self.topic, self.group = unique("topic"), unique("group")
        self.topic_id = self.ask("create_topic", self.topic, partitions)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call a method of the wire, from this thread."""

        async def asked() -> Any:
            async with Wire(self.cluster.bootstrap, self.cluster.internal) as wire:
                return await getattr(wire, name)(*arguments)

        thread = LoopThread("asking")
        try:
            return thread.call(asked())
        finally:
            thread.stop()

    def state(self) -> State:
        found: State = self.ask("state", self.group, self.topic_id)
        return found

    def until_state(self, start: int, batches: Batches) -> None:
        self.ask("until_state", self.group, self.topic_id, start, batches)

    def produce(self, *values: str) -> None:
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for value in values:
                producer.produce(self.topic, value)

    @contextmanager
    def consumer(self, mode: str = "implicit", subscribed: bool = True, **settings: Any) -> Iterator[ShareConsumer]:
        """A member of the group, or of the group in `settings`."""
        given: dict[str, Any] = {"group_id": self.group, "share_acknowledgement_mode": mode, **settings}
        with ShareConsumer(bootstrap_servers=self.cluster.bootstrap, **given) as consumer:
            if subscribed:
                consumer.subscribe([self.topic])
            yield consumer


def first(consumer: ShareConsumer) -> Messages:
    """The first poll that returns records; assignment and initialisation take a moment."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        if messages := consumer.poll(1):
            return messages
    raise AssertionError("nothing was delivered")


def deliveries(messages: Messages) -> list[tuple[int, int]]:
    """Return (offset, delivery count) of each message."""
    return [(message.offset(), message.delivery_count()) for message in messages]


class CountingTransport(GrpcTransport):
    """Counts the records whose acknowledgements are sent, by type; keeps the renewal requests."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[AcknowledgeType] = Counter()
        self.renewing: list[Any] = []

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self._count(request)
        return await super().call(address, method, request, timeout_s)

    async def open_stream(self, address: str, method: Any) -> Any:
        stream = await super().open_stream(address, method)
        write = stream.write

        async def counted(message: Any) -> None:
            self._count(message)
            await write(message)

        return _Stream(stream, counted)

    def _count(self, message: Any) -> None:
        if isinstance(message, ShareStreamRequest):
            message = getattr(message, message.WhichOneof("request") or "fetch")
        if getattr(message, "is_renew_ack", False):
            self.renewing.append(message)
        topics = getattr(message, "topics", ())
        if "Share" in type(message).__name__ and hasattr(message, "share_session_epoch"):
            for batch in (one for topic in topics for part in topic.partitions for one in part.acknowledgement_batches):
                types = list(batch.acknowledge_types)
                if len(types) == 1:
                    types *= batch.last_offset - batch.first_offset + 1
                self.sent.update(map(AcknowledgeType, types))


class _Stream:
    """A stream that counts its writes."""

    def __init__(self, stream: Any, write: Any) -> None:
        self.read, self.close, self.write = stream.read, stream.close, write
        self.leave_connection = stream.leave_connection
