"""ShareFetch: what is asked of a leader, and records, acquired ranges and errors of its response."""

import asyncio
from typing import Any

import pytest

from kafka_listener.core.pacing import PAUSE_MS
from kafka_listener.ports import Broker, Paced
from kafka_listener.requests.share_fetch import (
    SHARE_FETCH,
    THROTTLE_MS_MAX,
    TRANSLATED_AT_ONCE_BYTES,
    answer,
    held_back,
    known_code,
    request_of,
    response_of,
)
from kip932.api.v1 import share_fetch_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.errors import GroupAuthorizationFailedError, InvalidRequestError
from kip932.ids import ACKNOWLEDGED_RANGES_MAX
from kip932.kafka_batches import from_native, header_of, split
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Brokers, Scripted

Request = SHARE_FETCH.request
NOT_LEADER, UNKNOWN_TOPIC_ID, CORRUPT = 6, 100, 2
AcknowledgementBatch = Request.AcknowledgementBatch


def native(records: int, size: int = 10) -> bytes:
    return RecordBatch(base_timestamp_ms=5, records=[Record(value=bytes(size))] * records).SerializeToString()


def fetching(epoch: int = 1, *acknowledged: tuple[int, int, list[int]], **fields: Any) -> Any:
    batches = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in acknowledged
    ]
    partition = Request.FetchPartition(partition_index=2, acknowledgement_batches=batches)
    topics = [Request.FetchTopic(topic_id=TOPIC, partitions=[partition])]
    return Request(group_id="g", member_id="m", share_session_epoch=epoch, topics=topics, **fields)


def one_partition(**fields: Any) -> pb.ShareFetchResponse:
    response = pb.ShareFetchResponse(acquisition_lock_timeout_ms=30_000)
    response.responses.add(topic_id=TOPIC).partitions.add(partition_index=2, **fields)
    return response


def translated(response: pb.ShareFetchResponse, *brokers: Broker) -> Any:
    return asyncio.run(response_of(response, Brokers(*brokers)))


def partition_of(response: Any) -> Any:
    [topic] = response.responses
    [partition] = topic.partitions
    assert (topic.topic_id, partition.partition_index) == (TOPIC, 2)
    return partition


@pytest.mark.rule("KL-81", "KL-82")
def test_a_fetch_asks_for_all_that_kafkas_clients_read_and_has_neither_session_id_nor_member_epoch() -> None:
    request = fetching(
        3, max_wait_ms=500, min_bytes=1, max_bytes=1000, max_records=7, batch_size=6, share_acquire_mode=1,
        forgotten_topics_data=[Request.ForgottenTopic(topic_id=TOPIC, partitions=[4, 5])],
    )  # fmt: skip
    asked = asyncio.run(request_of(request))
    assert (asked.group_id, asked.member_id, asked.share_session_epoch) == ("g", "m", 3)
    assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes) == (500, 1, 1000)
    assert (asked.max_records, asked.batch_size, asked.share_acquire_mode) == (7, 6, 1)
    assert (asked.is_renew_ack, asked.HasField("session_id"), asked.member_epoch) == (False, False, 0)
    assert (list(asked.compression_types), list(asked.batch_formats)) == ([1, 2, 3, 4], [2])
    [topic] = asked.topics
    [partition] = topic.partitions
    assert (topic.topic_id, partition.partition_index, partition.HasField("partition_max_bytes")) == (TOPIC, 2, False)
    [forgotten] = asked.forgotten_topics_data
    assert (forgotten.topic_id, list(forgotten.partitions)) == (TOPIC, [4, 5])


@pytest.mark.rule("KL-84")
def test_acknowledgements_of_a_fetch_are_passed_on_with_renewals() -> None:
    asked = asyncio.run(request_of(fetching(3, (0, 3, [1]), (5, 6, [4, 2]), is_renew_ack=True)))
    assert asked.is_renew_ack
    batches = asked.topics[0].partitions[0].acknowledgement_batches
    assert [(each.first_offset, each.last_offset, list(each.acknowledge_types)) for each in batches] == [
        (0, 3, [1]),
        (5, 6, [4, 2]),
    ]


