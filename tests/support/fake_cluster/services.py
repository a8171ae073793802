"""The fake cluster's ClusterService and GroupCoordinatorService, as far as a client looks at them."""

from __future__ import annotations

from typing import Any

from kip932.api.v1 import (
    create_topics_pb2,
    describe_share_group_offsets_pb2,
    find_coordinator_pb2,
    init_producer_id_pb2,
    list_groups_pb2,
    metadata_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.state import FakeState


class Cluster:
    def __init__(self, fake: FakeState) -> None:
        self.fake = fake

    async def metadata(self, request: metadata_pb2.MetadataRequest, context: Any) -> metadata_pb2.MetadataResponse:
        fake = self.fake
        fake.metadata_requests += 1
        response = metadata_pb2.MetadataResponse(
            cluster_id="fake", brokers=fake.endpoints(), metadata_version=fake.metadata_version
        )
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
            node = self.fake.endpoint(self.fake.coordinator)
            response.coordinators.add(key=key, node_id=node.node_id, host=node.host, port=node.port, error_code=error)
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
    def __init__(self, fake: FakeState) -> None:
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
            fake.refuse(response, error)
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
        self.fake.refuse(response, self.fake.take_error("list_groups"))
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
