"""Produce, as a unary call and as a stream (CM-42, CM-43, P-1, P-4): translates messages for `TopicLog.submit` and
back.

A request is checked and put into its partitions' queues before the next one of its stream is read, so requests of one
stream are appended in order of arrival. A response is sent when its partitions are confirmed; responses may be out of
order. Each batch is decoded once, to check that it matches its header. If that takes long, it is done in a thread, and
a request with many batches is handled in steps (CM-112, CM-113), so that no request blocks the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from kip932.acls import ResourceType
from kip932.api.v1 import produce_pb2 as pb
from kip932.errors import InvalidRequestError, InvalidRequiredAcksError, KafkaError
from kip932.ids import TopicIdPartition
from kip932.quotas import PRODUCER_BYTE_RATE
from partition_leader.topic_log.state import AppendOutcome
from partition_leader.topic_rpc.error_codec import LeaderNames, wire_code
from partition_leader.topic_rpc.log_directory import LogDirectory, checked_topic_id
from partition_leader.topic_rpc.produce_batches import ProducedPart, check_rest
from partition_leader.topic_rpc.produce_quota import admitted
from partition_leader.topic_rpc.produce_transactions import Transactions, join_transaction
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.bounds import Turns, check_batches, check_partitions
from shard_runtime.rpc.budget import UNBOUNDED, Reserved, Share
from shard_runtime.rpc.quotas import CallerQuota
from shard_runtime.tracing import failed, tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Write = Callable[[pb.ProduceStreamResponse], Awaitable[None]]

_SERVICE: Final = "kip932.api.v1.PartitionLeaderService"
ACKS_ALL: Final = -1
ACKS_LEADER: Final = 1
TIMEOUT_MS: Final = 30_000
TIMEOUT_MAX_MS: Final = 300_000
IN_FLIGHT_PER_STREAM: Final = 64
#: How many bytes of a request's batches are checked on the event loop; the rest is checked in a thread.
_CHECKED_AT_ONCE: Final = 1 << 20
#: How many partitions and batches are handled before other tasks run: about 5 ms.
_STEP: Final = 256
#: How many batches of one request may be queued for the store at the same time; all partitions share the store's
#: connection.
_QUEUED_BATCHES_MAX: Final = 1024

_Result = tuple[TopicIdPartition, "asyncio.Future[AppendOutcome] | AppendOutcome"]


class PendingProduce:
    """One request from its submission to its response. `when_done` callbacks run when all partitions are settled."""

    __slots__ = ("_directory", "_left", "_quota", "_results", "_when_done", "correlation_id", "span")

    def __init__(
        self,
        results: Sequence[_Result],
        directory: LogDirectory,
        correlation_id: int = 0,
        quota: CallerQuota | None = None,
    ) -> None:
        """`quota`: the one that limits the caller, if any."""
        self.correlation_id = correlation_id
        #: The span of the request, if it is traced; ended by the stream that answers it.
        self.span: Span | None = None
        self._quota = quota
        self._results = results
        self._directory = directory
        self._when_done: Callable[[PendingProduce], None] | None = None
        self._left = 0

    def when_done(self, callback: Callable[[PendingProduce], None]) -> None:
        """Call `callback` once, when all partitions are settled; at once if they are."""
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

    def end_span(self) -> None:
        """End the request's span, if it has one; all partitions are settled."""
        if self.span is None:
            return
        for _, result in self._results:
            outcome = result.result() if isinstance(result, asyncio.Future) else result
            if outcome.error is not None:
                failed(self.span, outcome.error)
        self.span.end()

    async def wait(self) -> None:
        """Wait until all partitions are settled."""
        for _, result in self._results:
            if isinstance(result, asyncio.Future):
                await result

    async def response(self) -> pb.ProduceResponse:
        """Return the response, with topics and partitions in the request's order. It is built in steps (CM-98), which
        is safe because all partitions are settled and nothing can change."""
        response, turns = pb.ProduceResponse(), Turns(_STEP)
        names = LeaderNames(self._directory)
        topic: pb.ProduceResponse.TopicResult | None = None
        for partition, result in self._results:
            await turns.step()
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
        if self._quota is not None:
            response.throttle_time_ms = self._quota.throttle_ms()
        return response


