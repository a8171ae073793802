"""The persister: its streams to nodes, attempts, back-off, and whether a failed write may have been applied (PL-707,
PL-723, GC-74).

When this process owns the shard, the persister calls the coordinator in this process (P-12); otherwise it uses the
queue to the owner's node. Every operation ends within `operation_timeout_ms`, waits included.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from random import Random
from typing import Any, Final, cast

import structlog
from google.protobuf.message import Message

from kip932.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, SharePartitionKey, TopicIdPartition, state_shard
from kip932.internal.v1.state_stream_pb2 import StateStreamRequest
from kip932.rpc.transport import ClientStream, Transport, TransportError, TransportStatus
from kip932.state_values import (
    DeleteState,
    InitializeState,
    MovedStateError,
    ReadState,
    ReadSummary,
    StateCommand,
    StateOutcome,
    StateReply,
    StateSummary,
    StoredState,
    WriteState,
)
from shard_runtime.clock import Clock
from share_persister.finder import CoordinatorFinder, Nodes, NoNodesError, Resolve
from share_persister.messages import STATE_STREAM, method_of
from share_persister.node_queue import NodeQueue, QueuedCall
from share_persister.retry_rules import may_have_applied, retriable
from share_persister.settings import PersisterSettings
from share_persister.values import LocalCoordinator, PeerRefusedError, PersisterError

log = structlog.get_logger(__name__)

#: How many share-partitions of one administrative call are processed at a time.
_CONCURRENT_MAX: Final = 1_000
#: How many queues are kept; above that, idle ones are dropped, since their nodes may no longer exist.
_QUEUES_MAX: Final = 1_024
#: How often a node's refusals are logged.
_REFUSED_EVERY_MS: Final = 10_000


class StateStream:
    """One StateStream to one node: several requests in flight, responses matched by correlation id (P-4).

    The first request opens it. When it breaks, every waiting request fails, and the next request opens a new one. When
    the node asks to move (CM-194), the next request waits for the responses that are due, then opens a new one on a new
    connection.
    """

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport = transport
        self._address = address
        self._stream: ClientStream[Any, Any] | None = None
        self._opening = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._must_move = False
        #: Set when no request waits for a response.
        self._quiet = asyncio.Event()
        self._next_id = 0

    async def request(self, kind: type[StateCommand], request: Any, timeout_s: float, traceparent: str = "") -> Any:
        """Send a read or a write and return its StateStreamResponse. Closes the stream and raises TransportError on a
        failure, or when the response takes longer than `timeout_s`."""
        self._next_id += 1
        message = StateStreamRequest(correlation_id=self._next_id, traceparent=traceparent)
        getattr(message, "write" if kind is WriteState else "read").CopyFrom(request)
        stream: ClientStream[Any, Any] | None = None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                stream = await self._open()
                self._waiting[message.correlation_id] = answer
                await stream.write(message)
                return await answer
        except TimeoutError:
            # It is not known whether this stream still works, so the next request opens a new one.
            await self._leave(stream)
            text = f"no answer within {timeout_s:g} s"
            raise TransportError(TransportStatus.DEADLINE_EXCEEDED, self._address, text) from None
        except TransportError:
            await self._leave(stream)
            raise
        finally:
            self._waiting.pop(message.correlation_id, None)
            if not self._waiting:
                self._quiet.set()
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # retrieve it: the stream may have failed it while the write was in progress

    async def close(self) -> None:
        """End the current stream; its waiting requests fail."""
        if self._stream is not None:
            await self._leave(self._stream)

    async def _leave(self, stream: ClientStream[Any, Any] | None) -> None:
        """End this stream, unless a newer one has replaced it."""
        if stream is None or stream is not self._stream:
            return
        reader = self._reader
        self._stream = self._reader = None
        self._fail_waiting(self._gone("the stream was closed"))
        if reader is not None:
            reader.cancel()
        await stream.close()

    async def _open(self) -> ClientStream[Any, Any]:
        async with self._opening:
            if self._must_move and (old := self._stream) is not None:
                while self._waiting and self._stream is old:
                    self._quiet.clear()
                    await self._quiet.wait()
                old.leave_connection()
                await self._leave(old)
            if self._stream is None:
                self._must_move = False
                self._stream = await self._transport.open_stream(self._address, STATE_STREAM)
                self._reader = asyncio.get_running_loop().create_task(self._read(self._stream))
            return self._stream

    async def _read(self, stream: ClientStream[Any, Any]) -> None:
        why = self._gone("the peer ended the stream")
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while (response := await stream.read()) is not None:
                    self._must_move = self._must_move or (response.move and self._stream is stream)
                    answer = self._waiting.get(response.correlation_id)
                    if answer is not None and not answer.done():
                        answer.set_result(response)
            except TransportError as error:
                why = error
            except Exception as error:
                why = self._gone(repr(error))
        if self._stream is stream:
            self._stream = self._reader = None
            self._fail_waiting(why)
            await stream.close()

    def _gone(self, text: str) -> TransportError:
        return TransportError(TransportStatus.UNAVAILABLE, self._address, text)

    def _fail_waiting(self, why: TransportError) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(why)


class KeyLocks:
    """A lock for each share-partition, granted in order of arrival [SC-99 R]. Keeps the locks that are held now, each
    with its waiting callers."""

    def __init__(self) -> None:
        self._held: dict[SharePartitionKey, deque[asyncio.Future[None]]] = {}

    @property
    def busy(self) -> int:
        """How many keys are held."""
        return len(self._held)

    def take(self, key: SharePartitionKey) -> bool:
        """Take the key's lock if it is free. Returns whether it was taken; if so, call `give_back` later."""
        if key in self._held:
            return False
        self._held[key] = deque()
        return True

    def give_back(self, key: SharePartitionKey) -> None:
        """Pass the lock to the caller that has waited longest, or free it."""
        waiters = self._held[key]
        while waiters:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        del self._held[key]

    @asynccontextmanager
    async def hold(self, key: SharePartitionKey) -> AsyncIterator[None]:
        """Hold the key's lock, after all callers that arrived before."""
        if not self.take(key):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held[key].append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if not waiter.cancelled():
                    self.give_back(key)  # the lock was passed to this caller just before it was cancelled
                raise
        try:
            yield
        finally:
            self.give_back(key)


