"""Users at one port for clients: one that has many connections leaves memory, calls and streams to others, and the
number of connections is bounded (CM-92, CM-202, CM-203)."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from kip932.api.v1 import cluster_service_pb2, create_topics_pb2, describe_cluster_pb2, partition_leader_service_pb2
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus, service_methods
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.binding import CallContext, ServerStream
from shard_runtime.rpc.budget import Budget
from shard_runtime.rpc.server import RpcOptions, RpcServer, accept_probe

pytestmark = pytest.mark.asyncio

CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
LEADER = partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"]
METHODS = service_methods(CLUSTER)
MIB = 1 << 20


class Blocked:
    """Answers changes when it may, and look-ups at once. Streams stay open. `working`: those that it works on, by
    user."""

    server: RpcServer

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.working: Counter[str] = Counter()
        self.reached = asyncio.Condition()

    async def create_topics(
        self, _request: create_topics_pb2.CreateTopicsRequest, context: CallContext
    ) -> create_topics_pb2.CreateTopicsResponse:
        await self._work(context)
        return create_topics_pb2.CreateTopicsResponse()

    async def describe_cluster(
        self, _request: describe_cluster_pb2.DescribeClusterRequest, _context: CallContext
    ) -> describe_cluster_pb2.DescribeClusterResponse:
        return describe_cluster_pb2.DescribeClusterResponse(cluster_id="c")

    async def share_stream(self, stream: ServerStream) -> None:
        await self._work(stream.context)

    async def until(self, number: int) -> None:
        """Wait until it works on this many."""
        async with asyncio.timeout(60), self.reached:
            await self.reached.wait_for(lambda: self.working.total() >= number)

    async def _work(self, context: CallContext) -> None:
        async with self.reached:
            self.working[context.principal or context.peer] += 1
            self.reached.notify_all()
        await self.may.wait()


def as_user(name: str) -> Callable[[], tuple[tuple[str, str], ...]]:
    """Return the metadata with which this user calls."""
    text = "Basic " + base64.b64encode(f"{name}:p".encode()).decode()
    return lambda: (("authorization", text),)


@asynccontextmanager
async def served_twice(options: RpcOptions, budget: Budget | None = None) -> AsyncIterator[tuple[Blocked, list[str]]]:
    """Serve at two ports of one node."""
    async with served(options, budget) as (blocked, address):
        first = blocked.server
        second = RpcServer(
            "127.0.0.1", 0, options, authentication=first.gate.authentication, beside=first, budget=Budget(1)
        )
        second.add(CLUSTER, blocked)
        second.add(LEADER, blocked)
        try:
            yield blocked, [address, f"127.0.0.1:{await second.start()}"]
        finally:
            blocked.may.set()
            await second.drain(0)
        assert first.unfinished.running, "the other port is still watched"


@asynccontextmanager
async def served(options: RpcOptions, budget: Budget | None = None) -> AsyncIterator[tuple[Blocked, str]]:
    """Serve at a port that accepts each user, whatever the password."""

    async def accept(_name: str, _password: str) -> bool:
        return True

    authentication, blocked = Authentication(), Blocked()
    authentication.take_passwords(accept, lambda: 0)
    server = blocked.server = RpcServer("127.0.0.1", 0, options, budget=budget, authentication=authentication)
    server.add(CLUSTER, blocked)
    server.add(LEADER, blocked)
    address = f"127.0.0.1:{await server.start()}"
    try:
        yield blocked, address
    finally:
        blocked.may.set()
        await server.drain(0)


async def connections(stack: AsyncExitStack, number: int, user: str = "") -> list[GrpcTransport]:
    """Return this many connections, which are closed with the stack."""
    made = [GrpcTransport(metadata=as_user(user)) if user else GrpcTransport() for _ in range(number)]
    for each in made:
        stack.push_async_callback(each.close)
    return made


async def outcome(transport: GrpcTransport, address: str, name: str, request: Any) -> TransportError | None:
    """Call; return the failure, None for an answer."""
    try:
        await transport.call(address, METHODS[name], request, 60)
    except TransportError as error:
        return error
    return None


def change(size: int) -> create_topics_pb2.CreateTopicsRequest:
    """Return a request of this many bytes and some."""
    request = create_topics_pb2.CreateTopicsRequest()
    request.topics.add(name="n" * size)
    return request


@pytest.mark.rule("CM-92")
async def test_a_user_with_many_connections_does_not_keep_another_one_waiting() -> None:
    """60 connections of one user send 6 MB together, and the node has 4 MiB. Earlier they took the eighth for small
    callers, too, since each of them holds little."""
    async with served(RpcOptions(), Budget(4 * MIB)) as (blocked, address), AsyncExitStack() as stack:
        lookup = describe_cluster_pb2.DescribeClusterRequest()
        many = [
            asyncio.create_task(outcome(each, address, "CreateTopics", change(100_000)))
            for each in await connections(stack, 60, "greedy")
        ]
        await blocked.until(25)
        finished, _ = await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)  # it has waited for its second
        statuses = {None if (error := task.result()) is None else error.status for task in finished}
        assert statuses == {TransportStatus.RESOURCE_EXHAUSTED}
        [other] = await connections(stack, 1, "mail")
        for _ in range(20):
            assert await outcome(other, address, "DescribeCluster", lookup) is None
        large = asyncio.create_task(outcome(other, address, "CreateTopics", change(600_000)))
        await blocked.until(blocked.working["User:greedy"] + 1)
        assert blocked.working["User:mail"] == 1
        assert blocked.working["User:greedy"] * 100_000 <= 4 * MIB * 17 // 24
        blocked.may.set()
        assert await large is None
        await asyncio.gather(*many)


@pytest.mark.rule("CM-202")
async def test_a_user_gets_three_calls_or_streams_for_each_that_is_left_to_others() -> None:
    options = RpcOptions(concurrent_calls_max=12)
    async with served(options) as (blocked, address), AsyncExitStack() as stack:
        greedy = await connections(stack, 10, "greedy")
        streams = [await each.open_stream(address, service_methods(LEADER)["ShareStream"]) for each in greedy[:5]]
        await blocked.until(5)
        many = [asyncio.create_task(outcome(each, address, "CreateTopics", change(1))) for each in greedy[5:9]]
        await blocked.until(9)
        refused = await outcome(greedy[9], address, "CreateTopics", change(1))
        assert refused is not None
        assert (refused.status, refused.throttle_ms) == (TransportStatus.RESOURCE_EXHAUSTED, 500)
        assert "User:greedy has 9 calls and streams at this node, which serves 12 at the same time" in str(refused)
        [other] = await connections(stack, 1, "mail")
        call = asyncio.create_task(outcome(other, address, "CreateTopics", change(1)))
        await blocked.until(10)
        assert blocked.working == {"User:greedy": 9, "User:mail": 1}
        assert blocked.server.throttled == 1
        blocked.may.set()
        assert [await call, *await asyncio.gather(*many)] == [None] * 5
        for stream in streams:
            assert await stream.read() is None
        assert await outcome(greedy[9], address, "CreateTopics", change(1)) is None


@pytest.mark.rule("CM-202")
async def test_callers_without_a_principal_share_by_their_host_and_find_room_again() -> None:
    """The share of a connection at the port for nodes is not shown here."""
    async with served(RpcOptions(concurrent_calls_max=12)) as (blocked, address), AsyncExitStack() as stack:
        nameless = await connections(stack, 10)
        many = [asyncio.create_task(outcome(each, address, "CreateTopics", change(1))) for each in nameless[:9]]
        await blocked.until(9)
        refused = await outcome(nameless[9], address, "CreateTopics", change(1))
        assert refused is not None
        assert refused.status is TransportStatus.RESOURCE_EXHAUSTED
        assert "127.0.0.1 has 9 calls and streams at this node" in str(refused)
        [known] = await connections(stack, 1, "mail")
        call = asyncio.create_task(outcome(known, address, "CreateTopics", change(1)))
        await blocked.until(10)
        blocked.may.set()
        assert [await call, *await asyncio.gather(*many)] == [None] * 10
        assert await outcome(nameless[9], address, "CreateTopics", change(1)) is None


@pytest.mark.rule("CM-246")
@pytest.mark.parametrize("filled", [0, 1], ids=["the first port", "the second port"])
async def test_two_ports_of_a_node_draw_from_one_budget(filled: int) -> None:
    """A user fills its share at one port. At the other one it is refused, another user is served, and what both ports
    hold stays within the node's budget."""
    budget = Budget(4 * MIB)
    async with served_twice(RpcOptions(), budget) as (blocked, addresses), AsyncExitStack() as stack:
        full, other = addresses[filled], addresses[1 - filled]
        lookup = describe_cluster_pb2.DescribeClusterRequest()
        many = [
            asyncio.create_task(outcome(each, full, "CreateTopics", change(100_000)))
            for each in await connections(stack, 60, "greedy")
        ]
        await blocked.until(25)
        await asyncio.wait(many, return_when=asyncio.FIRST_COMPLETED)  # one has waited for its second: no room is left
        served_before = blocked.working.total()
        [greedy] = await connections(stack, 1, "greedy")
        refused = await outcome(greedy, other, "CreateTopics", change(400_000))
        assert refused is not None
        assert refused.status is TransportStatus.RESOURCE_EXHAUSTED
        [mail] = await connections(stack, 1, "mail")
        for _ in range(20):
            assert await outcome(mail, other, "DescribeCluster", lookup) is None
        large = asyncio.create_task(outcome(mail, other, "CreateTopics", change(600_000)))
        await blocked.until(served_before + 1)
        assert blocked.working == {"User:greedy": served_before, "User:mail": 1}
        assert served_before * 100_000 + 600_000 <= budget.used_bytes <= budget.total_bytes
        blocked.may.set()
        assert await large is None
        await asyncio.gather(*many)
    assert budget.used_bytes == 0


