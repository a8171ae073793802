"""ShareAcknowledge 1–2: acknowledges delivered records (KL-84)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Cluster, Connection
from kafka_listener.requests.share_leaders import Leaders
from kafka_listener.requests.slices import made_of, slices
from kip932.api.v1 import share_acknowledge_pb2 as pb
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns, check_partitions, check_ranges

SHARE_ACKNOWLEDGE: Final = api("ShareAcknowledge")
_Response: Final = SHARE_ACKNOWLEDGE.response


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Acknowledge records over the share stream of the member, so that the session is that of its ShareFetches.

    An error of the request as a whole is that of the response, which then has no partitions.
    """
    try:
        check_partitions((request.topics, "partitions"))
        check_acknowledgements(request.topics)
        done = await connection.share_acknowledge(
            request.group_id or "", request.member_id or "", request.share_session_epoch, partial(request_of, request)
        )
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)
    return await response_of(done, connection.cluster)


async def request_of(request: Any) -> pb.ShareAcknowledgeRequest:
    """Return the request as a leader takes it."""
    asked = pb.ShareAcknowledgeRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        share_session_epoch=request.share_session_epoch,
        is_renew_ack=request.is_renew_ack,
    )
    await add_acknowledged(request.topics, asked.topics, slices())
    return asked


def check_acknowledgements(topics: Sequence[Any]) -> None:
    """Raise InvalidRequestError for more ranges than one request may acknowledge."""
    check_ranges(sum(len(each.acknowledgement_batches) for topic in topics for each in topic.partitions))


async def add_acknowledged(topics: Sequence[Any], into: Any, turns: Turns) -> None:
    """Add the topics of a request, with their partitions and acknowledgements, to those of a leader's. Kafka's
    acknowledgements have no delay of a release: the group's back-off applies."""
    for topic in topics:
        await turns.step()
        partitions = into.add(topic_id=topic.topic_id).partitions
        for partition in topic.partitions:
            await turns.step()
            batches = partitions.add(partition_index=partition.partition_index).acknowledgement_batches
            for batch in partition.acknowledgement_batches:
                await turns.step()
                batches.add(
                    first_offset=batch.first_offset,
                    last_offset=batch.last_offset,
                    acknowledge_types=batch.acknowledge_types,
                )


async def response_of(response: pb.ShareAcknowledgeResponse, cluster: Cluster) -> Any:
    """Return a leader's response as Kafka's."""
    leaders, turns = Leaders(_Response, cluster), slices()
    topics = []
    for topic in response.responses:
        await turns.step()
        partitions = await made_of(topic.partitions, lambda partition: _partition(partition, leaders), turns)
        topics.append(_Response.ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=partitions))
    return _Response(
        throttle_time_ms=response.throttle_time_ms,
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        acquisition_lock_timeout_ms=response.acquisition_lock_timeout_ms,
        responses=topics,
        node_endpoints=leaders.endpoints,
    )


def _partition(result: pb.ShareAcknowledgeResponse.PartitionResult, leaders: Leaders) -> Any:
    current = result.current_leader if result.HasField("current_leader") else None
    return _Response.PartitionData(
        partition_index=result.partition_index,
        error_code=result.error_code,
        error_message=result.error_message if result.HasField("error_message") else None,
        current_leader=leaders.of(current, result.error_code),
    )
