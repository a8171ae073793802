"""The persister: its streams to nodes, attempts, back-off, and whether a failed write may have been applied (PL-707,
PL-723, GC-74).

When this process owns the shard, the persister calls the coordinator in this process (P-12); otherwise it uses the
queue to the owner's node. Every operation ends within `operation_timeout_ms`, waits included.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final, cast

from google.protobuf.message import Message

from kip932.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import NULL_TOPIC_ID, TOPIC_ID_BYTES, SharePartitionKey, TopicIdPartition
from kip932.internal.v1.state_stream_pb2 import StateStreamRequest
from kip932.rpc.transport import ClientStream, Transport, TransportError, TransportStatus
from kip932.state_values import DelayedAt, StateSpan, StateSummary, StateWrite
from shard_runtime.clock import Clock
from share_persister.finder import CoordinatorFinder, Nodes, NoNodesError, Resolve
from share_persister.messages import METHODS, STATE_STREAM
from share_persister.node_queue import NodeQueue, QueuedCall
from share_persister.retry_rules import may_have_applied, retriable
from share_persister.routing import state_shard
from share_persister.settings import PersisterSettings
from share_persister.values import (
    Answer,
    LocalCoordinator,
    Payload,
    PersisterError,
    StateInit,
    StateOperation,
    StateRead,
    StoredState,
    Value,
)

#: How many share-partitions of one administrative call are processed at a time.
_CONCURRENT_MAX: Final = 1_000
#: How many queues are kept; above that, idle ones are dropped, whose nodes may no longer exist.
_QUEUES_MAX: Final = 1_024


class StateStream:
    """One StateStream to one node: several requests in flight, answers matched by correlation id (P-4).

    The first request opens it. When it breaks, every waiting request fails, and the next request opens a new one.
    """

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport = transport
        self._address = address
        self._stream: ClientStream[Any, Any] | None = None
        self._opening = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0

    async def request(self, operation: StateOperation, request: Any, timeout_s: float) -> Any:
        """Send a read or a write and return its StateStreamResponse. Raises TransportError, and closes the stream then,
        also when the answer takes longer than `timeout_s`."""
        self._next_id += 1
        message = StateStreamRequest(correlation_id=self._next_id)
        getattr(message, "write" if operation is StateOperation.WRITE else "read").CopyFrom(request)
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
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # retrieve it: the stream may have failed it while the write was under way

    async def close(self) -> None:
        """End the present stream; its waiting requests fail."""
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
            if self._stream is None:
                self._stream = await self._transport.open_stream(self._address, STATE_STREAM)
                self._reader = asyncio.get_running_loop().create_task(self._read(self._stream))
            return self._stream

    async def _read(self, stream: ClientStream[Any, Any]) -> None:
        why = self._gone("the peer ended the stream")
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while (response := await stream.read()) is not None:
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

    __slots__ = ("deadline_ms", "error", "failures", "leader_epoch", "lookup_failures", "redirected", "sent", "unknown")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        self.failures = 0
        self.lookup_failures = 0
        self.sent = 0
        self.redirected = False
        self.unknown = False
        self.error: KafkaError | None = None
        self.leader_epoch: int | None = None

    def failed(self) -> PersisterError:
        """Return the error that ends the operation, made from the last attempt's."""
        error = self.error or CoordinatorNotAvailableError("the share coordinator did not answer in time")
        return PersisterError(error, self.unknown, self.leader_epoch)


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
        look_up_s = min(timeout_ms, self._settings.silence_ms) / 1000  # the time-out for a node that does not answer
        self._finder = CoordinatorFinder(transport, nodes, resolve, rng, look_up_s)
        self._queues: dict[tuple[str, StateOperation], NodeQueue] = {}
        self._streams: dict[str, StateStream] = {}
        self._writing = KeyLocks()
        self._writes: dict[SharePartitionKey, _Attempts] = {}
        self._closed = False

    async def read(self, key: SharePartitionKey, leader_epoch: int, generation: int) -> StoredState:
        """Read for a leader and fence older leaders. Raises PersisterError."""
        return cast(StoredState, await self._perform(StateOperation.READ, key, StateRead(leader_epoch, generation)))

    async def write(self, key: SharePartitionKey, write: StateWrite) -> None:
        """Persist a change; return when it is durable. Writes of one key run one at a time. Raises PersisterError."""
        await self._perform(StateOperation.WRITE, key, write)

    async def initialize(
        self, group_id: str, partitions: Mapping[TopicIdPartition, StateInit]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Create or reset state. Returns each partition's error, or None for success."""
        results = await self._perform_all(StateOperation.INITIALIZE, group_id, partitions)
        return {name: _failure(result) for name, result in results.items()}

    async def delete(
        self, group_id: str, partitions: Mapping[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, PersisterError | None]:
        """Delete state unless a newer state epoch is stored; state that does not exist counts as deleted (SC-48)."""
        results = await self._perform_all(StateOperation.DELETE, group_id, partitions)
        failures = {name: _failure(result) for name, result in results.items()}
        return {
            name: None if failure and isinstance(failure.error, UnknownTopicOrPartitionError) else failure
            for name, failure in failures.items()
        }

    async def summary(
        self, group_id: str, partitions: Collection[TopicIdPartition], delayed_at: DelayedAt | None = None
    ) -> dict[TopicIdPartition, StateSummary | PersisterError]:
        """Read start offsets and epochs without fencing any leader; with `delayed_at` also count delayed records."""
        results = await self._perform_all(StateOperation.SUMMARY, group_id, dict.fromkeys(partitions, delayed_at))
        return cast("dict[TopicIdPartition, StateSummary | PersisterError]", results)

    async def look(self, key: SharePartitionKey, span: StateSpan) -> StateSummary:
        """Read one summary with the state batches of `span`, without fencing any leader (PL-825)."""
        return cast(StateSummary, await self._perform(StateOperation.SUMMARY, key, span))

    def write_attempts(self, key: SharePartitionKey) -> int:
        """Return how often the present write of `key` has been sent; 0 when none is under way."""
        attempts = self._writes.get(key)
        return attempts.sent if attempts is not None else 0

    async def close(self) -> None:
        """Fail the operations under way and close the streams."""
        self._closed = True
        self._finder.close()
        for queue in self._queues.values():
            queue.close()
        for stream in self._streams.values():
            await stream.close()

    async def _perform_all(
        self, operation: StateOperation, group_id: str, partitions: Mapping[TopicIdPartition, Payload]
    ) -> dict[TopicIdPartition, Value | PersisterError]:
        places = asyncio.Semaphore(_CONCURRENT_MAX)

        async def one(name: TopicIdPartition, payload: Payload) -> Value | PersisterError:
            async with places:
                try:
                    return await self._perform(operation, SharePartitionKey(group_id, *name), payload)
                except PersisterError as error:
                    return error

        results = await asyncio.gather(*(one(name, payload) for name, payload in partitions.items()))
        return dict(zip(partitions, results, strict=True))

    async def _perform(self, operation: StateOperation, key: SharePartitionKey, payload: Payload) -> Value:
        _check(key)
        attempts = _Attempts(self._clock.now_ms() + self._settings.operation_timeout_ms)
        if operation is not StateOperation.WRITE:
            return await self._begin(operation, key, payload, attempts)
        if self._writing.take(key):
            self._writes[key] = attempts
            try:
                return await self._begin(operation, key, payload, attempts)
            finally:
                del self._writes[key]
                self._writing.give_back(key)
        try:
            async with asyncio.timeout(self._left_s(attempts)), self._writing.hold(key):
                self._writes[key] = attempts
                try:
                    return await self._try(operation, key, payload, attempts)
                finally:
                    del self._writes[key]
        except TimeoutError:
            raise attempts.failed() from None

    async def _begin(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, attempts: _Attempts
    ) -> Value:
        """Make the first attempt without a timer when this process's own coordinator serves the key: it has a time-out
        of its own, and its answer nearly always ends the operation."""
        answer = None
        if not self._closed and self._is_local(key):
            answer = await self._call_local(operation, key, payload, attempts)
            if answer.error is None:
                return answer.value
        try:
            async with asyncio.timeout(self._left_s(attempts)):
                return await self._try(operation, key, payload, attempts, answer)
        except TimeoutError:
            raise attempts.failed() from None

    def _is_local(self, key: SharePartitionKey) -> bool:
        return self._local is not None and self._local.owns(state_shard(key, self._shards))

    def _left_s(self, attempts: _Attempts) -> float:
        return max(0, attempts.deadline_ms - self._clock.now_ms()) / 1000

    async def _try(
        self,
        operation: StateOperation,
        key: SharePartitionKey,
        payload: Payload,
        attempts: _Attempts,
        answer: Answer | None = None,
    ) -> Value:
        """Attempt until there is an outcome. `answer`: the own coordinator's answer to a first attempt, if made."""
        shard = state_shard(key, self._shards)
        while not self._closed:
            address = ""
            if answer is None and self._is_local(key):
                answer = await self._call_local(operation, key, payload, attempts)
            elif answer is None:
                address = await self._locate(shard, key, operation, attempts)
                answer = await self._call_remote(operation, address, QueuedCall(key, payload), attempts)
            if answer.error is None:
                return answer.value
            attempts.error, attempts.leader_epoch = answer.error, answer.leader_epoch
            if not retriable(operation, answer.error):
                raise attempts.failed()
            if address:
                self._finder.doubt(shard, address)
            if not self._redirected(shard, address, answer, attempts):
                attempts.failures += 1
                await self._pause(attempts.failures, attempts)
            answer = None
        raise attempts.failed()

    async def _call_local(
        self, operation: StateOperation, key: SharePartitionKey, payload: Payload, attempts: _Attempts
    ) -> Answer:
        assert self._local is not None
        before, attempts.unknown = attempts.unknown, True
        attempts.sent += 1
        left_ms = max(0, attempts.deadline_ms - self._clock.now_ms())
        answer = await self._local.perform(operation, key, payload, left_ms)
        attempts.unknown = before or (answer.error is not None and may_have_applied(answer.error))
        return answer

    async def _call_remote(
        self, operation: StateOperation, address: str, entry: QueuedCall, attempts: _Attempts
    ) -> Answer:
        attempts.sent += 1
        try:
            self._queue_to(address, operation).add(entry)
        except KafkaError as error:
            return Answer(error)
        answer: Answer | None = None
        try:
            answer = await entry.answer
        finally:
            # PL-707: unknown if it may have been sent and has no answer, or one that leaves the outcome open.
            open_ = answer is None or (answer.error is not None and may_have_applied(answer.error))
            attempts.unknown |= entry.sent and open_
        return answer

    async def _locate(self, shard: int, key: SharePartitionKey, operation: StateOperation, attempts: _Attempts) -> str:
        while True:
            try:
                address = await self._finder.find(shard, key)
            except NoNodesError:
                attempts.error = CoordinatorNotAvailableError("no node is known that could name the share coordinator")
                raise attempts.failed() from None
            except KafkaError as error:
                attempts.error = error
                if not retriable(operation, error):
                    raise attempts.failed() from error
                attempts.lookup_failures += 1
                await self._pause(attempts.lookup_failures, attempts)
                continue
            attempts.lookup_failures = 0
            return address

    def _redirected(self, shard: int, address: str, answer: Answer, attempts: _Attempts) -> bool:
        """Note the hint of a NOT_COORDINATOR answer. Returns whether to follow it at once: only once per operation,
        since hints may form a circle."""
        if answer.hint is None or answer.hint == address or not isinstance(answer.error, NotCoordinatorError):
            return False
        self._finder.note(shard, answer.hint)
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

    def _queue_to(self, address: str, operation: StateOperation) -> NodeQueue:
        queue = self._queues.get((address, operation))
        if queue is None:
            if len(self._queues) >= _QUEUES_MAX:
                self._queues = {name: queue for name, queue in self._queues.items() if not queue.idle}
            send = self._stream_send if operation in {StateOperation.READ, StateOperation.WRITE} else self._unary_send
            moved = partial(self._moved, address)
            queue = self._queues[address, operation] = NodeQueue(
                operation, partial(send, address), self._settings, moved
            )
        return queue

    def _moved(self, address: str, key: SharePartitionKey) -> bool:
        """Return whether, by this node's hints, the owner of a share-partition's state is no longer at `address`."""
        shard = state_shard(key, self._shards)
        if self._local is not None and self._local.owns(shard):
            return True
        owner = self._resolve(shard) if self._resolve is not None else None
        return owner is not None and owner != address

    async def _stream_send(self, address: str, operation: StateOperation, request: Message) -> Any:
        stream = self._streams.get(address)
        if stream is None:
            stream = self._streams[address] = StateStream(self._transport, address)
        response = await stream.request(operation, request, self._request_timeout_s)
        return response.write if operation is StateOperation.WRITE else response.read

    async def _unary_send(self, address: str, operation: StateOperation, request: Message) -> Any:
        return await self._transport.call(address, METHODS[operation.value], request, self._request_timeout_s)


def _check(key: SharePartitionKey) -> None:
    """SC-90: refuse a key that no coordinator would accept, before anything is sent. Raises PersisterError."""
    if not key.group_id or len(key.topic_id) != TOPIC_ID_BYTES or key.topic_id == NULL_TOPIC_ID or key.partition < 0:
        text = f"{key!r} names no share-partition; expected a group, a topic id of 16 bytes and a partition from 0"
        raise PersisterError(InvalidRequestError(text), outcome_unknown=False)


def _failure(result: Value | PersisterError) -> PersisterError | None:
    return result if isinstance(result, PersisterError) else None
