"""DescribeShareGroupOffsets, ShareGroupDescribe and FindCoordinator."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import describe_share_group_offsets_pb2 as describe_pb
from kip932.api.v1 import find_coordinator_pb2 as find_pb
from kip932.api.v1 import share_group_describe_pb2 as groups_pb
from kip932.ids import NULL_TOPIC_ID, topic_id_text
from tests.integration.scenarios.sessions import ACCEPT, RELEASE, fx_rpc
from tests.integration.scenarios.wire import METHODS, Wire, attempts
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
NO_GROUP = errors.GroupIdNotFoundError.code
BAD_GROUP = errors.InvalidGroupIdError.code
NOT_EMPTY = errors.NonEmptyGroupError.code
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
Topics = dict[str, list[int]] | None


async def _described(wire: Wire, group: str, topics: Topics) -> Any:
    request = describe_pb.DescribeShareGroupOffsetsRequest()
    wanted = request.groups.add(group_id=group)
    if topics is not None:
        wanted.topics.SetInParent()
        for name, partitions in topics.items():
            wanted.topics.values.add(topic_name=name, partitions=partitions)
    address = await wire.coordinator(group) if group else None
    (found,) = (await wire.call("DescribeShareGroupOffsets", request, address)).groups
    return found


def _offsets(found: Any) -> dict[str, list[tuple[int, int, int]]]:
    """Return (partition, start offset, lag) by topic."""
    assert found.error_code == NONE, found.error_message
    assert not any(part.error_code for topic in found.topics for part in topic.partitions)
    return {
        topic.topic_name: [(part.partition_index, part.start_offset, part.lag) for part in topic.partitions]
        for topic in found.topics
    }


async def _group(wire: Wire, *ids: str) -> list[Any]:
    request = groups_pb.ShareGroupDescribeRequest(group_ids=ids)
    address = await wire.coordinator(ids[0]) if ids[0] else None
    return list((await wire.call("ShareGroupDescribe", request, address)).groups)


# ---- describe


@pytest.mark.rule("GC-112", "GC-113")
@pytest.mark.parametrize("topics", [None, {}, {"known": [0, 1]}, {"no-such-topic": [0]}])
async def test_a_group_that_does_not_exist_has_no_offsets(wire: Wire, topics: Topics) -> None:
    known = unique("t")
    topic_id = await wire.create_topic(known, 2)
    asked = None if topics is None else {known if name == "known" else name: parts for name, parts in topics.items()}
    found = await _described(wire, unique("g"), asked)
    assert _offsets(found) == {name: [(index, -1, -1) for index in parts] for name, parts in (asked or {}).items()}
    for topic in found.topics:
        assert topic.topic_id == (topic_id if topic.topic_name == known else NULL_TOPIC_ID)


async def test_no_groups_no_partitions_and_no_group_id(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    answer = await wire.call("DescribeShareGroupOffsets", describe_pb.DescribeShareGroupOffsetsRequest())
    assert list(answer.groups) == []
    assert _offsets(await _described(wire, session.group, {topic: []})) in ({}, {topic: []})  # Kafka fails here
    assert (await _described(wire, "", {topic: [0]})).error_code == BAD_GROUP


async def test_start_offset_and_lag_follow_each_acknowledgement(wire: Wire) -> None:
    """Kafka's stored start offset is one write late, and −1 before the first write; its lag is exact."""
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    assert await wire.lag(session.group, topic) == (0, 10)
    seen = []
    for first, last, kind in ((0, 3, ACCEPT), (6, 7, ACCEPT), (4, 5, RELEASE)):
        assert await session.ack(first, last, kind) == NONE
        seen.append(await wire.lag(session.group, topic))
    assert seen == [(4, 6), (4, 4), (4, 4)]
    await wire.produce(session.topic_id, 5)
    assert await wire.lag(session.group, topic) == (4, 9)
    assert (await session.fetch(epoch=-1)).error_code == NONE
    assert await wire.lag(session.group, topic) == (4, 9)


# ---- describe groups, find coordinators


async def test_groups_as_they_are_described(wire: Wire) -> None:
    missing = unique("g")
    unknown, blank = await _group(wire, missing), await _group(wire, "   ")
    for found in (*unknown, *blank):
        assert found.error_code == NO_GROUP
        assert (found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name) == ("", 0, 0, "")
        assert found.authorized_operations == -(2**31)
    (nameless,) = await _group(wire, "")
    assert nameless.error_code == BAD_GROUP
    session, _ = await fx_rpc(wire)
    (found,) = await _group(wire, session.group)
    assert found.group_state == "Stable"
    assert (found.assignor_name, found.group_epoch) == ("shared", found.assignment_epoch)  # Kafka: simple (GC-58)
    (member,) = found.members
    assert member.client_host.startswith(("/127.0.0.1", "127.0.0.1"))
    assert not member.HasField("rack_id")
    assert (await wire.heartbeat(session.group, session.member, -1)).error_code == NONE
    (empty,) = await _group(wire, session.group)
    assert (empty.group_state, list(empty.members)) == ("Empty", [])


async def test_a_group_that_is_named_twice_has_one_entry(wire: Wire) -> None:
    """Kafka returns one entry per occurrence."""
    session, _ = await fx_rpc(wire)
    (found,) = await _group(wire, session.group, session.group)
    assert found.group_id == session.group


@pytest.mark.rule("GC-131")
@pytest.mark.parametrize(
    ("key", "key_type", "code"),
    [
        ("", 0, NONE),
        ("a:b:c:{id}:0", 2, NONE),
        ("g:{id}:-1", 2, NONE),
        ("g:AAAAAAAAAAAAAAAAAAAAAQ:0", 2, NONE),
        ("g:{id}", 2, errors.InvalidRequestError.code),
        ("g:nonsense:0", 2, errors.InvalidRequestError.code),
        ("g:{id}:x", 2, errors.InvalidRequestError.code),
        ("   :{id}:0", 2, errors.InvalidRequestError.code),
        (":{id}:0", 2, errors.InvalidRequestError.code),
        ("g", 7, errors.InvalidRequestError.code),
    ],
)
async def test_keys_of_coordinators(wire: Wire, key: str, key_type: int, code: int) -> None:
    text = key.replace("{id}", topic_id_text(bytes(range(16))))
    request = find_pb.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[text])
    async for _ in attempts():
        answer = await wire.transport.call(wire.internal, METHODS["FindCoordinator"], request, 10)
        (found,) = answer.coordinators
        if found.error_code != errors.CoordinatorNotAvailableError.code:
            break
    assert found.error_code == code, found.error_message
