"""Lists of groups, by one node of several."""

import asyncio

import pytest

from kafka_listener.requests.list_groups import LIST_GROUPS, answer
from kip932.api.v1 import list_groups_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import ClusterAuthorizationFailedError, NotCoordinatorError
from tests.unit.kafka_listener.requests.share_connections import Scripted


def listed() -> pb.ListGroupsResponse:
    response = pb.ListGroupsResponse(
        error_code=ErrorCode.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS, error_message="loading"
    )
    response.groups.add(group_id="g", protocol_type="share", group_state="Stable", group_type="share", members=2)
    response.unserved_shards.add(shard=1, error_code=ErrorCode.ERROR_CODE_NOT_COORDINATOR)
    response.unserved_shards.add(shard=2, error_code=ErrorCode.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS)
    return response


@pytest.mark.rule("KL-70", "KL-74")
def test_groups_are_listed_beside_the_error_of_a_shard_that_cannot_answer() -> None:
    connection = Scripted(listed())
    request = LIST_GROUPS.request(states_filter=["Stable"], types_filter=["share"])
    response = asyncio.run(answer(request, 5, connection))
    [asked] = connection.requests
    assert (list(asked.states_filter.values), list(asked.types_filter.values)) == (["Stable"], ["share"])
    assert response.error_code == 14
    [group] = response.groups
    assert (group.group_id, group.protocol_type, group.group_state, group.group_type) == (
        "g",
        "share",
        "Stable",
        "share",
    )


@pytest.mark.rule("KL-74")
def test_a_node_that_coordinates_no_group_has_none_and_no_error() -> None:
    response = asyncio.run(answer(LIST_GROUPS.request(), 5, Scripted(NotCoordinatorError("no coordinator here"))))
    assert (response.error_code, response.groups) == (0, [])


@pytest.mark.rule("KL-70")
def test_any_other_refusal_is_the_error_of_the_response() -> None:
    response = asyncio.run(answer(LIST_GROUPS.request(), 0, Scripted(ClusterAuthorizationFailedError("no"))))
    assert (response.error_code, response.groups) == (31, [])


@pytest.mark.rule("KL-74")
@pytest.mark.parametrize("version", range(6))
def test_every_version_can_be_written(version: int) -> None:
    response = asyncio.run(answer(LIST_GROUPS.request(), version, Scripted(listed())))
    read = LIST_GROUPS.decode_response(version, b"".join(LIST_GROUPS.encode_response(version, response)))
    [group] = read.groups
    assert (group.group_id, group.group_state) == ("g", "Stable" if version >= 4 else "")
