"""DescribeTopicPartitions: pages of topics."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID
from kafka_listener.requests import describe_topic_partitions
from kip932.acls import Operation
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import InvalidRequestError, ThrottlingQuotaExceededError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, allow, answered

REQUEST = api("DescribeTopicPartitions").request
answer = partial(answered, "DescribeTopicPartitions", 0)
COUNTS = {"c": 3, "a": 2, "b": 4}


def node(request: MetadataRequest) -> MetadataResponse:
    """Three topics; another name is unknown, and `secret` refused."""
    names = [topic.name for topic in request.topics.values] if request.HasField("topics") else list(COUNTS)
    response = MetadataResponse()
    for name in names:
        known = name in COUNTS
        code = 0 if known else 29 if name == "secret" else 3
        topic = response.topics.add(name=name, topic_id=name.encode() * 16 if known else NO_TOPIC_ID, error_code=code)
        for index in range(COUNTS.get(name, 0)):
            topic.partitions.add(partition_index=index, leader_id=index % 3 + 1, leader_epoch=5)
    return response


def asked(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    return REQUEST(
        topics=[REQUEST.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else REQUEST.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def shown(got: Any) -> list[tuple[str, int, list[int]]]:
    return [(topic.name, topic.error_code, [each.partition_index for each in topic.partitions]) for topic in got.topics]


@pytest.mark.rule("KL-62")
@virtual
async def test_all_topics_are_sorted_by_name() -> None:
    connection = ScriptedConnection(metadata=node)
    got = await answer(asked(), connection, describe_topic_partitions.answer)
    assert not connection.request.HasField("topics")
    assert shown(got) == [("a", 0, [0, 1]), ("b", 0, [0, 1, 2, 3]), ("c", 0, [0, 1, 2])]
    assert got.next_cursor is None
    first, second = got.topics[0].partitions
    assert (first.error_code, first.leader_id, first.leader_epoch, first.replica_nodes, first.isr_nodes) == (
        0,
        1,
        5,
        (1,),
        (1,),
    )
    assert (second.eligible_leader_replicas, second.last_known_elr) == ((), ())
    # Node 3 has no listener.
    third = got.topics[1].partitions[2]
    assert (third.error_code, third.leader_id, third.isr_nodes) == (5, -1, ())


@pytest.mark.rule("KL-62")
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9, 100])
@virtual
async def test_pages_have_each_partition_once(limit: int) -> None:
    connection = ScriptedConnection(metadata=node)
    cursor: tuple[str, int] | None = None
    seen: list[tuple[str, int]] = []
    for _ in range(12):
        got = await answer(asked(limit=limit, cursor=cursor), connection, describe_topic_partitions.answer)
        page = [(topic.name, each.partition_index) for topic in got.topics for each in topic.partitions]
        assert 1 <= len(page) <= limit
        seen += page
        if got.next_cursor is None:
            break
        cursor = (got.next_cursor.topic_name, got.next_cursor.partition_index)
    assert seen == [(name, index) for name in sorted(COUNTS) for index in range(COUNTS[name])]


@pytest.mark.rule("KL-62")
@virtual
async def test_named_topics_unknown_and_refused_ones_among_them() -> None:
    connection = ScriptedConnection(metadata=node)
    got = await answer(asked("secret", "nope", "c", "a", "a"), connection, describe_topic_partitions.answer)
    assert [topic.name for topic in connection.request.topics.values] == ["a", "c", "nope", "secret"]
    assert shown(got) == [("a", 0, [0, 1]), ("c", 0, [0, 1, 2]), ("nope", 3, []), ("secret", 29, [])]
    connection.calls.clear()
    got = await answer(asked("a", "c", cursor=("b", 2)), connection, describe_topic_partitions.answer)
    assert shown(got) == [("c", 0, [0, 1, 2])]


@pytest.mark.rule("KL-44")
@virtual
async def test_authorized_operations_are_always_given() -> None:
    connection = ScriptedConnection([allow(Operation.WRITE, "a")], metadata=node)
    got = await answer(asked("a", "nope"), connection, describe_topic_partitions.answer)
    both = 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    assert [topic.topic_authorized_operations for topic in got.topics] == [both, -(2**31)]


@pytest.mark.rule("KL-62")
@virtual
async def test_a_bad_cursor_and_a_refusal_of_the_node_are_the_error_of_each_topic() -> None:
    connection = ScriptedConnection(metadata=node)
    got = await answer(asked("b", "a", cursor=("a", -1)), connection, describe_topic_partitions.answer)
    assert shown(got) == [("a", 42, []), ("b", 42, [])]
    with pytest.raises(InvalidRequestError, match="partition -1"):
        await answer(asked(cursor=("a", -1)), connection, describe_topic_partitions.answer)
    connection = ScriptedConnection(metadata=ThrottlingQuotaExceededError("no room"))
    assert shown(await answer(asked("a"), connection, describe_topic_partitions.answer)) == [("a", 89, [])]


@pytest.mark.rule("KL-62")
@virtual
async def test_an_answer_has_at_most_as_many_partitions_as_kafkas() -> None:
    response = MetadataResponse()
    topic = response.topics.add(name="wide", topic_id=b"w" * 16)
    for index in range(describe_topic_partitions.PARTITIONS_MAX + 1):
        topic.partitions.add(partition_index=index, leader_id=1)
    connection = ScriptedConnection(metadata=response)
    got = await answer(asked(limit=10**6), connection, describe_topic_partitions.answer)
    assert len(got.topics[0].partitions) == 2000
    assert (got.next_cursor.topic_name, got.next_cursor.partition_index) == ("wide", 2000)
    got = await answer(asked(limit=0), connection, describe_topic_partitions.answer)
    assert len(got.topics[0].partitions) == 1
