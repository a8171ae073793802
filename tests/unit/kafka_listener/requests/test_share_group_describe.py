"""Descriptions of share groups."""

import asyncio

import pytest

from kafka_listener.requests.share_group_describe import SHARE_GROUP_DESCRIBE, answer
from kip932.api.v1 import share_group_describe_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidRequestError
from tests.unit.kafka_listener.requests.share_connections import TOPIC, Scripted

Response = pb.ShareGroupDescribeResponse


def described() -> Response:
    member = Response.Member(
        member_id="m", member_epoch=3, client_id="c", client_host="/127.0.0.1", subscribed_topic_names=["t"]
    )
    member.assignment.topic_partitions.add(topic_id=TOPIC, topic_name="t", partitions=[0, 1])
    group = Response.DescribedGroup(
        group_id="g", group_state="Stable", group_epoch=3, assignment_epoch=3, assignor_name="simple", members=[member],
        authorized_operations=3400,
    )  # fmt: skip
    unknown = Response.DescribedGroup(
        group_id="h",
        error_code=ErrorCode.ERROR_CODE_GROUP_ID_NOT_FOUND,
        error_message="no such group",
        authorized_operations=-(2**31),
    )
    return Response(groups=[group, unknown])


@pytest.mark.rule("KL-70", "KL-72")
def test_each_requested_id_has_an_entry_in_the_order_of_the_request() -> None:
    connection = Scripted(described())
    request = SHARE_GROUP_DESCRIBE.request(group_ids=["h", "g", "h"], include_authorized_operations=True)
    response = asyncio.run(answer(request, 1, connection))
    assert connection.requests[0].include_authorized_operations
    assert [group.group_id for group in response.groups] == ["h", "g", "h"]
    unknown, group, _ = response.groups
    assert (unknown.error_code, unknown.error_message, unknown.group_state) == (69, "no such group", "")
    assert unknown.authorized_operations == -(2**31)
    assert (group.error_code, group.error_message, group.group_state, group.assignor_name) == (
        0,
        None,
        "Stable",
        "simple",
    )
    assert (group.group_epoch, group.assignment_epoch, group.authorized_operations) == (3, 3, 3400)
    [member] = group.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", None, 3)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("c", "/127.0.0.1", ["t"])
    [topic] = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, topic.partitions) == (TOPIC, "t", [0, 1])


@pytest.mark.rule("KL-70")
def test_a_request_that_is_refused_as_a_whole_has_the_error_for_each_group() -> None:
    request = SHARE_GROUP_DESCRIBE.request(group_ids=["g", "h"])
    response = asyncio.run(answer(request, 1, Scripted(InvalidRequestError("too many"))))
    assert [(group.group_id, group.error_code, group.error_message) for group in response.groups] == [
        ("g", 42, "too many"),
        ("h", 42, "too many"),
    ]
