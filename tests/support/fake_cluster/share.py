"""The fake cluster's ShareFetch, ShareAcknowledge and ShareStream: sessions by epoch, acquisition, parked fetches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from kip932.api.v1 import share_acknowledge_pb2, share_fetch_pb2, share_stream_pb2
from kip932.compression.kinds import Compression, install_command
from kip932.ids import TopicIdPartition
from kip932.record_batches import compression_of
from kip932.rpc.transport import TransportStatus
from shard_runtime.rpc.binding import ServerStream
from shard_runtime.rpc.status import RpcFailureError
from tests.support.fake_cluster.faults import GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from tests.support.fake_cluster.log import DELAY_MAX_MS, INVALID_REQUEST, UNSUPPORTED_COMPRESSION_TYPE, reads_format
from tests.support.fake_cluster.state import FakeState, Session
from tests.support.virtual_time import now_s

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER_OR_FOLLOWER: Final = 6
UNKNOWN_TOPIC_ID: Final = 100
SHARE_SESSION_NOT_FOUND: Final = 122
INVALID_SHARE_SESSION_EPOCH: Final = 123
OPEN: Final = 0
CLOSE: Final = -1


@dataclass
class _Run:
    """A request that has taken effect and awaits its response: the error of the whole request, or its session and the
    error of each partition that it acknowledged."""

    request: Any
    error: int = 0
    session: Session | None = None
    lock_ms: int = 0
    acknowledged: dict[TopicIdPartition, int] = field(default_factory=dict)


class ShareRequests:
    def __init__(self, fake: FakeState, node: int) -> None:
        self.fake = fake
        self.node = node

    @property
    def sessions(self) -> dict[tuple[str, str], Session]:
        return self.fake.sessions[self.node]

    async def share_stream(self, stream: ServerStream) -> None:
        tasks: set[asyncio.Task[None]] = set()
        me = asyncio.current_task()
        assert me is not None
        self.fake.stream_tasks[self.node].add(me)
        try:
            if self.fake.take_error("share_stream"):
                raise RpcFailureError(TransportStatus.RESOURCE_EXHAUSTED, "too many connections")
            await self.fake.opened(self.node, stream, share_stream_pb2.ShareStreamResponse(move=True))
            while (message := await stream.read()) is not None:
                run = self._begin(message, stream)
                if self.fake.take_error("share_stream_lost"):
                    raise RpcFailureError(TransportStatus.UNAVAILABLE, "the connection broke")
                task = asyncio.create_task(self._answer(message, run, stream))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            self.fake.stream_tasks[self.node].discard(me)
            self.fake.open_streams[self.node].pop(stream, None)
            for task in tasks:
                task.cancel()
            for key, session in list(self.sessions.items()):
                if session.stream is stream:
                    self._end(key)

    async def _answer(self, message: share_stream_pb2.ShareStreamRequest, run: _Run, stream: ServerStream) -> None:
        answer = share_stream_pb2.ShareStreamResponse(correlation_id=message.correlation_id)
        if message.HasField("fetch"):
            answer.fetch.CopyFrom(await self._fetched(run))
        else:
            answer.acknowledge.CopyFrom(self._acknowledged(run))
        await stream.write(answer)

    async def share_fetch(
        self, request: share_fetch_pb2.ShareFetchRequest, context: Any
    ) -> share_fetch_pb2.ShareFetchResponse:
        return await self._fetched(self._begin(share_stream_pb2.ShareStreamRequest(fetch=request), None))

    async def share_acknowledge(
        self, request: share_acknowledge_pb2.ShareAcknowledgeRequest, context: Any
    ) -> share_acknowledge_pb2.ShareAcknowledgeResponse:
        return self._acknowledged(self._begin(share_stream_pb2.ShareStreamRequest(acknowledge=request), None))

    # A request takes effect on arrival: its session step, then its acknowledgements, then the end of its session.

    def _begin(self, message: share_stream_pb2.ShareStreamRequest, stream: object) -> _Run:
        self.fake.traceparents.append(message.traceparent)
        is_fetch = message.HasField("fetch")
        request: Any = message.fetch if is_fetch else message.acknowledge
        requests: list[Any] = self.fake.fetches if is_fetch else self.fake.acknowledges
        requests.append(request)
        if self.fake.denial("READ", "group", request.group_id):
            return _Run(request, GROUP_AUTHORIZATION_FAILED)
        error = self.fake.take_error("fetch_top" if is_fetch else "acknowledge_top")
        error_or_session = error or self._step(request, is_fetch, stream)
        if not isinstance(error_or_session, Session):
            return _Run(request, error_or_session)
        run = _Run(request, session=error_or_session, lock_ms=self.fake.lock_ms)
        for topic in request.topics:
            for part in topic.partitions:
                if part.acknowledgement_batches:
                    partition = TopicIdPartition(topic.topic_id, part.partition_index)
                    run.acknowledged[partition] = self._acknowledge(request, partition, part.acknowledgement_batches)
        if request.share_session_epoch == CLOSE:
            self._end((request.group_id, request.member_id))
        self.fake.notify()
        return run

    def _step(self, request: Any, is_fetch: bool, stream: object) -> int | Session:
        key = (request.group_id, request.member_id)
        if is_fetch and request.is_renew_ack and any(_limits(request)):
            return INVALID_REQUEST
        session = self.sessions.get(key)
        if request.share_session_epoch == OPEN:
            if not is_fetch or any(
                part.acknowledgement_batches for topic in request.topics for part in topic.partitions
            ):
                return INVALID_REQUEST if is_fetch else INVALID_SHARE_SESSION_EPOCH
            if session is not None:
                self._end(key)
            session = self.sessions[key] = Session(0, self.fake.new_session(), stream, {})
        elif session is None:
            return SHARE_SESSION_NOT_FOUND
        elif session.session_id != request.session_id or request.share_session_epoch not in (CLOSE, session.epoch):
            return INVALID_SHARE_SESSION_EPOCH
        session.epoch += 1
        if stream is not None:
            session.stream = stream
        if is_fetch:
            self._change(session, request)
        return session

    @staticmethod
    def _change(session: Session, request: Any) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                session.partitions.setdefault(TopicIdPartition(topic.topic_id, part.partition_index), True)
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                session.partitions.pop(TopicIdPartition(gone.topic_id, number), None)

    def _end(self, key: tuple[str, str]) -> None:
        """Close a session; the records its member acquired are available again (PL-520)."""
        group, member = key
        del self.sessions[key]
        for partition, log in self.fake.logs.items():
            if self.fake.leaders[partition][0] == self.node and group in log.states:
                for offset in log.held(group, member):
                    log.give_back(group, offset)
        self.fake.notify()

    def _acknowledge(self, request: Any, partition: TopicIdPartition, batches: Any) -> int:
        denied = TOPIC_AUTHORIZATION_FAILED if self._denial(partition) else 0
        if error := denied or self.fake.take_error("acknowledge") or self.trouble(partition):
            return error
        if request.group_id not in self.fake.logs[partition].states:
            return UNKNOWN_TOPIC_OR_PARTITION  # the group has never fetched from it
        error, renewed, delays = self.fake.logs[partition].acknowledge(request, batches)
        for offset in renewed:
            self.fake.lock(partition, request.group_id, offset)
        for offset, delay_ms in delays.items():
            self.fake.delay(partition, request.group_id, offset, delay_ms)
        return error

    def _denial(self, partition: TopicIdPartition) -> str:
        """Return the reason why clients may not read from the partition; "" if they may."""
        return self.fake.denial("READ", "topic", self.name_of(partition.topic_id))

    def name_of(self, topic_id: bytes) -> str:
        return next((name for name, (found, _) in self.fake.topics.items() if found == topic_id), "")

    def trouble(self, partition: TopicIdPartition, result: Any = None, response: Any = None) -> int:
        """Return the error with which this node refuses a partition, 0 if it serves it. Fills in the leader in
        `result`, if given."""
        count = next((count for topic_id, count in self.fake.topics.values() if topic_id == partition.topic_id), None)
        if count is None:
            return UNKNOWN_TOPIC_ID
        if partition.partition >= count:
            return UNKNOWN_TOPIC_OR_PARTITION
        leader, epoch = self.fake.leaders[partition]
        if leader == self.node:
            return 0
        if result is not None and leader >= 0:
            result.current_leader.leader_id, result.current_leader.leader_epoch = leader, epoch
            if leader not in {node.node_id for node in response.node_endpoints}:
                response.node_endpoints.append(self.fake.endpoint(leader))
        return NOT_LEADER_OR_FOLLOWER

    # Answers.

    def _acknowledged(self, run: _Run) -> share_acknowledge_pb2.ShareAcknowledgeResponse:
        response = share_acknowledge_pb2.ShareAcknowledgeResponse()
        if run.error:
            self.fake.refuse(response, run.error, self._text(run))
            return response
        began_ms = run.lock_ms if run.request.is_renew_ack else self.fake.lock_ms  # PL-254
        response.acquisition_lock_timeout_ms = min(began_ms, self.fake.lock_ms)
        for partition, code in run.acknowledged.items():
            result = _partition(response, partition)
            result.error_code = code
            if code == NOT_LEADER_OR_FOLLOWER:
                self.trouble(partition, result, response)
        return response

    async def _fetched(self, run: _Run) -> share_fetch_pb2.ShareFetchResponse:
        """Respond once there are records, there is nothing to wait for, or the time is up."""
        request, session = run.request, run.session
        if session is None:
            return self._refused(run.error, self._text(run))
        response = share_fetch_pb2.ShareFetchResponse()
        deadline = now_s() + request.max_wait_ms / 1000
        while request.share_session_epoch != CLOSE:
            if self.sessions.get((request.group_id, request.member_id)) is not session:
                return self._refused(INVALID_SHARE_SESSION_EPOCH)
            response.Clear()
            changed = self.fake.changed
            if self._acquire(request, session, response) or now_s() >= deadline:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
        response.acquisition_lock_timeout_ms = self.fake.lock_ms
        response.session_id = session.session_id
        if self.fake.knows_delays:
            response.release_delay_max_ms = DELAY_MAX_MS
        if self.fake.delivery_count_limit is not None:
            response.delivery_count_limit = self.fake.delivery_count_limit
        if self.fake.dead_letter_topic is not None:
            response.dead_letter_topic = self.fake.dead_letter_topic
        for partition, code in run.acknowledged.items():
            _partition(response, partition).acknowledge_error_code = code
        self._report(session, response)
        return response

    def _refused(self, error: int, text: str = "") -> share_fetch_pb2.ShareFetchResponse:
        response = share_fetch_pb2.ShareFetchResponse()
        self.fake.refuse(response, error, text)
        return response

    def _text(self, run: _Run) -> str:
        return self.fake.denial("READ", "group", run.request.group_id)

    def _acquire(self, request: Any, session: Session, response: Any) -> bool:
        """Fill the response; return whether it may be sent before the deadline."""
        if request.is_renew_ack or not (request.max_records and request.max_bytes):
            return True
        left, erroneous = request.max_records, 0
        for partition in session.partitions:
            if text := self._denial(partition):
                result = _partition(response, partition)
                result.error_code, result.error_message = TOPIC_AUTHORIZATION_FAILED, text
                erroneous += 1
                continue
            planned = self.fake.take_error("fetch")
            if planned or self.trouble(partition):
                result = _partition(response, partition)
                result.error_code = planned or self.trouble(partition, result, response)
                erroneous += 1
                continue
            batches, ranges = self.fake.logs[partition].acquire(request, left)
            unreadable = None if ranges else self.fake.logs[partition].unreadable(request)
            if not ranges and unreadable is None:
                continue
            result = _partition(response, partition)
            if unreadable is not None:
                result.error_code = UNSUPPORTED_COMPRESSION_TYPE
                kind = Compression(compression_of(unreadable.batch))
                missing = f"{kind.label}. Try: {install_command(kind)}"
                if not reads_format(request, unreadable):
                    missing = "a client that reads Kafka's format"
                result.error_message = f"offset {unreadable.base_offset} needs {missing}"
                erroneous += 1
                continue
            result.records.extend(batches)
            for first, last, count in ranges:
                result.acquired_records.add(first_offset=first, last_offset=last, delivery_count=count)
                left -= last - first + 1
                for offset in range(first, last + 1):
                    self.fake.lock(partition, request.group_id, offset)
        return left < request.max_records or erroneous == len(session.partitions)

    @staticmethod
    def _report(session: Session, response: Any) -> None:
        """Include the partitions that are new in the session or were in error, even if their entries are empty."""
        for partition, owed in session.partitions.items():
            result = _partition(response, partition) if owed else None
            result = result or _partition(response, partition, add=False)
            session.partitions[partition] = result is not None and result.error_code != 0


def _limits(request: Any) -> tuple[int, int, int, int]:
    return request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records


def _partition(response: Any, partition: TopicIdPartition, add: bool = True) -> Any:
    """Return a partition's entry in a response; add it if it is missing."""
    topic = next((one for one in response.responses if one.topic_id == partition.topic_id), None)
    found = topic and next((one for one in topic.partitions if one.partition_index == partition.partition), None)
    if found is not None or not add:
        return found
    if topic is None:
        topic = response.responses.add(topic_id=partition.topic_id)
    return topic.partitions.add(partition_index=partition.partition)
