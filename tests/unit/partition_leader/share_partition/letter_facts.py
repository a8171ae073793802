"""Scripted facts about dead-letter queues, and another node whose responses are scripted."""

from __future__ import annotations

from collections import deque
from typing import Any

from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.errors import KafkaError
from kip932.ids import TopicIdPartition
from kip932.rpc.transport import TransportError, TransportStatus
from partition_leader.dead_letters.core.destination import Queue, QueueTopic, View

DLQ = bytes(15) + b"\x0d"


class ScriptedLetterFacts:
    """A `LetterFacts` whose values a test sets. By default no group has a dead-letter queue."""

    def __init__(self, names: dict[bytes, str]) -> None:
        self.names = names
        self.now = View(1 << 62, True, Queue(), None, "dlq.", False)
        self.created: list[str] = []
        self.create_error: KafkaError | None = None
        self.letters_in: set[bytes] = set()
        self.creates_as = QueueTopic(DLQ, 1, True, 1 << 20)

    def queue(self, topic: str = "dlq.t", partitions: int = 1, **fields: Any) -> None:
        """Give every group this dead-letter queue. `fields` override values of the queue, its topic and the view."""
        queue = Queue(topic, fields.pop("copies", False), fields.pop("drops", False))
        found: QueueTopic | None = QueueTopic(
            DLQ, partitions, fields.pop("enabled", True), fields.pop("max_message_bytes", 1 << 20)
        )
        if fields.pop("missing", False):
            found = None
        self.now = self.now._replace(queue=queue, topic=found, **fields)

    def view(self, group_id: str) -> View:
        return self.now

    def name(self, topic_id: bytes) -> str:
        return self.names.get(topic_id, "")

    def takes_letters(self, topic_id: bytes) -> bool:
        return topic_id in self.letters_in

    async def create(self, name: str) -> None:
        self.created.append(name)
        if self.create_error is not None:
            raise self.create_error
        self.now = self.now._replace(topic=self.creates_as)


class Elsewhere:
    """Another node, which leads the partitions that this one does not; a `Transport`. `answers`: an error code or a
    TransportStatus for each of the next requests; if it is empty, the code is 0. `held`: an event that requests wait
    for."""

    def __init__(self) -> None:
        self.requests: list[ProduceRequest] = []
        self.answers: deque[int | TransportStatus] = deque()
        self.address: str | None = "other:1"
        self.held: Any = None
        self.running = 0
        self.most = 0

    def leader_of(self, partition: TopicIdPartition) -> str | None:
        return self.address

    async def call(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
        self.requests.append(request)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if self.held is not None:
                await self.held.wait()
        finally:
            self.running -= 1
        code = self.answers.popleft() if self.answers else 0
        if isinstance(code, TransportStatus):
            raise TransportError(code, address)
        response = ProduceResponse()
        for topic in request.topic_data:
            result = response.responses.add(topic_id=topic.topic_id)
            for part in topic.partition_data:
                result.partition_responses.add(index=part.index, error_code=code)
        return response

    async def open_stream(self, address: str, method: Any) -> Any:
        raise TransportError(TransportStatus.UNIMPLEMENTED, address)

    async def close(self) -> None:
        return None
