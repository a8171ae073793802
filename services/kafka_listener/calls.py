"""Calls that a connection's requests make at this node: the handlers that gRPC's clients call, with messages in place
of bytes between, and through the same gate (KL-5).

Produce, ShareFetch and ShareAcknowledge go through streams, as those of gRPC's clients do: their order, their bounds,
and the end of a session with its connection are the streams' (KL-6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

import structlog
from google.protobuf.message import Message

from kafka_listener.ports import Cluster, Making
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest, ShareFetchResponse
from kip932.errors import (
    InvalidRequestError,
    KafkaError,
    NetworkError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ShareSessionLimitReachedError,
    UnknownServerError,
)
from kip932.ids import ACK_RENEW
from kip932.rpc.transport import TransportStatus
from shard_runtime.call_ids import begin_call, current_request_id
from shard_runtime.rate_limited_log import RateLimitedLog
from shard_runtime.rpc.binding import BoundMethod, CallContext, snake_case
from shard_runtime.rpc.gate import Caller, Gate
from shard_runtime.rpc.status import RpcFailureError, expected
from shard_runtime.rpc.table import RPCS, Port, Rpc

log = structlog.get_logger(__name__)

#: How many streams one connection may have. A client needs one for its records and one for its member.
STREAMS_MAX: Final = 64
#: How long a stream's handler may take for the requests that it has when its connection is lost, s.
ENDING_S: Final = 20.0
#: The session epochs with which a member leaves, and with which a session begins.
_FINAL_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0
#: How long a fetch that may acquire nothing takes at least, s: its client would repeat it without a pause.
_NOTHING_S: Final = 0.1

_ROWS: Final[Mapping[str, Rpc]] = {snake_case(row.name): row for row in RPCS.values() if Port.CLIENTS in row.ports}
_GROUPS: Final = "GroupCoordinatorService"
_LEADER: Final = "PartitionLeaderService"
_MEMBER: Final = "member"
_FETCH, _ACKNOWLEDGE = "fetch", "acknowledge"


class ProduceMessage(NamedTuple):
    """A message of a ProduceStream: what its handler reads of one, with the request itself instead of a copy."""

    correlation_id: int
    request: ProduceRequest
    traceparent: str = ""


class ShareMessage(NamedTuple):
    """A message of a ShareStream, as `ProduceMessage`."""

    correlation_id: int
    fetch: ShareFetchRequest | None
    acknowledge: ShareAcknowledgeRequest | None
    traceparent: str = ""

    def WhichOneof(self, group: str) -> str:  # noqa: N802 - protobuf's name, which the handler calls
        """Return which of the two it is."""
        return _ACKNOWLEDGE if self.fetch is None else _FETCH


class _Asked(NamedTuple):
    """A request of a stream that waits for its turn: what makes it, and what makes the stream's message of it."""

    correlation_id: int
    make: Making[Any]
    message: Callable[[int, Any], Any]


class Served(NamedTuple):
    """What a listener serves: the RPCs of this node by their paths, what their calls have to pass, the cluster, and the
    log of calls that fail or are refused."""

    methods: Mapping[str, BoundMethod]
    gate: Gate
    cluster: Cluster
    lines: RateLimitedLog


