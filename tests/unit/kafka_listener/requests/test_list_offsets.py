"""ListOffsets: the timestamps that stand for an offset, each from its version on."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import list_offsets
from kip932.acls import Operation
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest, ListOffsetsResponse
from kip932.errors import NotLeaderOrFollowerError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, ScriptedConnection, allow, answered

REQUEST = api("ListOffsets").request
VERSIONS = range(1, 12)
answer = partial(answered, "ListOffsets")


def asked(version: int, *partitions: tuple[int, int], topic: str = "orders", **fields: Any) -> Any:
    """Return a request for (partition, timestamp)."""
    made = []
    for index, timestamp in partitions:
        partition = REQUEST.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        if version >= 4:
            partition.current_leader_epoch = 7
        made.append(partition)
    return REQUEST(replica_id=-1, topics=[REQUEST.ListOffsetsTopic(name=topic, partitions=made)], **fields)


def found(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer with an offset that has the timestamp in it."""
    response = ListOffsetsResponse()
    for topic in request.topics:
        into = response.topics.add(topic_id=topic.topic_id)
        for each in topic.partitions:
            into.partitions.add(
                partition_index=each.partition_index,
                timestamp=each.timestamp if each.timestamp > 0 else -1,
                offset=1000 + each.timestamp,
                leader_epoch=7,
            )
    return response


@pytest.mark.rule("KL-56")
@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_offsets_are_found_by_timestamp(version: int) -> None:
    connection = ScriptedConnection(list_offsets=found)
    request = asked(version, (0, -1), (1, -2), (2, 500))
    if version >= 2:
        request.isolation_level = 1
    got = await answer(version, request, connection, list_offsets.answer)
    (topic,) = connection.request.topics
    assert topic.topic_id == ORDERS
    assert connection.request.isolation_level == (1 if version >= 2 else 0)
    assert {each.current_leader_epoch for each in topic.partitions} == {7 if version >= 4 else -1}
    (answered_topic,) = got.topics
    assert answered_topic.name == "orders"
    assert [(each.error_code, each.offset) for each in answered_topic.partitions] == [(0, 999), (0, 998), (0, 1500)]
    if version >= 4:
        assert [each.leader_epoch for each in answered_topic.partitions] == [7, 7, 7]


@pytest.mark.rule("KL-56")
@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_each_timestamp_is_known_from_its_version_on(version: int) -> None:
    connection = ScriptedConnection(list_offsets=found)
    timestamps = {-3: (7, 997), -4: (8, 998), -5: (9, -1), -6: (11, -1), -7: (99, -1), -(2**63): (99, -1)}
    request = asked(version, *enumerate(timestamps), (9, -1))
    got = await answer(version, request, connection, list_offsets.answer)
    *special, latest = got.topics[0].partitions
    assert [(each.error_code, each.offset) for each in special] == [
        (0, offset) if version >= first else (35, -1) for first, offset in timestamps.values()
    ]
    assert (latest.partition_index, latest.error_code, latest.offset) == (9, 0, 999)


@pytest.mark.rule("KL-56")
@virtual
async def test_a_partition_named_twice_is_refused_twice() -> None:
    connection = ScriptedConnection(list_offsets=found)
    got = await answer(7, asked(7, (0, -1), (0, -2), (1, -1)), connection, list_offsets.answer)
    assert [each.error_code for each in got.topics[0].partitions] == [42, 42, 0]


@pytest.mark.rule("KL-41")
@virtual
async def test_an_unknown_name_is_refused_as_its_caller_may_know() -> None:
    for allowed, code in (([allow(Operation.READ, "nope")], 3), ([], 29)):
        connection = ScriptedConnection(allowed)
        got = await answer(5, asked(5, (0, -1), topic="nope"), connection, list_offsets.answer)
        assert [(each.error_code, each.offset) for each in got.topics[0].partitions] == [(code, -1)]


@pytest.mark.rule("KL-40", "KL-41")
@pytest.mark.parametrize(("code", "expected"), [(6, 6), (100, 3), (89, 56)])
@virtual
async def test_an_error_of_the_node_is_that_of_its_partition(code: int, expected: int) -> None:
    response = ListOffsetsResponse()
    response.topics.add(topic_id=ORDERS).partitions.add(error_code=code, offset=5)
    connection = ScriptedConnection(list_offsets=response)
    got = await answer(5, asked(5, (0, -1)), connection, list_offsets.answer)
    assert [(each.error_code, each.offset) for each in got.topics[0].partitions] == [(expected, -1)]


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_partition_that_was_asked_for() -> None:
    connection = ScriptedConnection(list_offsets=NotLeaderOrFollowerError("elsewhere"))
    got = await answer(9, asked(9, (0, -1), (1, -5)), connection, list_offsets.answer)
    assert [each.error_code for each in got.topics[0].partitions] == [6, 0]
    connection = ScriptedConnection(list_offsets=ListOffsetsResponse())
    got = await answer(9, asked(9, (0, -1)), connection, list_offsets.answer)
    assert [each.error_code for each in got.topics[0].partitions] == [-1]
