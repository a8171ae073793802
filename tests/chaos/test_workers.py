"""How a worker records the arrivals of its records, which is the judges' only source for when each was requested."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kip932.api.v1.share_acknowledge_pb2 import ShareAcknowledgeRequest
from kip932.api.v1.share_fetch_pb2 import ShareFetchResponse
from kip932.api.v1.share_stream_pb2 import ShareStreamResponse
from sharegroups import Message
from tests.chaos import workers
from tests.chaos.workers import TimedTransport

TOPIC_ID = bytes(16)


class _Came:
    """A record as the application sees it."""

    def __init__(self, offset: int, count: int) -> None:
        self._offset, self._count = offset, count

    def topic_id(self) -> bytes:
        return TOPIC_ID

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def delivery_count(self) -> int:
        return self._count


def came(offset: int, count: int) -> Message:
    return cast(Message, _Came(offset, count))


def test_a_record_that_the_client_gave_back_unseen_does_not_lend_its_time_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = TimedTransport()

    def arrives(sent_ms: int, first: int, last: int, count: int) -> None:
        acquired: Any = {"first_offset": first, "last_offset": last, "delivery_count": count}
        part = ShareFetchResponse.PartitionResult(partition_index=0, acquired_records=[acquired])
        topic = ShareFetchResponse.TopicResult(topic_id=TOPIC_ID, partitions=[part])
        monkeypatch.setattr(workers, "now_ms", lambda: sent_ms + 5)
        transport._arrived(ShareStreamResponse(fetch=ShareFetchResponse(responses=[topic])), sent_ms)

    arrives(100, 7, 8, 1)
    arrives(200, 7, 7, 2)
    assert transport.arrival(came(7, 2)) == (200, 205, 2)
    assert transport.arrival(came(8, 1)) == (100, 105, 1)
    assert [(one.offset, one.delivery_count, one.fetched_ms) for one in transport.unseen("w", "t")] == [(7, 1, 100)]
    batch: Any = {"first_offset": 7, "last_offset": 9, "acknowledge_types": [2], "undelivered": [False, True, True]}
    given: Any = {"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "acknowledgement_batches": [batch]}]}
    arrives(250, 9, 9, 1)
    transport._asked(ShareAcknowledgeRequest(topics=[given]))
    arrives(260, 9, 9, 1)  # the delivery was taken back: the count is the same
    assert transport.arrival(came(9, 1)) == (260, 265, 1)
    assert [(one.offset, one.fetched_ms) for one in transport.unseen("w", "t")] == [(9, 250), (7, 100)]
    arrives(300, 7, 7, 2)  # a leader that lost its memory counts from 1 again
    arrives(400, 7, 7, 2)
    assert [transport.arrival(came(7, 2)).sent_ms for _ in range(2)] == [300, 400]
