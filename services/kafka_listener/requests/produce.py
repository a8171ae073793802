"""Produce: record batches as Kafka's producers make them, stored as they come (KL-49 … KL-51)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.leaders import NamedLeaders
from kafka_listener.requests.named_topics import NamedTopic, by_id, by_name
from kafka_listener.requests.refusals import NONE, message_of, record_code, text_of
from kip932.acls import Operation
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.errors import InvalidRecordError, KafkaError, UnknownServerError, UnsupportedCompressionTypeError, error_for
from kip932.kafka_batches import header_of, split, stored

_RESPONSE: Final = api("Produce").response
#: From this version on a request has the ids of its topics.
_BY_ID: Final = 13
#: From this version on batches may be compressed with zstd.
_ZSTD_FROM: Final = 7
_ZSTD: Final = 4
_NO_PRODUCER: Final = -1
#: `log_append_time_ms` of an answer: the records keep the timestamps of their producer.
_CREATE_TIME: Final = -1

_Result = ProduceResponse.PartitionResult


class Part(NamedTuple):
    """One partition of a request. `error`: why its records are not sent to the node."""

    partition: int
    error: KafkaError | None


class Sent(NamedTuple):
    """The node's request, and the topics with their partitions in the order of the client's request."""

    request: ProduceRequest
    topics: list[tuple[NamedTopic, list[Part]]]


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Append the batches, and answer once they are in the store; not at all with acks 0. Raises KafkaError when records
    of a request with acks 0 are refused: its connection closes, since there is no other way to report it."""
    sent = node_request(request, version, connection)  # nothing is awaited before `produce`: it keeps the order
    response, failure = ProduceResponse(), None
    if sent.request.topic_data:
        try:
            response = await connection.produce(sent.request)
        except KafkaError as error:
            failure = error
    answered = answer_of(sent, response, version, connection, failure)
    if request.acks != 0:
        return answered
    refused = _first_error(answered)
    if refused is not None:
        raise refused
    return None


def node_request(request: Any, version: int, connection: Connection) -> Sent:
    """Return the node's request with all batches that can be sent. Acks 0 is sent as 1."""
    topics = (
        by_id(request.topic_data) if version >= _BY_ID else by_name(request.topic_data, connection, Operation.WRITE)
    )
    asked = ProduceRequest(
        transactional_id=request.transactional_id, acks=request.acks or 1, timeout_ms=request.timeout_ms
    )
    sent: list[tuple[NamedTopic, list[Part]]] = []
    for topic in topics:
        parts: list[Part] = []
        into: ProduceRequest.TopicData | None = None
        for data in topic.asked.partition_data:
            error = topic.error
            if error is None:
                try:
                    batch = _batch(data.records, version)
                except KafkaError as refused:
                    error = refused
                else:
                    into = into or asked.topic_data.add(topic_id=topic.topic_id)
                    into.partition_data.add(index=data.index, batches=[batch])
            parts.append(Part(data.index, error))
        sent.append((topic, parts))
    return Sent(asked, sent)


def _batch(records: Any, version: int) -> ProduceRequest.Batch:
    """Return the one batch of a partition. Raises InvalidRecordError when there is none or another number of them, and
    the errors of `kafka_batches`; the batch's records are checked by the leader."""
    batches = split(records) if records else []
    if len(batches) != 1:
        raise InvalidRecordError(
            f"a Produce of version {version} has {len(batches)} record batches for a partition; expected one"
        )
    header = header_of(batches[0])
    if header.compression == _ZSTD and version < _ZSTD_FROM:
        raise UnsupportedCompressionTypeError(
            f"the batch is compressed with zstd in a Produce of version {version}; expected {_ZSTD_FROM} or newer"
        )
    batch = ProduceRequest.Batch(
        record_batch=stored(batches[0]),
        record_count=header.count,
        max_timestamp_ms=header.max_timestamp_ms,
        is_transactional=header.is_transactional,
    )
    if header.producer_id != _NO_PRODUCER:
        batch.producer_id, batch.producer_epoch = header.producer_id, header.producer_epoch
        batch.base_sequence = header.base_sequence
    return batch


def answer_of(
    sent: Sent, response: ProduceResponse, version: int, connection: Connection, failure: KafkaError | None = None
) -> Any:
    """Return the answer, with topics and partitions as the client's request had them. `failure`: of all that was
    sent."""
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    leaders = NamedLeaders(connection.cluster, _RESPONSE.LeaderIdAndEpoch, _RESPONSE.NodeEndpoint)
    results = (result for topic in response.responses for result in topic.partition_responses)
    for topic, parts in sent.topics:
        one = _RESPONSE.TopicProduceResponse()
        if version >= _BY_ID:
            one.topic_id = topic.topic_id
        else:
            one.name = topic.asked.name
        one.partition_responses = _partitions(parts, results, failure, leaders, by_name=version < _BY_ID)
        answered.responses.append(one)
    answered.node_endpoints = leaders.endpoints()
    return answered


def _partitions(
    parts: Sequence[Part],
    results: Iterator[_Result],
    failure: KafkaError | None,
    leaders: NamedLeaders,
    *,
    by_name: bool,
) -> list[Any]:
    answers = []
    for part in parts:
        error = part.error or failure
        if error is not None:
            answers.append(_refused(part.partition, error.code, text_of(error), by_name=by_name))
            continue
        result = next(results, None)
        if result is None:
            missing = UnknownServerError("the node has not answered for this partition")
            answers.append(_refused(part.partition, missing.code, missing.message, by_name=by_name))
        elif result.error_code:
            refused = _refused(part.partition, result.error_code, message_of(result), by_name=by_name)
            leaders.fill(refused, result)
            answers.append(refused)
        else:
            answers.append(
                _RESPONSE.PartitionProduceResponse(
                    index=part.partition,
                    error_code=NONE,
                    base_offset=result.base_offset,
                    log_append_time_ms=_CREATE_TIME,
                    log_start_offset=result.log_start_offset,
                )
            )
    return answers


def _refused(index: int, code: int, message: str | None, *, by_name: bool) -> Any:
    return _RESPONSE.PartitionProduceResponse(
        index=index,
        error_code=record_code(code, by_name=by_name),
        base_offset=-1,
        log_append_time_ms=_CREATE_TIME,
        log_start_offset=-1,
        error_message=message,
    )


def _first_error(answered: Any) -> KafkaError | None:
    for topic in answered.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                return error_for(partition.error_code, partition.error_message)
    return None