class ProduceService:
    """The Produce handlers. `directory` holds the logs that this node leads; `context` comes from the server."""

    def __init__(
        self,
        directory: LogDirectory,
        in_flight_per_stream: int = IN_FLIGHT_PER_STREAM,
        transactions: Transactions | None = None,
    ) -> None:
        self._directory = directory
        self._transactions = transactions
        self._in_flight = in_flight_per_stream
        # One thread: a stream waits for its own check, so each stream or call has at most one request there.
        self._checks = ThreadPoolExecutor(max_workers=1, thread_name_prefix="check-batches")

    async def produce(self, request: pb.ProduceRequest, context: CallContext = NO_CALLER) -> pb.ProduceResponse:
        """Append batches; respond when every partition is confirmed or refused. Raises InvalidRequestError for a bad
        topic id, or for more partitions or batches than a request may have (CM-62)."""
        pending = await self._take(request, context)
        await pending.wait()
        return await pending.response()

    async def produce_stream(
        self, requests: AsyncIterator[pb.ProduceStreamRequest], write: Write, context: CallContext = NO_CALLER
    ) -> None:
        """Serve one stream until its requests end and all are answered, or until `write` fails.

        At most `in_flight_per_stream` requests are in flight; further ones are not read until one is answered.
        """
        answers = _Answers(write, self._in_flight, context.share)
        loop = asyncio.get_running_loop()
        timer = None if context.move_in_s is None else loop.call_later(context.move_in_s, answers.ask_to_move)
        reader = loop.create_task(self._read_stream(requests, answers, context), name="produce-stream-requests")
        writer = loop.create_task(answers.run(), name="produce-stream-answers")
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()  # a broken stream ends here; requests in flight are still appended
            await writer
        finally:
            if timer is not None:
                timer.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.wait({reader, writer})

    async def _read_stream(
        self, requests: AsyncIterator[pb.ProduceStreamRequest], answers: _Answers, context: CallContext
    ) -> None:
        async for message in requests:
            size = context.message_bytes
            answers.came(size)
            span = None
            if tracing.on and message.traceparent:
                span = tracing.begin(message.traceparent, f"{_SERVICE}/Produce")
            try:
                pending = await self._take(message.request, context, message.correlation_id, span)
            except BaseException as error:
                answers.gone(size)
                if span is not None:
                    failed(span, error)
                    span.end()
                raise
            pending.span = span
            del message  # up to `rpc.request.max.bytes`: do not keep it while the stream waits
            await answers.expect(pending, size)
            del pending
        answers.close()

    async def _take(
        self, request: pb.ProduceRequest, context: CallContext, correlation_id: int = 0, span: Span | None = None
    ) -> PendingProduce:
        """Validate a request and put its batches into their partitions' queues. Raises InvalidRequestError like
        `produce`."""
        check_partitions((request.topic_data, "partition_data"))
        check_batches(sum(len(data.batches) for topic in request.topic_data for data in topic.partition_data))
        ids = [checked_topic_id(topic.topic_id) for topic in request.topic_data]
        timeout_ms = min(request.timeout_ms, TIMEOUT_MAX_MS) if request.timeout_ms > 0 else TIMEOUT_MS
        quota = context.quota(PRODUCER_BYTE_RATE)
        over = None if quota is None else await admitted(quota, request)
        parts: list[ProducedPart] = []
        room, taken = _CHECKED_AT_ONCE, 0
        for topic_id, topic in zip(ids, request.topic_data, strict=True):
            refusal = self._refusal(request, topic_id, context) or over
            for data in topic.partition_data:
                part = ProducedPart(TopicIdPartition(topic_id, data.index))
                parts.append(part)
                taken += 1 + len(data.batches)
                if taken > _STEP:
                    taken = await _step()
                room = self._read(part, data.batches, refusal, room, request.transactional_id)
        if any(part.unchecked for part in parts):
            await asyncio.get_running_loop().run_in_executor(self._checks, check_rest, parts)
        if request.transactional_id and self._transactions is not None and over is None:
            await join_transaction(self._transactions, self._directory, request.transactional_id, parts)
        results = await self._submitted(parts, timeout_ms, span)
        return PendingProduce(results, self._directory, correlation_id, quota)

    def _read(
        self,
        part: ProducedPart,
        batches: Sequence[pb.ProduceRequest.Batch],
        refusal: KafkaError | None,
        room_bytes: int,
        transactional_id: str,
    ) -> int:
        """Validate one partition's batches. Returns how many bytes may still be checked on the event loop."""
        part.error = refusal
        if refusal is None:
            try:
                self._directory.log(part.partition).check_leader()
                largest = self._directory.max_message_bytes(part.partition.topic_id)
                return part.read(batches, largest, room_bytes, transactional_id)
            except KafkaError as error:
                part.error = error
        return room_bytes

    async def _submitted(
        self, parts: Sequence[ProducedPart], timeout_ms: int, span: Span | None = None
    ) -> list[_Result]:
        """Put all valid batches into their partitions' queues, at most _WAVE at a time: the rest wait for earlier
        ones."""
        results: list[_Result] = []
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        wave: list[asyncio.Future[AppendOutcome]] = []
        taken = sent = 0
        for part in parts:
            taken += 1 + len(part.batches)
            if taken > _STEP:
                taken = await _step()
            if wave and sent + len(part.batches) > _QUEUED_BATCHES_MAX:
                await asyncio.wait(wave)
                wave, sent = [], 0
                timeout_ms = max(int((deadline - clock()) * 1000), 1)
            result = (
                self._submit(part, timeout_ms) if span is None else tracing.within(span, self._submit, part, timeout_ms)
            )
            if isinstance(result, asyncio.Future):
                wave.append(result)
                sent += len(part.batches)
            results.append((part.partition, result))
        return results

    def _refusal(self, request: pb.ProduceRequest, topic_id: bytes, context: CallContext) -> KafkaError | None:
        if request.acks not in {ACKS_ALL, ACKS_LEADER}:
            return InvalidRequiredAcksError(
                f"acks is {request.acks} (0 when the field is not set); expected -1 (all) or 1: a Produce is always "
                "answered once its batches are stored"
            )
        if request.HasField("transactional_id") and (self._transactions is None or not request.transactional_id):
            return InvalidRequestError(
                "the transactional id is empty; leave it out outside transactions"
                if self._transactions is not None
                else "this node serves no transactions; produce without transactional_id"
            )
        if request.transactional_id:
            refused = context.refusal(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
            if refused is not None:
                return refused
        return self._directory.refusal(context, topic_id)

    def _submit(self, part: ProducedPart, timeout_ms: int) -> asyncio.Future[AppendOutcome] | AppendOutcome:
        if part.error is None:
            try:
                return self._directory.log(part.partition).submit(part.batches, timeout_ms)
            except KafkaError as error:
                part.error = error
        # The error's traceback would keep the request in memory until the response is read.
        return AppendOutcome((), -1, -1, part.error.with_traceback(None))


async def _step() -> int:
    """Let other tasks run. Returns 0, the new count."""
    await asyncio.sleep(0)
    return 0


class _Answers:
    """The responses of one stream: one task writes them one at a time, in the order in which they become ready."""

    def __init__(self, write: Write, limit: int, share: Share = UNBOUNDED) -> None:
        self._write = write
        self._share = share
        self._next = Reserved(share)
        self._slots = asyncio.Semaphore(limit)
        self._ready: deque[PendingProduce] = deque()
        self._wake = asyncio.Event()
        self._expected = 0
        self._closed = False
        self._move_unwritten = False

    def came(self, size: int) -> None:
        """Charge the budget for a request of `size` bytes that was just read, so that it also counts during its check
        (CM-92)."""
        self._next.came()
        self._share.add(size)

    def gone(self, size: int) -> None:
        """Return a request's bytes to the budget, because it was refused as a whole or its stream has ended."""
        self._share.give(size)

    async def expect(self, pending: PendingProduce, size: int = 0) -> None:
        """Note that one more response is due, and wait until there is room for it before the next request is read.

        `size`: as passed to `came`. The bytes are returned to the budget when the request is settled, even after the
        stream's end (CM-92).
        """
        self._expected += 1
        pending.when_done(partial(self._done, size))
        await self._slots.acquire()
        if not self._share.room_bytes:
            await self._next.until_room(size)

    def close(self) -> None:
        """Note that no further responses are due."""
        self._closed = True
        self._wake.set()

    def ask_to_move(self) -> None:
        """Ask the client, once, to go on over another connection (PL-534)."""
        self._move_unwritten = True
        self._wake.set()

    def _done(self, size: int, pending: PendingProduce) -> None:
        self._share.give(size)
        pending.end_span()
        self._ready.append(pending)
        self._wake.set()

    async def run(self) -> None:
        """Write responses until `close` was called and all due ones are written, or until `write` fails."""
        while self._expected or not self._closed:
            await self._wake.wait()
            self._wake.clear()
            if self._move_unwritten:
                self._move_unwritten = False
                await self._write(pb.ProduceStreamResponse(move=True))
            while self._ready:
                pending = self._ready.popleft()
                response = await pending.response()
                await self._write(pb.ProduceStreamResponse(correlation_id=pending.correlation_id, response=response))
                self._expected -= 1
                self._slots.release()
