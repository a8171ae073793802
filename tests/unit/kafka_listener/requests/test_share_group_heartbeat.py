"""Heartbeats: what null and empty mean on the way in and out."""

import asyncio
from typing import Any

import pytest

from kafka_listener.requests.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, answer, request_of, response_of
from kip932.api.v1 import share_group_heartbeat_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import NotCoordinatorError, ThrottlingQuotaExceededError
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted


def beat(**fields: Any) -> Any:
    return SHARE_GROUP_HEARTBEAT.request(group_id="g", member_id="m", **fields)


@pytest.mark.rule("KL-71")
def test_null_topic_names_and_an_empty_list_of_them_are_different() -> None:
    unchanged = request_of(beat(member_epoch=3, rack_id=None, subscribed_topic_names=None))
    assert (unchanged.member_epoch, unchanged.HasField("subscribed_topic_names")) == (3, False)
    assert not unchanged.HasField("rack_id")
    empty = request_of(beat(rack_id="r", subscribed_topic_names=[]))
    assert (empty.rack_id, empty.HasField("subscribed_topic_names")) == ("r", True)
    assert list(empty.subscribed_topic_names.values) == []
    named = request_of(beat(subscribed_topic_names=["t", "u"]))
    assert list(named.subscribed_topic_names.values) == ["t", "u"]


@pytest.mark.rule("KL-71")
def test_an_absent_assignment_is_null_and_an_empty_one_is_empty() -> None:
    unchanged = asyncio.run(
        response_of(pb.ShareGroupHeartbeatResponse(member_id="m", member_epoch=4, heartbeat_interval_ms=5000))
    )
    assert (unchanged.member_id, unchanged.member_epoch, unchanged.heartbeat_interval_ms) == ("m", 4, 5000)
    assert unchanged.assignment is None
    nothing = asyncio.run(
        response_of(pb.ShareGroupHeartbeatResponse(assignment=pb.ShareGroupHeartbeatResponse.Assignment()))
    )
    assert nothing.assignment.topic_partitions == []
    assert (nothing.member_id, nothing.error_message) == (None, None)
    assigned = pb.ShareGroupHeartbeatResponse.Assignment()
    assigned.topic_partitions.add(topic_id=TOPIC, partitions=[0, 2])
    [topic] = asyncio.run(response_of(pb.ShareGroupHeartbeatResponse(assignment=assigned))).assignment.topic_partitions
    assert (topic.topic_id, topic.partitions) == (TOPIC, [0, 2])


@pytest.mark.rule("KL-70")
def test_the_coordinators_error_and_a_refused_call_are_the_error_of_the_response() -> None:
    refused = pb.ShareGroupHeartbeatResponse(
        error_code=ErrorCode.ERROR_CODE_UNKNOWN_MEMBER_ID, error_message="not a member"
    )
    connection = Scripted(refused)
    response = asyncio.run(answer(beat(), 1, connection))
    assert (response.error_code, response.error_message, response.member_id) == (25, "not a member", None)
    assert connection.asked == [("share_group_heartbeat",)]
    elsewhere = asyncio.run(answer(beat(), 1, Scripted(NotCoordinatorError("not here"))))
    assert (elsewhere.error_code, elsewhere.error_message) == (16, "not here")


@pytest.mark.rule("KL-71")
def test_a_node_that_has_no_room_is_a_coordinator_that_loads() -> None:
    response = asyncio.run(answer(beat(), 1, Scripted(ThrottlingQuotaExceededError("too many calls"))))
    assert (response.error_code, response.error_message) == (14, "too many calls")
