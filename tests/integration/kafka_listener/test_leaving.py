"""Clients that leave while the listener reads nothing of theirs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from kafka_listener.core.order import UNDER_WAY_MAX
from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from shard_runtime.rpc.certificates import NodeCertificates
from share_node.certs import Authority
from tests.integration.kafka_listener.listening import listening
from tests.integration.kafka_listener.test_connections import Held
from tests.support.certificates import node_files
from tests.support.kafka_client import KafkaClient

pytestmark = pytest.mark.asyncio

METADATA, PRODUCE = api("Metadata"), api("Produce")


def made(folder: Path) -> tuple[NodeCertificates, ssl.SSLContext]:
    authority = Authority.made()
    certificates = NodeCertificates(node_files(folder, authority))
    return certificates, ssl.create_default_context(cadata=authority.certificate.decode())


@pytest.mark.rule("KL-106")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_client_that_leaves_is_noticed_while_64_requests_are_under_way(tmp_path: Path, tls: bool) -> None:
    held = Held()
    certificates, context = made(tmp_path) if tls else (None, None)
    async with listening({"Metadata": held.answer}, certificates=certificates) as node:
        client = await KafkaClient.connect(node.port, context)
        for _ in range(UNDER_WAY_MAX + 20):
            client.send("Metadata", 13)
        await held.until(UNDER_WAY_MAX)
        client.close()
        await node.idle()
        assert all(place.cancelled() for place in held.begun)


@pytest.mark.rule("KL-106")
async def test_a_client_over_its_quota_that_leaves_is_noticed() -> None:
    async def throttled(request: Any, version: int, connection: Connection) -> Any:
        return METADATA.response(throttle_time_ms=30_000)

    async with listening({"Metadata": throttled}) as node:
        async with await KafkaClient.connect(node.port) as client:
            await client.ask("Metadata", 13)
            client.send("Metadata", 13)
        await node.idle()


@pytest.mark.rule("KL-106", "KL-6")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_requests_with_records_that_came_before_the_client_left_begin(tmp_path: Path, tls: bool) -> None:
    held, stored = Held(), Held()
    certificates, context = made(tmp_path) if tls else (None, None)

    async def store(request: Any, version: int, connection: Connection) -> Any:
        await stored.answer(request, version, connection)
        return PRODUCE.response()

    async with listening({"Metadata": held.answer, "Produce": store}, certificates=certificates) as node:
        client = await KafkaClient.connect(node.port, context)
        for _ in range(UNDER_WAY_MAX // 2):
            client.send("Metadata", 13)
            client.send("Produce", 9)
        await held.until(UNDER_WAY_MAX // 2)
        await stored.until(UNDER_WAY_MAX // 2)
        for _ in range(UNDER_WAY_MAX):
            client.send("Metadata", 13)
            client.send("Produce", 9)
        await client.writer.drain()
        client.close()
        await stored.until(UNDER_WAY_MAX // 2 + 1)  # places of requests that are given up are free
        for number in range(UNDER_WAY_MAX + UNDER_WAY_MAX // 2):
            await stored.until(number + 1)
            if not stored.begun[number].done():  # given up; its records are in the node's hands by then
                stored.begun[number].set_result(None)
        await node.idle()
        assert (len(held.begun), len(stored.begun)) == (UNDER_WAY_MAX // 2, UNDER_WAY_MAX * 3 // 2)


@pytest.mark.rule("KL-106")
async def test_a_client_that_resets_its_connection_is_noticed_while_nothing_is_read() -> None:
    held = Held()
    async with listening({"Metadata": held.answer}) as node:
        client = await KafkaClient.connect(node.port)
        for _ in range(UNDER_WAY_MAX + 20):
            client.send("Metadata", 13)
        await held.until(UNDER_WAY_MAX)
        client.writer.transport.get_extra_info("socket").setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER: 0 s
        client.close()
        await node.idle()
        assert all(place.cancelled() for place in held.begun)
