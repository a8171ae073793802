"""A caller is identified by its token, password or certificate, over real gRPC (CM-186, CM-187)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from kip932.errors import SaslAuthenticationFailedError, ThrottlingQuotaExceededError
from kip932.principal_rules import DEFAULT_RULES, parse_rules
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.rpc import token_sources
from shard_runtime.rpc.authentication import (
    ANONYMOUS,
    PASSWORD,
    PASSWORDS_PER_HOST_MAX,
    TOKEN,
    Authentication,
    Identity,
    certificate_identity,
)
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.server import RpcServer
from shard_runtime.rpc.token_sources import Source, file_reader, https_reader
from shard_runtime.rpc.tokens import ContentsError, Policy, check_token, parse_keys, parse_static_tokens
from share_node.certs import Authority
from sharegroups.config import ADMIN, Config
from sharegroups.connection.security import transport_for
from tests.integration.runtime.test_rpc import CLUSTER, FIND, LEADER, STREAM, Echo
from tests.support.certificates import node_files, odd_pair
from tests.unit.shard_runtime.rpc.test_tokens import EC, RSA, jwk, token

pytestmark = pytest.mark.asyncio


class Node:
    """A server that accepts tokens; its files are in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.static_file, self.keys_file = folder / "tokens", folder / "keys.json"
        self.write_static("User:alice one\nUser:bob two\n")
        self.write_keys(jwk(RSA, "r"))
        self.static = Source("tokens", "tokens", file_reader(self.static_file), parse_static_tokens, self._changed)
        self.keys = Source("keys", "keys", file_reader(self.keys_file), lambda text, _: parse_keys(text), self._changed)
        self.static.load()
        self.keys.load()
        self.authentication = Authentication(keys=self.keys, static=self.static, policy=Policy(skew_s=0))
        self.service = Echo()
        self.server = RpcServer("127.0.0.1", authentication=self.authentication)
        for descriptor in (CLUSTER, LEADER):
            self.server.add(descriptor, self.service)

    def _changed(self) -> None:
        self.authentication.changed()

    def write_static(self, text: str) -> None:
        self.static_file.write_text(text)
        self.static_file.chmod(0o600)

    def write_keys(self, *keys: dict[str, Any]) -> None:
        self.keys_file.write_text(json.dumps({"keys": keys}))

    async def who(self, *authorization: str) -> str | None:
        """Return the principal of a call with this metadata. Raises TransportError."""
        metadata = tuple(("authorization", each) for each in authorization)
        transport = GrpcTransport(None, lambda: metadata)
        try:
            await transport.call(self.server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)
        finally:
            await transport.close()
        principal: str | None = self.service.contexts[-1].principal
        return principal

    async def refusal(self, *authorization: str) -> str:
        handled = len(self.service.contexts)
        with pytest.raises(TransportError) as refused:
            await self.who(*authorization)
        assert refused.value.status is TransportStatus.UNAUTHENTICATED, refused.value
        assert len(self.service.contexts) == handled
        return str(refused.value)


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    await made.server.start()
    yield made
    await made.server.drain(0)


def lasting(seconds: float = 60, **more: Any) -> str:
    return "Bearer " + token(exp=time.time() + seconds, **more)


@pytest.mark.rule("CM-186")
async def test_tokens_name_callers_and_bad_ones_are_no_one(node: Node) -> None:
    assert await node.who() is None
    assert await node.who("Bearer one") == "User:alice"
    assert await node.who("bearer two") == "User:bob"
    assert await node.who(lasting(sub="carol")) == "User:carol"
    with capture_logs() as logs:
        for bad, said in (
            ("Bearer three", "not a JWT"),
            ("Bearer one, Bearer two", "not a JWT"),
            ("", "neither"),
            ("Digest x", "neither"),
            ("Basic " + base64.b64encode(b"alice:secret").decode(), "takes no passwords"),
            ("Bearer " + "x" * 7_200, "more than 7168"),
            (lasting(-1), "the token expired at"),
        ):
            assert said in await node.refusal(bad)
        assert "not a JWT" in await node.refusal("Bearer one", "Bearer two")
    refused = [line for line in logs if line["event"] == "authentication_refused"]
    assert refused
    assert {line["host"] for line in refused} == {"127.0.0.1"}
    assert "secret" not in str(refused)
    assert node.authentication.failures["token", "malformed"] == 3
    assert node.authentication.failures["password", "not taken"] == 1


