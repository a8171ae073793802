"""The one call of the scaler that the client has no word for: plain Fetch of the batch that holds an offset (CM-45)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from kip932.api.v1.fetch_pb2 import FetchRequest, FetchResponse
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.rpc.transport import Method

FETCH: Final = Method("/kip932.api.v1.PartitionLeaderService/Fetch", FetchRequest, FetchResponse)


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
