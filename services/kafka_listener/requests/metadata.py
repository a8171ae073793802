"""Metadata: topics, their leaders, and the nodes that have a Kafka listener (KL-43 … KL-45)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Connection
from kafka_listener.requests.refusals import NONE, raise_refusal
from kafka_listener.requests.slices import made_of, slices
from kip932.acls import ResourceType
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterRequest
from kip932.api.v1.metadata_pb2 import MetadataRequest, MetadataResponse
from kip932.errors import (
    KafkaError,
    LeaderNotAvailableError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
)
from shard_runtime.cluster.lookups import NO_AUTHORIZED_OPERATIONS
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.bounds import Turns

_RESPONSE: Final = api("Metadata").response
#: From this version on topics may be asked for by id.
_IDS_FROM: Final = 12
#: The errors of a topic that exists, or may be created by this caller as far as it may know.
_DESCRIBABLE: Final = frozenset({NONE, UnknownTopicOrPartitionError.code})


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with topics, leaders and nodes."""
    asked = await node_request(request, version)
    try:
        found = await connection.call("metadata", asked)
        raise_refusal(found)
    except KafkaError as error:
        if not asked.HasField("topics"):
            raise  # an answer without topics would say that there are none
        found = await refused(asked, error)
    response = _RESPONSE(
        throttle_time_ms=found.throttle_time_ms,
        brokers=[
            _RESPONSE.MetadataResponseBroker(
                node_id=each.node_id, host=each.host, port=each.port, rack=each.rack or None
            )
            for each in connection.cluster.brokers()
        ],
        cluster_id=connection.cluster.cluster_id,
        controller_id=connection.cluster.node_id,
    )
    reachable = {each.node_id for each in connection.cluster.brokers()}
    turns = slices()
    caller = connection.context if version >= 8 and request.include_topic_authorized_operations else None
    for topic in found.topics:
        await turns.step()
        response.topics.append(await topic_answer(topic, reachable, turns, caller))
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = await cluster_operations(connection)
    return response


async def node_request(request: Any, version: int) -> MetadataRequest:
    """Return the node's request. In version 0 no topic means all; later null does. Earlier versions than 12 have a
    field for ids, too, but their answers have a name for each topic, and an unknown id has none."""
    if request.topics is None or (version == 0 and not request.topics):
        return MetadataRequest()
    asked = MetadataRequest(topics=MetadataRequest.TopicList())
    turns = slices()
    for topic in request.topics:
        await turns.step()
        if version >= _IDS_FROM and topic.topic_id != NO_TOPIC_ID:
            asked.topics.values.add(topic_id=topic.topic_id)
        else:
            asked.topics.values.add(name=topic.name or "")
    return asked


async def refused(asked: MetadataRequest, error: KafkaError) -> MetadataResponse:
    """Return the node's response when it refuses the request as a whole: the error for each topic. A node without room
    for the answer has no leaders for now, which makes every client ask again."""
    code = LeaderNotAvailableError.code if error.code == ThrottlingQuotaExceededError.code else error.code
    response, turns = MetadataResponse(), slices()
    for topic in asked.topics.values:
        await turns.step()
        response.topics.add(
            error_code=code,
            name=topic.name if topic.HasField("name") else None,
            topic_id=topic.topic_id or NO_TOPIC_ID,
        )
    return response


async def topic_answer(
    topic: MetadataResponse.TopicMetadata, reachable: Collection[int], turns: Turns, caller: CallContext | None = None
) -> Any:
    """Return the answer for one topic. `reachable`: the nodes that have a Kafka listener; `caller`: whose authorized
    operations to list, None for no one's."""
    name = topic.name if topic.HasField("name") else None
    operations = NO_AUTHORIZED_OPERATIONS
    if caller is not None and name is not None and topic.error_code in _DESCRIBABLE:
        operations = caller.operations(ResourceType.TOPIC, name)
    return _RESPONSE.MetadataResponseTopic(
        error_code=topic.error_code,
        name=name,
        topic_id=topic.topic_id or NO_TOPIC_ID,
        is_internal=topic.is_internal,
        partitions=await made_of(
            topic.partitions, lambda each: partition_answer(_RESPONSE.MetadataResponsePartition, each, reachable), turns
        ),
        topic_authorized_operations=operations,
    )


def partition_answer(struct: Any, partition: MetadataResponse.PartitionMetadata, reachable: Collection[int]) -> Any:
    """Return the answer for one partition, as a struct of this class: its leader, its epoch, and its replicas. The
    leader is the only one, since the store replicates. −1, −1 and none when no live node leads it, or one without a
    Kafka listener (KL-43)."""
    leader, epoch, replicas = -1, -1, list[int]()
    if partition.leader_id in reachable:
        leader, epoch, replicas = partition.leader_id, partition.leader_epoch, [partition.leader_id]
    return struct(
        error_code=partition.error_code if replicas else LeaderNotAvailableError.code,
        partition_index=partition.partition_index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )


async def cluster_operations(connection: Connection) -> int:
    """Return the operations that the caller may do on the cluster, as a bit set of their numbers; unset when it may not
    DESCRIBE it (KL-44)."""
    found = await connection.call(
        "describe_cluster", DescribeClusterRequest(include_cluster_authorized_operations=True)
    )
    raise_refusal(found)
    return int(found.cluster_authorized_operations)
