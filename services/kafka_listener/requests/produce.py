"""Produce: record batches as Kafka's producers make them, stored as they come (KL-49 … KL-51)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.leaders import NamedLeaders
from kafka_listener.requests.named_topics import NamedTopic, by_id, by_name
from kafka_listener.requests.refusals import NONE, message_of, record_code, text_of
from kafka_listener.requests.slices import made_of, slices
from kip932.acls import Operation
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceResponse
from kip932.errors import InvalidRecordError, KafkaError, UnknownServerError, UnsupportedCompressionTypeError, error_for
from kip932.kafka_batches import Header, header_of, split, stored

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


#: A topic with its partitions, in the order of the client's request.
SentTopic = tuple[NamedTopic, list[Part]]


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Append the batches, and answer once they are in the store; not at all with acks 0. Raises KafkaError when records
    of a request with acks 0 are refused: its connection closes, since there is no other way to report it."""
    topics: list[SentTopic] | None = None

    async def make() -> ProduceRequest | None:
        nonlocal topics
        asked, topics = await node_request(request, version, connection)
        _release(request)
        return asked if asked.topic_data else None

    response, failure = None, None
    try:
        response = await connection.produce(make)  # nothing is awaited before: it keeps the order
    except KafkaError as error:
        failure = error
    if topics is None:  # the stream has ended before it took the request
        _, topics = await node_request(request, version, connection)
    answered = await answer_of(topics, response or ProduceResponse(), version, connection, failure)
    if request.acks != 0:
        return answered
    refused = _first_error(answered)
    if refused is not None:
        raise refused
    return None


async def node_request(request: Any, version: int, connection: Connection) -> tuple[ProduceRequest, list[SentTopic]]:
    """Return the node's request with all batches that can be sent, and the topics. Acks 0 is sent as 1."""
    if version >= _BY_ID:
        topics = by_id(request.topic_data)
    else:
        topics = await by_name(request.topic_data, connection, Operation.WRITE)
    asked = ProduceRequest(
        transactional_id=request.transactional_id, acks=request.acks or 1, timeout_ms=request.timeout_ms
    )
    sent: list[SentTopic] = []
    turns = slices()
    for topic in topics:
        await turns.step()
        parts: list[Part] = []
        into: ProduceRequest.TopicData | None = None
        for data in topic.asked.partition_data:
            await turns.step()
            error = topic.error
            if error is None:
                try:
                    header, batch = _batch(data.records, version)
                except KafkaError as refused:
                    error = refused
                else:
                    into = into or asked.topic_data.add(topic_id=topic.topic_id)
                    _add(into.partition_data.add(index=data.index).batches.add(), header, batch)
            parts.append(Part(data.index, error))
        sent.append((topic, parts))
    return asked, sent


def _batch(records: Any, version: int) -> tuple[Header, memoryview]:
    """Return the one batch of a partition, and its header. Raises InvalidRecordError when there is none or another
    number of them, and the errors of `kafka_batches`; the batch's records are checked by the leader."""
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
    return header, batches[0]


def _add(into: ProduceRequest.Batch, header: Header, batch: memoryview) -> None:
    """Fill in a batch of the node's request. It is made in its place: a message that is added is copied."""
    into.record_batch = stored(batch)
    into.record_count = header.count
    into.max_timestamp_ms = header.max_timestamp_ms
    into.is_transactional = header.is_transactional
    if header.producer_id != _NO_PRODUCER:
        into.producer_id, into.producer_epoch = header.producer_id, header.producer_epoch
        into.base_sequence = header.base_sequence


def _release(request: Any) -> None:
    """Forget the records of a request, which the node's request has: they would be in memory twice until they are
    stored."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.records = None


async def answer_of(
    topics: Iterable[SentTopic],
    response: ProduceResponse,
    version: int,
    connection: Connection,
    failure: KafkaError | None = None,
) -> Any:
    """Return the answer, with topics and partitions as the client's request had them. `failure`: of all that was
    sent."""
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    leaders = NamedLeaders(connection.cluster, _RESPONSE.LeaderIdAndEpoch, _RESPONSE.NodeEndpoint)
    results = (result for topic in response.responses for result in topic.partition_responses)
    turns = slices()

    def part_of(part: Part) -> Any:
        return _partition(part, results, failure, leaders, by_name=version < _BY_ID)

    for topic, parts in topics:
        await turns.step()
        one = _RESPONSE.TopicProduceResponse()
        if version >= _BY_ID:
            one.topic_id = topic.topic_id
        else:
            one.name = topic.asked.name
        one.partition_responses = await made_of(parts, part_of, turns)
        answered.responses.append(one)
    answered.node_endpoints = leaders.endpoints()
    return answered


def _partition(
    part: Part, results: Iterator[_Result], failure: KafkaError | None, leaders: NamedLeaders, *, by_name: bool
) -> Any:
    error = part.error or failure
    if error is not None:
        return _refused(part.partition, error.code, text_of(error), by_name=by_name)
    result = next(results, None)
    if result is None:
        missing = UnknownServerError("the node has not answered for this partition")
        return _refused(part.partition, missing.code, missing.message, by_name=by_name)
    if result.error_code:
        refused = _refused(part.partition, result.error_code, message_of(result), by_name=by_name)
        leaders.fill(refused, result)
        return refused
    return _RESPONSE.PartitionProduceResponse(
        index=part.partition,
        error_code=NONE,
        base_offset=result.base_offset,
        log_append_time_ms=_CREATE_TIME,
        log_start_offset=result.log_start_offset,
    )


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
