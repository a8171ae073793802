"""Deletions of a group's offsets of topics."""

import asyncio

import pytest

from kafka_listener.requests.delete_share_group_offsets import DELETE_SHARE_GROUP_OFFSETS, answer
from kip932.api.v1 import delete_share_group_offsets_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import NotCoordinatorError
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted

Request = DELETE_SHARE_GROUP_OFFSETS.request


@pytest.mark.rule("KL-70", "KL-73")
def test_each_topic_has_its_own_result() -> None:
    done = pb.DeleteShareGroupOffsetsResponse()
    done.responses.add(topic_name="t", topic_id=TOPIC)
    done.responses.add(
        topic_name="u",
        topic_id=bytes(16),
        error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        error_message="no such topic",
    )
    connection = Scripted(done)
    topics = [Request.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "u")]
    response = asyncio.run(answer(Request(group_id="g", topics=topics), 0, connection))
    [asked] = connection.requests
    assert (asked.group_id, [each.topic_name for each in asked.topics.values]) == ("g", ["t", "u"])
    assert (response.error_code, response.error_message) == (0, None)
    assert [(each.topic_name, each.topic_id, each.error_code, each.error_message) for each in response.responses] == [
        ("t", TOPIC, 0, None),
        ("u", bytes(16), 3, "no such topic"),
    ]


@pytest.mark.rule("KL-70", "KL-73")
def test_an_error_of_the_call_is_that_of_the_response() -> None:
    unknown = pb.DeleteShareGroupOffsetsResponse(
        error_code=ErrorCode.ERROR_CODE_GROUP_ID_NOT_FOUND, error_message="no such group"
    )
    response = asyncio.run(answer(Request(group_id="g"), 0, Scripted(unknown)))
    assert (response.error_code, response.error_message, response.responses) == (69, "no such group", [])
    response = asyncio.run(answer(Request(group_id="g"), 0, Scripted(NotCoordinatorError("not here"))))
    assert (response.error_code, response.error_message) == (16, "not here")
