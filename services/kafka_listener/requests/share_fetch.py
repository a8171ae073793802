"""ShareFetch 1–2: fetches and acquires records for one member, and may carry acknowledgements (KL-81 to KL-86)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from kafka_listener.core.pacing import PAUSE_MS
from kafka_listener.messages.apis import api
from kafka_listener.ports import Cluster, Connection, Paced
from kafka_listener.requests.share_acknowledge import add_acknowledged, check_acknowledgements
from kafka_listener.requests.share_leaders import Leaders
from kafka_listener.requests.slices import slices
from kip932.api.v1 import share_fetch_pb2 as pb
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.errors import (
    NONE,
    CorruptMessageError,
    FencedLeaderEpochError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    RetriableError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kip932.ids import EPOCH_LEAVE
from kip932.kafka_batches import for_kafka_client, is_kafka_batch
from shard_runtime.rpc.bounds import check_partitions

SHARE_FETCH: Final = api("ShareFetch")
_Response: Final = SHARE_FETCH.response
#: Batches that Kafka's producers made are asked for as they are, beside native ones.
BATCH_FORMATS: Final = (2,)
#: The compressions that each of Kafka's clients can read or reports by itself.
COMPRESSIONS: Final = (1, 2, 3, 4)
#: The longest `throttle_time_ms` of an answer with records: for that time a client sends nothing, no acknowledgement.
THROTTLE_MS_MAX: Final = 1_000
#: Native batches up to this size, in all, are translated at once; more are by a thread.
TRANSLATED_AT_ONCE_BYTES: Final = 32 * 1024
_YIELD_S: Final = 0.0001
_TRANSLATIONS: Final = ThreadPoolExecutor(1, "translate-batches")

_NO_LEADER_EPOCH: Final = -1
#: The errors of a partition that Kafka's clients know for a ShareFetch; Java's fails its application with any other.
_KNOWN: Final = frozenset(
    kind.code
    for kind in (
        CorruptMessageError,
        FencedLeaderEpochError,
        KafkaStorageError,
        NotLeaderOrFollowerError,
        OffsetNotAvailableError,
        TopicAuthorizationFailedError,
        UnknownServerError,
        UnknownTopicIdError,
        UnknownTopicOrPartitionError,
    )
)


class _Records(NamedTuple):
    """The records of one partition for a client of Kafka, as parts to be sent one after the other. `error`: why the
    stored batches cannot be translated."""

    parts: list[bytes | memoryview]
    error: KafkaError | None = None


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Fetch over the share stream of the member: it opens, continues or ends the member's session at this node. An
    error of the request as a whole is that of the response, which then has no partitions."""
    try:
        check_partitions((request.topics, "partitions"), (request.forgotten_topics_data, "partitions"))
        check_acknowledgements(request.topics)
        fetched = await connection.share_fetch(
            request.group_id or "", request.member_id or "", request.share_session_epoch, partial(request_of, request)
        )
    except KafkaError as error:
        response = _Response(error_code=error.code, error_message=error.message)
    else:
        response = await response_of(fetched, connection.cluster)
    return Paced(response, PAUSE_MS) if held_back(request, response) else response


async def request_of(request: Any) -> pb.ShareFetchRequest:
    """Return the request as a leader takes it.

    It has neither a session id, since the stream identifies the session, nor a member epoch, which Kafka's clients send
    to the coordinator only.
    """
    asked = pb.ShareFetchRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        share_session_epoch=request.share_session_epoch,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        share_acquire_mode=request.share_acquire_mode,
        is_renew_ack=request.is_renew_ack,
        compression_types=COMPRESSIONS,
        batch_formats=BATCH_FORMATS,
    )
    turns = slices()
    await add_acknowledged(request.topics, asked.topics, turns)
    for topic in request.forgotten_topics_data:
        await turns.step()
        asked.forgotten_topics_data.add(topic_id=topic.topic_id, partitions=topic.partitions)
    return asked


