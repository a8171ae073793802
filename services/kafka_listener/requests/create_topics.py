"""CreateTopics (KL-57)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Connection
from kafka_listener.requests.new_leaders import wait_for_leaders
from kafka_listener.requests.refusals import NONE, message_of
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1.create_topics_pb2 import CreateTopicsRequest, CreateTopicsResponse
from kip932.api.v1.describe_configs_pb2 import DescribeConfigsRequest, DescribeConfigsResponse
from kip932.errors import KafkaError, TopicAuthorizationFailedError
from kip932.ids import RESOURCE_TOPIC

_RESPONSE: Final = api("CreateTopics").response
INVALID_REPLICATION_FACTOR: Final = 38
INVALID_REPLICA_ASSIGNMENT: Final = 39
#: From this version on the answer has the number of partitions and the configs of each new topic.
_CONFIGS_FROM: Final = 5
#: The replicas of a partition that clients see: its leader. The store replicates.
_REPLICAS: Final = 1
_NO_NUMBER: Final = -1


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Create topics."""
    refused = {index: found for index, topic in enumerate(request.topics) if (found := refusal(topic)) is not None}
    asked = await node_request(request, [topic for index, topic in enumerate(request.topics) if index not in refused])
    failure = None
    response = CreateTopicsResponse()
    if asked.topics:
        try:
            response = await connection.call("create_topics", asked)
        except KafkaError as error:
            failure = error
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    results, turns = iter(response.topics), slices()
    for index, topic in enumerate(request.topics):
        await turns.step()
        if index in refused:
            code, message = refused[index]
            answered.topics.append(_refused(topic.name, code, message))
        elif failure is not None:
            answered.topics.append(_refused(topic.name, failure.code, failure.message))
        else:
            answered.topics.append(topic_answer(next(results)))
    if not request.validate_only:
        created = [topic.name for topic in answered.topics if topic.error_code == NONE]
        await wait_for_leaders(connection, created, request.timeout_ms)
        if version >= _CONFIGS_FROM:
            await _add_configs(answered, connection)
    return answered


def refusal(topic: Any) -> tuple[int, str] | None:
    """Return why a topic is not created, if its request says where its replicas should be (KL-57)."""
    if topic.assignments:
        return (
            INVALID_REPLICA_ASSIGNMENT,
            f"topic {topic.name!r} has a replica assignment; leave it out and give the number of partitions: the "
            "cluster places partitions by itself",
        )
    if topic.replication_factor == 0 or topic.replication_factor < _NO_NUMBER:
        return (
            INVALID_REPLICATION_FACTOR,
            f"topic {topic.name!r} has the replication factor {topic.replication_factor}; expected −1 or at least 1",
        )
    return None


async def node_request(request: Any, topics: Sequence[Any]) -> CreateTopicsRequest:
    """Return the node's request for these topics."""
    asked = CreateTopicsRequest(timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    turns = slices()
    for topic in topics:
        await turns.step()
        one = asked.topics.add(
            name=topic.name, num_partitions=topic.num_partitions, replication_factor=topic.replication_factor
        )
        for config in topic.configs:
            await turns.step()
            one.configs.add(name=config.name, value=config.value)
    return asked


def topic_answer(result: CreateTopicsResponse.TopicResult) -> Any:
    """Return the answer for one topic. Without a number of partitions the caller may not see what it created."""
    if result.error_code:
        return _refused(result.name, result.error_code, message_of(result))
    shown = result.num_partitions != _NO_NUMBER
    return _RESPONSE.CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id or NO_TOPIC_ID,
        error_code=NONE,
        topic_config_error_code=NONE if shown else TopicAuthorizationFailedError.code,
        num_partitions=result.num_partitions,
        replication_factor=_REPLICAS if shown else _NO_NUMBER,
        configs=[] if shown else None,
    )


def _refused(name: str, code: int, message: str | None) -> Any:
    return _RESPONSE.CreatableTopicResult(
        name=name,
        topic_id=NO_TOPIC_ID,
        error_code=code,
        error_message=message,
        num_partitions=_NO_NUMBER,
        replication_factor=_NO_NUMBER,
        configs=[],
    )


async def _add_configs(answered: Any, connection: Connection) -> None:
    """Add the configs of the new topics that the caller may see."""
    shown = [topic for topic in answered.topics if topic.error_code == NONE and topic.configs is not None]
    if not shown:
        return
    asked, turns = DescribeConfigsRequest(), slices()
    for topic in shown:
        await turns.step()
        asked.resources.add(resource_type=RESOURCE_TOPIC, resource_name=topic.name)
    try:
        found: DescribeConfigsResponse = await connection.call("describe_configs", asked)
    except KafkaError as error:  # the topics exist: what is not known about them is no reason to say otherwise
        for topic in shown:
            topic.topic_config_error_code, topic.configs = error.code, None
        return
    for topic, result in zip(shown, found.results, strict=True):
        await turns.step()
        if result.error_code:
            topic.topic_config_error_code, topic.configs = result.error_code, None
            continue
        topic.configs = await made_of(result.configs, _config, turns)


def _config(config: DescribeConfigsResponse.Config) -> Any:
    return _RESPONSE.CreatableTopicConfigs(
        name=config.name,
        value=config.value if config.HasField("value") else None,
        read_only=config.read_only,
        config_source=config.config_source,
        is_sensitive=config.is_sensitive,
    )
