"""Administrative changes to groups: setting and deleting offsets, deleting groups, and refused changes."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.alter_share_group_offsets_pb2 import AlterShareGroupOffsetsRequest
from kip932.api.v1.delete_groups_pb2 import DeleteGroupsRequest
from kip932.api.v1.delete_share_group_offsets_pb2 import DeleteShareGroupOffsetsRequest
from kip932.api.v1.describe_share_group_offsets_pb2 import DescribeShareGroupOffsetsRequest
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest
from tests.support.node import unique

from .hosting import Services, contract
from .members import Topic, member, produced, topic

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND = 1, 3, 68, 69
LATEST, EARLIEST = -1, -2


async def altered(services: Services, group: str, name: str, offsets: dict[int, int]) -> Any:
    """Set new offsets by partition; return the error of the call, or one error per partition."""
    request = AlterShareGroupOffsetsRequest(group_id=group)
    request.topics.SetInParent()
    entry = request.topics.values.add(topic_name=name)
    for number, offset in offsets.items():
        entry.partitions.add(partition_index=number, start_offset=offset)
    answer = await services.call("AlterShareGroupOffsets", request, await services.coordinator(group))
    parts = [part for one in answer.responses for part in one.partitions]
    return answer.error_code or {part.partition_index: part.error_code for part in parts}


async def forgotten(services: Services, group: str, *names: str) -> Any:
    """Delete offsets; return the error of the call, or one error per topic."""
    request = DeleteShareGroupOffsetsRequest(group_id=group)
    request.topics.SetInParent()
    for name in names:
        request.topics.values.add(topic_name=name)
    answer = await services.call("DeleteShareGroupOffsets", request, await services.coordinator(group))
    return answer.error_code or {one.topic_name: one.error_code for one in answer.responses}


async def deleted(services: Services, group: str) -> int:
    request = DeleteGroupsRequest(groups_names=[group])
    (result,) = (await services.call("DeleteGroups", request, await services.coordinator(group))).results
    assert result.group_id == group
    return int(result.error_code)


async def starts(services: Services, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the start offset and lag of every partition that the group has started to consume."""
    request = DescribeShareGroupOffsetsRequest()
    request.groups.add(group_id=group)
    (found,) = (await services.call("DescribeShareGroupOffsets", request, await services.coordinator(group))).groups
    return {
        (one.topic_name, part.partition_index): (part.start_offset, part.lag)
        for one in found.topics
        for part in one.partitions
    }


async def log_offset(services: Services, place: Topic, timestamp: int) -> int:
    request = ListOffsetsRequest()
    request.topics.add(topic_id=place.id).partitions.add(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp
    )
    (found,) = (await services.call("ListOffsets", request, place.leaders[0])).topics
    return int(found.partitions[0].offset)


@contract
async def test_offsets_of_a_group_that_is_not_there_make_it(services: Services) -> None:
    place, group = await topic(services), unique("g")
    await produced(services, place, 5)
    assert await altered(services, group, place.name, {0: 2, 7: 0}) == {0: 0, 7: UNKNOWN_TOPIC_OR_PARTITION}
    assert await starts(services, group) == {(place.name, 0): (2, 3)}
    assert await altered(services, group, place.name, {0: 6}) == {0: OFFSET_OUT_OF_RANGE}
    assert await altered(services, group, unique("t"), {0: 0}) == {0: UNKNOWN_TOPIC_OR_PARTITION}
    assert await altered(services, group, place.name, {0: 5}) == {0: 0}
    assert await starts(services, group) == {(place.name, 0): (5, 0)}


@contract
async def test_a_group_forgets_topics_one_by_one(services: Services) -> None:
    one, two, group = await topic(services), await topic(services), unique("g")
    for place in (one, two):
        assert await altered(services, group, place.name, {0: 0}) == {0: 0}
    nowhere = unique("t")
    answered = await forgotten(services, group, one.name, nowhere)
    assert answered == {one.name: 0, nowhere: UNKNOWN_TOPIC_OR_PARTITION}
    assert await starts(services, group) == {(two.name, 0): (0, 0)}
    assert await forgotten(services, group, one.name) == {one.name: UNKNOWN_TOPIC_OR_PARTITION}
    assert await forgotten(services, unique("g"), one.name) == GROUP_ID_NOT_FOUND


@contract
async def test_what_a_caller_may_do_with_a_group_is_returned_to_who_asks(services: Services) -> None:
    place, group = await topic(services), unique("g")
    assert await altered(services, group, place.name, {0: 0}) == {0: 0}
    for asked, operations in ((False, -(2**31)), (True, 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11)):
        request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=asked)
        (found,) = (await services.call("ShareGroupDescribe", request, await services.coordinator(group))).groups
        assert found.authorized_operations == operations


@contract
async def test_a_deleted_group_is_not_listed_and_has_no_offsets(services: Services) -> None:
    place, group = await topic(services), unique("g")
    assert await altered(services, group, place.name, {0: 0}) == {0: 0}
    assert await deleted(services, group) == 0
    assert await starts(services, group) == {}
    for states in ([], ["Empty"]):
        request = ListGroupsRequest()
        request.states_filter.values.extend(states)
        answer = await services.call("ListGroups", request, await services.coordinator(group))
        assert group not in {one.group_id for one in answer.groups}
    assert await deleted(services, group) == GROUP_ID_NOT_FOUND


@contract
async def test_a_group_with_members_is_left_alone(services: Services) -> None:
    place, group = await topic(services), unique("g")
    await member(services, place, group)
    assert await altered(services, group, place.name, {0: 0}) == NON_EMPTY_GROUP
    assert await forgotten(services, group, place.name) == NON_EMPTY_GROUP
    assert await deleted(services, group) == NON_EMPTY_GROUP
    request = ListGroupsRequest()
    request.states_filter.values.append("empty")
    answer = await services.call("ListGroups", request, await services.coordinator(group))
    assert group not in {one.group_id for one in answer.groups}


@contract
async def test_a_log_returns_its_ends_and_the_first_record_at_a_time(services: Services) -> None:
    place = await topic(services)
    assert await log_offset(services, place, LATEST) == 0
    await produced(services, place, 5)
    assert (await log_offset(services, place, EARLIEST), await log_offset(services, place, LATEST)) == (0, 5)
    assert await log_offset(services, place, 0) == 0
    assert await log_offset(services, place, 2**60) == -1
