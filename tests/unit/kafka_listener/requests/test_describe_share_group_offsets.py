"""Descriptions of offsets: null and empty topics, lags, errors for groups and partitions."""

import asyncio
from typing import Any

import pytest

from kafka_listener.requests.describe_share_group_offsets import DESCRIBE_SHARE_GROUP_OFFSETS, answer, request_of
from kip932.api.v1 import describe_share_group_offsets_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import UnsupportedVersionError
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted

Request = DESCRIBE_SHARE_GROUP_OFFSETS.request
Response = pb.DescribeShareGroupOffsetsResponse


def ask(*groups: tuple[str, Any]) -> Any:
    return Request(
        groups=[
            Request.DescribeShareGroupOffsetsRequestGroup(
                group_id=group_id,
                topics=topics
                and [
                    Request.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
                    for name, partitions in topics
                ],
            )
            for group_id, topics in groups
        ]
    )


@pytest.mark.rule("KL-73")
def test_null_topics_mean_all_and_an_empty_list_none() -> None:
    everything, nothing, named = asyncio.run(request_of(ask(("g", None), ("h", []), ("i", [("t", [0, 3])])))).groups
    assert (everything.group_id, everything.HasField("topics")) == ("g", False)
    assert (nothing.HasField("topics"), len(nothing.topics.values)) == (True, 0)
    [topic] = named.topics.values
    assert (topic.topic_name, list(topic.partitions)) == ("t", [0, 3])
    assert not any(group.include_backlog for group in (everything, nothing, named))


def offsets() -> Response:
    response = Response()
    topic = response.groups.add(group_id="g").topics.add(topic_name="t", topic_id=TOPIC)
    topic.partitions.add(partition_index=0, start_offset=7, leader_epoch=2, lag=5, in_flight=3)
    topic.partitions.add(
        partition_index=9,
        start_offset=-1,
        lag=-1,
        error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        error_message="no such partition",
    )
    response.groups.add(group_id="h", error_code=ErrorCode.ERROR_CODE_NOT_COORDINATOR, error_message="not here")
    return response


@pytest.mark.rule("KL-70", "KL-73")
def test_offsets_lags_and_errors_are_passed_on() -> None:
    response = asyncio.run(answer(ask(("g", None), ("h", None)), 1, Scripted(offsets())))
    group, refused = response.groups
    assert (group.error_code, group.error_message) == (0, None)
    [topic] = group.topics
    assert (topic.topic_name, topic.topic_id) == ("t", TOPIC)
    known, unknown = topic.partitions
    assert (known.partition_index, known.start_offset, known.leader_epoch, known.lag) == (0, 7, 2, 5)
    assert (known.error_code, known.error_message) == (0, None)
    assert (unknown.start_offset, unknown.lag, unknown.error_code, unknown.error_message) == (
        -1,
        -1,
        3,
        "no such partition",
    )
    assert (refused.group_id, refused.error_code, refused.error_message, refused.topics) == ("h", 16, "not here", [])


@pytest.mark.rule("KL-73")
def test_version_0_has_no_lag() -> None:
    response = asyncio.run(answer(ask(("g", None)), 0, Scripted(offsets())))
    data = b"".join(DESCRIBE_SHARE_GROUP_OFFSETS.encode_response(0, response))
    read = DESCRIBE_SHARE_GROUP_OFFSETS.decode_response(0, data)
    assert [(each.start_offset, each.lag) for each in read.groups[0].topics[0].partitions] == [(7, -1), (-1, -1)]
    data = b"".join(DESCRIBE_SHARE_GROUP_OFFSETS.encode_response(1, response))
    read = DESCRIBE_SHARE_GROUP_OFFSETS.decode_response(1, data)
    assert [each.lag for each in read.groups[0].topics[0].partitions] == [5, -1]


@pytest.mark.rule("KL-70")
def test_a_request_that_is_refused_as_a_whole_has_the_error_for_each_group() -> None:
    refused = Scripted(UnsupportedVersionError("share groups are off"))
    response = asyncio.run(answer(ask(("g", None), ("h", [])), 1, refused))
    assert [(each.group_id, each.error_code, each.error_message) for each in response.groups] == [
        ("g", 35, "share groups are off"),
        ("h", 35, "share groups are off"),
    ]
