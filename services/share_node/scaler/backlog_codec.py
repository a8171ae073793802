"""What the scaler asks leaders and the client has no word for: the batch that holds an offset (CM-45), and how many
offsets up to a log's end hold no record (CM-105)."""

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


def end_request(topic_id: bytes, partition: int, start: int) -> ListOffsetsRequest:
    """Ask where the log ends, and for the offsets without a record from `start` up to there."""
    request = ListOffsetsRequest()
    request.topics.add(topic_id=topic_id).partitions.add(
        partition_index=partition, current_leader_epoch=-1, timestamp=OFFSET_LATEST, holes_from=start
    )
    return request


def holes(response: ListOffsetsResponse) -> int:
    """Offsets without a record; 0 from a leader that does not tell."""
    return sum(part.holes for topic in response.topics for part in topic.partitions)


def fetch_request(topic_id: bytes, partition: int, offset: int) -> FetchRequest:
    """Ask for as little as there is from `offset` on, and do not wait: a leader returns at least one batch."""
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1)
    request.topics.add(topic_id=topic_id).partitions.add(
        partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=1
    )
    return request


def oldest_ms(response: FetchResponse) -> int | None:
    """Timestamp of the first batch with records, milliseconds since 1970; None when there is none, or it is no batch.

    It is the batch's base timestamp: within a batch records differ by no more than a producer's linger.
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