@pytest.mark.rule("CM-186")
async def test_a_header_of_a_megabyte_harms_no_one(node: Node) -> None:
    with pytest.raises(TransportError):
        await node.who("Bearer " + "x" * (1 << 20))
    assert await node.who("Bearer one") == "User:alice"


@pytest.mark.rule("CM-186")
async def test_a_node_without_such_settings_and_the_port_for_nodes_refuse_tokens(node: Node) -> None:
    for authentication, said in (
        (Authentication(), "takes no tokens"),
        (Authentication(for_nodes=True), "the port for nodes"),
    ):
        other = RpcServer("127.0.0.1", authentication=authentication)
        other.add(CLUSTER, node.service)
        await other.start()
        mine, node.server = node.server, other
        assert said in await node.refusal("Bearer one")
        assert await node.who() is None
        node.server = mine
        await other.drain(0)


@pytest.mark.rule("CM-186")
async def test_a_changed_file_of_tokens_counts_at_once_and_a_bad_one_does_not(node: Node) -> None:
    assert await node.who("Bearer one") == "User:alice"
    node.write_static("User:carol one\n")
    assert await node.static.reload()
    assert await node.who("Bearer one") == "User:carol"
    assert "not a JWT" in await node.refusal("Bearer two")
    with capture_logs() as logs:
        node.write_static("garbage")
        assert not await node.static.reload()
        assert not await node.static.reload()
    assert [line["event"] for line in logs] == ["credentials_unusable"]
    assert await node.who("Bearer one") == "User:carol"
    assert node.static.failures == 1


@pytest.mark.rule("CM-186")
async def test_a_new_key_is_found_by_the_first_token_that_has_it_but_not_for_each_one(node: Node) -> None:
    made = lasting(key=EC, algorithm="ES256", kid="new")
    assert "'new'" in await node.refusal(made)
    node.write_keys(jwk(RSA, "r"), jwk(EC, "new"))
    assert "'new'" in await node.refusal(made)  # the first such token has just caused a reload
    node.keys._asked_s -= token_sources.ASK_AGAIN_S
    assert await node.who(made) == "User:alice"
    node.write_keys(jwk(EC, "new"))
    await node.keys.reload()
    assert "'r'" in await node.refusal(lasting())
    node.keys_file.write_text("garbage")
    assert not await node.keys.reload()
    assert await node.who(made) == "User:alice"


@pytest.mark.rule("CM-186")
async def test_without_keys_yet_tokens_are_unavailable(node: Node) -> None:
    node.keys.current = None
    with pytest.raises(TransportError, match="no keys to check tokens") as refused:
        await node.who(lasting())
    assert refused.value.status is TransportStatus.UNAVAILABLE


async def _ended(node: Node, authorization: str, act: Callable[[], Any]) -> str:
    """Open a stream, act, and return how it ends while it is idle."""
    transport = GrpcTransport(None, lambda: (("authorization", authorization),))
    stream = await transport.open_stream(node.server.address, STREAM)
    try:
        await stream.write(STREAM.request_type(correlation_id=3))
        assert await stream.read() is not None
        act()
        with pytest.raises(TransportError) as end:
            await asyncio.wait_for(stream.read(), 30)
        assert end.value.status is TransportStatus.UNAUTHENTICATED, end.value
        return str(end.value)
    finally:
        await stream.close()
        await transport.close()


@pytest.mark.rule("CM-186")
async def test_an_idle_stream_ends_with_its_token(node: Node) -> None:
    began = time.monotonic()
    assert "the token expired at 20" in await _ended(node, lasting(1.0), lambda: None)
    assert time.monotonic() - began > 0.5
    assert not node.authentication._streams


