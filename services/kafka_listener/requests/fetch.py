"""Fetch: reading a partition by offset, without a group (KL-52 … KL-55)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kafka_listener.requests.leaders import NamedLeaders
from kafka_listener.requests.named_topics import NamedTopic, by_id, by_name
from kafka_listener.requests.refusals import NONE, record_code
from kafka_listener.requests.slices import made_of, slices
from kip932.acls import Operation
from kip932.api.v1.fetch_pb2 import FetchRequest, FetchResponse
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.compression.kinds import Compression
from kip932.errors import (
    CorruptMessageError,
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    error_class,
)
from kip932.ids import READ_COMMITTED
from kip932.kafka_batches import for_kafka_client, is_kafka_batch
from kip932.record_batches import compression_of
from shard_runtime.rpc.bounds import Turns

_RESPONSE: Final = api("Fetch").response
#: From this version on a request has the ids of its topics.
_BY_ID: Final = 13
#: From this version on a request may belong to a fetch session, and the answer has an error of its own.
_SESSIONS: Final = 7
#: From this version on a request has leader epochs.
_EPOCHS_FROM: Final = 9
#: Epochs of a session that ask for whole answers: a new session, and none.
_WHOLE: Final = frozenset({0, -1})
FETCH_SESSION_ID_NOT_FOUND: Final = 70
#: From this version on batches may be compressed with zstd.
_ZSTD_FROM: Final = 10
#: The format of batches that Kafka's clients read (CM-222).
_KAFKA_FORMAT: Final = 2
#: How many bytes of batches are translated before other tasks get a turn.
BYTES_SLICE: Final = 64 * 1024

#: What a client may get for a partition of a Fetch; for another error, some stop.
_KNOWN_CODES: Final = frozenset(
    each.code
    for each in (
        OffsetOutOfRangeError,
        CorruptMessageError,
        UnknownTopicOrPartitionError,
        NotLeaderOrFollowerError,
        TopicAuthorizationFailedError,
        KafkaStorageError,
        FencedLeaderEpochError,
        UnsupportedCompressionTypeError,
        OffsetNotAvailableError,
        UnknownTopicIdError,
        UnknownServerError,
    )
)

_Result = FetchResponse.PartitionResult


class Read(NamedTuple):
    """One partition of the node's response, its error, and its records as parts of a message."""

    result: FetchResponse.PartitionResult
    code: int
    records: list[bytes | memoryview]


_NOT_READ: Final = Read(FetchResponse.PartitionResult(), UnknownServerError.code, [])


class Sent(NamedTuple):
    """The node's request, and the topics in the order of the client's request."""

    request: FetchRequest
    topics: list[NamedTopic]


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Answer with records from the offsets asked for; wait for them as long as the request says."""
    if version >= _SESSIONS and request.session_epoch not in _WHOLE:
        return _RESPONSE(error_code=FETCH_SESSION_ID_NOT_FOUND)
    sent = await node_request(request, version, connection)
    response, failure = FetchResponse(), None
    if sent.request.topics:
        try:
            response = await connection.call("fetch", sent.request)
        except KafkaError as error:
            failure = error
    if response.error_code:
        failure = error_class(response.error_code)(response.error_message or None)
    if failure is not None and version >= _SESSIONS:
        return _RESPONSE(throttle_time_ms=response.throttle_time_ms, error_code=failure.code)
    answered = await answer_of(sent, await translated(response, version), version, connection, failure)
    answered.throttle_time_ms = response.throttle_time_ms
    return answered


async def node_request(request: Any, version: int, connection: Connection) -> Sent:
    """Return the node's request. It does not wait when a topic is not known: that is an answer already."""
    if version >= _BY_ID:
        topics = by_id(request.topics)
    else:
        topics = await by_name(request.topics, connection, Operation.READ, lambda topic: str(topic.topic))
    refused = any(topic.error is not None for topic in topics)
    asked = FetchRequest(
        max_wait_ms=0 if refused else request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        batch_formats=[_KAFKA_FORMAT],
    )
    turns = slices()
    for topic in topics:
        await turns.step()
        if topic.error is not None:
            continue
        into = asked.topics.add(topic_id=topic.topic_id).partitions
        for partition in topic.asked.partitions:
            await turns.step()
            into.add(
                partition=partition.partition,
                current_leader_epoch=partition.current_leader_epoch if version >= _EPOCHS_FROM else -1,
                fetch_offset=partition.fetch_offset,
                partition_max_bytes=partition.partition_max_bytes,
            )
    return Sent(asked, topics)


