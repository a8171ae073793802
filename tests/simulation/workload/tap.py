"""A producer's transport that notes under which topic id each record was confirmed.

A delivery report only gives the topic's name, and names are reused (CM-21); the messages on the wire are unambiguous.
"""

from __future__ import annotations

from typing import Any

from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse, ProduceStreamRequest, ProduceStreamResponse
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.rpc.transport import ClientStream, Method, RequestT, ResponseT, Transport
from tests.simulation.history import Place


class ProduceTap:
    """A `Transport`; `places` contains every value that a leader confirmed to this client."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.places: dict[bytes, Place] = {}

    async def call(
        self, address: str, method: Method[RequestT, ResponseT], request: RequestT, timeout_s: float
    ) -> ResponseT:
        return await self._transport.call(address, method, request, timeout_s)

    async def open_stream(self, address: str, method: Method[RequestT, ResponseT]) -> ClientStream[RequestT, ResponseT]:
        stream: Any = _Stream(await self._transport.open_stream(address, method), self.places)
        return stream  # type: ignore[no-any-return]  # a producer opens streams of one kind only

    async def close(self) -> None:
        await self._transport.close()


class _Stream:
    def __init__(self, stream: ClientStream[Any, Any], places: dict[bytes, Place]) -> None:
        self._stream = stream
        self._places = places
        self._sent: dict[int, ProduceRequest] = {}

    async def write(self, message: ProduceStreamRequest) -> None:
        self._sent[message.correlation_id] = message.request
        await self._stream.write(message)

    async def read(self) -> ProduceStreamResponse | None:
        message: ProduceStreamResponse | None = await self._stream.read()
        if message is not None and not message.move:
            self._note(self._sent.pop(message.correlation_id), message.response)
        return message

    def leave_connection(self) -> None:
        self._stream.leave_connection()

    async def close(self) -> None:
        await self._stream.close()

    def _note(self, request: ProduceRequest, response: ProduceResponse) -> None:
        asked = {
            (topic.topic_id, part.index): part.batches for topic in request.topic_data for part in topic.partition_data
        }
        for topic in response.responses:
            for part in topic.partition_responses:
                if part.error_code == 0:
                    batches = asked[topic.topic_id, part.index]
                    for base, batch in zip(part.base_offsets, batches, strict=True):
                        self._note_batch(topic.topic_id.hex(), part.index, base, batch.record_batch)

    def _note_batch(self, topic_id: str, partition: int, base: int, data: bytes) -> None:
        for index, record in enumerate(RecordBatch.FromString(data).records):
            self._places[record.value] = Place(topic_id, partition, base + index)
