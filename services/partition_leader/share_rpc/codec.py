"""Translates ShareFetch and ShareAcknowledge between messages and values. Batches stay opaque bytes (P-7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kip932.api.v1 import common_pb2
from kip932.api.v1 import share_acknowledge_pb2 as ack_pb
from kip932.api.v1 import share_fetch_pb2 as fetch_pb
from kip932.errors import InvalidRequestError
from kip932.ids import TopicIdPartition
from partition_leader.fetch.core.fetch_policy import FetchLimits
from partition_leader.fetch.readable import KINDS_MAX, readable_kinds
from partition_leader.share_partition.core.events import AckBatch
from partition_leader.share_rpc.values import FETCH_MAX_BYTES, PartitionAnswer, ShareAnswer, ShareRequest
from partition_leader.topic_log.topic_log import LogBatch
from partition_leader.topic_rpc.error_codec import LeaderNames, wire_code
from partition_leader.topic_rpc.log_directory import LogDirectory, checked_topic_id
from shard_runtime.rpc.binding import NO_CALLER, CallContext
from shard_runtime.rpc.bounds import Turns, check_partitions, check_ranges

#: How many partitions of a response are written in one turn of the event loop: about 5 ms, or 10 ms with errors.
_SLICE: Final = 500


def fetch_request(
    message: fetch_pb.ShareFetchRequest,
    connection_id: int | None,
    caller: CallContext = NO_CALLER,
    room_bytes: int = FETCH_MAX_BYTES,
) -> ShareRequest:
    """Return a ShareFetch as a value. Its response may contain `room_bytes` of batches, but no more than the caller's
    share of the budget has left.

    Raises InvalidRequestError for a bad topic id, or for more entries than one request may hold (CM-62).
    """
    given, left = message.topics, message.forgotten_topics_data
    if given or left:  # most fetches name no partition
        check_partitions((given, "partitions"), (left, "partitions"))
        _check_ranges(given)
    topics: list[TopicIdPartition] = []
    refused: InvalidRequestError | None = None
    acknowledgements: dict[TopicIdPartition, tuple[AckBatch, ...]] = {}
    for topic in given:
        topic_id = checked_topic_id(topic.topic_id)
        for partition in topic.partitions:
            name = TopicIdPartition(topic_id, partition.partition_index)
            if partition.HasField("partition_max_bytes") and partition.partition_max_bytes <= 0:
                refused = _no_bytes(name, partition.partition_max_bytes)
            topics.append(name)
            batches = partition.acknowledgement_batches
            if batches:
                _add(acknowledgements, name, _batches(batches))
    forgotten = [
        TopicIdPartition(checked_topic_id(topic.topic_id), index) for topic in left for index in topic.partitions
    ]
    return ShareRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=message.share_session_epoch,
        session_id=message.session_id if message.HasField("session_id") else None,
        connection_id=connection_id,
        topics=tuple(topics),
        acknowledgements=acknowledgements,
        is_renew_ack=message.is_renew_ack,
        limits=FetchLimits(message.max_wait_ms, message.min_bytes, message.max_bytes, message.max_records),
        room_bytes=room_bytes,
        caller=caller,
        batch_size=message.batch_size,
        mode=message.share_acquire_mode,
        readable=readable_kinds(tuple(message.compression_types[:KINDS_MAX]), tuple(message.batch_formats[:KINDS_MAX])),
        forgotten=tuple(forgotten),
        refused=refused,
        member_epoch=message.member_epoch if message.member_epoch > 0 else None,
    )


def acknowledge_request(
    message: ack_pb.ShareAcknowledgeRequest, connection_id: int | None, caller: CallContext = NO_CALLER
) -> ShareRequest:
    """Return a ShareAcknowledge as a value. Raises InvalidRequestError for a bad topic id, or for too many entries
    (CM-62)."""
    check_partitions((message.topics, "partitions"))
    _check_ranges(message.topics)
    acknowledgements: dict[TopicIdPartition, tuple[AckBatch, ...]] = {}
    for topic in message.topics:
        topic_id = checked_topic_id(topic.topic_id)
        for partition in topic.partitions:
            name = TopicIdPartition(topic_id, partition.partition_index)
            _add(acknowledgements, name, _batches(partition.acknowledgement_batches))
    return ShareRequest(
        group_id=message.group_id,
        member_id=message.member_id,
        epoch=message.share_session_epoch,
        session_id=message.session_id if message.HasField("session_id") else None,
        connection_id=connection_id,
        topics=(),
        acknowledgements=acknowledgements,
        is_renew_ack=message.is_renew_ack,
        caller=caller,
    )


async def fill_fetch_response(
    response: fetch_pb.ShareFetchResponse, answer: ShareAnswer, directory: LogDirectory
) -> None:
    """Write the response to a ShareFetch into an empty message; each batch is copied once.

    If there are many partitions, they are written in slices (CM-97). Other tasks may run in between: the response is
    final and does not change.
    """
    if answer.error is not None:
        response.error_code = wire_code(answer.error)
        response.error_message = answer.error.message
        return
    response.acquisition_lock_timeout_ms = answer.lock_ms
    response.release_delay_max_ms = answer.delay_max_ms
    response.delivery_count_limit = answer.delivery_count_limit
    response.dead_letter_topic = answer.dead_letter_topic
    response.throttle_time_ms = answer.throttle_ms
    if answer.session_id is not None:
        response.session_id = answer.session_id
    names, turns = LeaderNames(directory), Turns(_SLICE)
    topics: dict[bytes, fetch_pb.ShareFetchResponse.TopicResult] = {}
    for partition in answer.partitions:
        await turns.step()
        topic_id = partition.partition.topic_id
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = response.responses.add(topic_id=topic_id)
        _fill_fetched(topic.partitions.add(partition_index=partition.partition.partition), partition, names)
    if names.endpoints:
        response.node_endpoints.extend(names.endpoints)


def batch_bytes(answer: ShareAnswer) -> int:
    """Return the bytes of the record batches in a response, which are nearly all of its size."""
    return sum([one.size_bytes for one in answer.partitions])


async def fill_acknowledge_response(
    response: ack_pb.ShareAcknowledgeResponse, answer: ShareAnswer, directory: LogDirectory
) -> None:
    """Write the response to a ShareAcknowledge into an empty message, as `fill_fetch_response` does."""
    if answer.error is not None:
        response.error_code = wire_code(answer.error)
        response.error_message = answer.error.message
        return
    response.acquisition_lock_timeout_ms = answer.lock_ms
    response.delivery_count_limit = answer.delivery_count_limit
    response.dead_letter_topic = answer.dead_letter_topic
    names, turns = LeaderNames(directory), Turns(_SLICE)
    topics: dict[bytes, ack_pb.ShareAcknowledgeResponse.TopicResult] = {}
    for partition in answer.partitions:
        await turns.step()
        topic_id = partition.partition.topic_id
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = response.responses.add(topic_id=topic_id)
        result = topic.partitions.add(partition_index=partition.partition.partition)
        error = partition.acknowledge_error
        if error is not None:
            result.error_code = wire_code(error)
            result.error_message = error.message
            names.fill(result.current_leader, partition.partition, error)
    response.node_endpoints.extend(names.endpoints)


def _fill_fetched(
    result: fetch_pb.ShareFetchResponse.PartitionResult, partition: PartitionAnswer, names: LeaderNames
) -> None:
    if partition.error is not None:
        result.error_code = wire_code(partition.error)
        result.error_message = partition.error.message
        names.fill(result.current_leader, partition.partition, partition.error)
    if partition.acknowledge_error is not None:
        result.acknowledge_error_code = wire_code(partition.acknowledge_error)
        result.acknowledge_error_message = partition.acknowledge_error.message
        names.fill(result.current_leader, partition.partition, partition.acknowledge_error)
    if partition.fetched is None:
        return
    for first, last, count in partition.fetched.ranges:
        result.acquired_records.add(first_offset=first, last_offset=last, delivery_count=count)
    _fill_batches(result, partition.fetched.batches)


def _fill_batches(result: fetch_pb.ShareFetchResponse.PartitionResult, batches: Sequence[LogBatch]) -> None:
    for batch in batches:
        fetched = result.records.add(base_offset=batch.base_offset, count=batch.record_count, batch=batch.data)
        if batch.is_control or batch.is_transactional:
            fetched.is_control, fetched.is_transactional = batch.is_control, batch.is_transactional
            fetched.producer_id, fetched.producer_epoch = batch.producer_id, batch.producer_epoch
            fetched.control_type = batch.control_type


def _check_ranges(topics: Iterable[fetch_pb.ShareFetchRequest.Topic | ack_pb.ShareAcknowledgeRequest.Topic]) -> None:
    check_ranges(sum([len(partition.acknowledgement_batches) for topic in topics for partition in topic.partitions]))


def _no_bytes(name: TopicIdPartition, max_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"partition_max_bytes = {max_bytes} for {name.text}; expected none: leave it out, and to acknowledge without "
        "fetching send ShareAcknowledge, or max_records = 0"
    )


def _batches(batches: Iterable[common_pb2.AcknowledgementBatch]) -> tuple[AckBatch, ...]:
    return tuple(
        [
            AckBatch(
                batch.first_offset,
                batch.last_offset,
                tuple(batch.acknowledge_types),
                tuple(batch.release_delays_ms),
                tuple(batch.undelivered),
                batch.reason,
            )
            for batch in batches
        ]
    )


def _add(
    into: dict[TopicIdPartition, tuple[AckBatch, ...]], name: TopicIdPartition, batches: tuple[AckBatch, ...]
) -> None:
    """Keep both lists if a partition is named twice: validation refuses ranges that are out of order."""
    into[name] = into.get(name, ()) + batches
