"""Produce, unary and as a stream (CM-42, CM-43, P-1, P-4): proto ⇄ values around `TopicLog.submit`.

A request is put into all its partitions' queues in one step, without waiting, so requests of one stream are appended in
the order of their arrival; answers go out as partitions are confirmed and may overtake each other. It opens a batch
once, to see that it is what its header says (15 µs for 500 records); nobody opens it again on its way to a consumer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from google.protobuf.message import DecodeError

from kip932.api.v1 import produce_pb2 as pb
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidRequestError,
    KafkaError,
    MessageTooLargeError,
)
from kip932.ids import TopicIdPartition
from partition_leader.leader_codec import LeaderNames, wire_code
from partition_leader.log_core.batch import NO_PRODUCER, NewBatch
from partition_leader.log_directory import WRITE, LogDirectory, checked_topic_id
from partition_leader.topic_log_state import AppendOutcome
from shard_runtime.rpc.bounds import check_batches, check_partitions

Write = Callable[[pb.ProduceStreamResponse], Awaitable[None]]

ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
GZIP: Final = 1
TIMEOUT_MS: Final = 30_000
TIMEOUT_MAX_MS: Final = 300_000
IN_FLIGHT_PER_STREAM: Final = 64
_SEQUENCE_MAX: Final = 2**31 - 1

_Result = tuple[TopicIdPartition, "asyncio.Future[AppendOutcome] | AppendOutcome"]


class PendingProduce:
    """One request between its submission and its answer. `when_done` is called once all partitions are settled."""

    __slots__ = ("_directory", "_left", "_results", "_when_done", "correlation_id")

    def __init__(self, results: Sequence[_Result], directory: LogDirectory, correlation_id: int = 0) -> None:
        self.correlation_id = correlation_id
        self._results = results
        self._directory = directory
        self._when_done: Callable[[PendingProduce], None] | None = None
        self._left = 0

    def when_done(self, callback: Callable[[PendingProduce], None]) -> None:
        """Call `callback` once: at once if there is nothing to wait for."""
        waiting = [result for _, result in self._results if isinstance(result, asyncio.Future) and not result.done()]
        self._left = len(waiting)
        self._when_done = callback
        for future in waiting:
            future.add_done_callback(self._settled)
        if not waiting:
            callback(self)

    def _settled(self, _: asyncio.Future[AppendOutcome]) -> None:
        self._left -= 1
        if self._left == 0 and self._when_done is not None:
            self._when_done(self)

    async def wait(self) -> None:
        """Until all partitions are settled."""
        for _, result in self._results:
            if isinstance(result, asyncio.Future):
                await result

    def response(self) -> pb.ProduceResponse:
        """The answer, topics and partitions in the order of the request."""
        response = pb.ProduceResponse()
        names = LeaderNames(self._directory)
        topic: pb.ProduceResponse.TopicResult | None = None
        for partition, result in self._results:
            if topic is None or topic.topic_id != partition.topic_id:
                topic = response.responses.add(topic_id=partition.topic_id)
            outcome = result.result() if isinstance(result, asyncio.Future) else result
            one = topic.partition_responses.add(
                index=partition.partition,
                base_offset=outcome.base_offsets[0] if outcome.base_offsets else -1,
                log_append_time_ms=outcome.append_time_ms,
                log_start_offset=outcome.log_start_offset,
                base_offsets=outcome.base_offsets,
            )
            if outcome.error is not None:
                one.error_code = wire_code(outcome.error)
                one.error_message = outcome.error.message
                names.fill(one.current_leader, partition, outcome.error)
        response.node_endpoints.extend(names.endpoints)
        return response


class ProduceService:
    """The Produce handlers. `directory` knows which logs this node leads; `context` comes from the server."""

    def __init__(self, directory: LogDirectory, in_flight_per_stream: int = IN_FLIGHT_PER_STREAM) -> None:
        self._directory = directory
        self._in_flight = in_flight_per_stream

    async def produce(self, request: pb.ProduceRequest, context: object = None) -> pb.ProduceResponse:
        """Append and answer once every partition is confirmed or refused. InvalidRequestError: a bad topic id, or
        more partitions or batches than a request may hold (CM-62)."""
        pending = self.begin(request, context)
        await pending.wait()
        return pending.response()

    async def produce_stream(
        self, requests: AsyncIterator[pb.ProduceStreamRequest], write: Write, context: object = None
    ) -> None:
        """Serve one stream until its requests end and all are answered; when `write` fails, the stream is over.

        At most `in_flight_per_stream` requests are in flight; further ones are not read until one is answered.
        """
        answers = _Answers(write, self._in_flight)
        loop = asyncio.get_running_loop()
        reader = loop.create_task(self._read_stream(requests, answers, context), name="produce-stream-requests")
        writer = loop.create_task(answers.run(), name="produce-stream-answers")
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()  # a broken stream ends here; what is in flight is still appended
            await writer
        finally:
            reader.cancel()
            writer.cancel()
            await asyncio.wait({reader, writer})

    async def _read_stream(
        self, requests: AsyncIterator[pb.ProduceStreamRequest], answers: _Answers, context: object
    ) -> None:
        async for message in requests:
            await answers.expect(self.begin(message.request, context, message.correlation_id))
        answers.close()

    def begin(self, request: pb.ProduceRequest, context: object = None, correlation_id: int = 0) -> PendingProduce:
        """Validate, and put everything into its partition's queue; never waits. InvalidRequestError as in `produce`."""
        check_partitions((request.topic_data, "partition_data"))
        check_batches(sum(len(data.batches) for topic in request.topic_data for data in topic.partition_data))
        ids = [checked_topic_id(topic.topic_id) for topic in request.topic_data]
        timeout_ms = min(request.timeout_ms, TIMEOUT_MAX_MS) if request.timeout_ms > 0 else TIMEOUT_MS
        results: list[_Result] = []
        for topic_id, topic in zip(ids, request.topic_data, strict=True):
            refusal = self._refusal(request, topic_id, context)
            for data in topic.partition_data:
                partition = TopicIdPartition(topic_id, data.index)
                if refusal is None:
                    results.append((partition, self._submit(partition, data.batches, timeout_ms)))
                else:
                    results.append((partition, AppendOutcome((), -1, -1, refusal)))
        return PendingProduce(results, self._directory, correlation_id)

    def _refusal(self, request: pb.ProduceRequest, topic_id: bytes, context: object) -> KafkaError | None:
        if request.acks not in {ACKS_ALL, ACKS_LEADER}:
            return InvalidRequestError(f"acks is {request.acks}; expected 1 or -1 (all)")
        if request.HasField("transactional_id"):
            return InvalidRequestError("this cluster does not serve transactions yet; produce without transactional_id")
        try:
            self._directory.check_access(context, WRITE, topic_id)
        except KafkaError as error:
            return error
        return None

    def _submit(
        self, partition: TopicIdPartition, batches: Sequence[pb.ProduceRequest.Batch], timeout_ms: int
    ) -> asyncio.Future[AppendOutcome] | AppendOutcome:
        try:
            topic_log = self._directory.log(partition)
            limit = self._directory.max_message_bytes(partition.topic_id)
            return topic_log.submit(new_batches(batches, limit), timeout_ms)
        except KafkaError as error:
            return AppendOutcome((), -1, -1, error)


