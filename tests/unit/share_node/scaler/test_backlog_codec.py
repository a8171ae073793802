"""The age that the scaler reads from a leader's response: that of the first batch with records."""

import pytest

from kip932.api.v1.fetch_pb2 import FetchResponse
from kip932.api.v1.record_batch_pb2 import RecordBatch
from kip932.compression.kinds import Compression
from kip932.errors import TopicAuthorizationFailedError
from share_node.scaler.backlog import fetch_request, first_timestamp_ms
from tests.support.kafka_made import kafka_batch, values


def answer(*batches: tuple[bytes, bool]) -> FetchResponse:
    response = FetchResponse()
    part = response.responses.add(topic_id=b"t" * 16).partitions.add(partition_index=3)
    for data, is_control in batches:
        part.records.add(base_offset=7, count=1, batch=data, is_control=is_control)
    return response


def test_it_asks_for_one_batch_and_does_not_wait() -> None:
    request = fetch_request(b"t" * 16, 3, 41)
    (topic,) = request.topics
    (part,) = topic.partitions
    assert (request.max_wait_ms, topic.topic_id, part.partition, part.fetch_offset) == (0, b"t" * 16, 3, 41)
    assert (part.partition_max_bytes, part.current_leader_epoch) == (1, -1)


def test_the_first_batch_with_records_shows_the_time() -> None:
    early, late = (RecordBatch(base_timestamp_ms=at).SerializeToString() for at in (5_000, 6_000))
    assert first_timestamp_ms(answer((b"marker", True), (early, False), (late, False))) == 5_000


@pytest.mark.rule("CM-225")
def test_the_time_of_a_batch_of_kafkas_format_is_that_of_its_first_record() -> None:
    assert list(fetch_request(b"t" * 16, 3, 41).batch_formats) == [2]
    data = kafka_batch(values(b"a", b"b", timestamp_ms=7_000), Compression.GZIP)
    assert first_timestamp_ms(answer((data, False))) == 7_000
    assert first_timestamp_ms(answer((data[:20], False))) is None


def test_no_batch_and_no_such_batch_show_nothing() -> None:
    assert first_timestamp_ms(FetchResponse()) is None
    assert first_timestamp_ms(answer()) is None
    assert first_timestamp_ms(answer((b"\xff\xff", False))) is None


@pytest.mark.rule("CM-61")
def test_records_that_may_not_be_read_are_not_taken_for_none() -> None:
    response = FetchResponse()
    response.responses.add().partitions.add(error_code=29, error_message="User:scaler may not READ TOPIC 't'")
    with pytest.raises(TopicAuthorizationFailedError, match="User:scaler"):
        first_timestamp_ms(response)