@pytest.mark.rule("CM-199")
async def test_a_stream_is_asked_to_move_before_its_token_ends_and_after_each_move_later(node: Node) -> None:
    now_s, asked_s = time.time(), list[float]()
    authentication = Authentication(keys=node.keys, now=lambda: now_s + sum(asked_s))
    identity = Identity("User:alice", TOKEN, int((now_s + 3_600) * 1000))
    while (move_in_s := authentication.move_in_s(identity)) is not None:
        left_s = 3_600 - sum(asked_s)
        assert 0.799 * left_s <= move_in_s <= 0.901 * left_s
        asked_s.append(move_in_s)
    assert 4 <= len(asked_s) <= 6
    assert 0 < 3_600 - sum(asked_s) < 1.01
    for other in (Identity("User:alice", PASSWORD), Identity("User:alice", TOKEN, int(now_s * 1000))):
        assert authentication.move_in_s(other) is None


@pytest.mark.rule("CM-199")
async def test_a_handler_learns_when_to_move_by_the_token_or_by_the_connection_if_that_is_sooner(node: Node) -> None:
    for authorization in (lasting(100), lasting(1e6), "Bearer one"):
        await node.who(authorization)
    soon, later, age = (each.move_in_s for each in node.service.contexts[-3:])
    assert soon is not None
    assert 70 < soon <= 90
    assert later is not None
    assert age is not None
    assert min(later, age) > 1_200, "the connection's age comes first"


@pytest.mark.rule("CM-186")
@pytest.mark.parametrize("text", ["User:bob two\n", "User:carol one\n"], ids=["taken away", "another user's"])
async def test_a_stream_ends_when_its_token_is_taken_away(node: Node, text: str) -> None:
    def take_away() -> None:
        node.write_static(text)
        task = asyncio.get_running_loop().create_task(node.static.reload())
        tasks.add(task)

    tasks: set[Any] = set()
    said = await _ended(node, "Bearer one", take_away)
    assert "not a JWT" in said or "another user's" in said


@pytest.mark.rule("CM-186")
async def test_a_password_is_checked_once_until_it_changes(node: Node) -> None:
    passwords, asked, version = {"al:ice": "x", "alice": "pass:word"}, list[str](), [0]

    async def check(name: str, password: str) -> bool:
        asked.append(name)
        await asyncio.sleep(0)
        return passwords.get(name) == password

    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    node.authentication.take_passwords(check, lambda: version[0])
    for _ in range(3):
        assert await node.who(basic("alice:pass:word")) == "User:alice"
    assert asked == ["alice"]
    assert "no user 'alice' with this password" in await node.refusal(basic("alice:wrong"))
    assert "no user 'eve' with this password" in await node.refusal(basic("eve:"))
    for bad in ("Basic !", basic("alice"), basic(":x"), "Basic " + base64.b64encode(b"\xff:x").decode()):
        assert "the authorization" in await node.refusal(bad)
    passwords["alice"] = "new"
    version[0] += 1
    assert "no user" in await node.refusal(basic("alice:pass:word"))
    assert "pass:word" not in await node.refusal(basic("alice:pass:word"))