async def translated(response: FetchResponse, version: int) -> list[Read]:
    """Return the partitions of the node's response with their records for Kafka's clients. Other tasks get a turn in
    between: batches of sharegroups' own producers are decoded and encoded for this."""
    turns, results = Turns(BYTES_SLICE), slices()
    reads = []
    for topic in response.responses:
        for result in topic.partitions:
            await results.step()
            parts: list[bytes | memoryview] = []
            code = int(result.error_code)
            for batch in () if code else result.records:
                try:
                    parts += _readable(batch, version)
                except KafkaError as error:
                    # What is before it is served; the client then asks for this batch, and gets the error.
                    code = NONE if parts else error.code
                    break
                await turns.step(1 if is_kafka_batch(batch.batch) else len(batch.batch))
            reads.append(Read(result, code, parts))
    return reads


def _readable(batch: FetchedBatch, version: int) -> list[bytes | memoryview]:
    """Return one batch for the client. Raises UnsupportedCompressionTypeError when a client of this version does not
    know its compression, and the errors of a batch that cannot be decoded."""
    if version < _ZSTD_FROM and not batch.is_control and compression_of(batch.batch) == Compression.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"the batch is compressed with zstd; a Fetch of version {version} cannot have it, expected {_ZSTD_FROM}"
        )
    return for_kafka_client(batch)


async def answer_of(
    sent: Sent, reads: Sequence[Read], version: int, connection: Connection, failure: KafkaError | None = None
) -> Any:
    """Return the answer, with topics and partitions as the client's request had them. `reads`: of the topics that are
    known; `failure`: of all of them."""
    answered = _RESPONSE()
    leaders = NamedLeaders(connection.cluster, _RESPONSE.LeaderIdAndEpoch, _RESPONSE.NodeEndpoint)
    left, turns = iter(reads), slices()
    committed = sent.request.isolation_level == READ_COMMITTED

    def read_of(partition: Any) -> Any:
        return _partition(partition.partition, next(left, _NOT_READ), version, leaders, committed=committed)

    for topic in sent.topics:
        await turns.step()
        one = _RESPONSE.FetchableTopicResponse()
        if version >= _BY_ID:
            one.topic_id = topic.asked.topic_id
        else:
            one.topic = topic.asked.topic
        error = topic.error or failure
        if error is not None:
            refuse = partial(_refused, error.code, by_name=version < _BY_ID)
            one.partitions = await made_of((each.partition for each in topic.asked.partitions), refuse, turns)
        else:
            one.partitions = await made_of(topic.asked.partitions, read_of, turns)
        answered.responses.append(one)
    answered.node_endpoints = leaders.endpoints()
    return answered


def _partition(index: int, read: Read, version: int, leaders: NamedLeaders, *, committed: bool) -> Any:
    result = read.result
    if read.code:
        refused = _refused(read.code, index, by_name=version < _BY_ID)
        leaders.fill(refused, result)
        return refused
    return _RESPONSE.PartitionData(
        partition_index=index,
        error_code=NONE,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=_aborted(result) if committed else None,
        records=read.records,
    )


def _aborted(result: _Result) -> list[Any]:
    return [
        _RESPONSE.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in result.aborted_transactions
    ]


def _refused(code: int, index: int, *, by_name: bool) -> Any:
    return _RESPONSE.PartitionData(
        partition_index=index,
        error_code=partition_code(code, by_name=by_name),
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=[],
    )


def partition_code(code: int, *, by_name: bool) -> int:
    """Return the code for a partition (KL-55): for one that no client expects here, the one that lets them try again
    if that may help, else UNKNOWN_SERVER_ERROR."""
    code = record_code(code, by_name=by_name)
    if code in _KNOWN_CODES:
        return code
    return KafkaStorageError.code if issubclass(error_class(code), RetriableError) else UnknownServerError.code
