"""Reads records of one partition by offset from its leader; no group is involved (CL-92, CM-45)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from kip932.api.v1.fetch_pb2 import FetchRequest, FetchResponse
from kip932.api.v1.record_batch_pb2 import FetchedBatch
from kip932.errors import (
    KafkaError,
    NetworkError,
    RequestTimedOutError,
    RetriableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kip932.ids import BATCH_FORMAT_KAFKA, TopicIdPartition, TopicPartition
from sharegroups.admin_values import ReadRecord, RecordsRead, UnreadableRecords
from sharegroups.connection import wire
from sharegroups.connection.cluster import Cluster

#: How many bytes one read asks for by default.
READ_BYTES: Final = 1 << 20
#: Sends each leader one call with its partitions, and returns the result by partition.
AtLeaders = Callable[[Iterable[TopicPartition], Any], Awaitable[dict[TopicPartition, Any]]]


class Span(NamedTuple):
    """Where to start reading, and about how many bytes to read."""

    partition: TopicPartition
    offset: int
    max_bytes: int


async def read(cluster: Cluster, span: Span, timeout_s: float, at_leaders: AtLeaders) -> RecordsRead:
    """Return the records of the next batches. Follows the leader, and retries temporary errors until the time-out.

    Raises KafkaError: immediately if a retry cannot help, otherwise the last error after `timeout_s`.
    """
    place = f"{span.partition.topic}-{span.partition.partition}"

    async def call(address: str, parts: dict[TopicIdPartition, TopicPartition]) -> dict[TopicPartition, Any]:
        (key,) = parts
        response = await cluster.transport.call(address, wire.FETCH, _request(key, span), timeout_s)
        return {span.partition: error_for(response.error_code, response.error_message) or response}

    backoff = cluster.backoff()
    last: KafkaError | None = None
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                found = (await at_leaders([span.partition], call))[span.partition]
                result = found if isinstance(found, KafkaError) else _result(found)
                if isinstance(result, FetchResponse.PartitionResult):
                    return _records(result, span.offset)
                if not isinstance(result, RetriableError) or isinstance(result, UnknownTopicOrPartitionError):
                    raise result
                last = result
                await asyncio.sleep(backoff.next_ms() / 1000)
    except TimeoutError:
        raise last or RequestTimedOutError(f"the leader of {place} did not answer within {timeout_s:g} s") from None


def _request(partition: TopicIdPartition, span: Span) -> FetchRequest:
    request = FetchRequest(max_bytes=span.max_bytes, batch_formats=[BATCH_FORMAT_KAFKA])
    request.topics.add(topic_id=partition.topic_id).partitions.add(
        partition=partition.partition, fetch_offset=span.offset, partition_max_bytes=span.max_bytes
    )
    return request


def _result(response: FetchResponse) -> FetchResponse.PartitionResult | KafkaError:
    """Return the only partition of a response, or an error if it has none."""
    for topic in response.responses:
        for part in topic.partitions:
            return error_for(part.error_code, part.error_message) or part
    return NetworkError("the answer leaves the partition out")


def _records(part: FetchResponse.PartitionResult, offset: int) -> RecordsRead:
    records: list[ReadRecord] = []
    unreadable: list[UnreadableRecords] = []
    following = offset
    for fetched in part.records:
        base, end = fetched.base_offset, fetched.base_offset + fetched.count
        following = max(following, end)
        if fetched.is_control:
            continue
        batch = wire.decode(fetched)
        if batch.error is not None:
            unreadable.append(UnreadableRecords(max(base, offset), end - 1, batch.error))
        else:
            records += [
                _record(number, record, batch.base_timestamp_ms, fetched)
                for number, record in enumerate(batch.records, base)
                if number >= offset
            ]
    return RecordsRead(tuple(records), tuple(unreadable), following, part.log_start_offset, part.high_watermark)


def _record(offset: int, record: Any, base_ms: int, fetched: FetchedBatch) -> ReadRecord:
    return ReadRecord(
        offset,
        base_ms + record.timestamp_delta_ms,
        fetched.append_time_ms if fetched.HasField("append_time_ms") else None,
        record.key if record.HasField("key") else None,
        record.value if record.HasField("value") else None,
        tuple((header.key, header.value if header.HasField("value") else None) for header in record.headers),
    )
