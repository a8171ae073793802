"""Membership: joining, heartbeats, leaving, and descriptions of groups."""

from __future__ import annotations

from typing import Any

from kip932.api.v1.describe_share_group_offsets_pb2 import DescribeShareGroupOffsetsRequest
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest
from tests.integration.scenarios.sessions import ACCEPT
from tests.integration.scenarios.wire import assigned
from tests.support.node import unique

from .hosting import Services, contract
from .members import member, opened, produced, topic

UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH = 25, 69, 110
LEAVE = -1


async def listed(services: Services, group: str) -> list[tuple[str, str, str, int]]:
    """Return a group's protocol, type, state and number of members as each coordinator lists them."""
    answer = await services.call("ListGroups", ListGroupsRequest(), await services.coordinator(group))
    found = [one for one in answer.groups if one.group_id == group]
    return [(one.protocol_type, one.group_type, one.group_state, one.members) for one in found]


async def described(services: Services, group: str) -> Any:
    request = ShareGroupDescribeRequest(group_ids=[group])
    (found,) = (await services.call("ShareGroupDescribe", request, await services.coordinator(group))).groups
    return found


async def assigned_to(services: Services, group: str, name: str) -> dict[str, list[int]]:
    """Return a member's partitions by topic, as the group's description gives them."""
    (found,) = [one for one in (await described(services, group)).members if one.member_id == name]
    return {part.topic_name: list(part.partitions) for part in found.assignment.topic_partitions}


@contract
async def test_a_lone_member_is_assigned_every_partition(services: Services) -> None:
    one, two = await topic(services, 2), await topic(services)
    group, name = unique("g"), unique("m")
    joined = await services.heartbeat(group, name, 0, [one.name, two.name])
    assert (joined.error_code, joined.member_id) == (0, name)
    assert joined.member_epoch > 0
    assert assigned(joined) == {}, "the group's state for these partitions is not initialised yet"
    assert joined.heartbeat_interval_ms < 5_000, "so the next heartbeat must be due soon"
    answer = await services.until_assigned(group, name, joined.member_epoch, {one.id: [0, 1], two.id: [0]})
    assert answer.heartbeat_interval_ms == 5_000
    fewer = await services.heartbeat(group, name, answer.member_epoch, [two.name])
    assert assigned(fewer) == {two.id: [0]}
    assert fewer.heartbeat_interval_ms == 5_000


@contract
async def test_an_assignment_is_sent_when_it_is_new(services: Services) -> None:
    place = await topic(services)
    group, name = unique("g"), unique("m")
    joined = await services.heartbeat(group, name, 0, [place.name, unique("not-there")])
    answer = await services.until_assigned(group, name, joined.member_epoch, {place.id: [0]})
    again = await services.heartbeat(group, name, answer.member_epoch)
    assert (again.error_code, again.member_epoch) == (0, answer.member_epoch)
    assert not again.HasField("assignment")


@contract
async def test_who_left_and_who_never_joined_is_no_member(services: Services) -> None:
    place = await topic(services)
    group, name = unique("g"), unique("m")
    joined = await services.heartbeat(group, name, 0, [place.name])
    stranger = await services.heartbeat(group, unique("m"), 1)
    assert stranger.error_code == UNKNOWN_MEMBER_ID
    left = await services.heartbeat(group, name, LEAVE)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, name, LEAVE)
    assert (await services.heartbeat(group, name, joined.member_epoch)).error_code == UNKNOWN_MEMBER_ID
    assert (await services.heartbeat(group, name, LEAVE)).error_code == UNKNOWN_MEMBER_ID


@contract
async def test_a_member_epoch_that_was_never_given_is_fenced(services: Services) -> None:
    place = await topic(services)
    group, name = unique("g"), unique("m")
    joined = await services.heartbeat(group, name, 0, [place.name])
    ahead = await services.heartbeat(group, name, joined.member_epoch + 5)
    assert ahead.error_code == FENCED_MEMBER_EPOCH
    assert (await services.heartbeat(group, name, joined.member_epoch)).error_code == 0
    assert (await services.heartbeat(group, name, 0, [place.name])).error_code == 0, "it may join again"


@contract
async def test_members_share_what_they_subscribe_to(services: Services) -> None:
    place = await topic(services, 2)
    group, both = unique("g"), [place.name]
    one = await services.join(group, both)
    two = await services.join(group, both)
    parts = [(await assigned_to(services, group, name))[place.name] for name in (one, two)]
    assert all(parts), "no member is left out; who has which, and whether both, is the assignor's"
    assert {number for part in parts for number in part} == {0, 1}


@contract
async def test_a_group_is_listed_and_described_from_its_first_member_on(services: Services) -> None:
    place = await topic(services, 2)
    group = unique("g")
    assert await listed(services, group) == []
    unknown = await described(services, group)
    assert (unknown.group_id, unknown.error_code) == (group, GROUP_ID_NOT_FOUND)
    name = await services.join(group, [place.name])
    assert await listed(services, group) == [("share", "share", "Stable", 1)]
    found = await described(services, group)
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "simple")
    assert found.group_epoch == found.assignment_epoch > 0
    (one,) = found.members
    assert one.member_id == name
    assert one.member_epoch > 0
    (part,) = one.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, list(part.partitions)) == (place.id, place.name, [0, 1])
    await services.heartbeat(group, name, LEAVE)
    assert await listed(services, group) == [("share", "share", "Empty", 0)]
    empty = await described(services, group)
    assert (empty.group_state, list(empty.members)) == ("Empty", [])


@contract
async def test_the_offsets_of_a_group_show_its_start_and_its_lag(services: Services) -> None:
    place = await topic(services)
    session = await opened(services, place)
    await produced(services, place, 7)
    await session.acquire()
    assert await services.lag(session.group, place.name) == (0, 7)
    assert await session.ack(0, 2, ACCEPT) == 0
    assert await services.lag(session.group, place.name) == (3, 4)
    assert await session.ack(4, 4, ACCEPT) == 0
    assert await services.lag(session.group, place.name) == (3, 3)
    (every,) = await offsets_of(services, session.group)
    (found,) = every.topics
    (leader,) = (await services.leaders(place.name)).values()
    assert (found.topic_name, found.topic_id) == (place.name, place.id)
    assert [(part.start_offset, part.lag, part.leader_epoch) for part in found.partitions] == [(3, 3, leader.epoch)]


@contract
async def test_nothing_is_known_of_a_group_without_members_and_fetches(services: Services) -> None:
    place = await topic(services)
    group = unique("g")
    (unknown,) = await offsets_of(services, group)
    assert (unknown.group_id, unknown.error_code) == (group, 0)
    assert not unknown.topics
    await services.join(group, [place.name])
    (found,) = await offsets_of(services, group)
    (part,) = found.topics[0].partitions
    assert (found.error_code, part.start_offset, part.lag, part.leader_epoch) == (0, -1, -1, 0)


async def offsets_of(services: Services, group: str) -> Any:
    """Call DescribeShareGroupOffsets for one group and all partitions for which it has state."""
    request = DescribeShareGroupOffsetsRequest()
    request.groups.add(group_id=group)
    return (await services.call("DescribeShareGroupOffsets", request, await services.coordinator(group))).groups


@contract
async def test_a_member_without_a_session_has_no_say_in_another_group(services: Services) -> None:
    place = await topic(services)
    one, two = await member(services, place), await member(services, place)
    await produced(services, place, 3)
    assert await one.acquire() == await two.acquire() == [(0, 2, 1)]
    assert await one.ack(0, 2, ACCEPT) == 0
    assert await two.ack(0, 2, ACCEPT) == 0
