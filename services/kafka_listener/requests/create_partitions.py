"""CreatePartitions (KL-58)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.create_topics import INVALID_REPLICA_ASSIGNMENT
from kafka_listener.requests.new_leaders import wait_for_leaders
from kafka_listener.requests.refusals import NONE, message_of
from kafka_listener.requests.slices import slices
from kip932.api.v1.create_partitions_pb2 import CreatePartitionsRequest, CreatePartitionsResponse
from kip932.errors import KafkaError

_RESPONSE: Final = api("CreatePartitions").response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Raise the partition counts of topics. All versions are answered alike."""
    asked = await node_request(request)
    response, failure = CreatePartitionsResponse(), None
    if asked.topics:
        try:
            response = await connection.call("create_partitions", asked)
        except KafkaError as error:
            failure = error
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    results, turns = iter(response.results), slices()
    for topic in request.topics:
        await turns.step()
        if topic.assignments:
            message = (
                f"the new partitions of topic {topic.name!r} have a replica assignment; leave it out: the cluster "
                "places partitions by itself"
            )
            answered.results.append(_result(topic.name, INVALID_REPLICA_ASSIGNMENT, message))
        elif failure is not None:
            answered.results.append(_result(topic.name, failure.code, failure.message))
        else:
            result = next(results)
            answered.results.append(_result(topic.name, result.error_code, message_of(result)))
    if not request.validate_only:
        grown = [result.name for result in answered.results if result.error_code == NONE]
        await wait_for_leaders(connection, grown, request.timeout_ms)
    return answered


async def node_request(request: Any) -> CreatePartitionsRequest:
    """Return the node's request: all topics but those with a replica assignment."""
    topics: Sequence[Any] = [topic for topic in request.topics if not topic.assignments]
    asked = CreatePartitionsRequest(timeout_ms=request.timeout_ms, validate_only=request.validate_only)
    turns = slices()
    for topic in topics:
        await turns.step()
        asked.topics.add(name=topic.name, count=topic.count)
    return asked


def _result(name: str, code: int, message: str | None) -> Any:
    return _RESPONSE.CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
