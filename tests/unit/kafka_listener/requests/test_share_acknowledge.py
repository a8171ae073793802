"""Acknowledgements on the way to a leader, and what it makes of them."""

import asyncio
from typing import Any

import pytest

from kafka_listener.ports import Broker
from kafka_listener.requests.share_acknowledge import SHARE_ACKNOWLEDGE, answer
from kip932.api.v1 import share_acknowledge_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidShareSessionEpochError
from kip932.ids import ACKNOWLEDGED_RANGES_MAX, REQUEST_PARTITIONS_MAX
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted

Request = SHARE_ACKNOWLEDGE.request
INVALID_REQUEST = 42


def acknowledging(*partitions: tuple[int, list[tuple[int, int, list[int]]]], **fields: Any) -> Any:
    return Request(
        group_id="g",
        member_id="m",
        topics=[
            Request.AcknowledgeTopic(
                topic_id=TOPIC,
                partitions=[
                    Request.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            Request.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                            for first, last, types in batches
                        ],
                    )
                    for index, batches in partitions
                ],
            )
        ],
        **fields,
    )


@pytest.mark.rule("KL-81", "KL-84")
def test_acknowledgements_go_over_the_members_stream_without_session_id_and_delays() -> None:
    connection = Scripted(pb.ShareAcknowledgeResponse())
    request = acknowledging((0, [(0, 3, [1]), (4, 5, [2, 4])]), (1, []), share_session_epoch=3, is_renew_ack=True)
    asyncio.run(answer(request, 2, connection))
    assert connection.asked == [("share_acknowledge", "g", "m", "3")]
    [asked] = connection.requests
    assert (asked.group_id, asked.member_id, asked.share_session_epoch, asked.is_renew_ack) == ("g", "m", 3, True)
    assert not asked.HasField("session_id")
    [topic] = asked.topics
    assert topic.topic_id == TOPIC
    first, second = topic.partitions
    assert [(it.first_offset, it.last_offset, list(it.acknowledge_types)) for it in first.acknowledgement_batches] == [
        (0, 3, [1]),
        (4, 5, [2, 4]),
    ]
    assert not any(it.release_delays_ms or it.undelivered or it.reason for it in first.acknowledgement_batches)
    assert (second.partition_index, len(second.acknowledgement_batches)) == (1, 0)


@pytest.mark.rule("KL-80", "KL-84")
def test_each_partition_has_its_error_and_its_leader() -> None:
    done = pb.ShareAcknowledgeResponse(acquisition_lock_timeout_ms=30_000)
    topic = done.responses.add(topic_id=TOPIC)
    topic.partitions.add(partition_index=0)
    topic.partitions.add(
        partition_index=1, error_code=ErrorCode.ERROR_CODE_INVALID_RECORD_STATE, error_message="not held"
    )
    topic.partitions.add(
        partition_index=2, error_code=ErrorCode.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, error_message="led elsewhere"
    ).current_leader.leader_id = 2
    done.responses[0].partitions[2].current_leader.leader_epoch = 5
    response = asyncio.run(answer(acknowledging(), 2, Scripted(done, Broker(2, "b", 9094))))
    assert (response.error_code, response.error_message, response.acquisition_lock_timeout_ms) == (0, None, 30_000)
    [found] = response.responses
    assert found.topic_id == TOPIC
    assert [
        (each.partition_index, each.error_code, each.error_message, each.current_leader.leader_id)
        for each in found.partitions
    ] == [(0, 0, None, 0), (1, 121, "not held", 0), (2, 6, "led elsewhere", 2)]
    assert found.partitions[2].current_leader.leader_epoch == 5
    assert [(each.node_id, each.host, each.port) for each in response.node_endpoints] == [(2, "b", 9094)]


@pytest.mark.rule("KL-70")
def test_an_error_of_the_whole_is_that_of_the_response() -> None:
    refused = pb.ShareAcknowledgeResponse(
        error_code=ErrorCode.ERROR_CODE_SHARE_SESSION_NOT_FOUND, error_message="no session"
    )
    response = asyncio.run(answer(acknowledging(), 1, Scripted(refused)))
    assert (response.error_code, response.error_message, response.responses) == (122, "no session", [])
    response = asyncio.run(answer(acknowledging(), 1, Scripted(InvalidShareSessionEpochError("ended"))))
    assert (response.error_code, response.error_message) == (123, "ended")


@pytest.mark.rule("KL-84")
def test_more_entries_than_a_request_may_have_are_refused_before_the_leader_sees_them() -> None:
    connection = Scripted(pb.ShareAcknowledgeResponse())
    ranges = [(2 * index, 2 * index, [1]) for index in range(ACKNOWLEDGED_RANGES_MAX + 1)]
    for request in (acknowledging((0, ranges)), acknowledging(*[(0, [])] * (REQUEST_PARTITIONS_MAX + 1))):
        response = asyncio.run(answer(request, 2, connection))
        assert (response.error_code, response.responses) == (INVALID_REQUEST, [])
    assert connection.asked == []
    asyncio.run(answer(acknowledging((0, ranges[1:])), 2, connection))
    assert len(connection.asked) == 1


@pytest.mark.rule("KL-84")
def test_a_null_group_or_member_stays_absent() -> None:
    connection = Scripted(pb.ShareAcknowledgeResponse(error_code=ErrorCode.ERROR_CODE_INVALID_REQUEST))
    asyncio.run(answer(Request(group_id=None, member_id=None), 2, connection))
    assert connection.asked == [("share_acknowledge", "", "", "0")]
    assert not connection.requests[0].HasField("group_id")
    assert not connection.requests[0].HasField("member_id")