class _Attempts:
    """One operation's state across its attempts."""

    __slots__ = ("deadline_ms", "error", "failures", "lookup_failures", "redirected", "sent", "unknown")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.failures = 0
        self.lookup_failures = 0
        self.sent = 0
        self.redirected = False
        self.unknown = False
        self.error: KafkaError | None = None

    def failed(self) -> PersisterError:
        """Return the error that ends the operation, made from the last attempt's."""
        error = self.error or CoordinatorNotAvailableError("the share coordinator did not answer in time")
        return PersisterError(error, self.unknown)


class PersisterClient:
    """A `Persister` over a Transport; it calls a coordinator in the same process directly.

    `nodes` returns addresses that answer FindCoordinator; `resolve` returns the address of a shard's coordinator by
    this node's hints (CM-14), or None. `shards` is share.coordinator.state.topic.num.partitions.
    """

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        rng: Random,
        nodes: Nodes,
        *,
        shards: int = 50,
        resolve: Resolve | None = None,
        local: LocalCoordinator | None = None,
        settings: PersisterSettings | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._rng = rng
        self._shards = shards
        self._local = local
        self._settings = settings or PersisterSettings()
        timeout_ms = min(self._settings.request_timeout_ms, self._settings.operation_timeout_ms)
        self._request_timeout_s = timeout_ms / 1000
        self._resolve = resolve
        lookup_s = min(timeout_ms, self._settings.silence_ms) / 1000  # the time-out for a node that does not answer
        self._finder = CoordinatorFinder(transport, nodes, resolve, rng, lookup_s)
        self._queues: dict[tuple[str, type[StateCommand]], NodeQueue] = {}
        self._streams: dict[str, StateStream] = {}
        self._writing = KeyLocks()
        self._writes: dict[SharePartitionKey, _Attempts] = {}
        self._logged_ms: dict[str, float] = {}  # when a node's next refusal is logged
        self._closed = False

    async def read(self, command: ReadState) -> StoredState:
        """Read for a leader and fence older leaders. Raises PersisterError."""
        return cast(StoredState, await self._run(command, self._attempts(command.key)))

    async def write(self, command: WriteState) -> None:
        """Persist a change; return when it is durable. Writes of one key run one at a time. Raises PersisterError."""
        key = command.key
        attempts = self._attempts(key)
        if self._writing.take(key):
            self._writes[key] = attempts
            try:
                await self._run(command, attempts)
            finally:
                del self._writes[key]
                self._writing.give_back(key)
            return
        try:
            async with asyncio.timeout(self._left_s(attempts)), self._writing.hold(key):
                self._writes[key] = attempts
                try:
                    await self._try(command, attempts)
                finally:
                    del self._writes[key]
        except TimeoutError:
            raise attempts.failed() from None

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Create or reset state. Returns each partition's error, or None for success."""
        results = await self._run_all(
            InitializeState(SharePartitionKey(group_id, *name), state_epoch, start)
            for name, start in start_offsets.items()
        )
        return cast("dict[TopicIdPartition, PersisterError | None]", results)

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Delete state unless a newer state epoch is stored; state that does not exist counts as deleted (SC-48)."""
        results = await self._run_all(
            DeleteState(SharePartitionKey(group_id, *name), state_epoch) for name, state_epoch in partitions.items()
        )
        failures = cast("dict[TopicIdPartition, PersisterError | None]", results)
        return {
            name: None if failure and isinstance(failure.error, UnknownTopicOrPartitionError) else failure
            for name, failure in failures.items()
        }

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at_ms: int | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        """Read start offsets and epochs without fencing any leader; with `delayed_at_ms` also count delayed records."""
        results = await self._run_all(
            ReadSummary(SharePartitionKey(group_id, *name), None, delayed_at_ms) for name in dict.fromkeys(partitions)
        )
        return cast("dict[TopicIdPartition, StateSummary | PersisterError]", results)

    async def read_summary(self, command: ReadSummary) -> StateSummary:
        """Read one summary with the state batches of its span, without fencing any leader (PL-825)."""
        return cast(StateSummary, await self._run(command, self._attempts(command.key)))

    def write_attempts(self, key: SharePartitionKey) -> int:
        """Return how many times the current write of `key` has been sent; 0 when there is none."""
        attempts = self._writes.get(key)
        return attempts.sent if attempts is not None else 0

    async def close(self) -> None:
        """Fail the operations in progress and close the streams."""
        self._closed = True
        self._finder.close()
        for queue in self._queues.values():
            queue.close()
        for stream in self._streams.values():
            await stream.close()

    async def _run_all(self, commands: Iterable[StateCommand]) -> dict[TopicIdPartition, StateReply | PersisterError]:
        places = asyncio.Semaphore(_CONCURRENT_MAX)

        async def one(command: StateCommand) -> tuple[TopicIdPartition, StateReply | PersisterError]:
            name = command.key.topic_partition
            async with places:
                try:
                    return name, await self._run(command, self._attempts(command.key))
                except PersisterError as error:
                    return name, error

        return dict(await asyncio.gather(*map(one, commands)))

    def _attempts(self, key: SharePartitionKey) -> _Attempts:
        """Return the initial state of an operation's attempts; the operation starts now.

        Raises PersisterError for a key that no coordinator would accept, before anything is sent (SC-90).
        """
        group_id, topic_id, partition = key
        if not group_id or len(topic_id) != TOPIC_ID_BYTES or topic_id == NULL_TOPIC_ID or partition < 0:
            text = f"{key!r} names no share-partition; expected a group, a topic id of 16 bytes and a partition from 0"
            raise PersisterError(InvalidRequestError(text), outcome_unknown=False)
        return _Attempts(self._clock.now_ms() + self._settings.operation_timeout_ms)

    async def _run(self, command: StateCommand, attempts: _Attempts) -> StateReply:
        """Make the first attempt without a timer when this process's own coordinator serves the key: it has a time-out
        of its own, and its outcome nearly always ends the operation."""
        refusal = None
        if not self._closed and (local := self._local_for(command.key)) is not None:
            outcome = await self._call_local(local, command, attempts)
            if not isinstance(outcome, KafkaError):
                return outcome
            refusal = outcome
        try:
            async with asyncio.timeout(self._left_s(attempts)):
                return await self._try(command, attempts, refusal)
        except TimeoutError:
            raise attempts.failed() from None

    def _local_for(self, key: SharePartitionKey) -> LocalCoordinator | None:
        """Return the coordinator of this process, if it serves the key at present."""
        local = self._local
        return local if local is not None and local.serves(state_shard(key, self._shards)) else None

    def _left_s(self, attempts: _Attempts) -> float:
        return max(0, attempts.deadline_ms - self._clock.now_ms()) / 1000

    async def _try(self, command: StateCommand, attempts: _Attempts, refusal: KafkaError | None = None) -> StateReply:
        """Attempt until there is a reply. `refusal`: the own coordinator's outcome of a first attempt, if made."""
        shard = state_shard(command.key, self._shards)
        outcome: StateOutcome = refusal
        while not self._closed:
            address = ""
            if refusal is not None:
                refusal = None
            elif (local := self._local_for(command.key)) is not None:
                outcome = await self._call_local(local, command, attempts)
            else:
                address = await self._locate(shard, command, attempts)
                outcome = await self._call_remote(address, command, attempts)
            if not isinstance(outcome, KafkaError):
                return outcome
            attempts.error = outcome
            if not retriable(command, outcome):
                self._log_refusal(outcome)
                raise attempts.failed()
            if address:
                self._finder.doubt(shard, address)
            if not self._redirected(shard, address, outcome, attempts):
                attempts.failures += 1
                await self._pause(attempts.failures, attempts)
        raise attempts.failed()

    async def _call_local(self, local: LocalCoordinator, command: StateCommand, attempts: _Attempts) -> StateOutcome:
        before, attempts.unknown = attempts.unknown, True
        attempts.sent += 1
        outcome = await local.run_one(command, max(0, attempts.deadline_ms - self._clock.now_ms()))
        attempts.unknown = before or (isinstance(outcome, KafkaError) and may_have_applied(outcome))
        return outcome

    async def _call_remote(self, address: str, command: StateCommand, attempts: _Attempts) -> StateOutcome:
        attempts.sent += 1
        entry = QueuedCall(command)
        try:
            self._queue_to(address, type(command)).add(entry)
        except KafkaError as error:
            return error.with_traceback(None)  # it refers to this frame, whose `attempts` will hold the error
        open_ = True
        try:
            outcome = await entry.outcome
            open_ = isinstance(outcome, KafkaError) and may_have_applied(outcome)
        finally:
            # PL-707: unknown if it may have been sent and got no response, or one that leaves the outcome open.
            attempts.unknown |= entry.sent and open_
        return outcome

    async def _locate(self, shard: int, command: StateCommand, attempts: _Attempts) -> str:
        while True:
            try:
                address = await self._finder.find(shard, command.key)
            except NoNodesError:
                attempts.error = CoordinatorNotAvailableError("no node is known that could name the share coordinator")
                raise attempts.failed() from None
            except KafkaError as error:
                attempts.error = error.with_traceback(None)  # it refers to this frame, and so to itself
                if not retriable(command, error):
                    self._log_refusal(error)
                    raise attempts.failed() from error
                attempts.lookup_failures += 1
                await self._pause(attempts.lookup_failures, attempts)
                continue
            attempts.lookup_failures = 0
            return address

    def _log_refusal(self, error: KafkaError) -> None:
        """Log that a node does not serve this one, once per node in `_REFUSED_EVERY_MS`."""
        now_ms = self._clock.now_ms()
        if not isinstance(error, PeerRefusedError) or now_ms < self._logged_ms.get(error.address, -inf):
            return
        if len(self._logged_ms) >= _QUEUES_MAX:
            self._logged_ms.clear()
        self._logged_ms[error.address] = now_ms + _REFUSED_EVERY_MS
        log.warning("share_coordinator_refused_this_node", node=error.address, cause=error.cause, remedy=error.remedy)

    def _redirected(self, shard: int, address: str, error: KafkaError, attempts: _Attempts) -> bool:
        """Note the hint of a NOT_COORDINATOR refusal. Returns whether to follow it at once: only once per operation,
        since hints may form a circle."""
        if not isinstance(error, MovedStateError) or error.address == address:
            return False
        self._finder.note(shard, error.address)
        first, attempts.redirected = not attempts.redirected, True
        return first

    async def _pause(self, failures: int, attempts: _Attempts) -> None:
        """Wait before the next attempt. Raises PersisterError when no attempt, or no time for one, is left."""
        if failures >= self._settings.attempts:
            raise attempts.failed()
        pause_ms = self._settings.pause_ms(failures, self._rng)
        if self._clock.now_ms() + pause_ms >= attempts.deadline_ms:
            raise attempts.failed()
        await asyncio.sleep(pause_ms / 1000)

    def _queue_to(self, address: str, kind: type[StateCommand]) -> NodeQueue:
        queue = self._queues.get((address, kind))
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues = {name: queue for name, queue in self._queues.items() if not queue.idle}
            send = self._stream_send if kind in {ReadState, WriteState} else self._unary_send
            moved = partial(self._moved, address)
            queue = self._queues[address, kind] = NodeQueue(kind, partial(send, address, kind), self._settings, moved)
        return queue

    def _moved(self, address: str, key: SharePartitionKey) -> bool:
        """Return whether, by this node's hints, the owner of a share-partition's state is no longer at `address`."""
        shard = state_shard(key, self._shards)
        if self._local is not None and self._local.serves(shard):
            return True
        owner = self._resolve(shard) if self._resolve is not None else None
        return owner is not None and owner != address

    async def _stream_send(
        self, address: str, kind: type[StateCommand], request: Message, traceparent: str = ""
    ) -> Any:
        stream = self._streams.get(address)
        if stream is None:
            stream = self._streams[address] = StateStream(self._transport, address)
        response = await stream.request(kind, request, self._request_timeout_s, traceparent)
        return response.write if kind is WriteState else response.read

    async def _unary_send(self, address: str, kind: type[StateCommand], request: Message) -> Any:
        return await self._transport.call(address, method_of(kind), request, self._request_timeout_s)