@pytest.mark.rule("KL-82")
def test_version_1_has_acquire_mode_0_and_no_renewals() -> None:
    request = fetching(3, (0, 0, [4]), share_acquire_mode=1, is_renew_ack=True)
    first = SHARE_FETCH.decode_request(1, b"".join(SHARE_FETCH.encode_request(1, request)))
    asked = asyncio.run(request_of(first))
    assert (asked.share_acquire_mode, asked.is_renew_ack) == (0, False)


@pytest.mark.rule("KL-84")
def test_too_many_ranges_are_refused_before_the_leader_sees_them() -> None:
    connection = Scripted(pb.ShareFetchResponse())
    ranges = [(2 * index, 2 * index, [1]) for index in range(ACKNOWLEDGED_RANGES_MAX + 1)]
    response = asyncio.run(answer(fetching(1, *ranges), 2, connection))
    assert (response.error_code, response.responses, connection.asked) == (InvalidRequestError.code, [], [])


@pytest.mark.rule("KL-83")
def test_batches_of_both_formats_are_one_run_of_records_with_their_offsets() -> None:
    response = one_partition()
    result = response.responses[0].partitions[0]
    result.records.add(base_offset=10, count=3, batch=native(3))
    result.records.add(base_offset=13, count=2, batch=from_native(native(2), 2, 0))
    result.records.add(base_offset=15, count=1, is_control=True, producer_id=4)
    result.acquired_records.add(first_offset=11, last_offset=13, delivery_count=2)
    result.acquired_records.add(first_offset=15, last_offset=15, delivery_count=1)
    found = partition_of(translated(response))
    headers = [header_of(each) for each in split(b"".join(found.records))]
    assert [(each.base_offset, each.count, each.is_control) for each in headers] == [
        (10, 3, False),
        (13, 2, False),
        (15, 1, True),
    ]
    assert {each.leader_epoch for each in headers} == {-1}
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records] == [
        (11, 13, 2),
        (15, 15, 1),
    ]
    assert (found.error_code, found.error_message, found.acknowledge_error_code) == (0, None, 0)
    assert found.acknowledge_error_message is None


@pytest.mark.rule("KL-83")
def test_a_batch_that_was_stored_in_kafkas_format_is_not_copied() -> None:
    stored = from_native(native(2), 2, 0)
    response = one_partition()
    response.responses[0].partitions[0].records.add(base_offset=13, count=2, batch=stored)
    front, rest = partition_of(translated(response)).records
    assert isinstance(rest, memoryview)
    assert len(front) + len(rest) == len(stored)


@pytest.mark.rule("KL-83")
def test_many_bytes_of_native_batches_are_translated_by_a_thread_to_the_same_records() -> None:
    response = one_partition()
    result = response.responses[0].partitions[0]
    sizes = (TRANSLATED_AT_ONCE_BYTES // 2, TRANSLATED_AT_ONCE_BYTES // 2, 10)
    for index, size in enumerate(sizes):
        result.records.add(base_offset=index, count=1, batch=native(1, size))
    records = b"".join(partition_of(translated(response)).records)
    expected = [from_native(native(1, size), 1, index) for index, size in enumerate(sizes)]
    assert records == b"".join(expected)


@pytest.mark.rule("KL-83")
def test_a_damaged_batch_is_its_partitions_error_and_brings_no_records() -> None:
    response = one_partition()
    result = response.responses[0].partitions[0]
    result.records.add(base_offset=10, count=3, batch=native(3))
    result.records.add(base_offset=13, count=1, batch=b"\xff\xff")
    result.acquired_records.add(first_offset=10, last_offset=13, delivery_count=1)
    healthy = response.responses[0].partitions.add(partition_index=3)
    healthy.records.add(base_offset=0, count=3, batch=native(3))
    healthy.acquired_records.add(first_offset=0, last_offset=2, delivery_count=1)
    bad, good = translated(response).responses[0].partitions
    assert (bad.error_code, b"".join(bad.records), bad.acquired_records) == (CORRUPT, b"", [])
    assert bad.error_message
    assert (good.error_code, len(good.acquired_records), len(split(b"".join(good.records)))) == (0, 1, 1)


@pytest.mark.rule("KL-70", "KL-80")
def test_errors_of_fetching_and_acknowledging_and_the_leader_elsewhere() -> None:
    response = one_partition(
        error_code=NOT_LEADER, error_message="led elsewhere", acknowledge_error_code=121,
        acknowledge_error_message="not held", current_leader={"leader_id": 2, "leader_epoch": 8},
    )  # fmt: skip
    whole = translated(response, Broker(2, "b", 9094))
    found = partition_of(whole)
    assert (found.error_code, found.error_message) == (NOT_LEADER, "led elsewhere")
    assert (found.acknowledge_error_code, found.acknowledge_error_message) == (121, "not held")
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 8)
    assert [(each.node_id, each.host, each.port) for each in whole.node_endpoints] == [(2, "b", 9094)]
    assert (whole.error_code, whole.error_message, whole.acquisition_lock_timeout_ms) == (0, None, 30_000)