class LocalStream:
    """A `ServerStream` within this process. Its handler runs until `close`, `abort`, or an error of its own; then
    whatever is not answered fails. Requests are made when the handler reads them: they may be made in slices, and keep
    their order.

    `writable` waits until the client takes answers: so the handler meets the same bound as over gRPC. `on_end` is
    called when the handler has ended.
    """

    def __init__(
        self,
        bound: BoundMethod,
        context: CallContext,
        served: Served,
        writable: Callable[[], Awaitable[None]],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.context = context
        self._bound = bound
        self._served = served
        self._writable = writable
        self._on_end = on_end
        self._inbox: deque[_Asked] = deque()
        self._unanswered: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self.records = 0
        """About how many records its member holds: those whose locks have run out count until it ends."""
        self._closed = False
        self._came: asyncio.Future[None] | None = None
        self._user = served.gate.user_of(context)
        served.gate.calls.begin(self._user)
        self._error: KafkaError = NetworkError("the stream of this connection ended; try again")
        self._task = asyncio.get_running_loop().create_task(self._run(), name="local-stream")
        self._task.add_done_callback(self._finished)

    @property
    def ended(self) -> bool:
        """Whether it takes no more requests."""
        return self._closed or self._task.done()

    @property
    def asked(self) -> int:
        """How many requests it has had."""
        return self._last_id

    def ask(self, make: Making[Any], message: Callable[[int, Any], Any]) -> asyncio.Future[Any]:
        """Send a request, and return the future of its response, which may fail with a KafkaError, or as `make` does.
        It is None for a request that is None, which the handler does not get.

        `message` returns what the handler reads for a correlation id and the request that `make` has made.
        """
        self._last_id += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered[self._last_id] = answer
        self._inbox.append(_Asked(self._last_id, make, message))
        self._wake()
        return answer

    async def read(self) -> Any:
        """Return the next request; None when there will be no other one."""
        while True:
            while not self._inbox:
                if self._closed:
                    return None
                self._came = asyncio.get_running_loop().create_future()
                await self._came
            asked = self._inbox.popleft()
            try:
                request = await asked.make()
            except Exception as error:
                self._fail(asked.correlation_id, error)
                continue
            if request is not None:
                self.context.message_bytes = request.ByteSize()
                return asked.message(asked.correlation_id, request)
            self._settle(asked.correlation_id, None)

    async def write(self, message: Any) -> None:
        """Give a response to the request that it answers."""
        await self._writable()
        self._settle(message.correlation_id, message)

    def close(self) -> None:
        """Take no more requests; the handler answers those that it has, and ends."""
        self._closed = True
        self._wake()

    def abort(self) -> None:
        """End the handler at once, as gRPC does when a connection is lost."""
        self._closed = True
        self._task.cancel()

    async def wait(self, seconds: float) -> None:
        """Wait until the handler has ended; after so long it is aborted."""
        await asyncio.wait([self._task], timeout=seconds)
        self._task.cancel()
        await asyncio.wait([self._task])

    def _settle(self, correlation_id: int, message: Any) -> None:
        answer = self._unanswered.pop(correlation_id, None)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _fail(self, correlation_id: int, error: Exception) -> None:
        answer = self._unanswered.pop(correlation_id, None)
        if answer is not None and not answer.done():
            answer.set_exception(error)
            answer.exception()  # its request may have been given up

    def _wake(self) -> None:
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    async def _run(self) -> None:
        begin_call("", self.context.client_id)
        try:
            await self._bound.handler(self)
        except Exception as error:
            self._error = as_kafka_error(error, self._bound, self.context, self._served.lines)

    def _finished(self, _: asyncio.Task[None]) -> None:
        self._closed = True
        self._inbox.clear()
        self._served.gate.calls.end(self._user)
        self._on_end()
        for correlation_id in list(self._unanswered):
            self._fail(correlation_id, self._error)


class Streams:
    """The streams of one connection. `writable`: as for LocalStream."""

    def __init__(self, served: Served, writable: Callable[[], Awaitable[None]]) -> None:
        self._served = served
        self._writable = writable
        #: Whether fetches of members acquire no further records, since the connection is about to end.
        self.acquire_none = False
        self._open: dict[tuple[str, ...], LocalStream] = {}

    def of(self, key: tuple[str, ...], bound: BoundMethod, context: Callable[[], CallContext]) -> LocalStream:
        """Return the stream of this name, opened if there is none. Raises ShareSessionLimitReachedError when the
        connection has as many as it may."""
        stream = self._open.get(key)
        if stream is not None and not stream.ended:
            return stream
        if len(self._open) >= STREAMS_MAX:
            raise ShareSessionLimitReachedError(
                f"this connection has {STREAMS_MAX} members already; expected one connection for each consumer"
            )
        made = LocalStream(bound, context(), self._served, self._writable, lambda: self._forget(key, made))
        self._open[key] = made
        return made

    @property
    def holds_records(self) -> bool:
        """Whether a member over this connection holds records that it has not acknowledged."""
        return any(stream.records > 0 for stream in self._open.values())

    async def end_members(self) -> None:
        """End the streams of members at once: the client has left, and their records are released."""
        members = [stream for key, stream in self._open.items() if key[0] == _MEMBER]
        for stream in members:
            stream.abort()
        await asyncio.gather(*(stream.wait(ENDING_S) for stream in members))

    def _forget(self, key: tuple[str, ...], stream: LocalStream) -> None:
        if self._open.get(key) is stream:
            del self._open[key]

    async def end(self) -> None:
        """End all streams, since the connection is lost: those of members at once, so that their records are released;
        the one for records when all that came is stored."""
        streams, self._open = self._open, {}
        for key, stream in streams.items():
            if key[0] == _LEADER:
                stream.close()
            else:
                stream.abort()
        await asyncio.gather(*(stream.wait(ENDING_S) for stream in streams.values()))


class Calls:
    """The connection as one request's handler sees it (`ports.Connection`)."""

    def __init__(self, served: Served, caller: Caller, streams: Streams) -> None:
        self._served = served
        self._streams = streams
        self.caller = caller
        self.context: CallContext = served.gate.context(caller, {})
        self._contexts: dict[str, CallContext] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        return self._served.cluster

    @property
    def lines(self) -> RateLimitedLog:
        """The node's log of what clients do not get."""
        return self._served.lines

    async def call(self, rpc: str, request: Message) -> Any:
        """Call a unary RPC, as `ports.Connection` says."""
        bound = self._bound(rpc)
        context = self._contexts.get(rpc)
        if context is None:
            context = self._contexts[rpc] = self._served.gate.context(self.caller, bound.needs)
        gate = self._served.gate
        user = gate.user_of(context)
        gate.calls.begin(user)
        try:
            return await bound.handler(request, context)
        except Exception as error:
            raise as_kafka_error(error, bound, context, self._served.lines) from error
        finally:
            gate.calls.end(user)

    async def produce(self, make: Making[ProduceRequest]) -> ProduceResponse | None:
        """Produce through the connection's stream, as `ports.Connection` says."""
        answered = await self._stream("produce_stream", _LEADER).ask(make, ProduceMessage)
        response: ProduceResponse | None = None if answered is None else answered.response
        return response

    async def share_fetch(
        self, group: str, member: str, epoch: int, make: Making[ShareFetchRequest]
    ) -> ShareFetchResponse:
        """Fetch through the member's stream, as `ports.Connection` says."""
        none = self._streams.acquire_none

        def message(number: int, request: ShareFetchRequest) -> ShareMessage:
            if none:
                request.max_records = 0
            return ShareMessage(number, request, None)

        answered, finished = await self._share(group, member, epoch, make, message)
        response: ShareFetchResponse = answered.fetch
        if none and not finished:
            await asyncio.sleep(_NOTHING_S)
        return response

    async def share_acknowledge(
        self, group: str, member: str, epoch: int, make: Making[ShareAcknowledgeRequest]
    ) -> ShareAcknowledgeResponse:
        """Acknowledge through the member's stream, as `ports.Connection` says."""
        answered, _ = await self._share(group, member, epoch, make, lambda number, it: ShareMessage(number, None, it))
        response: ShareAcknowledgeResponse = answered.acknowledge
        return response

    async def _share(
        self, group: str, member: str, epoch: int, make: Making[Any], message: Callable[[int, Any], ShareMessage]
    ) -> tuple[Any, int]:
        """Ask the member's stream; return the answer, and how many records the request acknowledged. The stream is
        closed with the end of its session, but for a request that came after: that may have opened another one."""
        stream = self._stream("share_stream", _MEMBER, group, member)
        finished, fetches = 0, False

        def begun(number: int, request: Any) -> ShareMessage:
            nonlocal finished, fetches
            finished, fetches = acknowledged(request), isinstance(request, ShareFetchRequest)
            return message(number, request)

        answer = stream.ask(make, begun)
        asked = stream.asked
        answered = await answer
        if epoch == _FIRST_EPOCH:
            stream.records = 0
        stream.records = max(0, stream.records - finished) + (acquired(answered.fetch) if fetches else 0)
        if epoch == _FINAL_EPOCH and stream.asked == asked:
            stream.close()
        return answered, finished

    def _stream(self, rpc: str, *name: str) -> LocalStream:
        """Return a stream of this caller: it keeps the rights and quotas of the caller that opened it."""
        bound = self._bound(rpc)
        key = (*name, self.caller.client_id, self.caller.identity.principal or "")
        return self._streams.of(key, bound, lambda: self._served.gate.context(self.caller, bound.needs))

    def _bound(self, rpc: str) -> BoundMethod:
        row = _ROWS[rpc]
        bound = self._served.methods.get(row.path)
        if bound is not None:
            return bound
        if row.service.endswith(_GROUPS):
            raise NotCoordinatorError("this node coordinates no groups; ask for the group's coordinator")
        raise NotLeaderOrFollowerError("this node leads no partitions; ask for the partition's leader")


def acquired(response: ShareFetchResponse) -> int:
    """Return how many records a fetch has acquired."""
    return sum(
        each.last_offset - each.first_offset + 1
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    )


def acknowledged(request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
    """Return how many records a request acknowledges; a renewed lock is kept."""
    return sum(
        each.last_offset - each.first_offset + 1
        for topic in request.topics
        for partition in topic.partitions
        for each in partition.acknowledgement_batches
        if ACK_RENEW not in each.acknowledge_types
    )


def as_kafka_error(error: Exception, bound: BoundMethod, context: CallContext, lines: RateLimitedLog) -> KafkaError:
    """Return a handler's error as one of Kafka's. One that no caller should get is logged."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, RpcFailureError):
        refused = error.status is TransportStatus.INVALID_ARGUMENT
        return InvalidRequestError(str(error)) if refused else UnknownServerError(str(error))
    seen = "its log"
    if not expected(error):
        seen += f", request {current_request_id()}"
        lines.error(
            "call_failed",
            key=(bound.method.path, context.peer, type(error)),
            method=bound.method.path,
            peer=context.connection_id,
            exc_info=error,
        )
    return UnknownServerError(f"the server met an unexpected {type(error).__name__}; see {seen}")
