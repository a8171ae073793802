"""New start offsets of an empty group."""

import asyncio

import pytest

from kafka_listener.requests.alter_share_group_offsets import ALTER_SHARE_GROUP_OFFSETS, answer
from kip932.api.v1 import alter_share_group_offsets_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import NotCoordinatorError
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted

Request = ALTER_SHARE_GROUP_OFFSETS.request


@pytest.mark.rule("KL-70", "KL-73")
def test_each_partition_has_its_own_result() -> None:
    done = pb.AlterShareGroupOffsetsResponse()
    topic = done.responses.add(topic_name="t", topic_id=TOPIC)
    topic.partitions.add(partition_index=0)
    topic.partitions.add(
        partition_index=9, error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, error_message="no such partition"
    )
    connection = Scripted(done)
    partitions = [
        Request.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
        for index, offset in ((0, 5), (9, -5))
    ]
    request = Request(
        group_id="g", topics=[Request.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    )
    response = asyncio.run(answer(request, 0, connection))
    [asked] = connection.requests
    assert (asked.group_id, [each.topic_name for each in asked.topics.values]) == ("g", ["t"])
    assert [(each.partition_index, each.start_offset) for each in asked.topics.values[0].partitions] == [
        (0, 5),
        (9, -5),
    ]
    assert (response.error_code, response.error_message) == (0, None)
    [altered] = response.responses
    assert (altered.topic_name, altered.topic_id) == ("t", TOPIC)
    assert [(each.partition_index, each.error_code, each.error_message) for each in altered.partitions] == [
        (0, 0, None),
        (9, 3, "no such partition"),
    ]


@pytest.mark.rule("KL-70", "KL-73")
def test_an_error_of_the_call_is_that_of_the_response() -> None:
    request = Request(group_id="g", topics=[])
    full = pb.AlterShareGroupOffsetsResponse(
        error_code=ErrorCode.ERROR_CODE_NON_EMPTY_GROUP, error_message="it has members"
    )
    response = asyncio.run(answer(request, 0, Scripted(full)))
    assert (response.error_code, response.error_message, response.responses) == (68, "it has members", [])
    response = asyncio.run(answer(request, 0, Scripted(NotCoordinatorError("not here"))))
    assert (response.error_code, response.error_message) == (16, "not here")