@pytest.mark.rule("KL-85")
def test_an_answer_with_errors_alone_is_held_back() -> None:
    refused = asyncio.run(answer(fetching(), 2, Scripted(one_partition(error_code=UNKNOWN_TOPIC_ID))))
    assert isinstance(refused, Paced)
    assert (refused.delay_ms, partition_of(refused.response).error_code) == (PAUSE_MS, UNKNOWN_TOPIC_ID)
    whole = asyncio.run(answer(fetching(), 2, Scripted(GroupAuthorizationFailedError("not yours"))))
    assert isinstance(whole, Paced)
    assert (whole.response.error_code, whole.response.error_message) == (30, "not yours")


@pytest.mark.rule("KL-85")
def test_answers_that_are_not_held_back() -> None:
    refused, clean = translated(one_partition(error_code=UNKNOWN_TOPIC_ID)), translated(one_partition())
    assert held_back(fetching(), refused)
    assert not held_back(fetching(), clean), "nothing has failed"
    assert not held_back(fetching(1, (0, 3, [1])), refused), "a caller waits for the outcome"
    assert not held_back(fetching(-1), refused), "the session has ended"
    moved = one_partition(error_code=NOT_LEADER, current_leader={"leader_id": 2, "leader_epoch": 8})
    assert not held_back(fetching(), translated(moved, Broker(2, "b", 9094))), "the client goes to the leader"
    assert held_back(fetching(), translated(moved)), "the leader has no listener"
    served = one_partition(error_code=UNKNOWN_TOPIC_ID)
    other = served.responses[0].partitions.add(partition_index=3)
    other.records.add(base_offset=0, count=1, batch=native(1))
    other.acquired_records.add(first_offset=0, last_offset=0, delivery_count=1)
    assert not held_back(fetching(), translated(served)), "it has records"


@pytest.mark.rule("KL-86")
def test_a_long_throttle_time_is_cut_unless_the_request_was_refused() -> None:
    for given, expected in ((0, 0), (THROTTLE_MS_MAX, THROTTLE_MS_MAX), (30_000, THROTTLE_MS_MAX)):
        assert translated(pb.ShareFetchResponse(throttle_time_ms=given)).throttle_time_ms == expected
    refused = pb.ShareFetchResponse(throttle_time_ms=30_000, error_code=ErrorCode.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED)
    assert translated(refused).throttle_time_ms == 30_000


@pytest.mark.rule("KL-87")
def test_codes_that_kafkas_clients_do_not_know_for_a_partition_stand_for_those_they_know() -> None:
    for known in (0, -1, 2, 3, 6, 29, 56, 74, 78, 100):
        assert known_code(known) == known
    for retriable in (5, 7, 13, 14, 15, 16, 19):
        assert known_code(retriable) == 56
    for other in (1, 42, 69, 76, 121, 124):
        assert known_code(other) == -1
    refused = one_partition(error_code=ErrorCode.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, error_message="away")
    found = partition_of(translated(refused))
    assert (found.error_code, found.error_message) == (56, "away")
    acknowledged = one_partition(acknowledge_error_code=ErrorCode.ERROR_CODE_COORDINATOR_NOT_AVAILABLE)
    assert partition_of(translated(acknowledged)).acknowledge_error_code == 15, "a caller is given any error"
