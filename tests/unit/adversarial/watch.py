"""What partition leaders were asked and what they answered, in the order in which it left them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kip932.ids import ACK_ACCEPT, ACK_REJECT

FINAL = frozenset({ACK_ACCEPT, ACK_REJECT})


Batches = tuple[tuple[int, int, tuple[int, ...]], ...]


class Acquired(NamedTuple):
    at: float
    node: str
    member: str
    topic: bytes
    partition: int
    first: int
    last: int
    attempt: int


class Answered(NamedTuple):
    """One partition's acknowledgements and the code they were answered with."""

    at: float
    asked_at: float
    node: str
    member: str
    topic: bytes
    partition: int
    batches: Batches
    code: int

    def finals(self) -> list[int]:
        """Offsets that it accepts or rejects."""
        return finals(self.batches)


class Asked(NamedTuple):
    """One partition's acknowledgements as they arrived."""

    at: float
    member: str
    topic: bytes
    partition: int
    batches: Batches


def finals(batches: Batches) -> list[int]:
    """Offsets that acknowledgement batches accept or reject."""
    offsets = []
    for first, last, types in batches:
        for index, offset in enumerate(range(first, last + 1)):
            kind = types[index] if len(types) > 1 else types[0]
            if kind in FINAL:
                offsets.append(offset)
    return offsets


@dataclass
class Watch:
    """The record of one run."""

    events: list[Acquired | Answered | Asked] = field(default_factory=list)

    def over(self, service: Any, node: str) -> object:
        """The service with an observer on its share streams."""
        return _Watched(service, self, node)

    def ask(self, request: Any) -> None:
        """A request arrived."""
        now = asyncio.get_running_loop().time()
        self.events += [
            Asked(now, request.member_id, *name, batches) for name, batches in _acknowledged(request).items()
        ]

    def answer(self, node: str, asked_at: float, request: Any, response: Any) -> None:
        now = asyncio.get_running_loop().time()
        member = request.member_id
        asked = _acknowledged(request)
        fetch = hasattr(response, "session_id")
        for topic in response.responses:
            for part in topic.partitions:
                key = (topic.topic_id, part.partition_index)
                code = part.acknowledge_error_code if fetch else part.error_code
                if response.error_code:
                    code = response.error_code
                batches = asked.pop(key, ())
                if batches:
                    self.events.append(Answered(now, asked_at, node, member, *key, batches, code))
                if fetch:
                    for run in part.acquired_records:
                        self.events.append(
                            Acquired(now, node, member, *key, run.first_offset, run.last_offset, run.delivery_count)
                        )
        for key, batches in asked.items():
            code = response.error_code if response.error_code else (0 if fetch else -1)
            self.events.append(Answered(now, asked_at, node, member, *key, batches, code))


def _acknowledged(request: Any) -> dict[tuple[bytes, int], Batches]:
    return {
        (topic.topic_id, part.partition_index): tuple(
            (batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in part.acknowledgement_batches
        )
        for topic in request.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    }


class _Watched:
    def __init__(self, service: Any, watch: Watch, node: str) -> None:
        self._service = service
        self._watch = watch
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def share_stream(self, stream: Any) -> None:
        await self._service.share_stream(_WatchedStream(stream, self._watch, self._node))


class _WatchedStream:
    def __init__(self, stream: Any, watch: Watch, node: str) -> None:
        self._stream = stream
        self._watch = watch
        self._node = node
        self._asked: dict[int, tuple[float, Any]] = {}

    @property
    def context(self) -> Any:
        return self._stream.context

    async def read(self) -> Any:
        message = await self._stream.read()
        if message is not None:
            request = getattr(message, message.WhichOneof("request"))
            self._watch.ask(request)
            self._asked[message.correlation_id] = (asyncio.get_running_loop().time(), request)
        return message

    async def write(self, message: Any) -> None:
        asked = self._asked.pop(message.correlation_id, None)
        if asked is not None:
            response = getattr(message, message.WhichOneof("response"))
            self._watch.answer(self._node, *asked, response)
        await self._stream.write(message)
