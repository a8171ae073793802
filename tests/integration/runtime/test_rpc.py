"""The same service object served over gRPC on loopback and over the in-memory transport: one contract for both."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio
import structlog
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types
from structlog.testing import capture_logs

from kip932.api.v1 import (
    cluster_service_pb2,
    find_coordinator_pb2,
    metadata_pb2,
    partition_leader_service_pb2,
    share_stream_pb2,
)
from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import CLIENT_ID_KEY, Transport, TransportError, TransportStatus, service_methods
from shard_runtime.logs import configure_logs
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.binding import CallContext, ServerStream, snake_case
from shard_runtime.rpc.server import ListenError, RpcOptions, RpcServer
from tests.twin.transport import InMemoryNetwork

pytestmark = pytest.mark.asyncio

CLUSTER = cluster_service_pb2.DESCRIPTOR.services_by_name["ClusterService"]
LEADER = partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"]
FIND = service_methods(CLUSTER)["FindCoordinator"]
METADATA = service_methods(CLUSTER)["Metadata"]
STREAM = service_methods(LEADER)["ShareStream"]


class Echo:
    """Serves FindCoordinator and ShareStream, and nothing else."""

    def __init__(self) -> None:
        self.contexts: list[CallContext] = []
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()

    async def find_coordinator(
        self, request: find_coordinator_pb2.FindCoordinatorRequest, context: CallContext
    ) -> find_coordinator_pb2.FindCoordinatorResponse:
        self.contexts.append(context)
        match request.coordinator_keys[0]:
            case "bug":
                raise RuntimeError("secret detail")
            case "kafka":
                raise CoordinatorNotAvailableError("later")
            case "invalid":
                raise InvalidRequestError("no such key")
            case "slow":
                await self.release.wait()
        response = find_coordinator_pb2.FindCoordinatorResponse()
        response.coordinators.add(key=request.coordinator_keys[0], node_id=7)
        return response

    async def share_stream(self, stream: ServerStream) -> None:
        self.contexts.append(stream.context)
        try:
            while (request := await stream.read()) is not None:
                if request.correlation_id == 99:
                    return
                if request.correlation_id == 98:
                    raise RuntimeError("secret detail")
                await stream.write(share_stream_pb2.ShareStreamResponse(correlation_id=request.correlation_id))
        finally:
            await self.ended.put("ended")


@dataclass
class Wire:
    service: Echo
    transport: Transport
    address: str
    stop: Callable[[], Awaitable[None]]
    server: RpcServer | None = None

    async def find(self, key: str, timeout_s: float = 5.0) -> Message:
        request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=[key])
        return await self.transport.call(self.address, FIND, request, timeout_s)


@pytest_asyncio.fixture(params=["grpc", "memory"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    service = Echo()
    if request.param == "memory":
        network = InMemoryNetwork()
        for descriptor in (CLUSTER, LEADER):
            network.serve("node:1", descriptor, service)

        async def stop() -> None:
            network.stop("node:1")

        memory = network.transport()
        yield Wire(service, memory, "node:1", stop)
        await memory.close()
        return
    server = RpcServer("127.0.0.1")
    for descriptor in (CLUSTER, LEADER):
        server.add(descriptor, service)
    await server.start()
    transport = GrpcTransport()
    yield Wire(service, transport, server.address, lambda: server.drain(0), server)
    await transport.close()
    await server.drain(0)


async def test_a_unary_call_reaches_the_method_and_knows_its_peer(wire: Wire) -> None:
    response = await wire.find("group")
    assert response.coordinators[0].node_id == 7  # type: ignore[attr-defined]
    (context,) = wire.service.contexts
    assert context.peer == "127.0.0.1"
    assert 4 < (context.deadline_s or 0) < 6


async def status_of(call: Awaitable[object]) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await call
    return caught.value


async def test_methods_the_service_lacks_are_unimplemented(wire: Wire) -> None:
    error = await status_of(wire.transport.call(wire.address, METADATA, metadata_pb2.MetadataRequest(), 5))
    assert error.status is TransportStatus.UNIMPLEMENTED
    assert not error.retriable


async def test_a_bug_in_a_handler_is_internal_and_keeps_its_details(wire: Wire) -> None:
    error = await status_of(wire.find("bug"))
    assert error.status is TransportStatus.INTERNAL
    assert "secret" not in str(error)


async def test_kafka_errors_that_leave_a_handler_have_a_status(wire: Wire) -> None:
    assert (await status_of(wire.find("kafka"))).status is TransportStatus.UNAVAILABLE
    assert (await status_of(wire.find("invalid"))).status is TransportStatus.INVALID_ARGUMENT


async def test_a_deadline_ends_the_call(wire: Wire) -> None:
    assert (await status_of(wire.find("slow", 0.05))).status is TransportStatus.DEADLINE_EXCEEDED


async def test_no_listener_is_unavailable(wire: Wire) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        call = wire.transport.call(address, FIND, find_coordinator_pb2.FindCoordinatorRequest(), 5)
        assert (await status_of(call)).status is TransportStatus.UNAVAILABLE


@pytest.mark.rule("P-4")
async def test_a_stream_carries_messages_both_ways_in_order(wire: Wire) -> None:
    stream = await wire.transport.open_stream(wire.address, STREAM)
    for number in range(20):
        await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=number))
    answers = [await stream.read() for _ in range(20)]
    assert [answer.correlation_id for answer in answers if answer] == list(range(20))  # type: ignore[attr-defined]
    await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=99))
    assert await stream.read() is None
    await stream.close()


@pytest.mark.rule("PL-524")
async def test_closing_a_stream_ends_its_handler(wire: Wire) -> None:
    stream = await wire.transport.open_stream(wire.address, STREAM)
    await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=1))
    assert await stream.read() is not None
    await stream.close()
    assert await asyncio.wait_for(wire.service.ended.get(), 30) == "ended"
    assert (await status_of(stream.read())).status is TransportStatus.CANCELLED
    assert (await status_of(stream.write(share_stream_pb2.ShareStreamRequest()))).status is TransportStatus.CANCELLED


async def test_a_bug_in_a_stream_handler_breaks_the_stream(wire: Wire) -> None:
    stream = await wire.transport.open_stream(wire.address, STREAM)
    await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=98))
    assert (await status_of(stream.read())).status is TransportStatus.INTERNAL
    await stream.close()


@pytest.mark.rule("PL-524")
async def test_calls_and_streams_of_one_transport_share_a_connection_and_others_do_not(wire: Wire) -> None:
    stream = await wire.transport.open_stream(wire.address, STREAM)
    await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=1))
    await stream.read()
    await wire.find("group")
    assert len({context.connection_id for context in wire.service.contexts}) == 1
    if wire.server is not None:
        other = GrpcTransport()
        await other.call(wire.address, FIND, find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["g"]), 5)
        await other.close()
        assert len({context.connection_id for context in wire.service.contexts}) == 2
    await stream.close()


async def test_a_node_that_stops_breaks_open_calls_and_streams(wire: Wire) -> None:
    stream = await wire.transport.open_stream(wire.address, STREAM)
    await stream.write(share_stream_pb2.ShareStreamRequest(correlation_id=1))
    await stream.read()
    slow = asyncio.create_task(wire.find("slow"))
    await asyncio.sleep(0.05)
    await wire.stop()
    assert (await status_of(slow)).retriable
    assert (await status_of(stream.read())).retriable
    await stream.close()


@pytest.mark.rule("CM-80")
async def test_a_call_of_a_service_that_a_port_does_not_serve_is_unimplemented_and_its_request_is_not_read() -> None:
    """CM-80 (d), on any port of a server that serves other services. Other tests show which services a node's ports
    have."""
    served = Echo()
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, served)
    await server.start()
    request = share_stream_pb2.ShareStreamRequest(correlation_id=1).SerializeToString()
    async with grpc.aio.insecure_channel(server.address) as channel:
        for path in (STREAM.path, METADATA.path):  # another service, and a method that the object does not implement
            call: Any = channel.unary_unary(path)
            for sent in (request, b"\xff\xff\xff"):  # an undecodable request gets the same status, unread
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(sent)
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        found: Any = channel.unary_unary(FIND.path)
        assert await found(find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["k"]).SerializeToString())
    assert len(served.contexts) == 1
    await server.drain(0)


async def test_undecodable_bytes_are_an_invalid_argument() -> None:
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, Echo())
    await server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.unary_unary(FIND.path)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"\xff\xff\xff")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await server.drain(0)


async def test_health_follows_start_ready_and_drain() -> None:
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, Echo())
    await server.start()

    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def status(name: str) -> str:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
            return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

        assert [await status(n) for n in ("startup", "liveness", "readiness")] == [
            "NOT_SERVING",
            "SERVING",
            "NOT_SERVING",
        ]
        await server.ready(True)
        assert [await status(n) for n in ("startup", "liveness", "readiness")] == ["SERVING"] * 3
        await server.ready(False)
        assert [await status(n) for n in ("startup", "readiness")] == ["SERVING", "NOT_SERVING"]
        with pytest.raises(grpc.aio.AioRpcError, match="Check alone"):
            await stub.Watch(health_pb2.HealthCheckRequest(service="readiness")).read()
    await server.drain(0.1)


async def test_a_taken_port_and_a_reachable_plaintext_address_are_refused_with_advice() -> None:
    first = RpcServer("127.0.0.1")
    await first.start()
    second = RpcServer("127.0.0.1", first.port)
    with pytest.raises(ListenError, match="another process may have the port"):
        await second.start()
    with pytest.raises(ListenError, match="without TLS"):
        await RpcServer("0.0.0.0").start()
    allowed = RpcServer("0.0.0.0", options=RpcOptions(allow_plaintext=True))
    assert await allowed.start() > 0
    for server in (first, second, allowed):
        await server.drain(0)


async def test_drain_waits_for_a_call_that_ends_in_time() -> None:
    service = Echo()
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, service)
    await server.start()
    transport = GrpcTransport()
    request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["slow"])
    slow = asyncio.create_task(transport.call(server.address, FIND, request, 10))
    await asyncio.sleep(0.05)
    asyncio.get_running_loop().call_later(0.05, service.release.set)
    await server.drain(5)
    assert (await slow).coordinators[0].node_id == 7  # type: ignore[attr-defined]
    await transport.close()


async def test_names_of_methods_follow_the_rpcs() -> None:
    assert [snake_case(name) for name in ("ShareGroupHeartbeat", "Produce", "InitProducerId", "WriteTxnMarkers")] == [
        "share_group_heartbeat",
        "produce",
        "init_producer_id",
        "write_txn_markers",
    ]


async def test_a_service_without_any_method_of_the_descriptor_is_a_wrong_pairing() -> None:
    with pytest.raises(TypeError, match="find_coordinator"):
        RpcServer("127.0.0.1").add(CLUSTER, object())


async def test_a_call_that_fails_again_and_again_leaves_one_trace() -> None:
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, Echo())
    await server.start()
    transport = GrpcTransport()
    try:
        with capture_logs() as lines:
            request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["bug"])
            for _ in range(200):
                with pytest.raises(TransportError):
                    await transport.call(server.address, FIND, request, 5)
        reported = [line for line in lines if line["event"] == "call_failed"]
        assert 1 <= len(reported) <= 1 + 60 // 10, "one at once, and one per ten seconds for a very slow machine"
        assert isinstance(reported[0]["exc_info"], RuntimeError)
        assert "exc_info" not in reported[-1] or len(reported) == 1
    finally:
        await transport.close()
        await server.drain(0)


@pytest.mark.rule("CM-240")
async def test_a_failed_call_and_its_line_have_the_same_id() -> None:
    server, out = RpcServer("127.0.0.1"), io.StringIO()
    server.add(CLUSTER, Echo())
    await server.start()
    configure_logs("info", "json", out)
    try:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call: Any = channel.unary_unary(FIND.path)
            request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["bug"]).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await call(request, metadata=(("x-request-id", "abc-7"), (CLIENT_ID_KEY, "me")))
    finally:
        structlog.reset_defaults()
        await server.drain(0)
    assert failed.value.details() == "the server met an unexpected RuntimeError; see its log, request abc-7"
    (line,) = (json.loads(line) for line in out.getvalue().splitlines() if "call_failed" in line)
    assert (line["request_id"], line["client_id"]) == ("abc-7", "me")


@pytest.mark.rule("CM-4")
async def test_a_stream_that_stays_open_ends_soon_and_a_call_gets_its_time() -> None:
    """If both got one second, calls would be cut off; if both got all of drain.grace.ms, it would wait for idle
    streams."""
    service = Echo()
    server = RpcServer("127.0.0.1")
    server.add(CLUSTER, service)
    server.add(LEADER, service)
    await server.start()
    transport = GrpcTransport()
    stream = await transport.open_stream(server.address, STREAM)
    request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["slow"])
    call = asyncio.create_task(transport.call(server.address, FIND, request, 600))
    try:
        while not service.contexts:  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.01)
        draining = asyncio.create_task(server.drain(600, 0.05))
        await asyncio.sleep(1.5)  # longer than a stream gets, and longer than a call used to get
        assert not draining.done()
        service.release.set()
        assert await call
        await asyncio.wait_for(draining, 60)
    finally:
        await stream.close()
        await transport.close()


async def test_a_server_that_took_its_port_and_never_started_gives_it_back() -> None:
    """A process that fails to join its cluster tries again on the same port."""
    first = RpcServer("127.0.0.1")
    port = first.listen()
    await first.drain(0)
    second = RpcServer("127.0.0.1", port)
    assert await second.start() == port
    await second.drain(0)


@pytest.mark.rule("CM-61")
async def test_without_tls_a_port_for_nodes_refuses_no_caller_and_describes_nothing() -> None:
    access = Access()
    server = RpcServer("127.0.0.1", access=access, peers_only=True)
    server.add(CLUSTER, Echo())
    address = f"127.0.0.1:{await server.start()}"
    transport = GrpcTransport()
    try:
        request = find_coordinator_pb2.FindCoordinatorRequest(coordinator_keys=["g"])
        found: Any = await transport.call(address, FIND, request, 5.0)
        assert found.coordinators[0].node_id == 7
        assert not access.refused
        async with grpc.aio.insecure_channel(address) as channel:
            reflection: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await reflection(iter([b""])).read()
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    finally:
        await transport.close()
        await server.drain(0)
