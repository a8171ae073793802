"""Metadata as Kafka's clients ask for it, in all its versions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID
from kafka_listener.requests import metadata
from kafka_listener.requests.slices import slices
from kip932.acls import Operation
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.metadata_pb2 import MetadataResponse
from kip932.errors import InvalidRequestError, ThrottlingQuotaExceededError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, ScriptedConnection, allow, answered

REQUEST = api("Metadata").request
answer = partial(answered, "Metadata")


def found(*topics: MetadataResponse.TopicMetadata) -> MetadataResponse:
    return MetadataResponse(cluster_id="a-cluster", topics=topics)


def orders(*leaders: int) -> MetadataResponse.TopicMetadata:
    topic = MetadataResponse.TopicMetadata(name="orders", topic_id=ORDERS)
    for index, leader in enumerate(leaders):
        topic.partitions.add(
            partition_index=index,
            leader_id=leader,
            leader_epoch=7 if leader >= 0 else -1,
            error_code=0 if leader >= 0 else 5,
        )
    return topic


def named(*names: str) -> Any:
    return [REQUEST.MetadataRequestTopic(name=name) for name in names]


@pytest.mark.rule("KL-43")
@pytest.mark.parametrize("version", range(14))
@virtual
async def test_topics_have_their_leaders_and_the_nodes_that_have_a_listener(version: int) -> None:
    connection = ScriptedConnection(metadata=found(orders(1, 2)))
    got = await answer(version, REQUEST(topics=named("orders")), connection, metadata.answer)
    assert [value.name for value in connection.request.topics.values] == ["orders"]
    assert [(each.node_id, each.host, each.port) for each in got.brokers] == [
        (1, "one.example", 9092),
        (2, "two.example", 9093),
    ]
    (topic,) = got.topics
    assert (topic.error_code, topic.name) == (0, "orders")
    assert [(each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes) for each in topic.partitions] == [
        (0, 1, (1,), (1,)),
        (0, 2, (2,), (2,)),
    ]
    if version >= 1:
        assert got.controller_id == 1
        assert [each.rack for each in got.brokers] == [None, "r2"]
    if version >= 2:
        assert got.cluster_id == "a-cluster"
    if version >= 7:
        assert [each.leader_epoch for each in topic.partitions] == [7, 7]
    if version >= 10:
        assert topic.topic_id.bytes == ORDERS


@pytest.mark.rule("KL-43")
@pytest.mark.parametrize("version", range(14))
@virtual
async def test_null_asks_for_all_topics_and_an_empty_list_does_so_in_version_0_alone(version: int) -> None:
    connection = ScriptedConnection(metadata=found())
    await answer(version, REQUEST(topics=[]), connection, metadata.answer)
    assert connection.request.HasField("topics") is (version > 0)
    if version > 0:
        connection.calls.clear()
        await answer(version, REQUEST(topics=None), connection, metadata.answer)
        assert not connection.request.HasField("topics")


@pytest.mark.rule("KL-43")
@virtual
async def test_a_topic_is_asked_for_by_its_id_and_an_unknown_id_has_no_name() -> None:
    missing = MetadataResponse.TopicMetadata(error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_ID, topic_id=b"x" * 16)
    connection = ScriptedConnection(metadata=found(missing))
    topics = [REQUEST.MetadataRequestTopic(name=None, topic_id=b"x" * 16)]
    got = await answer(12, REQUEST(topics=topics), connection, metadata.answer)
    assert [value.topic_id for value in connection.request.topics.values] == [b"x" * 16]
    assert [(topic.error_code, topic.name, topic.topic_id.bytes) for topic in got.topics] == [(100, None, b"x" * 16)]


@pytest.mark.rule("KL-43")
@pytest.mark.parametrize("version", [10, 11])
@virtual
async def test_ids_of_older_requests_are_not_read(version: int) -> None:
    connection = ScriptedConnection(metadata=found(orders(1)))
    topics = [REQUEST.MetadataRequestTopic(name="orders", topic_id=b"x" * 16)]
    await answer(version, REQUEST(topics=topics), connection, metadata.answer)
    (value,) = connection.request.topics.values
    assert (value.name, value.HasField("topic_id")) == ("orders", False)


@pytest.mark.rule("KL-43")
@virtual
async def test_a_leader_without_a_listener_is_no_leader() -> None:
    connection = ScriptedConnection(metadata=found(orders(3, -1)))
    got = await answer(9, REQUEST(topics=named("orders")), connection, metadata.answer)
    (topic,) = got.topics
    assert [(each.error_code, each.leader_id, each.leader_epoch, each.isr_nodes) for each in topic.partitions] == [
        (5, -1, -1, ()),
        (5, -1, -1, ()),
    ]


@pytest.mark.rule("KL-45")
@virtual
async def test_an_unknown_topic_is_not_created() -> None:
    unknown = MetadataResponse.TopicMetadata(
        error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, name="nope", topic_id=NO_TOPIC_ID
    )
    connection = ScriptedConnection(metadata=found(unknown))
    asked = REQUEST(topics=named("nope"), allow_auto_topic_creation=True)
    got = await answer(12, asked, connection, metadata.answer)
    assert [rpc for rpc, _ in connection.calls] == ["metadata"]
    assert [(topic.error_code, topic.name) for topic in got.topics] == [(3, "nope")]


@pytest.mark.rule("KL-44")
@virtual
async def test_authorized_operations_are_those_of_the_caller_and_unset_unless_asked_for() -> None:
    allowed = [allow(Operation.READ, "orders")]
    unknown = MetadataResponse.TopicMetadata(
        error_code=ErrorCode.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, name="secret", topic_id=NO_TOPIC_ID
    )
    connection = ScriptedConnection(allowed, metadata=found(orders(1), unknown))
    asked = REQUEST(topics=named("orders", "secret"), include_topic_authorized_operations=True)
    got = await answer(8, asked, connection, metadata.answer)
    both = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert [topic.topic_authorized_operations for topic in got.topics] == [both, -(2**31)]
    got = await answer(8, REQUEST(topics=named("orders")), connection, metadata.answer)
    assert [topic.topic_authorized_operations for topic in got.topics] == [-(2**31), -(2**31)]


@pytest.mark.rule("KL-44")
@pytest.mark.parametrize("version", [8, 9, 10])
@virtual
async def test_operations_on_the_cluster_are_in_three_versions(version: int) -> None:
    bits = 1 << Operation.DESCRIBE
    connection = ScriptedConnection(
        metadata=found(), describe_cluster=DescribeClusterResponse(cluster_authorized_operations=bits)
    )
    asked = REQUEST(topics=[], include_cluster_authorized_operations=True)
    assert (await answer(version, asked, connection, metadata.answer)).cluster_authorized_operations == bits
    connection.calls.clear()
    await answer(version, REQUEST(topics=[]), connection, metadata.answer)
    assert [rpc for rpc, _ in connection.calls] == ["metadata"]


@pytest.mark.rule("KL-40")
@virtual
async def test_a_request_refused_as_a_whole_has_the_error_for_each_topic() -> None:
    for error, code in ((ThrottlingQuotaExceededError(), 5), (InvalidRequestError("too many"), 42)):
        connection = ScriptedConnection(metadata=error)
        got = await answer(8, REQUEST(topics=named("a", "b")), connection, metadata.answer)
        assert [(topic.name, topic.error_code) for topic in got.topics] == [("a", code), ("b", code)]
        assert len(got.brokers) == 2
        with pytest.raises(type(error)):
            await answer(8, REQUEST(topics=None), connection, metadata.answer)


@virtual
async def test_a_caller_may_do_to_a_topic_what_the_resource_has() -> None:
    topic = await metadata.topic_answer(orders(1), {1}, slices(), ScriptedConnection().context)
    expected = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
    assert topic.topic_authorized_operations == expected
