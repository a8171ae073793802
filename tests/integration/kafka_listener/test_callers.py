"""Who calls the Kafka listener: certificates, passwords, tokens, and callers that say nothing."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from kip932.scram import Credentials, Mechanism, ScramCredential, credential, salted_password
from shard_runtime.rpc.access import Access
from shard_runtime.rpc.authentication import Authentication
from shard_runtime.rpc.certificates import NodeCertificates
from shard_runtime.rpc.token_sources import Source
from shard_runtime.rpc.tokens import Policy, parse_keys, token_hash
from share_node.certs import Authority
from tests.integration.kafka_listener.listening import SHORT, Listening, listening
from tests.support.certificates import install, node_files
from tests.support.issuer import Issuer
from tests.support.kafka_client import KafkaClient, frame
from tests.support.scram_client import proof

pytestmark = pytest.mark.asyncio

METADATA, HANDSHAKE, AUTHENTICATE = api("Metadata"), api("SaslHandshake"), api("SaslAuthenticate")
SHA_256, SHA_512 = Mechanism
REFUSED = 58


def kept(user: str, password: str, mechanism: Mechanism = SHA_256) -> ScramCredential:
    salt = b"salt" * 4
    return credential(user, mechanism, 4_096, salt, salted_password(mechanism, password, salt, 4_096))


def users(*credentials: ScramCredential) -> Credentials:
    return {(each.user, each.mechanism): each for each in credentials}


USERS = users(kept("alice", "secret"), kept("alice", "secret", SHA_512), kept("bob", "other"))


async def who(request: Any, version: int, connection: Connection) -> Any:
    """Answer Metadata with the caller's principal in place of the cluster's id."""
    return METADATA.response(cluster_id=str(connection.context.principal))


WHO = {"Metadata": who}


async def begin(client: KafkaClient, mechanism: str) -> Any:
    return await client.ask("SaslHandshake", 1, HANDSHAKE.request(mechanism=mechanism))


async def say(client: KafkaClient, data: bytes, version: int = 2) -> Any:
    return await client.ask("SaslAuthenticate", version, AUTHENTICATE.request(auth_bytes=data))


async def plain(client: KafkaClient, user: str, password: str) -> Any:
    await begin(client, "PLAIN")
    return await say(client, f"\0{user}\0{password}".encode())


async def scram(client: KafkaClient, mechanism: Mechanism, user: str, password: str) -> tuple[Any, str]:
    """Return the last answer, and the proof that the node has to give in it."""
    await begin(client, mechanism.text)
    first = f"n={user},r=nonce"
    server_first = (await say(client, f"n,,{first}".encode())).auth_bytes.decode()
    last, expected = proof(mechanism, password, first, server_first)
    return await say(client, last.encode()), expected


async def principal(client: KafkaClient) -> str:
    return str((await client.ask("Metadata", 13)).cluster_id)


async def refused(client: KafkaClient, response: Any, says: str) -> None:
    assert (response.error_code, says in response.error_message) == (REFUSED, True), response.error_message
    assert await client.closed() == b""


@pytest.mark.rule("KL-20", "KL-21")
async def test_a_user_with_plain_is_its_principal() -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        assert await principal(client) == "None"
        assert (await begin(client, "PLAIN")).mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        answer = await say(client, b"\0alice\0secret")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await principal(client) == "User:alice"


@pytest.mark.rule("KL-24", "KL-21")
@pytest.mark.parametrize("mechanism", Mechanism)
async def test_a_user_with_scram_is_its_principal_and_the_node_proves_itself(mechanism: Mechanism) -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        answer, expected = await scram(client, mechanism, "alice", "secret")
        assert (answer.error_code, answer.auth_bytes.decode()) == (0, expected)
        assert await principal(client) == "User:alice"


@pytest.mark.rule("KL-25")
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("carol", "secret")])
async def test_a_wrong_password_is_refused_in_kafkas_words(user: str, password: str) -> None:
    async with listening(WHO, users=USERS) as node:
        async with await KafkaClient.connect(node.port) as client:
            await refused(client, await plain(client, user, password), "Invalid username or password")
        async with await KafkaClient.connect(node.port) as client:
            answer, _ = await scram(client, SHA_256, user, password)
            await refused(client, answer, "invalid credentials with SASL mechanism SCRAM-SHA-256")
        assert node.refused == {"authentication": 2}
        failures = node.server.gate.authentication.failures
        assert failures["password", "wrong password"] == 2


@pytest.mark.rule("KL-25", "KL-21")
async def test_messages_that_are_none_of_the_mechanism_are_refused() -> None:
    async with listening(WHO, users=USERS) as node:
        for mechanism, data in (("PLAIN", b"alice"), ("SCRAM-SHA-512", b"\xff"), ("PLAIN", b"bob\0alice\0secret")):
            async with await KafkaClient.connect(node.port) as client:
                await begin(client, mechanism)
                await refused(client, await say(client, data), "Authentication failed")


@pytest.mark.rule("KL-21")
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "GSSAPI", ""])
async def test_a_mechanism_that_is_not_offered_is_refused(mechanism: str) -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        assert (await begin(client, mechanism)).error_code == 33
        assert await client.closed() == b""


@pytest.mark.rule("KL-21", "KL-25")
async def test_sasl_without_a_handshake_is_refused() -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        assert (await say(client, b"\0alice\0secret")).error_code == 34
        assert await client.closed() == b""


@pytest.mark.rule("KL-22")
async def test_within_an_exchange_nothing_else_may_come() -> None:
    async with listening(WHO, users=USERS) as node:
        async with await KafkaClient.connect(node.port) as client:
            await begin(client, "PLAIN")
            assert (await client.ask("ApiVersions", 0)).error_code == 0
            client.send("Metadata", 13)
            assert await client.closed() == b""
        assert node.refused == {"unauthenticated": 1}


@pytest.mark.rule("KL-22")
async def test_of_passwords_sent_at_once_only_the_first_is_checked() -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        await begin(client, "PLAIN")
        for password in ("wrong", "worse", "secret"):
            client.send("SaslAuthenticate", 2, AUTHENTICATE.request(auth_bytes=f"\0alice\0{password}".encode()))
        _, answer = await client.answer("SaslAuthenticate", 2)
        await refused(client, answer, "Invalid username or password")
        assert node.server.gate.authentication.failures["password", "wrong password"] == 1


@pytest.mark.rule("KL-22", "KL-1")
async def test_with_access_control_a_stranger_who_may_do_nothing_gets_nothing_before_it_says_who_it_is() -> None:
    access = Access(["User:alice"])
    async with listening(WHO, users=USERS, access=access) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.send("Metadata", 13)
            assert await client.closed() == b""
        async with await KafkaClient.connect(node.port) as client:
            client.writer.write((65_537).to_bytes(4, "big"))
            assert await client.closed() == b""
        assert node.refused == {"unauthenticated": 1, "malformed": 1}
        async with await KafkaClient.connect(node.port) as client:
            assert (await client.ask("ApiVersions", 0)).error_code == 0
            assert (await plain(client, "alice", "secret")).error_code == 0
            assert await principal(client) == "User:alice"
    stranger = Access(["User:ANONYMOUS"])
    async with listening(WHO, access=stranger) as node, await KafkaClient.connect(node.port) as client:
        assert await principal(client) == "None"


@pytest.mark.rule("KL-23")
async def test_a_caller_says_again_who_it_is_and_cannot_become_another() -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        assert (await plain(client, "alice", "secret")).error_code == 0
        assert (await scram(client, SHA_256, "alice", "secret"))[0].error_code == 0
        assert await principal(client) == "User:alice"
        await refused(client, await plain(client, "bob", "other"), "Cannot change principals")


@pytest.mark.rule("KL-23")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_changed_password_ends_connections_and_another_users_does_not(mechanism: str) -> None:
    async with listening(WHO, users=USERS) as node, await KafkaClient.connect(node.port) as client:
        if mechanism == "PLAIN":
            await plain(client, "alice", "secret")
        else:
            await scram(client, SHA_256, "alice", "secret")
        node.passwords.follow({key: each for key, each in USERS.items() if key[0] != "bob"})
        await asyncio.sleep(0.1)
        assert await principal(client) == "User:alice"
        node.passwords.follow(users(kept("alice", "new")))
        assert await client.closed() == b""
        assert node.refused == {"credentials ended": 1}


class Tokens:
    """Tokens without an end, and a clock that the test moves."""

    def __init__(self, **names: str) -> None:
        self.static: Source[dict[bytes, str]] = Source(
            "tokens", "memory", lambda: (b"", 0), lambda contents, mode: {}, lambda: None
        )
        self.set(**names)

    def set(self, **names: str) -> None:
        self.static.current = {token_hash(token): name for name, token in names.items()}


@pytest.mark.rule("KL-21", "KL-23", "KL-25")
async def test_a_token_names_its_user_until_it_is_accepted_no_more() -> None:
    tokens = Tokens(alice="a.b.c")
    checked = Authentication(static=tokens.static)
    async with listening(WHO, authentication=checked) as node:
        async with await KafkaClient.connect(node.port) as client:
            await begin(client, "OAUTHBEARER")
            first = await say(client, b"n,,\x01auth=Bearer wrong\x01\x01")
            assert (first.error_code, first.auth_bytes) == (0, b'{"status":"invalid_token"}')
            await refused(client, await say(client, b"\x01"), "token")
        async with await KafkaClient.connect(node.port) as client:
            await begin(client, "OAUTHBEARER")
            assert (await say(client, b"n,,\x01auth=Bearer a.b.c\x01\x01")).error_code == 0
            assert await principal(client) == "User:alice"
            tokens.set(bob="x")
            checked.changed()
            assert await client.closed() == b""


@pytest.mark.rule("KL-23")
async def test_a_client_hears_for_how_long_its_token_is_accepted_and_may_show_a_newer_one(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    keys = Source("keys", "memory", lambda: (b"", 0), lambda contents, mode: parse_keys(contents), lambda: None)
    keys.current = parse_keys((tmp_path / "keys.json").read_bytes())
    checked = Authentication(keys=keys, policy=Policy(("sharegroups",), skew_s=0))
    async with listening(WHO, authentication=checked) as node, await KafkaClient.connect(node.port) as client:
        for lasts_s in (60, 5):
            await begin(client, "OAUTHBEARER")
            said = await say(client, f"n,,\x01auth=Bearer {issuer.token('alice', lasts_s)}\x01\x01".encode())
            assert (said.error_code, 0 < said.session_lifetime_ms <= lasts_s * 1_000) == (0, True)
            assert await principal(client) == "User:alice"
        assert await client.closed() == b""
        assert node.refused == {"credentials ended": 1}


def client_context(authority: Authority, folder: Path, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    if name:
        certificate, key = authority.issue(name, [])
        (folder / "client.pem").write_bytes(certificate + key)
        context.load_cert_chain(folder / "client.pem")
    return context


async def secured(node: Listening, context: ssl.SSLContext) -> str:
    async with await KafkaClient.connect(node.port, context) as client:
        return await principal(client)


@pytest.mark.rule("KL-26", "KL-20")
async def test_with_tls_a_certificate_names_its_caller(tmp_path: Path) -> None:
    authority = Authority.made()
    certificates = NodeCertificates(node_files(tmp_path, authority))
    async with listening(WHO, certificates=certificates, client_required=True) as node:
        assert await secured(node, client_context(authority, tmp_path, "carol")) == "User:carol"
        for wrong in (client_context(authority, tmp_path), client_context(Authority.made(), tmp_path, "carol")):
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await secured(node, wrong)
        await node.idle()
    async with listening(WHO, certificates=certificates) as node:
        assert await secured(node, client_context(authority, tmp_path)) == "None"


@pytest.mark.rule("KL-26")
async def test_a_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    before, after = Authority.made(), Authority.made()
    files = node_files(tmp_path, before)
    certificates = NodeCertificates(files)
    async with (
        listening(WHO, certificates=certificates) as node,
        await KafkaClient.connect(node.port, client_context(before, tmp_path)) as client,
    ):
        assert await principal(client) == "None"
        install(files, after.issue("node", ["localhost"]), after.certificate)
        assert certificates.reload()
        assert await secured(node, client_context(after, tmp_path)) == "None"
        with pytest.raises(ssl.SSLError):
            await secured(node, client_context(before, tmp_path))
        assert await principal(client) == "None"


@pytest.mark.rule("KL-26", "KL-8")
async def test_plaintext_at_a_tls_port_and_a_silent_handshake_keep_no_connection(tmp_path: Path) -> None:
    certificates = NodeCertificates(node_files(tmp_path))
    async with listening(WHO, certificates=certificates, limits=SHORT) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.writer.write(frame("Metadata", 13))
            await client.closed()
        async with await KafkaClient.connect(node.port):
            async with asyncio.timeout(5):
                while not node.listener.connections:  # noqa: ASYNC110 - nothing says so
                    await asyncio.sleep(0.01)
        await node.idle()
        assert node.refused["handshake"] >= 1
