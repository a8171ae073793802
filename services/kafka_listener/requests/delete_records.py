"""DeleteRecords: moves the starts of logs forward (KL-59)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.named_topics import NamedTopic, by_name
from kafka_listener.requests.refusals import record_code
from kafka_listener.requests.slices import slices
from kip932.acls import Operation
from kip932.api.v1.delete_records_pb2 import DeleteRecordsRequest, DeleteRecordsResponse
from kip932.errors import KafkaError, UnknownServerError

_RESPONSE: Final = api("DeleteRecords").response


class Sent(NamedTuple):
    """The node's request, and the topics in the order of the client's request."""

    request: DeleteRecordsRequest
    topics: list[NamedTopic]


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Delete the records before an offset of each partition. All versions are answered alike."""
    sent = await node_request(request, connection)
    response, failure = DeleteRecordsResponse(), None
    if sent.request.topics:
        try:
            response = await connection.call("delete_records", sent.request)
        except KafkaError as error:
            failure = error
    return await answer_of(sent, response, failure)


async def node_request(request: Any, connection: Connection) -> Sent:
    """Return the node's request with all topics that are known."""
    topics, turns = await by_name(request.topics, connection, Operation.DELETE), slices()
    asked = DeleteRecordsRequest(timeout_ms=request.timeout_ms)
    for topic in topics:
        await turns.step()
        if topic.error is None:
            into = asked.topics.add(topic_id=topic.topic_id).partitions
            for partition in topic.asked.partitions:
                await turns.step()
                into.add(partition_index=partition.partition_index, offset=partition.offset)
    return Sent(asked, topics)


async def answer_of(sent: Sent, response: DeleteRecordsResponse, failure: KafkaError | None = None) -> Any:
    """Return the answer, with topics and partitions as the client's request had them. `failure`: of all that the node
    was asked for."""
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    results = (result for topic in response.topics for result in topic.partitions)
    turns = slices()
    for topic in sent.topics:
        await turns.step()
        one = _RESPONSE.DeleteRecordsTopicResult(name=topic.asked.name)
        error = topic.error or failure
        for partition in topic.asked.partitions:
            await turns.step()
            low, code = -1, UnknownServerError.code
            if error is not None:
                code = error.code
            elif (result := next(results, None)) is not None:
                low, code = result.low_watermark, result.error_code
            one.partitions.append(
                _RESPONSE.DeleteRecordsPartitionResult(
                    partition_index=partition.partition_index,
                    low_watermark=-1 if code else low,
                    error_code=record_code(code, by_name=True),
                )
            )
        answered.topics.append(one)
    return answered
