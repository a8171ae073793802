"""TLS on a real server: whom it accepts, the error that others get, and certificates that change (CM-60)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]  # it ships no types

from kip932.handshakes import is_about_handshake
from kip932.http_endpoint import HttpEndpoint
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.server import HealthServer, RpcOptions, RpcServer, accept_probe, watch_accepting
from shard_runtime.rpc.unfinished import CUT_MIN_BYTES
from share_node.certs import Authority
from tests.integration.runtime.test_rpc import CLUSTER, FIND, LEADER, STREAM, Echo
from tests.support.certificates import files_in, install, odd_pair

pytestmark = pytest.mark.asyncio

AUTHORITY = Authority.made()
STRANGERS = Authority.made()
NODE = AUTHORITY.issue("node-1", ["127.0.0.1"])
ALICE = AUTHORITY.issue("alice")
MALLORY = STRANGERS.issue("mallory")

Pair = tuple[bytes, bytes]


class Node:
    """A server with TLS; its files are in `folder`."""

    def __init__(self, folder: Path, *, client_required: bool, options: RpcOptions | None = None) -> None:
        self.folder = folder
        self.install(NODE)
        self.certificates = NodeCertificates(files_in(folder))
        self.service = Echo()
        self.server = RpcServer("127.0.0.1", 0, options, self.certificates, client_required=client_required)
        for descriptor in (CLUSTER, LEADER):
            self.server.add(descriptor, self.service)

    def install(self, pair: Pair, authorities: bytes = AUTHORITY.certificate) -> None:
        install(files_in(self.folder), pair, authorities)

    async def find(self, transport: GrpcTransport, key: str = "k") -> Message:
        return await find_at(self.server.address, transport, key)


async def find_at(address: str, transport: GrpcTransport, key: str = "k") -> Message:
    return await transport.call(address, FIND, FIND.request_type(coordinator_keys=[key]), 5.0)


def with_tls(pair: Pair | None = ALICE, trusts: bytes = AUTHORITY.certificate) -> GrpcTransport:
    certificate, key = pair or (None, None)
    credentials = grpc.ssl_channel_credentials(trusts, key, certificate)
    return GrpcTransport(lambda: credentials)


@contextlib.asynccontextmanager
async def _started(folder: Path, *, client_required: bool, options: RpcOptions | None = None) -> AsyncIterator[Node]:
    node = Node(folder, client_required=client_required, options=options)
    await node.server.start()
    try:
        yield node
    finally:
        await node.server.drain(0)


@pytest_asyncio.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Node]:
    """A server that requires a certificate of its clients."""
    async with _started(tmp_path, client_required=True) as node:
        yield node


@pytest_asyncio.fixture
async def open_to_all(tmp_path: Path) -> AsyncIterator[Node]:
    """A server that does not ask clients for a certificate."""
    async with _started(tmp_path, client_required=False) as node:
        yield node


@pytest.mark.rule("CM-60", "CM-164")
async def test_a_caller_is_who_its_certificate_says_in_calls_and_streams(strict: Node) -> None:
    transport = with_tls()
    await strict.find(transport)
    stream = await transport.open_stream(strict.server.address, STREAM)
    await stream.write(STREAM.request_type(correlation_id=3))
    assert await stream.read() is not None
    assert [context.principal for context in strict.service.contexts] == ["User:alice"] * 2
    await stream.close()
    await transport.close()


@pytest.mark.rule("CM-60")
async def test_who_is_not_asked_for_a_certificate_has_no_principal(open_to_all: Node) -> None:
    for transport in (with_tls(None), with_tls(MALLORY)):
        await open_to_all.find(transport)
        assert open_to_all.service.contexts[-1].principal is None
        await transport.close()


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("client", "said"),
    [
        (lambda: with_tls(None), "perhaps it requires a client certificate (ssl.certificate.location)"),
        (lambda: with_tls(MALLORY), "or did not accept this one"),
        (lambda: with_tls(trusts=STRANGERS.certificate), "not issued by an authority in ssl.ca.location"),
        (GrpcTransport, "if it serves TLS, security.protocol=SSL is missing here"),
    ],
    ids=["no certificate", "of another authority", "the node is of another authority", "no TLS"],
)
async def test_who_does_not_get_in_hears_what_it_may_be(
    strict: Node, client: Callable[[], GrpcTransport], said: str
) -> None:
    transport = client()
    with pytest.raises(TransportError) as refused:
        await strict.find(transport)
    assert refused.value.status is TransportStatus.UNAVAILABLE
    assert said in str(refused.value)
    assert strict.service.contexts == []
    await transport.close()


@pytest.mark.rule("CM-60")
async def test_a_certificate_for_another_host_and_a_port_without_tls_are_named(tmp_path: Path) -> None:
    node = Node(tmp_path, client_required=True)
    node.install(AUTHORITY.issue("node-1", ["node.example"]))
    node.certificates.reload()
    await node.server.start()
    plain = RpcServer("127.0.0.1")
    plain.add(CLUSTER, Echo())
    await plain.start()
    transport = with_tls()
    for address, said in (
        (node.server.address, "its certificate is for other names and addresses than the one called"),
        (plain.address, "nothing there speaks TLS"),
    ):
        with pytest.raises(TransportError) as refused:
            await find_at(address, transport)
        assert said in str(refused.value)
    await transport.close()
    await plain.drain(0)
    await node.server.drain(0)


@pytest.mark.rule("CM-60")
@pytest.mark.parametrize(
    ("client", "said"),
    [
        (with_tls, "is it a port without TLS, such as metrics.port?"),
        (GrpcTransport, "an HTTP server is there, not a node's listen.port; is it a node's metrics.port?"),
    ],
    ids=["TLS", "no TLS"],
)
async def test_the_port_for_metrics_called_by_a_client_is_named(client: Callable[[], GrpcTransport], said: str) -> None:
    endpoint = HttpEndpoint({})
    address = f"127.0.0.1:{await endpoint.open('127.0.0.1', 0)}"
    transport = client()
    with pytest.raises(TransportError) as refused:
        await find_at(address, transport)
    assert said in str(refused.value)
    assert is_about_handshake(str(refused.value))
    await transport.close()
    await endpoint.close()


@pytest.mark.rule("CM-60")
async def test_a_node_that_dies_is_not_taken_for_a_question_of_certificates(strict: Node) -> None:
    transport = with_tls()
    slow = asyncio.ensure_future(strict.find(transport, "slow"))
    await asyncio.sleep(0.1)
    await strict.server.drain(0)
    with pytest.raises(TransportError) as lost:
        await slow
    assert "certificate" not in str(lost.value)
    with pytest.raises(TransportError) as unreached:
        await strict.find(transport)
    assert "certificate" not in str(unreached.value)
    await transport.close()


@pytest.mark.rule("CM-60")
async def test_new_files_are_used_for_new_connections_and_old_connections_stay(strict: Node) -> None:
    """The CA is replaced as an operator would do it: first both are trusted, then only the new one."""
    old = with_tls()
    await strict.find(old)
    both = AUTHORITY.certificate + STRANGERS.certificate
    strict.install(STRANGERS.issue("node-1", ["127.0.0.1"]), both)
    strict.certificates.reload()
    new = with_tls(MALLORY, STRANGERS.certificate)
    await strict.find(new)
    assert strict.service.contexts[-1].principal == "User:mallory"
    await strict.find(with_tls(ALICE, STRANGERS.certificate))

    strict.install(STRANGERS.issue("node-1", ["127.0.0.1"]), STRANGERS.certificate)
    strict.certificates.reload()
    with pytest.raises(TransportError, match="did not accept this one"):
        await strict.find(with_tls(ALICE, STRANGERS.certificate))
    await strict.find(old)
    assert strict.service.contexts[-1].principal == "User:alice", "an open connection is not asked again"


@pytest.mark.rule("CM-60")
async def test_files_that_cannot_be_used_change_nothing_for_anybody(strict: Node) -> None:
    strict.install((b"garbage", b"garbage"), b"garbage")
    strict.certificates.reload()
    transport = with_tls()
    await strict.find(transport)
    await transport.close()


@pytest.mark.rule("CM-85")
@pytest.mark.parametrize("of", [("127.0.0.1",), ("node.example",), ("::1", "a.example")])
async def test_a_node_calls_itself_whatever_its_certificate_is_for(tmp_path: Path, of: tuple[str, ...]) -> None:
    node = Node(tmp_path, client_required=True)
    node.install(AUTHORITY.issue("node-1", of))
    node.certificates.reload()
    await node.server.start()
    accepted = node.server._server.accepted
    assert await accept_probe("127.0.0.1", node.server.port, node.certificates)()
    assert node.server._server.accepted == accepted + 1, "it was a call, not just a handshake"
    await node.server.drain(0)
    assert not await accept_probe("127.0.0.1", node.server.port, node.certificates)()


@pytest.mark.rule("CM-85")
@pytest.mark.parametrize(
    ("names", "common"),
    [
        ([x509.UniformResourceIdentifier("spiffe://example/node")], ""),
        ([x509.DNSName("a" * 60 + ".b" * 100)], "node"),
        ([], ""),
    ],
    ids=["a URI alone", "a long name", "no name"],
)
async def test_a_certificate_without_a_name_to_call_does_not_end_the_node(
    strict: Node, names: list[x509.GeneralName], common: str
) -> None:
    strict.install(odd_pair(AUTHORITY, ec.generate_private_key(ec.SECP256R1()), names, common))
    assert strict.certificates.reload()
    assert await accept_probe("127.0.0.1", strict.server.port, strict.certificates)()


@pytest.mark.rule("CM-60")
async def test_a_channel_that_lost_its_node_connects_again_with_the_newest_files(strict: Node) -> None:
    """Both ends get another CA. A gRPC channel would keep using the one that it was created with."""
    newest = [grpc.ssl_channel_credentials(AUTHORITY.certificate, ALICE[1], ALICE[0])]
    transport = GrpcTransport(lambda: newest[-1])
    await strict.find(transport)
    port = strict.server.port
    await strict.server.drain(0)
    strict.install(STRANGERS.issue("node-1", ["127.0.0.1"]), STRANGERS.certificate)
    strict.certificates.reload()
    again = RpcServer("127.0.0.1", port, None, strict.certificates)
    again.add(CLUSTER, strict.service)
    await again.start()
    newest.append(grpc.ssl_channel_credentials(STRANGERS.certificate, MALLORY[1], MALLORY[0]))
    failed = 0
    for _ in range(20):
        try:
            await strict.find(transport)
            break
        except TransportError:
            failed += 1
    assert failed <= 2, "the client must reconnect soon, not only after the time-out for a lost peer"
    await transport.close()
    await again.drain(0)


@pytest.mark.rule("CM-85")
async def test_a_certificate_that_is_not_for_clients_does_not_end_the_node(strict: Node) -> None:
    """The server refuses its own certificate when used by a client, since another CA than the one for clients issued
    it."""
    strict.install(NODE, STRANGERS.certificate)
    strict.certificates.reload()
    assert await accept_probe("127.0.0.1", strict.server.port, strict.certificates)()


@pytest.mark.rule("CM-85")
async def test_a_port_that_takes_connections_and_says_nothing_is_found(strict: Node) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    probe = accept_probe("127.0.0.1", listener.sockets[0].getsockname()[1], strict.certificates)
    async with asyncio.timeout(30):
        await watch_accepting(probe, lambda: 0, every_s=0.01, turn_s=0.01, turns=20)
    listener.close()


@pytest.mark.rule("CM-93")
async def test_the_bytes_of_tls_are_not_taken_for_unfinished_messages(strict: Node) -> None:
    transport = with_tls()
    for _ in range(1_500):
        await strict.find(transport, "k" * 60)
    await strict.find(transport, "k" * 200)
    long = [f"{number:07}" + "k" * 200 for number in range(1_000)]
    for _ in range(20):
        await transport.call(strict.server.address, FIND, FIND.request_type(coordinator_keys=long), 10.0)
    await strict.server.unfinished.check()
    assert strict.server.unfinished.unfinished_bytes < CUT_MIN_BYTES // 16
    await transport.close()


@pytest.mark.rule("CM-60")
async def test_the_port_for_health_serves_health_alone_without_tls(strict: Node) -> None:
    port = HealthServer("127.0.0.1", 0, strict.server.health)
    number = await port.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{number}") as channel:
        for serving in (False, True):
            await strict.server.ready(serving)
            answer: Any = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service="readiness")
            )
            assert (answer.status == health_pb2.HealthCheckResponse.SERVING) is serving
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="readiness"))
        with pytest.raises(grpc.aio.AioRpcError, match="serves Check alone"):  # streams would keep probes out
            await watched.read()
    transport = GrpcTransport()
    with pytest.raises(TransportError) as refused:
        await find_at(f"127.0.0.1:{number}", transport)
    assert refused.value.status is TransportStatus.UNIMPLEMENTED
    assert strict.service.contexts == []
    await transport.close()
    await port.stop()


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "half a ClientHello"])
@pytest.mark.rule("CM-197")
async def test_a_handshake_that_is_left_half_finished_is_ended(tmp_path: Path, said: bytes) -> None:
    assert ("grpc.server_handshake_timeout_ms", 20_000) in RpcOptions().channel_arguments()
    async with _started(tmp_path, client_required=True, options=RpcOptions(handshake_ms=300)) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.server.port)
        writer.write(said)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        alice = with_tls()
        await node.find(alice)
        await asyncio.sleep(0.5)  # a connection whose handshake is complete stays open
        await node.find(alice)
        await alice.close()
