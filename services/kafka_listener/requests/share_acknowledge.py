"""ShareAcknowledge 1–2: acknowledges delivered records (KL-84)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kafka_listener.messages.apis import api
from kafka_listener.ports import Cluster, Connection
from kafka_listener.requests.share_leaders import Leaders
from kip932.api.v1 import share_acknowledge_pb2 as pb
from kip932.api.v1.common_pb2 import AcknowledgementBatch
from kip932.errors import KafkaError
from shard_runtime.rpc.bounds import Turns, check_partitions, check_ranges

SHARE_ACKNOWLEDGE: Final = api("ShareAcknowledge")
_Response: Final = SHARE_ACKNOWLEDGE.response
#: How many partitions are translated before other tasks get to run.
_SLICE: Final = 500


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Acknowledge records over the share stream of the member, so that the session is that of its ShareFetches.

    An error of the request as a whole is that of the response, which then has no partitions.
    """
    try:
        asked = request_of(request)
        done = await connection.share_acknowledge(asked.group_id, asked.member_id, asked)
    except KafkaError as error:
        return _Response(error_code=error.code, error_message=error.message)
    return await response_of(done, connection.cluster)


def request_of(request: Any) -> pb.ShareAcknowledgeRequest:
    """Return the request as a leader takes it. Raises InvalidRequestError for more entries than one request may have.

    It waits for nothing: the requests of a session have to reach its stream in their order.
    """
    check_partitions((request.topics, "partitions"))
    return pb.ShareAcknowledgeRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        share_session_epoch=request.share_session_epoch,
        is_renew_ack=request.is_renew_ack,
        topics=acknowledged_topics(request.topics, pb.ShareAcknowledgeRequest),
    )


def acknowledged_topics(topics: Sequence[Any], message: Any) -> list[Any]:
    """Return the topics of a request, with their partitions and acknowledgements, as those of `message`. Kafka's
    acknowledgements have no delay of a release: the group's back-off applies. Raises InvalidRequestError for too many
    ranges."""
    check_ranges(sum(len(each.acknowledgement_batches) for topic in topics for each in topic.partitions))
    return [
        message.Topic(
            topic_id=topic.topic_id,
            partitions=[
                message.Partition(
                    partition_index=partition.partition_index,
                    acknowledgement_batches=[
                        AcknowledgementBatch(
                            first_offset=batch.first_offset,
                            last_offset=batch.last_offset,
                            acknowledge_types=batch.acknowledge_types,
                        )
                        for batch in partition.acknowledgement_batches
                    ],
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


async def response_of(response: pb.ShareAcknowledgeResponse, cluster: Cluster) -> Any:
    """Return a leader's response as Kafka's."""
    leaders, turns = Leaders(_Response, cluster), Turns(_SLICE)
    topics = []
    for topic in response.responses:
        await turns.step(len(topic.partitions))
        partitions = [_partition(partition, leaders) for partition in topic.partitions]
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
