"""The fake cluster's partition leader: produce, share sessions by epoch and stream, acquisition, acknowledgements."""

from __future__ import annotations

import asyncio
from typing import Any

from kip932.api.v1 import produce_pb2, share_acknowledge_pb2, share_fetch_pb2, share_stream_pb2, write_txn_markers_pb2
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, ACK_RENEW, TopicIdPartition
from shard_runtime.rpc.binding import ServerStream
from tests.support.fake_cluster.state import FakeState, Log, Session
from tests.support.virtual_time import now_s


class _Answer:
    """Takes the answer of a unary call."""

    def __init__(self) -> None:
        self.message = share_stream_pb2.ShareStreamResponse()

    async def write(self, message: share_stream_pb2.ShareStreamResponse) -> None:
        self.message = message


class Leader:
    def __init__(self, fake: FakeState, node: int) -> None:
        self.fake = fake
        self.node = node

    # Produce.

    async def produce(self, request: produce_pb2.ProduceRequest, context: Any) -> produce_pb2.ProduceResponse:
        return self._produce(request)

    async def produce_stream(self, stream: ServerStream) -> None:
        while (message := await stream.read()) is not None:
            if self.fake.hold_produce is not None:
                await self.fake.hold_produce.wait()
            error = self.fake.take_error("produce_stream")
            if error:
                return  # the stream ends without an answer
            response = self._produce(message.request)
            if self.fake.take_error("produce_lost"):
                return  # appended, and the answer is lost
            await stream.write(
                produce_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, response=response)
            )

    def _produce(self, request: produce_pb2.ProduceRequest) -> produce_pb2.ProduceResponse:
        fake = self.fake
        fake.produces.append(request)
        response = produce_pb2.ProduceResponse(node_endpoints=fake.endpoints())
        for topic in request.topic_data:
            result = response.responses.add(topic_id=topic.topic_id)
            for part in topic.partition_data:
                partition = TopicIdPartition(topic.topic_id, part.index)
                outcome = result.partition_responses.add(index=part.index, base_offset=-1)
                error = fake.take_error("produce") or ErrorCode.ValueType(fake.unloadable.get(partition, 0))
                if topic.topic_id not in {topic_id for topic_id, _ in fake.topics.values()}:
                    error = ErrorCode.ValueType(100)
                leader, epoch = fake.leaders[partition]
                if leader != self.node:
                    error = ErrorCode.ValueType(6)
                    outcome.current_leader.leader_id = leader
                    outcome.current_leader.leader_epoch = epoch
                if error:
                    outcome.error_code = error
                    continue
                self._append(fake.logs[partition], part, outcome)
        fake.notify()
        return response

    @staticmethod
    def _append(log: Log, part: Any, outcome: Any) -> None:
        for batch in part.batches:
            key = (batch.producer_id, batch.base_sequence)
            if batch.HasField("producer_id") and batch.producer_id >= 0 and key in log.sequences:
                outcome.base_offsets.append(log.sequences[key])
                continue
            base = log.append(batch.record_batch, batch.record_count)
            log.sequences[key] = base
            outcome.base_offsets.append(base)
        outcome.base_offset = outcome.base_offsets[0]

    async def write_txn_markers(
        self, request: write_txn_markers_pb2.WriteTxnMarkersRequest, context: Any
    ) -> write_txn_markers_pb2.WriteTxnMarkersResponse:
        self.fake.markers.append(request)
        return write_txn_markers_pb2.WriteTxnMarkersResponse()

    # Share sessions.

    async def share_stream(self, stream: ServerStream) -> None:
        tasks: set[asyncio.Task[None]] = set()
        me = asyncio.current_task()
        assert me is not None
        self.fake.stream_tasks[self.node].add(me)
        try:
            while (message := await stream.read()) is not None:
                handler = self._fetch if message.HasField("fetch") else self._acknowledge
                prepared = self._session_step(message, stream)
                task = asyncio.create_task(handler(message, prepared, stream))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            self.fake.stream_tasks[self.node].discard(me)
            for task in tasks:
                task.cancel()
            for key, session in list(self.fake.sessions[self.node].items()):
                if session.stream is stream:
                    self._end(key)

    async def share_fetch(
        self, request: share_fetch_pb2.ShareFetchRequest, context: Any
    ) -> share_fetch_pb2.ShareFetchResponse:
        answer = _Answer()
        message = share_stream_pb2.ShareStreamRequest(fetch=request)
        await self._fetch(message, self._session_step(message, answer), answer)
        return answer.message.fetch

    async def share_acknowledge(
        self, request: share_acknowledge_pb2.ShareAcknowledgeRequest, context: Any
    ) -> share_acknowledge_pb2.ShareAcknowledgeResponse:
        answer = _Answer()
        message = share_stream_pb2.ShareStreamRequest(acknowledge=request)
        await self._acknowledge(message, self._session_step(message, answer), answer)
        return answer.message.acknowledge

    def _session_step(self, message: share_stream_pb2.ShareStreamRequest, stream: object) -> Any:
        """Apply the session part in arrival order; returns an error code or 0."""
        is_fetch = message.HasField("fetch")
        request: Any = message.fetch if is_fetch else message.acknowledge
        if is_fetch:
            self.fake.fetches.append(request)
        else:
            self.fake.acknowledges.append(request)
        if error := self.fake.take_error("fetch_top" if is_fetch else "acknowledge_top"):
            return error
        key = (request.group_id, request.member_id)
        sessions = self.fake.sessions[self.node]
        session = sessions.get(key)
        if request.share_session_epoch == 0:
            if not is_fetch:
                return 123
            if session is not None:
                self._end(key)
            session = sessions[key] = Session(1, self.fake.new_session(), stream, {})
        elif session is None:
            return 122
        elif session.session_id != request.session_id or (request.share_session_epoch not in (-1, session.epoch)):
            return 123
        elif request.share_session_epoch > 0:
            session.epoch += 1
        if is_fetch:
            self._change(session, request)
        return 0

    @staticmethod
    def _change(session: Session, request: Any) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                session.partitions[TopicIdPartition(topic.topic_id, part.partition_index)] = None
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                session.partitions.pop(TopicIdPartition(gone.topic_id, number), None)

    def _end(self, key: tuple[str, str]) -> None:
        """Close a session; what its member holds is available again (PL-520)."""
        session = self.fake.sessions[self.node].pop(key)
        group, member = key
        for partition in session.partitions:
            states = self.fake.logs[partition].states[group]
            for offset, (state, holder, count) in states.items():
                if state == "acquired" and holder == member:
                    states[offset] = ("available", "", count)
        self.fake.notify()

    async def _fetch(self, message: Any, error: Any, stream: Any) -> None:
        request = message.fetch
        answer = share_stream_pb2.ShareStreamResponse(correlation_id=message.correlation_id)
        response = answer.fetch
        key = (request.group_id, request.member_id)
        if error:
            self.fake.refuse(response, error)
            await stream.write(answer)
            return
        session = self.fake.sessions[self.node][key]
        response.acquisition_lock_timeout_ms = self.fake.lock_ms
        if request.share_session_epoch == 0:
            response.session_id = session.session_id
        acks = self._apply(request)
        deadline = now_s() + request.max_wait_ms / 1000
        while not self._acquire(request, session, response):
            changed = self.fake.changed
            remaining = deadline - now_s()
            if remaining <= 0:
                break
            try:
                async with asyncio.timeout(remaining):
                    await changed.wait()
            except TimeoutError:
                break
        parts = {
            TopicIdPartition(topic.topic_id, part.partition_index): part
            for topic in response.responses
            for part in topic.partitions
        }
        for partition, code in acks.items():
            part = parts.get(partition)
            if part is None:
                part = response.responses.add(topic_id=partition.topic_id).partitions.add(
                    partition_index=partition.partition
                )
            part.acknowledge_error_code = code
        await stream.write(answer)

    async def _acknowledge(self, message: Any, error: Any, stream: Any) -> None:
        request = message.acknowledge
        answer = share_stream_pb2.ShareStreamResponse(correlation_id=message.correlation_id)
        response = answer.acknowledge
        self.fake.refuse(response, error)
        if not error:
            response.acquisition_lock_timeout_ms = self.fake.lock_ms
            for partition, code in self._apply(request).items():
                response.responses.add(topic_id=partition.topic_id).partitions.add(
                    partition_index=partition.partition, error_code=code
                )
            if request.share_session_epoch == -1:
                self._end((request.group_id, request.member_id))
        await stream.write(answer)

    def _apply(self, request: Any) -> dict[TopicIdPartition, Any]:
        results: dict[TopicIdPartition, Any] = {}
        for topic in request.topics:
            for part in topic.partitions:
                if part.acknowledgement_batches:
                    partition = TopicIdPartition(topic.topic_id, part.partition_index)
                    results[partition] = self._apply_one(request, partition, part.acknowledgement_batches)
        self.fake.notify()
        return results

    def _apply_one(self, request: Any, partition: TopicIdPartition, batches: Any) -> int:
        if error := self.fake.take_error("acknowledge"):
            return error
        states = self.fake.logs[partition].states[request.group_id]
        previous = -1
        for batch in batches:
            types = list(batch.acknowledge_types)
            size = batch.last_offset - batch.first_offset + 1
            if batch.first_offset <= previous or len(types) not in (1, size):
                return 42
            previous = batch.last_offset
            for index, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                kind = types[index if len(types) > 1 else 0]
                state, holder, count = states.get(offset, ("available", "", 0))
                if state != "acquired" or holder != request.member_id:
                    return 121
                if kind == ACK_RENEW and not request.is_renew_ack:
                    return 42
                if kind == ACK_RENEW:
                    self.fake.lock(partition, request.group_id, offset)
                states[offset] = {
                    ACK_GAP: ("archived", "", count),
                    ACK_ACCEPT: ("acknowledged", "", count),
                    ACK_RELEASE: ("available", "", count),
                    ACK_REJECT: ("archived", "", count),
                    ACK_RENEW: (state, holder, count),
                }[kind]
        return 0

    def _acquire(self, request: Any, session: Session, response: Any) -> bool:
        """Fill the response; whether it may be sent before the deadline."""
        del response.responses[:]
        found = False
        budget = request.max_records
        for partition in session.partitions:
            error = self.fake.take_error("fetch")
            leader, epoch = self.fake.leaders[partition]
            if leader != self.node:
                error = ErrorCode.ValueType(6)
            if error:
                part = response.responses.add(topic_id=partition.topic_id).partitions.add(
                    partition_index=partition.partition, error_code=error
                )
                if error == 6:
                    part.current_leader.leader_id = leader
                    part.current_leader.leader_epoch = epoch
                    response.node_endpoints.extend(self.fake.endpoints())
                found = True
                continue
            budget -= self._acquire_one(request, partition, budget, response)
            found = found or budget < request.max_records
        return found

    def _acquire_one(self, request: Any, partition: TopicIdPartition, budget: int, response: Any) -> int:
        log = self.fake.logs[partition]
        states = log.states[request.group_id]
        ranges: list[list[int]] = []
        batches = []
        taken = 0
        for batch in log.batches:
            used = False
            for offset in range(batch.base_offset, batch.base_offset + batch.count):
                state, _, count = states.get(offset, ("available", "", 0))
                if state != "available" or taken >= budget:
                    continue
                states[offset] = ("acquired", request.member_id, count + 1)
                self.fake.lock(partition, request.group_id, offset)
                taken += 1
                used = True
                if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == count + 1:
                    ranges[-1][1] = offset
                else:
                    ranges.append([offset, offset, count + 1])
            if used:
                batches.append(batch)
        if ranges:
            part = response.responses.add(topic_id=partition.topic_id).partitions.add(
                partition_index=partition.partition, records=batches
            )
            for first, last, count in ranges:
                part.acquired_records.add(first_offset=first, last_offset=last, delivery_count=count)
        return taken
