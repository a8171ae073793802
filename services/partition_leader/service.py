"""The handlers of PartitionLeaderService. A unary call and its stream share one handler (P-4)."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from kip932.acls import ResourceType
from kip932.api.v1 import (
    delete_records_pb2,
    describe_log_dirs_pb2,
    explain_record_pb2,
    fetch_pb2,
    list_offsets_pb2,
    list_share_progress_pb2,
    produce_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_stream_pb2,
)
from kip932.errors import InvalidRequestError, KafkaError
from partition_leader.explain.codec import explained, question_of, refused
from partition_leader.explain.record_explainer import RecordExplainer
from partition_leader.led_partitions import LedPartitions
from partition_leader.progress.service import ProgressService
from partition_leader.share_rpc.codec import (
    acknowledge_request,
    batch_bytes,
    fetch_request,
    fill_acknowledge_response,
    fill_fetch_response,
)
from partition_leader.share_rpc.requests import ShareRequests
from partition_leader.share_rpc.values import FETCH_MAX_BYTES, ShareAnswer, ShareRequest
from partition_leader.topic_rpc.fetch_and_offsets import FETCH_MAX_BYTES as OFFSET_FETCH_MAX_BYTES
from partition_leader.topic_rpc.fetch_and_offsets import OffsetsService
from partition_leader.topic_rpc.log_directory import GroupProgress
from partition_leader.topic_rpc.log_dirs import LogDirsService
from partition_leader.topic_rpc.produce import ProduceService
from partition_leader.topic_rpc.produce_transactions import Transactions
from shard_runtime.rpc.binding import CallContext, ServerStream
from shard_runtime.tracing import abandoned, failed, tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger(__name__)

_SERVICE: Final = "kip932.api.v1.PartitionLeaderService"
#: The maximum number of requests in flight on one share stream; no more are read until one is answered (CM-62).
IN_FLIGHT_PER_STREAM: Final = 64

#: The maximum bytes of batches in the responses of one share stream that the client has not read yet, those of requests
#: in flight included. There is room for one full response and a little more, for fetches in quick succession; a client
#: that does not read gets no more.
ANSWER_BYTES_PER_STREAM: Final = FETCH_MAX_BYTES + 8 * 1024 * 1024

#: How long a stream is kept open for its last responses once its client has stopped sending; a state write takes no
#: longer (PL-723).
HALF_CLOSED_S: Final = 20.0
#: How long a fetch may wait, in ms, on a stream whose client has been asked to move: it waits for its responses before
#: it moves, and polls without a pause if it does not (PL-533).
MOVING_WAIT_MS: Final = 100


class PartitionLeaderService:
    """The RPCs of a partition leader; those it has no method for are not served."""

    def __init__(
        self,
        led: LedPartitions,
        requests: ShareRequests,
        explainer: RecordExplainer,
        progress: GroupProgress,
        fetch_max_bytes: int = FETCH_MAX_BYTES,
        *,
        progress_service: ProgressService,
        transactions: Transactions | None = None,
        log_dirs: LogDirsService | None = None,
    ) -> None:
        self._led = led
        self._log_dirs = log_dirs or LogDirsService(led, None)
        self._requests = requests
        self._explainer = explainer
        self._progress_service = progress_service
        self._produce = ProduceService(led, transactions=transactions)
        self._offsets = OffsetsService(led, min(fetch_max_bytes, OFFSET_FETCH_MAX_BYTES), progress)

    async def produce(self, request: produce_pb2.ProduceRequest, context: CallContext) -> produce_pb2.ProduceResponse:
        """Append batches; respond once they are in the store."""
        return await self._produce.produce(request, context)

    async def produce_stream(self, stream: ServerStream) -> None:
        """Append batches, with many requests in flight."""
        await self._produce.produce_stream(_messages(stream), stream.write, stream.context)

    async def fetch(self, request: fetch_pb2.FetchRequest, context: CallContext) -> fetch_pb2.FetchResponse:
        """Read by offset, without a group."""
        return await self._offsets.fetch(request, context)

    async def list_offsets(
        self, request: list_offsets_pb2.ListOffsetsRequest, context: CallContext
    ) -> list_offsets_pb2.ListOffsetsResponse:
        """Return offsets by timestamp."""
        return await self._offsets.list_offsets(request, context)

    async def delete_records(
        self, request: delete_records_pb2.DeleteRecordsRequest, context: CallContext
    ) -> delete_records_pb2.DeleteRecordsResponse:
        """Move the log start."""
        return await self._offsets.delete_records(request, context)

    async def describe_log_dirs(
        self, request: describe_log_dirs_pb2.DescribeLogDirsRequest, context: CallContext
    ) -> describe_log_dirs_pb2.DescribeLogDirsResponse:
        """Return the sizes of logs, and how much space is left in the store."""
        return await self._log_dirs.describe_log_dirs(request, context)

    async def explain_record(
        self, request: explain_record_pb2.ExplainRecordRequest, context: CallContext
    ) -> explain_record_pb2.ExplainRecordResponse:
        """Explain why records are or are not delivered now (PL-820); changes nothing."""
        question = question_of(request)
        try:
            context.require(ResourceType.GROUP, request.group_id)
            not_allowed = self._led.refusal(context, request.topic_id)
            if not_allowed is not None:
                raise not_allowed
            answered = await self._explainer.explain(question)
            return explained(answered, context.refused_lately(request.group_id, self._led.name(request.topic_id)))
        except KafkaError as error:
            return refused(request, error, self._led)

    async def list_share_progress(
        self, request: list_share_progress_pb2.ListShareProgressRequest, context: CallContext
    ) -> list_share_progress_pb2.ListShareProgressResponse:
        """Return the progress of groups in the partitions led here (PL-951)."""
        return await self._progress_service.list_share_progress(request, context)

    async def share_fetch(
        self, request: share_fetch_pb2.ShareFetchRequest, context: CallContext
    ) -> share_fetch_pb2.ShareFetchResponse:
        """Acquire records; without a stream the session ends only by epoch −1 or idleness (PL-524)."""
        response = share_fetch_pb2.ShareFetchResponse()
        answer = await self._call(fetch_request(request, None, context))
        await context.share.turn(batch_bytes(answer))
        await fill_fetch_response(response, answer, self._led)
        return response

    async def share_acknowledge(
        self, request: share_acknowledge_pb2.ShareAcknowledgeRequest, context: CallContext
    ) -> share_acknowledge_pb2.ShareAcknowledgeResponse:
        """Acknowledge records; respond once the outcome is in the store."""
        response = share_acknowledge_pb2.ShareAcknowledgeResponse()
        await fill_acknowledge_response(
            response, await self._call(acknowledge_request(request, None, context)), self._led
        )
        return response

    async def share_stream(self, stream: ServerStream) -> None:
        """Serve ShareFetch and ShareAcknowledge of one session; the stream's end is the connection loss of PL-520."""
        await _ShareStream(stream, self._led, self._requests).run()

    async def _call(self, request: ShareRequest) -> ShareAnswer:
        answer: asyncio.Future[ShareAnswer] = asyncio.get_running_loop().create_future()

        def settle(value: ShareAnswer) -> None:
            if not answer.done():
                answer.set_result(value)

        handle = self._requests.handle(request, settle)
        try:
            return await answer
        except asyncio.CancelledError:
            self._requests.abandon(handle)
            raise


