"""Deletions of groups."""

import asyncio

import pytest

from kafka_listener.requests.delete_groups import DELETE_GROUPS, answer
from kip932.api.v1 import delete_groups_pb2 as pb
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import InvalidRequestError
from tests.unit.kafka_listener.requests.share_connections import Scripted


@pytest.mark.rule("KL-70", "KL-75")
def test_each_group_has_its_own_result() -> None:
    done = pb.DeleteGroupsResponse(throttle_time_ms=7)
    done.results.add(group_id="g")
    done.results.add(group_id="h", error_code=ErrorCode.ERROR_CODE_NON_EMPTY_GROUP, error_message="it has members")
    connection = Scripted(done)
    response = asyncio.run(answer(DELETE_GROUPS.request(groups_names=["g", "h"]), 2, connection))
    assert list(connection.requests[0].groups_names) == ["g", "h"]
    assert response.throttle_time_ms == 7
    assert [(each.group_id, each.error_code) for each in response.results] == [("g", 0), ("h", 68)]


@pytest.mark.rule("KL-70", "KL-75")
def test_a_request_that_is_refused_as_a_whole_has_the_error_for_each_group_once() -> None:
    request = DELETE_GROUPS.request(groups_names=["g", "h", "g"])
    response = asyncio.run(answer(request, 2, Scripted(InvalidRequestError("too many"))))
    assert [(each.group_id, each.error_code) for each in response.results] == [("g", 42), ("h", 42)]
