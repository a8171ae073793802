"""The fake cluster's GroupCoordinatorService: members, their assignments, and the descriptions of groups."""

from __future__ import annotations

from typing import Any, Final

from kip932.api.v1 import (
    describe_share_group_offsets_pb2,
    list_groups_pb2,
    share_group_describe_pb2,
    share_group_heartbeat_pb2,
)
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.faults import GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED
from tests.support.fake_cluster.group_changes import GROUP_ID_NOT_FOUND, LEADER_NOT_AVAILABLE, GroupChanges

UNKNOWN_MEMBER_ID: Final = 25
#: All operations on a group as a bit field, and the value in responses to requests that did not ask for them.
OPERATIONS: Final = 3400
NOT_ASKED: Final = -(2**31)
FENCED_MEMBER_EPOCH: Final = 110
LEAVE: Final = -1
COORDINATOR_NOT_AVAILABLE: Final = 15
INTERVAL_MS: Final = 5_000
#: The heartbeat interval of a member that waits until its first partitions are initialised.
SOON_MS: Final = 250


class Coordinator(GroupChanges):
    async def share_group_heartbeat(
        self, request: share_group_heartbeat_pb2.ShareGroupHeartbeatRequest, context: Any
    ) -> share_group_heartbeat_pb2.ShareGroupHeartbeatResponse:
        fake, member = self.fake, request.member_id
        fake.heartbeats.append(request)
        response = share_group_heartbeat_pb2.ShareGroupHeartbeatResponse()
        if text := fake.denial("READ", "group", request.group_id):
            fake.refuse(response, GROUP_AUTHORIZATION_FAILED, text)
            return response
        texts = (fake.denial("DESCRIBE", "topic", name) for name in request.subscribed_topic_names.values)
        if text := next(filter(None, texts), ""):
            fake.refuse(response, TOPIC_AUTHORIZATION_FAILED, text)
            return response
        if error := fake.take_error("heartbeat") or self._refusal(request):
            fake.refuse(response, error)
            return response
        response.member_id = member
        if request.member_epoch == LEAVE:
            del fake.members[member]
            response.member_epoch = LEAVE
            return response
        self._note(request)
        self._assign(request, response)
        response.member_epoch = fake.members[member]
        return response

    def _refusal(self, request: share_group_heartbeat_pb2.ShareGroupHeartbeatRequest) -> int:
        if request.member_epoch == 0:
            return 0
        if request.member_id not in self.fake.members_of(request.group_id):
            return UNKNOWN_MEMBER_ID
        given = (LEAVE, self.fake.members[request.member_id])
        return 0 if request.member_epoch in given else FENCED_MEMBER_EPOCH

    def _note(self, request: share_group_heartbeat_pb2.ShareGroupHeartbeatRequest) -> None:
        fake, member = self.fake, request.member_id
        if request.member_epoch == 0:
            fake.groups[request.group_id] = None
            fake.members.setdefault(member, 1)
            fake.group_of[member] = request.group_id
            fake.targets_sent.pop(member, None)
        if request.HasField("subscribed_topic_names"):
            fake.subscriptions[member] = list(request.subscribed_topic_names.values)

    def _assign(
        self,
        request: share_group_heartbeat_pb2.ShareGroupHeartbeatRequest,
        response: share_group_heartbeat_pb2.ShareGroupHeartbeatResponse,
    ) -> None:
        """Send the member its assignment if it has changed. Topics for which the group has no state yet are assigned
        with the next heartbeat, whose interval is short if the member has nothing else."""
        fake, group, member = self.fake, request.group_id, request.member_id
        target = fake.assignment(group, member)
        subscribed = {fake.topics[name][0] for name in fake.subscriptions[member] if name in fake.topics}
        waits = not target and bool(subscribed)
        fake.initialised |= {(group, topic_id) for topic_id in subscribed}
        response.heartbeat_interval_ms = SOON_MS if waits else INTERVAL_MS
        if fake.targets_sent.get(member) != target:
            fake.targets_sent[member] = target
            response.assignment.SetInParent()
            for topic_id, partitions in target.items():
                response.assignment.topic_partitions.add(topic_id=topic_id, partitions=partitions)

    async def list_groups(self, request: Any, context: Any) -> list_groups_pb2.ListGroupsResponse:
        response = list_groups_pb2.ListGroupsResponse()
        self.fake.refuse(response, self.fake.take_error("list_groups"))
        states = {state.lower() for state in request.states_filter.values}
        for group in self.fake.groups:
            if states and self._state(group).lower() not in states:
                continue
            response.groups.add(
                group_id=group,
                protocol_type="share",
                group_state=self._state(group),
                group_type="share",
                members=len(self.fake.members_of(group)),
            )
        for shard, error in self.fake.unserved.items():
            response.unserved_shards.add(shard=shard, error_code=ErrorCode.ValueType(error))
        return response

    def _state(self, group: str) -> str:
        return "Stable" if self.fake.members_of(group) else "Empty"

    async def share_group_describe(
        self, request: Any, context: Any
    ) -> share_group_describe_pb2.ShareGroupDescribeResponse:
        fake = self.fake
        response = share_group_describe_pb2.ShareGroupDescribeResponse()
        names = {topic_id: name for name, (topic_id, _) in fake.topics.items()}
        for name in request.group_ids:
            if planned := fake.take_error("describe"):
                response.groups.add(group_id=name, error_code=planned)
                continue
            if name not in fake.groups:
                error = f"Group {name} not found."
                response.groups.add(group_id=name, error_code=GROUP_ID_NOT_FOUND, error_message=error)
                continue
            members = fake.members_of(name)
            epoch = max((fake.members[member] for member in members), default=1)
            group = response.groups.add(
                group_id=name,
                group_state=self._state(name),
                group_epoch=epoch,
                assignment_epoch=epoch,
                assignor_name="simple",
                authorized_operations=OPERATIONS if request.include_authorized_operations else NOT_ASKED,
            )
            for member_id in members:
                member = group.members.add(
                    member_id=member_id,
                    member_epoch=fake.members[member_id],
                    client_id="c",
                    client_host="127.0.0.1",
                )
                for topic_id, partitions in fake.assignment(name, member_id).items():
                    member.assignment.topic_partitions.add(
                        topic_id=topic_id, topic_name=names[topic_id], partitions=partitions
                    )
        return response

    async def describe_share_group_offsets(
        self, request: Any, context: Any
    ) -> describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse:
        """Describe the requested topics, or all for which the group has state."""
        fake = self.fake
        response = describe_share_group_offsets_pb2.DescribeShareGroupOffsetsResponse()
        for asked in request.groups:
            error = fake.take_error("describe_offsets")
            group = response.groups.add(group_id=asked.group_id, error_code=error)
            if asked.HasField("topics"):
                wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics.values}
            else:
                wanted = {
                    name: list(range(count))
                    for name, (topic_id, count) in fake.topics.items()
                    if (asked.group_id, topic_id) in fake.initialised
                }
            for name, numbers in ({} if error else wanted).items():
                topic = group.topics.add(topic_name=name, topic_id=fake.topics[name][0])
                for number in numbers:
                    self._describe(topic, fake.partition(name, number), asked.group_id, asked.include_backlog)
        return response

    def _describe(self, topic: Any, partition: TopicIdPartition, group: str, backlog: bool) -> None:
        log = self.fake.logs[partition]
        found = topic.partitions.add(partition_index=partition.partition, start_offset=-1, leader_epoch=0, lag=-1)
        if self.fake.leaders[partition][0] < 0:
            found.error_code = LEADER_NOT_AVAILABLE
            return
        if partition in self.fake.stateless:
            found.error_code = ErrorCode.ValueType(COORDINATOR_NOT_AVAILABLE)
            found.error_message = self.fake.stateless[partition]
            return
        if group in log.states:
            found.start_offset, found.lag = log.start(group), log.lag(group)
            found.leader_epoch = self.fake.leaders[partition][1]
            letters = [state for state, _, _ in log.states[group].values() if state == "archiving"]
            if backlog and letters:
                found.dead_letters = len(letters)
            delayed = [state for state, _, _ in log.states[group].values() if state == "delayed"]
            if backlog and delayed:
                found.delayed = len(delayed)