class _Answered(NamedTuple):
    """A response that is ready to be written, with the size of its batches."""

    correlation_id: int
    is_fetch: bool
    answer: ShareAnswer
    size_bytes: int


class _ShareStream:
    """One share stream: requests are started in order of arrival, and responses are written as they become ready.

    If a client does not read its responses, its requests are read only until 64 are in flight or the responses have
    reached their byte limit. A fetch is given the room that is left (CM-62), so no request waits for a parked fetch
    (P-5).
    """

    def __init__(self, stream: ServerStream, led: LedPartitions, requests: ShareRequests) -> None:
        self._stream = stream
        self._led = led
        self._requests = requests
        self._connection_id = requests.connection_made()
        self._running: dict[int, object] = {}
        #: The spans of those that are traced.
        self._spans: dict[int, Span] = {}
        self._ready: deque[_Answered] = deque()
        self._slots = asyncio.Semaphore(IN_FLIGHT_PER_STREAM)
        self._reserved_bytes = 0
        self._unwritten_bytes = 0
        self._share = stream.context.share
        self._answer_taken = asyncio.Event()
        self._idle: asyncio.Future[None] | None = None
        self._half_closed_by_client = False
        #: Whether the client is, or was, asked to move to another connection.
        self._moves = False
        self._move_unwritten = False

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        move_in_s = self._stream.context.move_in_s
        timer = None if move_in_s is None else loop.call_later(move_in_s, self._ask_to_move)
        writer = loop.create_task(self._write(), name="share-stream-answers")
        reader = loop.create_task(self._read(), name="share-stream-requests")
        try:
            await asyncio.wait({writer, reader}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not reader.cancelled():
                if (error := reader.exception()) is not None:
                    raise error
                await self._half_closed(writer)
            elif writer.done() and not writer.cancelled() and (broken := writer.exception()) is not None:
                log.info("share_stream_answer_failed", cause=str(broken), effect="the share stream ends")
        finally:
            # Report the connection loss before any await: requests that the loss ends must not be answered as if it had
            # not happened.
            if timer is not None:
                timer.cancel()
            for handle in list(self._running.values()):
                self._requests.abandon(handle)
            while self._spans:
                abandoned(self._spans.popitem()[1])
            self._requests.connection_lost(self._connection_id)
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            self._share.give(self._unwritten_bytes)

    async def _read(self) -> None:
        for sequence in itertools.count():
            message = await self._stream.read()
            if message is None:
                return
            await self._slots.acquire()
            while self._unwritten_bytes >= ANSWER_BYTES_PER_STREAM or (
                self._unwritten_bytes and not self._share.room_bytes
            ):
                self._answer_taken.clear()
                await self._answer_taken.wait()
            self._begin(sequence, message)
            del message

    async def _half_closed(self, writer: asyncio.Task[None]) -> None:
        """Serve a client that has stopped sending but still reads: answer all requests in flight, and parked fetches at
        once without records."""
        self._half_closed_by_client = True
        for handle in list(self._running.values()):
            self._requests.hurry(handle)
        self._wake()
        await asyncio.wait({writer}, timeout=HALF_CLOSED_S)

    def _ask_to_move(self) -> None:
        """Ask the client to continue over another connection, and let no fetch wait here for long (PL-533)."""
        self._moves = self._move_unwritten = True
        for handle in list(self._running.values()):
            self._requests.hurry(handle)
        self._wake()

    def _begin(self, sequence: int, message: share_stream_pb2.ShareStreamRequest) -> None:
        kind, promised = message.WhichOneof("request"), 0
        if kind == "fetch":
            if self._moves:
                message.fetch.max_wait_ms = min(message.fetch.max_wait_ms, MOVING_WAIT_MS)
            room = max(1, ANSWER_BYTES_PER_STREAM - self._reserved_bytes - self._unwritten_bytes)
            request = fetch_request(message.fetch, self._connection_id, self._stream.context, room)
            promised = min(max(message.fetch.max_bytes, 0), room)
        elif kind == "acknowledge":
            request = acknowledge_request(message.acknowledge, self._connection_id, self._stream.context)
        else:
            raise InvalidRequestError(
                f"share stream message {message.correlation_id} holds neither fetch nor acknowledge"
            )
        correlation_id, is_fetch = message.correlation_id, kind == "fetch"
        span = None
        if tracing.on and message.traceparent:
            span = tracing.begin(message.traceparent, f"{_SERVICE}/{'ShareFetch' if is_fetch else 'ShareAcknowledge'}")
            if span is not None:
                self._spans[sequence] = span

        def answered(answer: ShareAnswer) -> None:
            self._running.pop(sequence, None)
            if span is not None and self._spans.pop(sequence, None) is not None:
                _end_span(span, answer)
            size = batch_bytes(answer) if is_fetch else 0
            self._reserved_bytes -= promised
            self._unwritten_bytes += size
            self._share.add(size)
            self._ready.append(_Answered(correlation_id, is_fetch, answer, size))
            self._wake()

        self._running[sequence] = None
        self._reserved_bytes += promised
        handle = (
            self._requests.handle(request, answered)
            if span is None
            else tracing.within(span, self._requests.handle, request, answered)
        )
        if sequence in self._running:
            self._running[sequence] = handle

    def _wake(self) -> None:
        """Wake the writer."""
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while self._ready or not self._half_closed_by_client or self._running:
            if self._move_unwritten:
                self._move_unwritten = False
                await self._stream.write(share_stream_pb2.ShareStreamResponse(move=True))
                continue
            if not self._ready:
                self._idle = loop.create_future()
                await self._idle
                continue
            answered = self._ready.popleft()
            await self._share.turn(answered.size_bytes)
            await self._stream.write(await self._response(answered))
            self._unwritten_bytes -= answered.size_bytes
            self._share.give(answered.size_bytes)
            self._answer_taken.set()
            self._slots.release()

    async def _response(self, answered: _Answered) -> share_stream_pb2.ShareStreamResponse:
        response = share_stream_pb2.ShareStreamResponse(correlation_id=answered.correlation_id)
        if answered.is_fetch:
            await fill_fetch_response(response.fetch, answered.answer, self._led)
        else:
            await fill_acknowledge_response(response.acknowledge, answered.answer, self._led)
        return response


def _end_span(span: Span, answer: ShareAnswer) -> None:
    """End a request's span; it failed if an acknowledgement did."""
    for error in (answer.error, *(one.acknowledge_error for one in answer.partitions)):
        if error is not None:
            failed(span, error)
    span.end()


async def _messages(stream: ServerStream) -> AsyncIterator[produce_pb2.ProduceStreamRequest]:
    while (message := await stream.read()) is not None:
        yield message
        del message  # do not keep it while the next one is awaited
