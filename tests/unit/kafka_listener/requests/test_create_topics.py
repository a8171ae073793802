"""CreateTopics as Kafka's tools send it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID
from kafka_listener.requests import create_topics
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest, CreateTopicsResponse
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest, DescribeConfigsResponse
from kip932.api.v1.metadata_pb2 import MetadataResponse
from kip932.errors import RequestTimedOutError, UnknownServerError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, ScriptedConnection, answered

REQUEST = api("CreateTopics").request
VERSIONS = range(2, 8)
answer = partial(answered, "CreateTopics")


def topic(name: str, partitions: int = 3, replicas: int = -1, **fields: Any) -> Any:
    return REQUEST.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


def asked(*topics: Any, validate_only: bool = False) -> Any:
    return REQUEST(topics=list(topics), timeout_ms=700, validate_only=validate_only)


def created(request: CreateTopicsRequest) -> CreateTopicsResponse:
    response = CreateTopicsResponse()
    for each in request.topics:
        response.topics.add(name=each.name, topic_id=ORDERS, num_partitions=each.num_partitions)
    return response


def described(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = response.results.add(resource_type=resource.resource_type, resource_name=resource.resource_name)
        result.configs.add(name="retention.ms", value="5", config_source=1)
        result.configs.add(name="secret", is_sensitive=True, read_only=True, config_source=5)
    return response


@pytest.mark.rule("KL-57")
@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_a_topic_is_created_with_its_configs(version: int) -> None:
    connection = ScriptedConnection(create_topics=created, metadata=MetadataResponse(), describe_configs=described)
    configs = [
        REQUEST.CreatableTopicConfig(name="retention.ms", value="5"),
        REQUEST.CreatableTopicConfig(name="none", value=None),
    ]
    got = await answer(version, asked(topic("orders", configs=configs)), connection, create_topics.answer)
    _, request = connection.calls[0]
    (made,) = request.topics
    assert (made.name, made.num_partitions, request.timeout_ms, request.validate_only) == ("orders", 3, 700, False)
    assert [(each.name, each.HasField("value")) for each in made.configs] == [("retention.ms", True), ("none", False)]
    (one,) = got.topics
    assert (one.name, one.error_code) == ("orders", 0)
    assert [rpc for rpc, _ in connection.calls] == [
        "create_topics",
        "metadata",
        *(["describe_configs"] if version >= 5 else []),
    ]
    if version >= 5:
        assert (one.num_partitions, one.replication_factor, one.topic_config_error_code) == (3, 1, 0)
        assert [
            (each.name, each.value, each.read_only, each.config_source, each.is_sensitive) for each in one.configs
        ] == [
            ("retention.ms", "5", False, 1, False),
            ("secret", None, True, 5, True),
        ]
    if version >= 7:
        assert one.topic_id.bytes == ORDERS


@pytest.mark.rule("KL-57")
@virtual
async def test_who_may_not_see_configs_gets_a_topic_without_them() -> None:
    response = CreateTopicsResponse()
    response.topics.add(name="orders", topic_id=ORDERS, num_partitions=-1)
    connection = ScriptedConnection(create_topics=response, metadata=MetadataResponse())
    got = await answer(7, asked(topic("orders")), connection, create_topics.answer)
    (one,) = got.topics
    assert (one.error_code, one.num_partitions, one.replication_factor) == (0, -1, -1)
    assert (one.topic_config_error_code, one.configs) == (29, None)
    refused = DescribeConfigsResponse()
    refused.results.add(error_code=29, resource_type=2, resource_name="orders")
    for configs in (refused, UnknownServerError("broken")):
        connection = ScriptedConnection(create_topics=created, metadata=MetadataResponse(), describe_configs=configs)
        (one,) = (await answer(7, asked(topic("orders")), connection, create_topics.answer)).topics
        assert (one.error_code, one.num_partitions, one.configs) == (0, 3, None)
        assert one.topic_config_error_code != 0


@pytest.mark.rule("KL-57")
@virtual
async def test_a_topic_that_is_only_validated_has_no_configs_yet() -> None:
    connection = ScriptedConnection(create_topics=created)
    got = await answer(7, asked(topic("orders"), validate_only=True), connection, create_topics.answer)
    assert [rpc for rpc, _ in connection.calls] == ["create_topics"]
    assert connection.request.validate_only
    assert [(one.error_code, one.configs) for one in got.topics] == [(0, ())]


@pytest.mark.rule("KL-57")
@virtual
async def test_replicas_cannot_be_placed_or_forgone_and_other_topics_are_created() -> None:
    connection = ScriptedConnection(create_topics=created, metadata=MetadataResponse(), describe_configs=described)
    assignment = REQUEST.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    request = asked(
        topic("placed", -1, assignments=[assignment]), topic("orders", replicas=3), topic("none", replicas=0),
        topic("less", replicas=-2),
    )  # fmt: skip
    got = await answer(7, request, connection, create_topics.answer)
    assert [(one.name, one.error_code) for one in got.topics] == [
        ("placed", 39),
        ("orders", 0),
        ("none", 38),
        ("less", 38),
    ]
    assert all(one.error_message for one in got.topics if one.error_code)
    assert got.topics[0].topic_id is None or got.topics[0].topic_id.bytes == NO_TOPIC_ID


@pytest.mark.rule("KL-40")
@virtual
async def test_errors_of_a_topic_and_of_the_whole_request() -> None:
    response = CreateTopicsResponse()
    response.topics.add(name="orders", error_code=36, error_message="exists", num_partitions=-1)
    connection = ScriptedConnection(create_topics=response)
    got = await answer(5, asked(topic("orders")), connection, create_topics.answer)
    assert [(one.error_code, one.error_message) for one in got.topics] == [(36, "exists")]
    connection = ScriptedConnection(create_topics=RequestTimedOutError("late"))
    got = await answer(5, asked(topic("a"), topic("b")), connection, create_topics.answer)
    assert [(one.name, one.error_code, one.error_message) for one in got.topics] == [("a", 7, "late"), ("b", 7, "late")]
