"""DescribeTopicPartitions: topics in pages, sorted by name (KL-62)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Connection
from kafka_listener.requests.metadata import partition_answer
from kafka_listener.requests.refusals import raise_refusal
from kafka_listener.requests.slices import made_of, slices
from kip932.acls import ResourceType
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import (
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from shard_runtime.cluster.lookups import NO_AUTHORIZED_OPERATIONS
from shard_runtime.rpc.binding import CallContext

_RESPONSE: Final = api("DescribeTopicPartitions").response
#: A partition: the replicas that KIP-966 would have are none, not unknown.
_PARTITION: Final = partial(
    _RESPONSE.DescribeTopicPartitionsResponsePartition, eligible_leader_replicas=[], last_known_elr=[]
)
#: The maximum number of partitions in one answer, as in Kafka.
PARTITIONS_MAX: Final = 2_000


class Cursor(NamedTuple):
    """Where an answer begins: at this topic, or the first one after it, and there at this partition."""

    topic_name: str = ""
    partition_index: int = 0


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with one page of topics. The answer has no error of its own, so one is that of each topic named; raises
    KafkaError when none is."""
    limit = min(max(request.response_partition_limit, 1), PARTITIONS_MAX)
    try:
        start = cursor_of(request)
        found = await connection.call("metadata", await node_request(request, start))
        raise_refusal(found)
    except KafkaError as error:
        if not request.topics:
            raise
        return await refused(request, error)
    reachable = {each.node_id for each in connection.cluster.brokers()}
    response = await page_of(found, start, limit, reachable, connection.context)
    response.throttle_time_ms = found.throttle_time_ms
    return response


def cursor_of(request: Any) -> Cursor:
    """Return where the answer begins. Raises InvalidRequestError."""
    if request.cursor is None:
        return Cursor()
    if request.cursor.partition_index < 0:
        raise InvalidRequestError(f"the cursor is at partition {request.cursor.partition_index}; expected 0 or more")
    return Cursor(request.cursor.topic_name, request.cursor.partition_index)


async def node_request(request: Any, start: Cursor) -> MetadataRequest:
    """Return the node's request: the topics named, or all when there are none."""
    asked = MetadataRequest()
    if request.topics:
        turns = slices()
        for name in sorted({topic.name for topic in request.topics if topic.name >= start.topic_name}):
            await turns.step()
            asked.topics.values.add(name=name)
        asked.topics.SetInParent()
    return asked


async def refused(request: Any, error: KafkaError) -> Any:
    """Return the answer when the request is refused as a whole."""
    names = sorted({topic.name for topic in request.topics})

    def refuse(name: str) -> Any:
        return _RESPONSE.DescribeTopicPartitionsResponseTopic(error_code=error.code, name=name, topic_id=NO_TOPIC_ID)

    return _RESPONSE(topics=await made_of(names, refuse, slices()))


async def page_of(
    found: MetadataResponse, start: Cursor, limit: int, reachable: Collection[int], caller: CallContext
) -> Any:
    """Return the answer with at most `limit` partitions, and where the next one begins. Topics that the caller may not
    describe come last, and count for no partition."""
    response, turns = _RESPONSE(), slices()
    topics = sorted((topic for topic in found.topics if topic.name >= start.topic_name), key=lambda topic: topic.name)
    refused = [topic for topic in topics if topic.error_code == TopicAuthorizationFailedError.code]
    for topic in topics:
        await turns.step()
        if topic.error_code == TopicAuthorizationFailedError.code:
            continue
        if limit == 0:
            response.next_cursor = _RESPONSE.Cursor(topic_name=topic.name, partition_index=0)
            break
        first = start.partition_index if topic.name == start.topic_name else 0
        shown = topic.partitions[first : first + limit]
        response.topics.append(await _topic(topic, shown, reachable, caller))
        limit -= len(shown)
        if first + len(shown) < len(topic.partitions):
            response.next_cursor = _RESPONSE.Cursor(topic_name=topic.name, partition_index=first + len(shown))
            break
    for topic in refused:
        await turns.step()
        response.topics.append(await _topic(topic, (), reachable, None))
    return response


async def _topic(
    topic: MetadataResponse.TopicMetadata,
    partitions: Sequence[MetadataResponse.PartitionMetadata],
    reachable: Collection[int],
    caller: CallContext | None,
) -> Any:
    operations = NO_AUTHORIZED_OPERATIONS
    if caller is not None and not topic.error_code:
        operations = caller.operations(ResourceType.TOPIC, topic.name)
    return _RESPONSE.DescribeTopicPartitionsResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id or NO_TOPIC_ID,
        is_internal=topic.is_internal,
        partitions=await made_of(partitions, lambda each: partition_answer(_PARTITION, each, reachable), slices()),
        topic_authorized_operations=operations,
    )
