"""Sends AlterShareGroupOffsets, DeleteShareGroupOffsets and DeleteGroups as a client without the library does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from kip932 import errors
from kip932.api.v1 import alter_share_group_offsets_pb2 as alter_pb
from kip932.api.v1 import delete_groups_pb2 as groups_pb
from kip932.api.v1 import delete_share_group_offsets_pb2 as delete_pb
from kip932.api.v1 import describe_share_group_offsets_pb2 as offsets_pb
from kip932.api.v1 import share_group_describe_pb2 as describe_pb
from tests.integration.scenarios.wire import Wire, attempts

_AGAIN: Final = {
    errors.CoordinatorLoadInProgressError.code,
    errors.CoordinatorNotAvailableError.code,
    errors.NotCoordinatorError.code,
}


async def _until_coordinated(wire: Wire, name: str, request: Any, group: str) -> Any:
    answer = None
    async for _ in attempts():
        answer = await wire.call_coordinator(name, request, group)
        if answer is not None and answer.error_code not in _AGAIN:
            return answer
    raise AssertionError(f"no coordinator answers {name} of {group}: {answer}")


async def alter(wire: Wire, group: str, topics: Mapping[str, Sequence[tuple[int, int]]] | None) -> Any:
    """Send AlterShareGroupOffsets; `topics` maps each topic to (partition, start offset) pairs."""
    request = alter_pb.AlterShareGroupOffsetsRequest(group_id=group)
    if topics is not None:
        request.topics.SetInParent()
        for name, starts in topics.items():
            topic = request.topics.values.add(topic_name=name)
            for index, start in starts:
                topic.partitions.add(partition_index=index, start_offset=start)
    return await _until_coordinated(wire, "AlterShareGroupOffsets", request, group)


async def delete_offsets(wire: Wire, group: str, topics: Collection[str] | None) -> Any:
    """Send DeleteShareGroupOffsets."""
    request = delete_pb.DeleteShareGroupOffsetsRequest(group_id=group)
    if topics is not None:
        request.topics.SetInParent()
        for name in topics:
            request.topics.values.add(topic_name=name)
    return await _until_coordinated(wire, "DeleteShareGroupOffsets", request, group)


async def delete_groups(wire: Wire, *groups: str) -> dict[str, int]:
    """Send DeleteGroups; returns each group's error code. Retries groups whose coordinator is changing."""
    found: dict[str, int] = {}
    async for _ in attempts():
        left = [group for group in groups if found.get(group, -2) in {-2, *_AGAIN}]
        if not left:
            return found
        answer = await wire.call_coordinator("DeleteGroups", groups_pb.DeleteGroupsRequest(groups_names=left), left[0])
        if answer is not None:
            found |= {result.group_id: int(result.error_code) for result in answer.results}
    raise AssertionError(f"no coordinator deletes {groups}: {found}")


def altered(answer: Any) -> dict[str, list[tuple[int, int]]]:
    """Return (partition, error code) pairs by topic."""
    assert answer.error_code == 0, answer.error_message
    return {
        topic.topic_name: [(part.partition_index, int(part.error_code)) for part in topic.partitions]
        for topic in answer.responses
    }


def deleted(answer: Any) -> dict[str, int]:
    """Return the error code by topic."""
    assert answer.error_code == 0, answer.error_message
    return {topic.topic_name: int(topic.error_code) for topic in answer.responses}


async def leave(wire: Wire, group: str, member: str) -> None:
    """Make the member leave."""
    assert (await wire.heartbeat(group, member, -1)).error_code == 0


async def emptied(wire: Wire, group: str, *topics: str) -> None:
    """Leave the group with state of the topics' partitions and no member."""
    await leave(wire, group, await wire.join(group, list(topics)))


async def described(wire: Wire, group: str) -> Any:
    """Send ShareGroupDescribe for one group."""
    answer = None
    async for _ in attempts():
        request = describe_pb.ShareGroupDescribeRequest(group_ids=[group])
        answer = await wire.call_coordinator("ShareGroupDescribe", request, group)
        if answer is not None and answer.groups[0].error_code not in _AGAIN:
            return answer.groups[0]
    raise AssertionError(f"no coordinator describes {group}: {answer}")


async def starts(wire: Wire, group: str) -> dict[str, dict[int, int]]:
    """Return the start offsets of all initialised partitions, by topic."""
    request = offsets_pb.DescribeShareGroupOffsetsRequest()
    request.groups.add(group_id=group)
    (found,) = (await wire.call("DescribeShareGroupOffsets", request, await wire.coordinator(group))).groups
    assert found.error_code == 0, found.error_message
    return {
        topic.topic_name: {part.partition_index: part.start_offset for part in topic.partitions}
        for topic in found.topics
    }
