"""DescribeCluster."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import describe_cluster
from kip932.api.v1.describe_cluster_pb2 import DescribeClusterResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import ThrottlingQuotaExceededError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

REQUEST = api("DescribeCluster").request
answer = partial(answered, "DescribeCluster")


@pytest.mark.rule("KL-61")
@pytest.mark.parametrize("version", range(3))
@virtual
async def test_the_nodes_that_have_a_listener_and_the_asked_one_as_controller(version: int) -> None:
    response = DescribeClusterResponse(
        cluster_id="a-cluster", controller_id=-1, cluster_authorized_operations=256, throttle_time_ms=3
    )
    response.brokers.add(node_id=3, host="internal", port=1)
    connection = ScriptedConnection(describe_cluster=response)
    got = await answer(
        version, REQUEST(include_cluster_authorized_operations=True), connection, describe_cluster.answer
    )
    assert connection.request.include_cluster_authorized_operations
    assert (got.error_code, got.cluster_id, got.controller_id) == (0, "a-cluster", 1)
    assert got.cluster_authorized_operations == 256
    assert [(each.broker_id, each.host, each.port, each.rack) for each in got.brokers] == [
        (1, "one.example", 9092, None),
        (2, "two.example", 9093, "r2"),
    ]
    if version >= 1:
        assert got.endpoint_type == 1
    if version >= 2:
        assert not any(each.is_fenced for each in got.brokers)


@pytest.mark.rule("KL-61")
@pytest.mark.parametrize(("kind", "code"), [(2, 114), (0, 115), (7, 115)])
@virtual
async def test_controllers_are_not_here(kind: int, code: int) -> None:
    connection = ScriptedConnection()
    got = await answer(1, REQUEST(endpoint_type=kind), connection, describe_cluster.answer)
    assert (got.error_code, got.brokers) == (code, ())
    assert got.error_message
    assert connection.calls == []


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_node_is_that_of_the_answer() -> None:
    connection = ScriptedConnection(describe_cluster=ThrottlingQuotaExceededError("no room"))
    got = await answer(0, REQUEST(), connection, describe_cluster.answer)
    assert (got.error_code, got.error_message) == (89, "no room")
    refused = DescribeClusterResponse(
        error_code=ErrorCode.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, error_message="no room"
    )
    got = await answer(0, REQUEST(), ScriptedConnection(describe_cluster=refused), describe_cluster.answer)
    assert (got.error_code, got.error_message) == (89, "no room")
