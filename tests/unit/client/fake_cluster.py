"""A small cluster in memory that speaks the client-facing protos: topics, one group coordinator, leaders with sessions.

It keeps the rules that the client can see (epochs, session ids, acquisition, parked fetches, sequences) and lets a test
break them: `fail_next`, `drop_streams`, `move_leader`, `hold_acknowledges`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor

from kip932.api.v1 import (
    cluster_service_pb2,
    common_pb2,
    create_topics_pb2,
    describe_share_group_offsets_pb2,
    find_coordinator_pb2,
    group_coordinator_service_pb2,
    init_producer_id_pb2,
    list_groups_pb2,
    metadata_pb2,
    partition_leader_service_pb2,
    produce_pb2,
    share_acknowledge_pb2,
    share_fetch_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
    share_stream_pb2,
    write_txn_markers_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, ACK_RENEW, TopicIdPartition
from shard_runtime.rpc.binding import ServerStream
from shard_runtime.transport import InMemoryNetwork

Epochs = dict[tuple[str, str], "Session"]


@dataclass
class Log:
    """One partition: batches, and per group the state of each offset."""

    batches: list[FetchedBatch] = field(default_factory=list)
    end: int = 0
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    states: dict[str, dict[int, tuple[str, str, int]]] = field(default_factory=lambda: defaultdict(dict))

    def append(self, data: bytes, count: int, is_control: bool = False) -> int:
        base = self.end
        self.batches.append(FetchedBatch(base_offset=base, count=count, batch=data, is_control=is_control))
        self.end += count
        return base


@dataclass
class Session:
    epoch: int
    session_id: int
    stream: object
    partitions: dict[TopicIdPartition, None]


class FakeCluster:
    """Nodes `node<i>:9000`; every node serves everything it leads."""

    def __init__(self, nodes: int = 1) -> None:
        self.network = InMemoryNetwork()
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.leaders: dict[TopicIdPartition, tuple[int, int]] = {}
        self.logs: dict[TopicIdPartition, Log] = defaultdict(Log)
        self.members: dict[str, int] = {}
        self.subscriptions: dict[str, list[str]] = {}
        self.heartbeats: list[share_group_heartbeat_pb2.ShareGroupHeartbeatRequest] = []
        self.sessions: dict[int, dict[tuple[str, str], Session]] = defaultdict(dict)
        self.fetches: list[share_fetch_pb2.ShareFetchRequest] = []
        self.acknowledges: list[share_acknowledge_pb2.ShareAcknowledgeRequest] = []
        self.produces: list[produce_pb2.ProduceRequest] = []
        self.markers: list[write_txn_markers_pb2.WriteTxnMarkersRequest] = []
        self.identities = 0
        self.errors: dict[str, deque[int]] = defaultdict(deque)
        self.hold_produce: asyncio.Event | None = None
        self.changed = asyncio.Event()
        self.streams: dict[int, list[ServerStream]] = defaultdict(list)
        self.stream_tasks: dict[int, set[asyncio.Task[Any]]] = defaultdict(set)
        self.nodes = list(range(nodes))
        self._next_session = 100
        for node in self.nodes:
            self.serve(node)

    @property
    def bootstrap(self) -> str:
        return "node0:9000"

    def transport(self) -> Any:
        return self.network.transport()

    def services(self, node: int) -> list[tuple[ServiceDescriptor, object]]:
        found = (
            (cluster_service_pb2, "ClusterService", Cluster(self)),
            (group_coordinator_service_pb2, "GroupCoordinatorService", Coordinator(self)),
            (partition_leader_service_pb2, "PartitionLeaderService", Leader(self, node)),
        )
        return [(module.DESCRIPTOR.services_by_name[name], service) for module, name, service in found]

    def serve(self, node: int) -> None:
        for descriptor, service in self.services(node):
            self.network.serve(f"node{node}:9000", descriptor, service)

    def add_topic(self, name: str, partitions: int = 1) -> bytes:
        topic_id = f"{name}-{len(self.topics)}".encode().ljust(16, b"x")[:16]
        self.topics[name] = (topic_id, partitions)
        for number in range(partitions):
            self.leaders[TopicIdPartition(topic_id, number)] = (self.nodes[number % len(self.nodes)], 1)
        return topic_id

    def partition(self, topic: str, number: int = 0) -> TopicIdPartition:
        return TopicIdPartition(self.topics[topic][0], number)

    def log(self, topic: str, number: int = 0) -> Log:
        return self.logs[self.partition(topic, number)]

    def notify(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def move_leader(self, topic: str, number: int, node: int) -> None:
        partition = self.partition(topic, number)
        self.leaders[partition] = (node, self.leaders[partition][1] + 1)
        self.notify()

    def take_error(self, what: str) -> ErrorCode.ValueType:
        return ErrorCode.ValueType(self.errors[what].popleft() if self.errors[what] else 0)

    def endpoint(self, node: int) -> common_pb2.NodeEndpoint:
        return common_pb2.NodeEndpoint(node_id=node, host=f"node{node}", port=9000)

    def endpoints(self) -> list[common_pb2.NodeEndpoint]:
        return [self.endpoint(node) for node in self.nodes]

    def drop_streams(self, node: int) -> None:
        for task in list(self.stream_tasks[node]):
            task.cancel()

    def states(self, topic: str, group: str = "g", number: int = 0) -> dict[int, str]:
        return {offset: state for offset, (state, _, _) in sorted(self.log(topic, number).states[group].items())}

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session


class Cluster:
    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake

    async def metadata(self, request: metadata_pb2.MetadataRequest, context: Any) -> metadata_pb2.MetadataResponse:
        fake = self.fake
        response = metadata_pb2.MetadataResponse(cluster_id="fake", brokers=fake.endpoints())
        if request.HasField("topics"):
            wanted = [(topic.name, topic.topic_id) for topic in request.topics.values]
        else:
            wanted = [(name, b"") for name in fake.topics]
        by_id = {topic_id: name for name, (topic_id, _) in fake.topics.items()}
        for asked, topic_id in wanted:
            name = asked or by_id.get(topic_id, "")
            if name not in fake.topics:
                response.topics.add(error_code=3, name=name)
                continue
            known_id, count = fake.topics[name]
            topic = response.topics.add(name=name, topic_id=known_id)
            for number in range(count):
                leader, epoch = fake.leaders[TopicIdPartition(known_id, number)]
                topic.partitions.add(partition_index=number, leader_id=leader, leader_epoch=epoch)
        return response

    async def find_coordinator(self, request: Any, context: Any) -> find_coordinator_pb2.FindCoordinatorResponse:
        response = find_coordinator_pb2.FindCoordinatorResponse()
        for key in request.coordinator_keys:
            error = self.fake.take_error("find_coordinator")
            node = self.fake.endpoint(0)
            response.coordinators.add(key=key, node_id=0, host=node.host, port=node.port, error_code=error)
        return response

    async def init_producer_id(self, request: Any, context: Any) -> init_producer_id_pb2.InitProducerIdResponse:
        self.fake.identities += 1
        return init_producer_id_pb2.InitProducerIdResponse(producer_id=1000 + self.fake.identities, producer_epoch=0)

    async def create_topics(self, request: Any, context: Any) -> create_topics_pb2.CreateTopicsResponse:
        response = create_topics_pb2.CreateTopicsResponse()
        for topic in request.topics:
            exists = topic.name in self.fake.topics
            if not exists:
                self.fake.add_topic(topic.name, topic.num_partitions)
            response.topics.add(name=topic.name, error_code=36 if exists else 0)
        return response


class Coordinator:
    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake

    async def share_group_heartbeat(
        self, request: share_group_heartbeat_pb2.ShareGroupHeartbeatRequest, context: Any
    ) -> share_group_heartbeat_pb2.ShareGroupHeartbeatResponse:
        fake = self.fake
        fake.heartbeats.append(request)
        response = share_group_heartbeat_pb2.ShareGroupHeartbeatResponse()
        error = fake.take_error("heartbeat")
        if not error and request.member_epoch > 0 and request.member_id not in fake.members:
            error = ErrorCode.ValueType(25)
        if error:
            response.error_code = error
            return response
        response.member_id = request.member_id
        if request.member_epoch == -1:
            fake.members.pop(request.member_id, None)
            response.member_epoch = -1
            return response
        if request.HasField("subscribed_topic_names"):
            fake.subscriptions[request.member_id] = list(request.subscribed_topic_names.values)
            response.assignment.SetInParent()
            for name in fake.subscriptions[request.member_id]:
                if name in fake.topics:
                    topic_id, count = fake.topics[name]
                    response.assignment.topic_partitions.add(topic_id=topic_id, partitions=range(count))
        fake.members.setdefault(request.member_id, 1)
        response.member_epoch = fake.members[request.member_id]
        response.heartbeat_interval_ms = 5000
        return response

    async def list_groups(self, request: Any, context: Any) -> list_groups_pb2.ListGroupsResponse:
        response = list_groups_pb2.ListGroupsResponse()
        response.groups.add(group_id="g", protocol_type="share", group_state=self._state(), group_type="share")
        return response

    def _state(self) -> str:
        return "Stable" if self.fake.members else "Empty"

    async def share_group_describe(
        self, request: Any, context: Any
    ) -> share_group_describe_pb2.ShareGroupDescribeResponse:
        response = share_group_describe_pb2.ShareGroupDescribeResponse()
        for group_id in request.group_ids:
            if group_id != "g":
                response.groups.add(group_id=group_id, error_code=69, error_message=f"Group {group_id} not found.")
                continue
            group = response.groups.add(
                group_id="g", group_state=self._state(), group_epoch=2, assignment_epoch=2, assignor_name="simple"
            )
            group.coordinator.CopyFrom(self.fake.endpoints()[0])
            for member_id in self.fake.members:
                member = group.members.add(member_id=member_id, member_epoch=2, client_id="c", client_host="127.0.0.1")
                for name, (topic_id, count) in self.fake.topics.items():
                    member.assignment.topic_partitions.add(topic_id=topic_id, topic_name=name, partitions=range(count))
        return response

    async def describe_share_group_offsets(
        self, request: Any, context: Any
    ) -> describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse:
        response = describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse()
        error = self.fake.take_error("describe_offsets")
        for asked in request.groups:
            group = response.groups.add(group_id=asked.group_id, error_code=error)
            for name, (topic_id, count) in self.fake.topics.items():
                topic = group.topics.add(topic_name=name, topic_id=topic_id)
                for number in range(count):
                    topic.partitions.add(partition_index=number, start_offset=3, leader_epoch=-1, lag=4)
        return response


class _Answer:
    """Takes the answer of a unary call."""

    def __init__(self) -> None:
        self.message = share_stream_pb2.ShareStreamResponse()

    async def write(self, message: share_stream_pb2.ShareStreamResponse) -> None:
        self.message = message


class Leader:
    def __init__(self, fake: FakeCluster, node: int) -> None:
        self.fake = fake
        self.node = node

    # Produce.

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
                error = fake.take_error("produce")
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
            if batch.producer_id >= 0 and key in log.sequences:
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
            response.error_code = error
            await stream.write(answer)
            return
        session = self.fake.sessions[self.node][key]
        response.acquisition_lock_timeout_ms = 30_000
        if request.share_session_epoch == 0:
            response.session_id = session.session_id
        acks = self._apply(request)
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while not self._acquire(request, session, response):
            changed = self.fake.changed
            remaining = deadline - asyncio.get_running_loop().time()
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
        response.error_code = error
        if not error:
            response.acquisition_lock_timeout_ms = 30_000
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
