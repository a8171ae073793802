"""ShareCoordinatorService: translates messages to commands and back (SC-10…SC-13), for unary calls and the stream.

Errors are per share-partition; the RPC itself always succeeds. It keeps no state; `dispatch` runs the commands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from kip932.errors import CoordinatorLoadInProgressError, InQuarantineError, KafkaError, NotCoordinatorError
from kip932.ids import GROUP_ID_MAX, STARTS_TOPICS_MAX, TOPIC_ID_BYTES, SharePartitionKey, TopicIdPartition
from kip932.internal.v1.delete_share_group_state_pb2 import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from kip932.internal.v1.initialize_share_group_state_pb2 import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from kip932.internal.v1.read_share_group_state_pb2 import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from kip932.internal.v1.read_share_group_state_summary_pb2 import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from kip932.internal.v1.read_topic_start_offsets_pb2 import (
    ReadTopicStartOffsetsRequest,
    ReadTopicStartOffsetsResponse,
)
from kip932.internal.v1.state_stream_pb2 import StateStreamRequest, StateStreamResponse
from kip932.internal.v1.write_share_group_state_pb2 import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from kip932.records.share_state import (
    batches_from_messages,
    batches_to_messages,
    failures_from_messages,
    failures_to_messages,
    stats_from_message,
)
from kip932.state_values import (
    DeleteState,
    InitializeState,
    ReadState,
    ReadSummary,
    StaleLeaderError,
    StateCommand,
    StateOutcome,
    StateSpan,
    StateSummary,
    StoredState,
    WriteState,
)
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.binding import CallContext, ServerStream
from shard_runtime.rpc.bounds import Turns, check_partitions, check_state_batches, check_state_spans
from shard_runtime.rpc.status import expected, invalid_argument
from shard_runtime.tracing import abandoned, failed, tracing
from share_coordinator.dispatch import Begun, Dispatcher

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = structlog.get_logger(__name__)

_SERVICE: Final = "kip932.internal.v1.ShareCoordinatorService"
#: How many share-partitions one step decides, and how many state batches, unless one share-partition has more.
KEYS_SLICE: Final = 200
BATCHES_SLICE: Final = 5_000
#: The cost of counting delayed records, in state batches: all stored ones are read, usually few, at most 10,000.
_DELAYED_COST: Final = 100
#: From this many bytes of a response on, the other share-partitions must be asked for again: a state may be large, and
#: no message may exceed `rpc.message.max.bytes`.
RESPONSE_BYTES: Final = 32 * 1024 * 1024
#: How many share-partitions of a ReadTopicStartOffsets response are written in one step.
STARTS_SLICE: Final = 1_000
#: How many requests of one stream are processed at a time; further ones are not read yet.
STREAM_REQUESTS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class _Rpc:
    """How one RPC differs from the others: the verb in its errors, its response type, its command, the fields of a
    success, and whether the check for an empty request comes first (SC-11)."""

    verb: str
    response: type[Any]
    command: Callable[[SharePartitionKey, Any], StateCommand]
    fields: Callable[[Any], dict[str, Any]] = lambda reply: {}
    emptiness_first: bool = False


def _write_command(key: SharePartitionKey, partition: Any) -> WriteState:
    return WriteState(
        key,
        state_epoch=partition.state_epoch,
        leader_epoch=partition.leader_epoch,
        generation=partition.generation,
        start_offset=partition.start_offset,
        delivery_complete_count=_optional(partition, "delivery_complete_count"),
        batches=batches_from_messages(partition.state_batches),
        stats=stats_from_message(partition.stats),
        failures=failures_from_messages(partition.failures),
    )


def _span_of(partition: Any) -> int:
    """Return the number of offsets whose state batches are requested."""
    if not partition.HasField("batches_from"):
        return 0
    if not partition.HasField("batches_through"):
        return 1
    return max(0, int(partition.batches_through) - int(partition.batches_from) + 1)


def _summary_command(key: SharePartitionKey, partition: Any) -> ReadSummary:
    at_ms = partition.delayed_at_ms if partition.HasField("delayed_at_ms") else None
    if not partition.HasField("batches_from"):
        return ReadSummary(key, None, at_ms)
    first = partition.batches_from
    span = StateSpan(first, partition.batches_through if partition.HasField("batches_through") else first)
    return ReadSummary(key, span, at_ms)


def _summary_fields(reply: Any) -> dict[str, Any]:
    fields: dict[str, Any] = reply._asdict()
    if fields["delayed"] < 0:
        del fields["delayed"]
    fields["state_batches"] = batches_to_messages(fields.pop("batches"))
    return fields | {"failures": failures_to_messages(reply.failures)}


def _optional(message: Any, field: str) -> int:
    """Return an optional number; −1 when it is absent."""
    return getattr(message, field) if message.HasField(field) else -1


_INITIALIZE: Final = _Rpc(
    "initialize",
    InitializeShareGroupStateResponse,
    lambda key, partition: InitializeState(key, partition.state_epoch, partition.start_offset),
)
_READ: Final = _Rpc(
    "read",
    ReadShareGroupStateResponse,
    lambda key, partition: ReadState(key, partition.leader_epoch, partition.generation),
    lambda reply: {
        "state_epoch": reply.state_epoch,
        "start_offset": reply.start_offset,
        "state_batches": batches_to_messages(reply.batches),
        "failures": failures_to_messages(reply.failures),
    },
    emptiness_first=True,
)
_WRITE: Final = _Rpc("write", WriteShareGroupStateResponse, _write_command, emptiness_first=True)
_DELETE: Final = _Rpc(
    "delete",
    DeleteShareGroupStateResponse,
    lambda key, partition: DeleteState(key, _optional(partition, "state_epoch")),
)
_SUMMARY: Final = _Rpc(
    "read the summary of",
    ReadShareGroupStateSummaryResponse,
    _summary_command,
    _summary_fields,
)


class ShareCoordinatorService:
    """The handlers of kip932.internal.v1.ShareCoordinatorService; `shard_runtime.rpc` binds them."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._failures = RateLimitedLog(log)

    async def initialize_share_group_state(
        self, request: InitializeShareGroupStateRequest, context: CallContext
    ) -> InitializeShareGroupStateResponse:
        """Create or reset state (SC-32…SC-36)."""
        response: InitializeShareGroupStateResponse = await self._serve(_INITIALIZE, request)
        return response

    async def read_share_group_state(
        self, request: ReadShareGroupStateRequest, context: CallContext
    ) -> ReadShareGroupStateResponse:
        """Read state for its leader, and fence older leaders (SC-37…SC-39)."""
        response: ReadShareGroupStateResponse = await self._serve(_READ, request)
        return response

    async def write_share_group_state(
        self, request: WriteShareGroupStateRequest, context: CallContext
    ) -> WriteShareGroupStateResponse:
        """Persist a leader's changes (SC-40…SC-45)."""
        response: WriteShareGroupStateResponse = await self._serve(_WRITE, request)
        return response

    async def delete_share_group_state(
        self, request: DeleteShareGroupStateRequest, context: CallContext
    ) -> DeleteShareGroupStateResponse:
        """Delete state (SC-46…SC-49)."""
        response: DeleteShareGroupStateResponse = await self._serve(_DELETE, request)
        return response

    async def read_share_group_state_summary(
        self, request: ReadShareGroupStateSummaryRequest, context: CallContext
    ) -> ReadShareGroupStateSummaryResponse:
        """Read start offsets and epochs without fencing any leader (SC-50)."""
        response: ReadShareGroupStateSummaryResponse = await self._serve(_SUMMARY, request)
        return response

    async def read_topic_start_offsets(
        self, request: ReadTopicStartOffsetsRequest, context: CallContext
    ) -> ReadTopicStartOffsetsResponse:
        """Return the start offsets, in some topics, of every group with state here (SC-116)."""
        if not 1 <= len(request.topic_ids) <= STARTS_TOPICS_MAX:
            raise invalid_argument(f"1 to {STARTS_TOPICS_MAX} topic ids are expected; {len(request.topic_ids)} came")
        for topic_id in request.topic_ids:
            if len(topic_id) != TOPIC_ID_BYTES:
                raise invalid_argument(f"a topic id has {TOPIC_ID_BYTES} bytes; {len(topic_id)} came")
        response, turns = ReadTopicStartOffsetsResponse(), Turns(STARTS_SLICE)
        for shard, found in (await self._dispatcher.topic_starts(frozenset(request.topic_ids))).items():
            if isinstance(found, KafkaError):
                response.shards.add(shard=shard, error_code=found.code, error_message=found.message)
                continue
            result = response.shards.add(shard=shard)
            groups: dict[tuple[str, bytes], Any] = {}
            for key, (start_offset, complete) in found:
                await turns.step()
                name = key.group_id, key.topic_id
                if name not in groups:
                    groups[name] = result.groups.add(group_id=key.group_id, topic_id=key.topic_id)
                one = groups[name].partitions.add(partition=key.partition, start_offset=start_offset)
                if complete >= 0:
                    one.delivery_complete_count = complete
        return response

    async def state_stream(self, stream: ServerStream) -> None:
        """Serve writes and reads on one stream (P-4): several at a time, each answered when it is done.

        Tasks start in the order of their requests, and each passes its first commands to the shards in its first step.
        A request counts towards the stream's bound until its response is sent, so that responses to a caller that does
        not read stay bounded.
        """
        running: set[asyncio.Task[None]] = set()
        places = asyncio.Semaphore(STREAM_REQUESTS_MAX)

        def done(task: asyncio.Task[None]) -> None:
            running.discard(task)
            places.release()

        loop, move_in_s = asyncio.get_running_loop(), stream.context.move_in_s

        def ask_to_move() -> None:
            asking = loop.create_task(self._write(StateStreamResponse(move=True), stream, "move"))
            running.add(asking)
            asking.add_done_callback(running.discard)

        timer = None if move_in_s is None else loop.call_later(move_in_s, ask_to_move)
        try:
            while (request := await stream.read()) is not None:
                await places.acquire()
                task = loop.create_task(self._answer(request, stream))
                del request
                running.add(task)
                task.add_done_callback(done)
            if running:
                await asyncio.wait(running)
        finally:
            if timer is not None:
                timer.cancel()
            for task in running:
                task.cancel()

    async def _answer(self, request: StateStreamRequest, stream: ServerStream) -> None:
        """Serve one request. A StateStreamResponse without a response inside means that the request failed, or is of an
        unknown kind (PL-732)."""
        answer = StateStreamResponse(correlation_id=request.correlation_id)
        kind = request.WhichOneof("request")
        span = None
        if tracing.on and request.traceparent and kind == "write":
            span = tracing.begin(request.traceparent, f"{_SERVICE}/WriteShareGroupState")
        try:
            if kind == "write":
                answer.write.CopyFrom(await self._serve(_WRITE, request.write, span))
            elif kind == "read":
                answer.read.CopyFrom(await self._serve(_READ, request.read))
        except Exception as error:
            self._failed(kind, stream.context.peer, error)
            if span is not None:
                failed(span, error)
        except asyncio.CancelledError:
            if span is not None:
                abandoned(span)
            raise
        if span is not None:
            span.end()
        await self._write(answer, stream, kind)

    async def _write(self, answer: StateStreamResponse, stream: ServerStream, kind: str | None) -> None:
        try:
            await stream.write(answer)
        except Exception as error:
            log.debug("state_stream_answer_dropped", kind=kind, cause=repr(error))

    def _failed(self, kind: str | None, peer: str, error: Exception) -> None:
        """Log a failure, rate-limited per peer and cause, since a peer that sends broken requests sends them fast."""
        key = (peer, kind, type(error))
        if expected(error):
            self._failures.warning("state_stream_request_refused", key=key, kind=kind, peer=peer, cause=str(error))
        else:
            self._failures.error("state_stream_request_failed", key=key, kind=kind, peer=peer, exc_info=error)

    async def _serve(self, rpc: _Rpc, request: Any, span: Span | None = None) -> Any:
        empty = not request.group_id or any(not topic.partitions for topic in request.topics)
        if empty and (rpc.emptiness_first or self._dispatcher.active):
            return rpc.response()  # SC-10: an empty request has an empty response
        check_partitions((request.topics, "partitions"))
        if len(request.group_id) > GROUP_ID_MAX:
            raise invalid_argument(f"a group id has at most {GROUP_ID_MAX} characters; {len(request.group_id)} came")
        for topic in request.topics:
            if len(topic.topic_id) != TOPIC_ID_BYTES:
                raise invalid_argument(f"a topic id has {TOPIC_ID_BYTES} bytes; {len(topic.topic_id)} came")
        named = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
        if rpc is _WRITE:
            check_state_batches(
                [len(partition.state_batches) for _, partition in named],
                [len(partition.failures) for _, partition in named],
            )
        if rpc is _SUMMARY:
            check_state_spans([_span_of(partition) for _, partition in named])
        begun: list[Begun] = []
        try:
            # Do not wait until an earlier part is durable: by then the caller may have timed out and written again.
            for part in _slices(rpc, named):
                if begun:
                    await asyncio.sleep(0)
                commands = [
                    rpc.command(SharePartitionKey(request.group_id, topic_id, partition.partition), partition)
                    for topic_id, partition in part
                ]
                begin = self._dispatcher.begin
                begun.append(begin(commands) if span is None else tracing.within(span, begin, commands))
            outcomes = [outcome for each in begun for outcome in await self._dispatcher.finish(each)]
        finally:
            for each in begun:
                each.leave()
        return await self._respond(rpc, [command for each in begun for command in each.commands], outcomes)

    async def _respond(self, rpc: _Rpc, commands: Sequence[StateCommand], outcomes: Sequence[StateOutcome]) -> Any:
        response, turns, size = rpc.response(), Turns(BATCHES_SLICE), 0
        topics: dict[bytes, Any] = {}
        for (topic_id, partition), (key, outcome) in _per_key(commands, outcomes).items():
            await turns.step(_entries(outcome) + BATCHES_SLICE // KEYS_SLICE)
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = response.results.add(topic_id=topic_id)
            if isinstance(outcome, KafkaError):
                self._refuse(rpc, key, topic.partitions.add(partition=partition), outcome)
            elif size >= RESPONSE_BYTES:
                rest = CoordinatorLoadInProgressError(f"the response has {size} bytes without it; read it again")
                self._refuse(rpc, key, topic.partitions.add(partition=partition), rest)
            else:
                size += topic.partitions.add(partition=partition, **rpc.fields(outcome)).ByteSize()
        return response

    def _refuse(self, rpc: _Rpc, key: SharePartitionKey, result: Any, error: KafkaError) -> None:
        result.error_code = error.code
        result.error_message = f"Unable to {rpc.verb} share group state: {error.message}"
        if rpc is _SUMMARY:
            result.start_offset = -1
            result.delivery_complete_count = -1
            result.archived_by_limit = result.archived_by_reject = -1
        elif isinstance(error, StaleLeaderError):
            result.leader_epoch = error.leader_epoch
        result.in_quarantine = isinstance(error, InQuarantineError)
        if isinstance(error, NotCoordinatorError):
            owner = self._dispatcher.owner(key)
            if owner is not None:
                result.coordinator.node_id, result.coordinator.host, result.coordinator.port = owner


def _batches(rpc: _Rpc, partition: Any) -> int:
    """Return the cost of a request's partition, in state batches: those it contains or requests. A reason counts as
    one."""
    if rpc is _WRITE:
        return len(partition.state_batches) + len(partition.failures)
    if rpc is not _SUMMARY:
        return 0
    return _span_of(partition) + (_DELAYED_COST if partition.HasField("delayed_at_ms") else 0)


def _entries(outcome: StateOutcome) -> int:
    """Return how many state batches and reasons of failures a reply has."""
    return len(outcome.batches) + len(outcome.failures) if isinstance(outcome, StoredState | StateSummary) else 0


def _slices(rpc: _Rpc, named: Sequence[tuple[bytes, Any]]) -> Iterator[Sequence[tuple[bytes, Any]]]:
    """Split a request into parts that are decided in one step each (CM-94), by number of keys and of state batches."""
    begin = batches = 0
    for index, (_, partition) in enumerate(named):
        count = _batches(rpc, partition)
        if index > begin and (index - begin >= KEYS_SLICE or batches + count > BATCHES_SLICE):
            yield named[begin:index]
            begin, batches = index, 0
        batches += count
    yield named[begin:]


def _per_key(
    commands: Sequence[StateCommand], outcomes: Sequence[StateOutcome]
) -> dict[TopicIdPartition, tuple[SharePartitionKey, StateOutcome]]:
    """Return one outcome per key: its first error, else its last reply (SC-13)."""
    results: dict[TopicIdPartition, tuple[SharePartitionKey, StateOutcome]] = {}
    for command, outcome in zip(commands, outcomes, strict=True):
        name = command.key.topic_partition
        former = results.get(name)
        if former is None or not isinstance(former[1], KafkaError):
            results[name] = command.key, outcome
    return results