async def response_of(response: pb.ShareFetchResponse, cluster: Cluster) -> Any:
    """Return a leader's response as Kafka's: batches of Kafka's clients as they were stored, native ones translated."""
    leaders, turns = Leaders(_Response, cluster), slices()
    topics = []
    for topic in response.responses:
        await turns.step()
        partitions = []
        for result in topic.partitions:
            await turns.step(1 + len(result.acquired_records))
            partitions.append(_partition(result, await _records(result.records), leaders))
        topics.append(_Response.ShareFetchableTopicResponse(topic_id=topic.topic_id, partitions=partitions))
    throttle_ms = response.throttle_time_ms
    return _Response(
        throttle_time_ms=throttle_ms if response.error_code else min(throttle_ms, THROTTLE_MS_MAX),
        error_code=response.error_code,
        error_message=response.error_message if response.HasField("error_message") else None,
        acquisition_lock_timeout_ms=response.acquisition_lock_timeout_ms,
        responses=topics,
        node_endpoints=leaders.endpoints,
    )


def held_back(request: Any, response: Any) -> bool:
    """Return whether an answer is held back, since its client would at once repeat a request that fails again: it has
    errors, neither records nor the outcome of acknowledgements, and names no other leader to go to. The end of a
    session is never held back."""
    if request.share_session_epoch == EPOCH_LEAVE:
        return False
    if any(each.acknowledgement_batches for topic in request.topics for each in topic.partitions):
        return False
    partitions = [each for topic in response.responses for each in topic.partitions]
    if response.node_endpoints or any(each.acquired_records for each in partitions):
        return False
    return bool(response.error_code) or any(each.error_code for each in partitions)


def known_code(code: int) -> int:
    """Return the code for a partition's error: the same one if Kafka's clients know it; else KAFKA_STORAGE_ERROR for
    one that may go away, after which they try again, or UNKNOWN_SERVER_ERROR."""
    if code == NONE or code in _KNOWN:
        return code
    return KafkaStorageError.code if isinstance(error_for(code), RetriableError) else UnknownServerError.code


def _partition(result: pb.ShareFetchResponse.PartitionResult, records: _Records, leaders: Leaders) -> Any:
    error_code = known_code(result.error_code)
    message = result.error_message if result.HasField("error_message") else None
    acquired = [
        _Response.AcquiredRecords(
            first_offset=each.first_offset, last_offset=each.last_offset, delivery_count=each.delivery_count
        )
        for each in result.acquired_records
    ]
    if records.error is not None:
        error_code, message, acquired = CorruptMessageError.code, records.error.message, []
    current = result.current_leader if result.HasField("current_leader") else None
    return _Response.PartitionData(
        partition_index=result.partition_index,
        error_code=error_code,
        error_message=message,
        acknowledge_error_code=result.acknowledge_error_code,
        acknowledge_error_message=(
            result.acknowledge_error_message if result.HasField("acknowledge_error_message") else None
        ),
        current_leader=leaders.of(current, error_code, result.acknowledge_error_code),
        records=records.parts,
        acquired_records=acquired,
    )


async def _records(batches: Sequence[FetchedBatch]) -> _Records:
    """Translate the batches of one partition, in a thread if that takes long."""
    native_bytes = sum(len(batch.batch) for batch in batches if not is_kafka_batch(batch.batch))
    if native_bytes <= TRANSLATED_AT_ONCE_BYTES:
        return _translated(batches)
    return await asyncio.get_running_loop().run_in_executor(_TRANSLATIONS, _translated, batches, _yield_lock)


def _translated(batches: Sequence[FetchedBatch], between: Callable[[], None] = lambda: None) -> _Records:
    """Return the parts of all batches. If one is damaged, there are none: its records stay acquired until their lock
    runs out."""
    parts: list[bytes | memoryview] = []
    try:
        for batch in batches:
            parts += for_kafka_client(batch, _NO_LEADER_EPOCH)
            between()
    except KafkaError as error:
        return _Records([], error)
    return _Records(parts)


def _yield_lock() -> None:
    """Release the interpreter lock: a computing thread would make the event loop wait 5 ms for each of its steps."""
    time.sleep(_YIELD_S)
