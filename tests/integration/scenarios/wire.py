"""The cluster as seen by a program without the client library: generated messages over the gRPC transport.

Nothing is retried unless the name says so; lookups of leaders and coordinators wait, for a bounded time, until they are
known.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, Self

from kip932 import errors
from kip932.api.v1 import cluster_service_pb2 as cluster_pb
from kip932.api.v1 import create_topics_pb2 as topics_pb
from kip932.api.v1 import describe_configs_pb2 as configs_pb
from kip932.api.v1 import describe_share_group_offsets_pb2 as group_offsets_pb
from kip932.api.v1 import find_coordinator_pb2 as finder_pb
from kip932.api.v1 import group_coordinator_service_pb2 as groups_pb
from kip932.api.v1 import incremental_alter_configs_pb2 as alter_pb
from kip932.api.v1 import list_offsets_pb2 as list_pb
from kip932.api.v1 import metadata_pb2 as metadata_pb
from kip932.api.v1 import partition_leader_service_pb2 as leader_pb
from kip932.api.v1 import produce_pb2 as produce_pb
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kip932.compression.kinds import Compression, frames_of
from kip932.ids import KEY_TYPE_GROUP, KEY_TYPE_SHARE, OFFSET_LATEST, RESOURCE_GROUP, SharePartitionKey
from kip932.internal.v1 import member_connections_service_pb2 as connections_pb
from kip932.internal.v1 import member_sessions_service_pb2 as sessions_pb
from kip932.internal.v1 import read_share_group_state_pb2 as read_pb
from kip932.internal.v1 import read_share_group_state_summary_pb2 as summary_pb
from kip932.internal.v1 import share_coordinator_service_pb2 as state_pb
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import Method, TransportError, service_methods
from tests.support.node import Cluster

BOUND_S = 30
CALL_S = 20

METHODS: dict[str, Method[Any, Any]] = {
    name: method
    for service in (
        cluster_pb.DESCRIPTOR.services_by_name["ClusterService"],
        groups_pb.DESCRIPTOR.services_by_name["GroupCoordinatorService"],
        leader_pb.DESCRIPTOR.services_by_name["PartitionLeaderService"],
        state_pb.DESCRIPTOR.services_by_name["ShareCoordinatorService"],
        connections_pb.DESCRIPTOR.services_by_name["MemberConnectionsService"],
        sessions_pb.DESCRIPTOR.services_by_name["MemberSessionsService"],
    )
    for name, method in service_methods(service).items()
}

Batches = list[tuple[int, int, int, int]]
_COORDINATOR_ERRORS = {
    errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.NotCoordinatorError.code,
}


class State(NamedTuple):
    """The persisted state of a share-partition; batches are (first, last, state, count)."""

    start: int
    batches: Batches
    state_epoch: int


class Leader(NamedTuple):
    """The leader of a partition."""

    node_id: int
    epoch: int
    address: str


async def attempts() -> AsyncIterator[int]:
    """Yield the attempts of a bounded poll. The caller leaves the loop on success; reaching its end is a failure."""
    deadline = time.monotonic() + BOUND_S
    turn = 0
    while time.monotonic() < deadline:
        yield turn
        turn += 1
        await asyncio.sleep(0.02)


class Wire:
    """One client of one cluster."""

    def __init__(self, bootstrap: str, internal: str = "") -> None:
        self.bootstrap = bootstrap
        #: The address where nodes call the cluster; for methods that clients must not call.
        self.internal = internal
        self.transport = GrpcTransport()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.transport.close()

    async def call(self, name: str, request: Any, address: str | None = None) -> Any:
        """Call one RPC by its name; a TransportError is raised to the caller."""
        return await self.transport.call(address or self.bootstrap, METHODS[name], request, CALL_S)

    # ---- topics and configs

    async def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic and wait until every partition is served, since a leader is already named once it has a claim;
        returns the id."""
        topic = topics_pb.CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
        for config, value in (configs or {}).items():
            topic.configs.add(name=config, value=value)
        request = topics_pb.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (result,) = (await self.call("CreateTopics", request)).topics
        assert result.error_code == 0, result.error_message
        topic_id = bytes(result.topic_id)
        for partition in range(partitions):
            await self._until_served(name, topic_id, partition, partitions)
        return topic_id

    async def _until_served(self, name: str, topic_id: bytes, partition: int, partitions: int) -> None:
        request = list_pb.ListOffsetsRequest()
        request.topics.add(topic_id=topic_id).partitions.add(
            partition_index=partition, timestamp=OFFSET_LATEST, current_leader_epoch=-1
        )
        async for _ in attempts():
            leader = (await self.leaders(name, partitions))[partition]
            answer = await self.call("ListOffsets", request, leader.address)
            if answer.topics[0].partitions[0].error_code == 0:
                return
        raise AssertionError(f"no node serves {name}-{partition}: {answer}")

    async def leaders(self, topic: str, partitions: int = 1) -> dict[int, Leader]:
        """Return the leaders of a topic's partitions; waits until all are known."""
        wanted = metadata_pb.MetadataRequest.TopicList(values=[metadata_pb.MetadataRequest.Topic(name=topic)])
        async for _ in attempts():
            answer = await self.call("Metadata", metadata_pb.MetadataRequest(topics=wanted))
            nodes = {node.node_id: f"{node.host}:{node.port}" for node in answer.brokers}
            found = {
                part.partition_index: Leader(part.leader_id, part.leader_epoch, nodes[part.leader_id])
                for part in answer.topics[0].partitions
                if part.error_code == 0
            }
            if len(found) == partitions:
                return found
        raise AssertionError(f"topic {topic} has no leaders")

    async def set_group(self, group: str, settings: Mapping[str, str]) -> None:
        """Set configs of a group and wait until they are in effect."""
        changes = [
            alter_pb.IncrementalAlterConfigsRequest.Config(name=name, config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = alter_pb.IncrementalAlterConfigsRequest.Resource(
            resource_type=RESOURCE_GROUP, resource_name=group, configs=changes
        )
        request = alter_pb.IncrementalAlterConfigsRequest(resources=[resource])
        (result,) = (await self.call("IncrementalAlterConfigs", request)).responses
        assert result.error_code == 0, result.error_message
        named = configs_pb.DescribeConfigsRequest.Resource(resource_type=RESOURCE_GROUP, resource_name=group)
        async for _ in attempts():
            shown = await self.call("DescribeConfigs", configs_pb.DescribeConfigsRequest(resources=[named]))
            if settings.items() <= {config.name: config.value for config in shown.results[0].configs}.items():
                return
        raise AssertionError(f"the configs of group {group} did not come into force")

    async def produce(
        self,
        topic_id: bytes,
        count: int,
        partition: int = 0,
        address: str | None = None,
        *,
        kind: Compression = Compression.NONE,
        timestamp_ms: int = 1_700_000_000_000,
    ) -> int:
        """Write one batch of `count` records with this compression and timestamp; returns its base offset."""
        content = RecordBatch(records=[Record(value=str(number).encode()) for number in range(count)])
        if kind:
            packed = frames_of(kind).compress(content.SerializeToString(), None)
            content = RecordBatch(compression=kind, compressed_records=packed)
        content.base_timestamp_ms = timestamp_ms
        batch = produce_pb.ProduceRequest.Batch(
            record_batch=content.SerializeToString(),
            record_count=count,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            max_timestamp_ms=timestamp_ms,
        )
        request = produce_pb.ProduceRequest(acks=-1, timeout_ms=10_000)
        request.topic_data.add(topic_id=topic_id).partition_data.add(index=partition, batches=[batch])
        (result,) = (await self.call("Produce", request, address)).responses[0].partition_responses
        assert result.error_code == 0, result.error_message
        return int(result.base_offset)

    # ---- coordinators

    async def coordinator(self, key: str, key_type: int = KEY_TYPE_GROUP) -> str:
        """Return the address of a group's coordinator, for clients, or of a share key's, for nodes; waits until it is
        known."""
        ask = self.internal if key_type == KEY_TYPE_SHARE else self.bootstrap
        async for _ in attempts():
            request = finder_pb.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (found,) = (await self.call("FindCoordinator", request, ask)).coordinators
            if found.error_code == 0:
                return f"{found.host}:{found.port}"
        raise AssertionError(f"no coordinator for {key}: {errors.error_class(found.error_code).name}")

    async def call_coordinator(self, name: str, request: Any, group: str) -> Any:
        """Call the group's coordinator once; None while the coordinator is gone and its successor is not known."""
        try:
            return await self.call(name, request, await self.coordinator(group or "any"))
        except TransportError as error:
            if not error.retriable:
                raise
            return None

    async def heartbeat(
        self, group: str, member: str, epoch: int, topics: list[str] | None = None
    ) -> ShareGroupHeartbeatResponse:
        """Send one ShareGroupHeartbeat; retry as clients do while the coordinator is changing or cannot write."""
        request = ShareGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch)
        answer: ShareGroupHeartbeatResponse | None = None
        if topics is not None:
            request.subscribed_topic_names.CopyFrom(StringList(values=topics))
        async for _ in attempts():
            answer = await self.call_coordinator("ShareGroupHeartbeat", request, group)
            if answer is not None and answer.error_code not in _COORDINATOR_ERRORS:
                return answer
        raise AssertionError(f"no coordinator takes heartbeats of {group}: {answer}")

    async def until_assigned(
        self, group: str, member: str, epoch: int, wanted: Mapping[bytes, list[int]] | None = None
    ) -> ShareGroupHeartbeatResponse:
        """Heartbeat with the last received epoch until an assignment, or the wanted one, arrives."""
        async for _ in attempts():
            answer = await self.heartbeat(group, member, epoch)
            assert answer.error_code == 0, answer.error_message
            if assigned(answer) if wanted is None else assigned(answer) == wanted:
                return answer
            epoch = answer.member_epoch
        raise AssertionError(f"member {member} of {group} was assigned nothing")

    async def join(self, group: str, topics: list[str], member: str | None = None) -> str:
        """Join and wait for an assignment; returns the member id."""
        member = member or str(uuid.uuid4())
        first = await self.heartbeat(group, member, 0, topics)
        assert first.error_code == 0, first.error_message
        if not assigned(first):
            await self.until_assigned(group, member, first.member_epoch)
        return member

    # ---- stored state

    async def state_call(self, name: str, request: Any, group: str, topic_id: bytes, partition: int = 0) -> Any:
        """Call one RPC of the share coordinator at the key's coordinator."""
        key = SharePartitionKey(group, topic_id, partition).text
        return await self.call(name, request, await self.coordinator(key, KEY_TYPE_SHARE))

    async def summary(self, group: str, topic_id: bytes, partition: int = 0) -> Any:
        """Send ReadShareGroupStateSummary for one share-partition."""
        request = summary_pb.ReadShareGroupStateSummaryRequest(group_id=group)
        request.topics.add(topic_id=topic_id).partitions.add(partition=partition)
        answer = await self.state_call("ReadShareGroupStateSummary", request, group, topic_id, partition)
        return answer.results[0].partitions[0]

    async def state(self, group: str, topic_id: bytes, partition: int = 0) -> State:
        """Return what `stored` does, without the ends of delays."""
        found = await self.stored(group, topic_id, partition)
        return State(found.start_offset, batches_of(found), found.state_epoch)

    async def delays(self, group: str, topic_id: bytes, partition: int = 0) -> dict[int, int]:
        """Return the end of each delay in ms since 1970, by offset, for all records that `stored` shows as delayed."""
        return {
            offset: batch.not_before_ms
            for batch in (await self.stored(group, topic_id, partition)).state_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
            if batch.not_before_ms
        }

    async def stored(self, group: str, topic_id: bytes, partition: int = 0) -> Any:
        """Send ReadShareGroupState with exactly the current (leader epoch, generation): it writes nothing and fences
        nothing.

        No response contains the generation. Every lower pair is refused without effect, so it is found by counting up.
        """
        epoch = (await self.summary(group, topic_id, partition)).leader_epoch
        for generation in range(1_000):
            request = read_pb.ReadShareGroupStateRequest(group_id=group)
            request.topics.add(topic_id=topic_id).partitions.add(
                partition=partition, leader_epoch=epoch, generation=generation
            )
            answer = await self.state_call("ReadShareGroupState", request, group, topic_id, partition)
            found = answer.results[0].partitions[0]
            if found.error_code == errors.FencedLeaderEpochError.code:
                continue
            assert found.error_code == 0, found.error_message
            return found
        raise AssertionError("no generation below 1000 is the current one")

    async def until_state(self, group: str, topic_id: bytes, start: int, batches: Batches) -> None:
        """Wait until this state is stored. Needed for writes that happen after the response has been sent, such as the
        releases when a session ends."""
        async for _ in attempts():
            found = await self.state(group, topic_id)
            if found[:2] == (start, batches):
                return
        raise AssertionError(f"{group} holds {found}, expected {start}, {batches}")

    async def lag(self, group: str, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return (start offset, lag) as DescribeShareGroupOffsets reports them."""
        request = group_offsets_pb.DescribeShareGroupOffsetsRequest()
        request.groups.add(group_id=group).topics.values.add(topic_name=topic, partitions=[partition])
        answer = await self.call("DescribeShareGroupOffsets", request, await self.coordinator(group))
        found = answer.groups[0].topics[0].partitions[0]
        assert found.error_code == 0, found.error_message
        return found.start_offset, found.lag


#: How a test gets a client of a cluster.
Connect = Callable[[Cluster], Wire]


def batches_of(found: Any) -> Batches:
    """Return state batches as (first, last, state, count)."""
    return [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in found.state_batches
    ]


def assigned(answer: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    """Return the partitions of an assignment, by topic id."""
    return {part.topic_id: sorted(part.partitions) for part in answer.assignment.topic_partitions}