class _Answers:
    """The answers of one stream: written one at a time by one task, in the order in which they become ready."""

    def __init__(self, write: Write, limit: int) -> None:
        self._write = write
        self._slots = asyncio.Semaphore(limit)
        self._ready: deque[PendingProduce] = deque()
        self._wake = asyncio.Event()
        self._expected = 0
        self._closed = False

    async def expect(self, pending: PendingProduce) -> None:
        """One more answer will be due; waits for room, so that the next request is not read before."""
        self._expected += 1
        pending.when_done(self._done)
        await self._slots.acquire()

    def close(self) -> None:
        """Nothing more will be expected."""
        self._closed = True
        self._wake.set()

    def _done(self, pending: PendingProduce) -> None:
        self._ready.append(pending)
        self._wake.set()

    async def run(self) -> None:
        """Write answers until all expected are written and the stream is closed, or `write` fails."""
        while self._expected or not self._closed:
            await self._wake.wait()
            self._wake.clear()
            while self._ready:
                pending = self._ready.popleft()
                response = pending.response()
                await self._write(pb.ProduceStreamResponse(correlation_id=pending.correlation_id, response=response))
                self._expected -= 1
                self._slots.release()


def new_batches(batches: Sequence[pb.ProduceRequest.Batch], max_message_bytes: int) -> list[NewBatch]:
    """Validate what a producer sent for one partition (CM-42). Raises InvalidRecordError, CorruptMessageError,
    MessageTooLargeError, InvalidRequestError."""
    if not batches:
        raise InvalidRecordError("no record batch was sent for this partition; expected at least one")
    return [_new_batch(batch, max_message_bytes) for batch in batches]


def _new_batch(batch: pb.ProduceRequest.Batch, max_message_bytes: int) -> NewBatch:
    data = batch.record_batch
    if len(data) > max_message_bytes:
        raise MessageTooLargeError(
            f"the record batch has {len(data)} bytes; max.message.bytes of the topic is {max_message_bytes}"
        )
    if batch.record_count < 1 or not data:
        raise InvalidRecordError(
            f"the record batch says {batch.record_count} records in {len(data)} bytes; expected some"
        )
    if batch.is_transactional:
        raise InvalidRequestError("this cluster does not serve transactions yet; send is_transactional = false")
    _check_count(data, batch.record_count)
    producer_id = batch.producer_id if batch.producer_id >= 0 else NO_PRODUCER
    if producer_id != NO_PRODUCER and (batch.producer_epoch < 0 or not 0 <= batch.base_sequence <= _SEQUENCE_MAX):
        raise InvalidRecordError(
            f"producer {producer_id} sent epoch {batch.producer_epoch} and sequence {batch.base_sequence}; "
            "expected both from 0 on"
        )
    if producer_id == NO_PRODUCER:
        return NewBatch(data, batch.record_count, batch.max_timestamp_ms)
    return NewBatch(
        data, batch.record_count, batch.max_timestamp_ms, producer_id, batch.producer_epoch, batch.base_sequence
    )


def _check_count(data: bytes, record_count: int) -> None:
    """The bytes are a RecordBatch of that many records. A compressed one is not unpacked: its count is the producer's
    word, and consumers meet a lie as gaps."""
    try:
        value = RecordBatch.FromString(data)
    except DecodeError as error:
        raise CorruptMessageError(f"the {len(data)} bytes of the record batch cannot be decoded: {error}") from error
    if value.compression == 0:
        found = len(value.records)
        if found != record_count:
            raise InvalidRecordError(f"the record batch holds {found} records; its header says {record_count}")
    elif value.compression != GZIP:
        raise InvalidRecordError(f"the record batch has compression {value.compression}; expected 0 (none) or 1 (gzip)")
    elif not value.compressed_records:
        raise InvalidRecordError("the record batch is marked compressed and holds no compressed records")
