"""Changes of groups by the fake cluster's coordinator: deleted groups, deleted offsets and altered offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kip932.api.v1 import alter_share_group_offsets_pb2, delete_groups_pb2, delete_share_group_offsets_pb2
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.ids import TopicIdPartition
from tests.support.fake_cluster.state import FakeState

OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NON_EMPTY_GROUP: Final = 68
GROUP_ID_NOT_FOUND: Final = 69


class GroupChanges:
    def __init__(self, fake: FakeState) -> None:
        self.fake = fake

    async def delete_groups(self, request: Any, context: Any) -> delete_groups_pb2.DeleteGroupsResponse:
        response = delete_groups_pb2.DeleteGroupsResponse()
        for group in request.groups_names:
            error = self.fake.take_error("delete_groups") or self._unchangeable(group)
            response.results.add(group_id=group, error_code=ErrorCode.ValueType(error))
            if not error:
                del self.fake.groups[group]
                for name in self._topics_of(group):
                    self._forget(group, name)
        return response

    async def delete_share_group_offsets(
        self, request: Any, context: Any
    ) -> delete_share_group_offsets_pb2.DeleteShareGroupOffsetsResponse:
        response = delete_share_group_offsets_pb2.DeleteShareGroupOffsetsResponse()
        group = request.group_id
        if error := self.fake.take_error("delete_offsets") or self._unchangeable(group):
            self.fake.refuse(response, error)
            return response
        for topic in request.topics.values:
            outcome = response.responses.add(topic_name=topic.topic_name)
            if topic.topic_name in self._topics_of(group):
                self._forget(group, topic.topic_name)
            else:
                outcome.error_code = ErrorCode.ValueType(UNKNOWN_TOPIC_OR_PARTITION)
                if topic.topic_name in self.fake.topics:
                    outcome.error_message = (
                        f"group {group} has no offsets of topic {topic.topic_name}, so there is nothing to delete"
                    )
        return response

    async def alter_share_group_offsets(
        self, request: Any, context: Any
    ) -> alter_share_group_offsets_pb2.AlterShareGroupOffsetsResponse:
        response = alter_share_group_offsets_pb2.AlterShareGroupOffsetsResponse()
        self.fake.alterations.append(request)
        group = request.group_id
        if error := self.fake.take_error("alter_offsets") or (NON_EMPTY_GROUP if self.fake.members_of(group) else 0):
            self.fake.refuse(response, error)
            return response
        for topic in request.topics.values:
            found = response.responses.add(topic_name=topic.topic_name).partitions
            for part in topic.partitions:
                error = self._alter(group, topic.topic_name, part.partition_index, part.start_offset)
                found.add(partition_index=part.partition_index, error_code=ErrorCode.ValueType(error))
        return response

    def _unchangeable(self, group: str) -> int:
        if group not in self.fake.groups:
            return GROUP_ID_NOT_FOUND
        return NON_EMPTY_GROUP if self.fake.members_of(group) else 0

    def _topics_of(self, group: str) -> list[str]:
        fake = self.fake
        return [name for name, (topic_id, _) in fake.topics.items() if (group, topic_id) in fake.initialised]

    def _partitions(self, name: str) -> Iterator[TopicIdPartition]:
        topic_id, count = self.fake.topics[name]
        return (TopicIdPartition(topic_id, number) for number in range(count))

    def _forget(self, group: str, name: str) -> None:
        self.fake.initialised.discard((group, self.fake.topics[name][0]))
        for partition in self._partitions(name):
            self.fake.logs[partition].states.pop(group, None)

    def _alter(self, group: str, name: str, number: int, offset: int) -> int:
        fake = self.fake
        topic_id, count = fake.topics.get(name, (b"", 0))
        if not 0 <= number < count:
            return UNKNOWN_TOPIC_OR_PARTITION
        partition = TopicIdPartition(topic_id, number)
        if fake.leaders[partition][0] < 0:
            return LEADER_NOT_AVAILABLE
        if offset > fake.logs[partition].end:
            return OFFSET_OUT_OF_RANGE
        fake.groups[group] = None
        fake.initialised.add((group, topic_id))
        fake.logs[partition].states[group] = dict.fromkeys(range(offset), ("acknowledged", "", 1))
        return 0
