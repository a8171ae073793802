"""Responses while the memory for calls is used up: to a change that was made, and to calls that may be repeated."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.api.v1 import (
    cluster_service_pb2,
    create_topics_pb2,
    describe_cluster_pb2,
    describe_transactions_pb2,
    list_transactions_pb2,
)
from kip932.errors import ThrottlingQuotaExceededError, UnsupportedVersionError
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus, service_methods
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.budget import THROTTLE_MS, Budget, Holder
from shard_runtime.rpc.server import RpcServer
from sharegroups.connection.coordinator_calls import fatal_error

pytestmark = pytest.mark.asyncio

CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]


class Filling:
    """Serves a change and lookups; while a handler runs, another connection takes all memory that calls may have."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.created = 0

    async def create_topics(
        self, request: create_topics_pb2.CreateTopicsRequest, _context: CallContext
    ) -> create_topics_pb2.CreateTopicsResponse:
        self.created += 1
        self._budget.add(Holder("another connection"), self._budget.total_bytes)
        response = create_topics_pb2.CreateTopicsResponse()
        response.topics.add(name=request.topics[0].name)
        return response

    async def describe_cluster(
        self, _request: describe_cluster_pb2.DescribeClusterRequest, _context: CallContext
    ) -> describe_cluster_pb2.DescribeClusterResponse:
        self._budget.add(Holder("another connection"), self._budget.total_bytes)
        return describe_cluster_pb2.DescribeClusterResponse(cluster_id="c")

    async def list_transactions(
        self, _request: list_transactions_pb2.ListTransactionsRequest, _context: CallContext
    ) -> list_transactions_pb2.ListTransactionsResponse:
        self._budget.add(Holder("another connection"), self._budget.total_bytes)
        return list_transactions_pb2.ListTransactionsResponse(coordinator_id=1)

    async def describe_transactions(
        self, _request: describe_transactions_pb2.DescribeTransactionsRequest, _context: CallContext
    ) -> describe_transactions_pb2.DescribeTransactionsResponse:
        self._budget.add(Holder("another connection"), self._budget.total_bytes)
        return describe_transactions_pb2.DescribeTransactionsResponse(coordinator_id=1)


@pytest.mark.rule("CM-92")
async def test_a_change_that_was_made_is_answered_without_room_and_a_lookup_is_refused() -> None:
    budget = Budget(1 << 20)
    served = Filling(budget)
    server = RpcServer("127.0.0.1", budget=budget)
    server.add(CLUSTER, served)
    transport, address = GrpcTransport(), f"127.0.0.1:{await server.start()}"
    methods = service_methods(CLUSTER)
    try:
        request = create_topics_pb2.CreateTopicsRequest()
        request.topics.add(name="orders", num_partitions=1)
        answer: Any = await transport.call(address, methods["CreateTopics"], request, 30)
        assert (served.created, [topic.name for topic in answer.topics]) == (1, ["orders"])
        budget.give(Holder("another connection"), budget.total_bytes)
        for name in ("DescribeCluster", "ListTransactions"):
            found: Any = await transport.call(address, methods[name], methods[name].request_type(), 30)
            assert (found.error_code, found.throttle_time_ms > 0) == (89, True), name
            budget.give(Holder("another connection"), budget.total_bytes)
        last = methods["DescribeTransactions"]  # its response has no error of its own
        with pytest.raises(TransportError) as refused:
            await transport.call(address, last, last.request_type(), 30)
        assert refused.value.status is TransportStatus.RESOURCE_EXHAUSTED
        budget.give(Holder("another connection"), budget.total_bytes)
    finally:
        await transport.close()
        await server.drain(0)
    assert budget.used_bytes == 0


class Full:
    """Refuses every call for lack of memory."""

    async def create_topics(
        self, _request: create_topics_pb2.CreateTopicsRequest, _context: CallContext
    ) -> create_topics_pb2.CreateTopicsResponse:
        raise ThrottlingQuotaExceededError


@pytest.mark.rule("CL-88", "CM-92")
async def test_a_call_without_an_answer_says_for_how_long_the_node_has_no_room_or_what_it_does_not_serve() -> None:
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, Full())
    transport, address = GrpcTransport(), f"127.0.0.1:{await server.start()}"
    methods = service_methods(CLUSTER)
    try:
        with pytest.raises(TransportError) as full:
            await transport.call(address, methods["CreateTopics"], create_topics_pb2.CreateTopicsRequest(), 30)
        assert (full.value.status, full.value.throttle_ms) == (TransportStatus.RESOURCE_EXHAUSTED, THROTTLE_MS)
        request = describe_cluster_pb2.DescribeClusterRequest()
        with pytest.raises(TransportError) as unserved:
            await transport.call(address, methods["DescribeCluster"], request, 30)
        text = f"{address}: UNIMPLEMENTED: /kip932.api.v1.ClusterService/DescribeCluster is not served there"
        assert str(unserved.value) == text
        error = fatal_error(unserved.value)
        assert isinstance(error, UnsupportedVersionError)
        assert text in error.message
        assert "internal.listen.port" in error.message
    finally:
        await transport.close()
        await server.drain(0)
