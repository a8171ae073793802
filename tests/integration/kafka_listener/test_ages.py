"""Connections that are too old, or whose certificate ends (the connection's own, and those of members of share
groups)."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kafka_listener.limits import Limits
from shard_runtime.rpc.certificates import NodeCertificates
from share_node.certs import Authority
from tests.integration.kafka_listener.listening import at_once, listening
from tests.integration.kafka_listener.test_connections import Held
from tests.support.certificates import node_files, odd_pair
from tests.support.kafka_client import KafkaClient

pytestmark = pytest.mark.asyncio

SECOND = Limits(age_s=1.0)


@pytest.mark.rule("KL-108")
async def test_an_old_connection_closes_when_nothing_is_under_way() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}, limits=Limits(age_s=4.0)) as node:
        async with await KafkaClient.connect(node.port) as idle, await KafkaClient.connect(node.port) as busy:
            busy.send("Metadata", 13)
            assert await idle.closed() == b""
            held.begun[0].set_result(None)
            assert (await busy.answer("Metadata", 13))[0] == 1
            assert await busy.closed() == b""
        assert node.refused == {}


@pytest.mark.rule("KL-108")
async def test_an_old_connection_that_is_never_idle_is_closed_all_the_same() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}, limits=SECOND) as node:
        async with await KafkaClient.connect(node.port) as client:
            client.send("Metadata", 13)
            assert await client.closed() == b""
        assert held.begun[0].cancelled()
        assert node.refused == {}


@pytest.mark.rule("KL-108")
async def test_a_connection_ends_with_its_certificate(tmp_path: Path) -> None:
    authority = Authority.made()
    certificates = NodeCertificates(node_files(tmp_path, authority))
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    pair = odd_pair(authority, ec.generate_private_key(ec.SECP256R1()), common="alice", valid=timedelta(seconds=7))
    (tmp_path / "alice.pem").write_bytes(b"".join(pair))
    context.load_cert_chain(tmp_path / "alice.pem")
    async with listening({"Metadata": at_once}, certificates=certificates, client_required=True) as node:
        async with await KafkaClient.connect(node.port, context) as client:
            await client.ask("Metadata", 13)
            assert await client.closed() == b""
        assert node.refused == {"credentials ended": 1}
