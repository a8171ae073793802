"""The scaler's requests to leaders that the client does not have: for the batch with an offset (CM-45), and for the
number of offsets up to a log's end without a record (CM-105)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from kip932.api.v1.fetch_pb2 import FetchRequest, FetchResponse
from kip932.api.v1.list_offsets_pb2 import ListOffsetsRequest, ListOffsetsResponse
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.ids import OFFSET_LATEST
from kip932.rpc.transport import Method

FETCH: Final = Method("/kip932.api.v1.PartitionLeaderService/Fetch", FetchRequest, FetchResponse)
LIST_OFFSETS: Final = Method(
    "/kip932.api.v1.PartitionLeaderService/ListOffsets", ListOffsetsRequest, ListOffsetsResponse
)


def end_request(topic_id: bytes, partition: int, start: int, group: str) -> ListOffsetsRequest:
    """Request the log's end, and the number of offsets from `start` to there that have nothing for the group."""
    request = ListOffsetsRequest()
    request.topics.add(topic_id=topic_id).partitions.add(
        partition_index=partition,
        current_leader_epoch=-1,
        timestamp=OFFSET_LATEST,
        holes_from=start,
        share_group_id=group,
    )
    return request


def empty(response: ListOffsetsResponse) -> int:
    """Return the number of offsets that have nothing for the group; from a leader that does not report it, the number
    of those without a record, or 0."""
    return sum(
        part.group_empty if part.HasField("group_empty") else part.holes
        for topic in response.topics
        for part in topic.partitions
    )


def fetch_request(topic_id: bytes, partition: int, offset: int) -> FetchRequest:
    """Request as little as possible from `offset` on, without waiting: a leader returns at least one batch."""
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1)
    request.topics.add(topic_id=topic_id).partitions.add(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1
    )
    return request


def oldest_ms(response: FetchResponse) -> int | None:
    """Return the first non-empty batch's timestamp, ms since 1970; None when there is no such batch, or it is invalid.

    It is the batch's base timestamp: records of a batch differ by at most the producer's linger.
    """
    for topic in response.responses:
        for part in topic.partitions:
            for batch in part.records:
                if not batch.is_control:
                    return _base_timestamp_ms(batch.batch)
    return None


def _base_timestamp_ms(batch: bytes) -> int | None:
    try:
        return RecordBatch.FromString(batch).base_timestamp_ms
    except DecodeError:
        return None