@pytest.mark.rule("CM-186")
async def test_calls_at_the_same_time_share_a_check_and_one_that_leaves_ends_none() -> None:
    going, asked = asyncio.Event(), 0

    async def check(name: str, password: str) -> bool:
        nonlocal asked
        asked += 1
        await going.wait()
        return True

    authentication = Authentication()
    authentication.take_passwords(check, lambda: 0)
    basic = "Basic " + base64.b64encode(b"alice:x").decode()
    first, second = (asyncio.ensure_future(authentication.check(basic)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    going.set()
    assert (await second).principal == "User:alice"
    assert asked == 1
    assert authentication.known(basic) == Identity("User:alice", "password", None)


@pytest.mark.rule("CM-190")
async def test_strangers_at_one_host_do_not_take_the_places_of_callers_at_another() -> None:
    going, asked = asyncio.Event(), 0

    async def check(name: str, password: str) -> bool:
        nonlocal asked
        asked += 1
        await going.wait()
        return name == "alice"

    authentication = Authentication()
    authentication.take_passwords(check, lambda: 0)

    def basic(name: str) -> str:
        return "Basic " + base64.b64encode(f"{name}:x".encode()).decode()

    strangers = [asyncio.ensure_future(authentication.check(basic(f"s{n}"), "10.0.0.6")) for n in range(250)]
    await asyncio.sleep(0.01)
    alice = asyncio.ensure_future(authentication.check(basic("alice"), "10.0.0.7"))
    await asyncio.sleep(0.01)
    assert asked == PASSWORDS_PER_HOST_MAX + 1
    going.set()
    assert (await alice).principal == "User:alice"
    ended = await asyncio.gather(*strangers, return_exceptions=True)
    throttled = [each for each in ended if isinstance(each, ThrottlingQuotaExceededError)]
    assert len(throttled) == 250 - PASSWORDS_PER_HOST_MAX
    await authentication.check(basic("alice"), "10.0.0.6")  # the places are given back


AUTHORITY = Authority.made()


@pytest.mark.rule("CM-187")
async def test_names_from_certificates() -> None:
    alice, _ = AUTHORITY.issue("alice")
    spiffe = x509.UniformResourceIdentifier("spiffe://example/worker")
    unnamed, _ = odd_pair(AUTHORITY, ec.generate_private_key(ec.SECP256R1()), [spiffe])
    neither, _ = odd_pair(AUTHORITY, ec.generate_private_key(ec.SECP256R1()))
    lower = parse_rules("RULE:CN=(.*)/$1/U")
    assert certificate_identity(alice, DEFAULT_RULES) == Identity("User:alice", "certificate")
    assert certificate_identity(alice, lower) == Identity("User:ALICE", "certificate")
    assert certificate_identity(unnamed, DEFAULT_RULES) == Identity("User:spiffe://example/worker", "certificate")
    assert certificate_identity(neither, DEFAULT_RULES) == Identity(None, ANONYMOUS)
    authentication = Authentication(rules=lower)
    assert authentication.name_of(alice) == "User:ALICE"
    connection = {"x509_common_name": [b"alice"], "x509_pem_cert": [alice]}
    assert authentication.known(None, lambda: connection) == Identity("User:ALICE", "certificate")
    with pytest.raises(SaslAuthenticationFailedError, match=r"no rule of ssl\.principal"):
        authentication.known(None, lambda: {"x509_pem_cert": [unnamed]})
    assert authentication.failures["certificate", "no rule"] == 1


@pytest.mark.rule("CM-186")
async def test_a_key_set_that_cannot_be_fetched_says_why() -> None:
    with pytest.raises(ContentsError, match=r"it cannot be fetched: .*refused"):
        await asyncio.to_thread(https_reader("https://127.0.0.1:1/keys"))


@pytest.mark.rule("CL-158")
async def test_a_refusal_counts_as_a_lost_connection_once_there_is_a_newer_token(node: Node) -> None:
    sent = ["Bearer three"]
    transport = GrpcTransport(None, lambda: (("authorization", sent[-1]),))
    call = transport.call(node.server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)
    running = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    sent.append("Bearer one")
    with pytest.raises(TransportError) as refused:
        await running
    assert refused.value.retriable
    await transport.call(node.server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)
    assert node.service.contexts[-1].principal == "User:alice"
    await transport.close()


@pytest.mark.rule("CL-158")
async def test_a_function_of_an_application_is_asked_again_when_its_token_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sharegroups.connection.token_function.PAUSE_S", 0.0)
    given = iter(("withdrawn", "one", "wrong", "wrong"))
    settings = {"bootstrap.servers": node.server.address, "sasl.oauthbearer.token": lambda: next(given)}
    transport = transport_for(Config(ADMIN, settings))

    async def call() -> None:
        await transport.call(node.server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)

    with pytest.raises(TransportError) as refused:
        await call()
    assert refused.value.retriable
    await call()
    assert node.service.contexts[-1].principal == "User:alice"
    node.write_static("User:alice two\n")
    assert await node.static.reload()
    for status in (TransportStatus.UNAUTHENTICATED, TransportStatus.UNAUTHENTICATED):  # "one" was got for a refused one
        with pytest.raises(TransportError) as refused:
            await call()
        assert refused.value.status is status
    await transport.close()


@pytest.mark.rule("CL-158")
async def test_a_refusal_of_what_a_file_had_before_counts_as_a_lost_connection(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("withdrawn")
    settings = {"bootstrap.servers": node.server.address, "sasl.oauthbearer.token.location": str(file)}
    transport = transport_for(Config(ADMIN, settings))

    async def call() -> None:
        await transport.call(node.server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)

    with pytest.raises(TransportError) as refused:
        await call()
    assert refused.value.status is TransportStatus.UNAUTHENTICATED
    file.write_text("one")
    with pytest.raises(TransportError) as refused:
        await call()  # within a second the file is not checked before a call
    assert refused.value.retriable
    await call()
    assert node.service.contexts[-1].principal == "User:alice"
    await transport.close()


@pytest.mark.rule("CM-187")
async def test_the_rules_name_the_caller_of_a_real_connection_and_refuse_another(tmp_path: Path) -> None:
    rules, service = parse_rules("RULE:CN=(al.*)/$1/U"), Echo()
    certificates = NodeCertificates(node_files(tmp_path, AUTHORITY))
    server = RpcServer("127.0.0.1", 0, None, certificates, authentication=Authentication(rules=rules))
    server.add(CLUSTER, service)
    await server.start()

    async def call(name: str) -> None:
        certificate, key = AUTHORITY.issue(name)
        credentials = grpc.ssl_channel_credentials(AUTHORITY.certificate, key, certificate)
        transport = GrpcTransport(lambda: credentials)
        try:
            await transport.call(server.address, FIND, FIND.request_type(coordinator_keys=["k"]), 5.0)
        finally:
            await transport.close()

    try:
        await call("alice")
        assert service.contexts[-1].principal == "User:ALICE"
        with pytest.raises(TransportError, match=r"no rule of ssl\.principal") as refused:
            await call("bob")
        assert refused.value.status is TransportStatus.UNAUTHENTICATED
        assert len(service.contexts) == 1
    finally:
        await server.drain(0)


class _Keys(BaseHTTPRequestHandler):
    """Serves a key set, and a redirect to http at /away."""

    def do_GET(self) -> None:
        away = self.path == "/away"
        self.send_response(302 if away else 200)
        if away:
            self.send_header("Location", "http://127.0.0.1:1/keys")
        self.end_headers()
        if not away:
            self.wfile.write(json.dumps({"keys": [jwk(RSA, "r")]}).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.mark.rule("CM-186")
async def test_a_key_set_is_fetched_over_tls_from_a_server_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = node_files(tmp_path, AUTHORITY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with HTTPServer(("127.0.0.1", 0), _Keys) as web:
        web.socket = context.wrap_socket(web.socket, server_side=True)
        serving = threading.Thread(target=lambda: web.serve_forever(poll_interval=0.01))
        serving.start()
        try:
            url = f"https://127.0.0.1:{web.server_port}"
            with pytest.raises(ContentsError, match="CERTIFICATE_VERIFY_FAILED"):
                await asyncio.to_thread(https_reader(f"{url}/keys"))
            monkeypatch.setenv("SSL_CERT_FILE", str(files.authorities))
            contents, _ = await asyncio.to_thread(https_reader(f"{url}/keys"))
            assert check_token(token(exp=time.time() + 60), parse_keys(contents), Policy(), time.time()).name == "alice"
            with pytest.raises(ContentsError):
                await asyncio.to_thread(https_reader(f"{url}/away"))
        finally:
            web.shutdown()
            serving.join(5)


@pytest.mark.rule("CM-186")
async def test_a_fault_in_parsing_is_reported_and_does_not_end_the_watch(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("odd")

    def parse(text: bytes, _: int) -> str:
        if text == b"odd":
            raise TypeError("unhashable")
        return text.decode()

    source = Source("keys", "keys", file_reader(file), parse, lambda: None)
    with capture_logs() as lines:
        assert not await source.reload()
    assert [line["cause"] for line in lines] == ["keys: TypeError: unhashable"]
    file.write_text("good")
    assert await source.reload()
    assert source.current == "good"