@pytest.mark.rule("CM-246")
async def test_two_ports_of_a_node_count_a_users_calls_together() -> None:
    async with served_twice(RpcOptions(concurrent_calls_max=12)) as (blocked, addresses), AsyncExitStack() as stack:
        greedy = await connections(stack, 10, "greedy")
        many = [
            asyncio.create_task(outcome(each, addresses[number % 2], "CreateTopics", change(1)))
            for number, each in enumerate(greedy[:9])
        ]
        await blocked.until(9)
        for address in addresses:
            refused = await outcome(greedy[9], address, "CreateTopics", change(1))
            assert refused is not None
            assert "User:greedy has 9 calls and streams at this node, which serves 12 at the same time" in str(refused)
        assert blocked.server.throttled == 2
        blocked.may.set()
        assert await asyncio.gather(*many) == [None] * 9


@pytest.mark.rule("CM-203")
async def test_a_connection_too_many_is_closed_and_the_node_knows_that_it_still_accepts() -> None:
    async with served(RpcOptions(connections_max=3)) as (blocked, address), AsyncExitStack() as stack:
        request = describe_cluster_pb2.DescribeClusterRequest()
        *three, fourth = await connections(stack, 4)
        for each in three:
            assert await outcome(each, address, "DescribeCluster", request) is None
        refused = await outcome(fourth, address, "DescribeCluster", request)
        assert refused is not None
        assert refused.status is TransportStatus.UNAVAILABLE
        host, _, port = address.partition(":")
        with capture_logs() as lines:
            await blocked.server.unfinished.check()
        assert [(line["event"], line["connections"]) for line in lines] == [("connections_used_up", 3)]
        assert await accept_probe(host, int(port), limited=True)()
        assert not await accept_probe(host, int(port))()
        assert await outcome(three[0], address, "DescribeCluster", request) is None
        await three.pop().close()
        async with asyncio.timeout(60):
            while await outcome(fourth, address, "DescribeCluster", request) is not None:  # noqa: ASYNC110 - gRPC says no more
                await asyncio.sleep(0.05)
