"""Connections that hold memory which others need (CM-93)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import Connection
from tests.integration.kafka_listener.listening import Listening, listening
from tests.integration.kafka_listener.test_connections import large
from tests.support.kafka_client import KafkaClient

pytestmark = pytest.mark.asyncio

MIB = 1024 * 1024
METADATA = api("Metadata")


async def large_after_wait(request: Any, version: int, connection: Connection) -> Any:
    """Answer Metadata with a megabyte, once there is room for it."""
    share = connection.context.share
    assert await share.wait(MIB, 30)
    try:
        return await large(33)(request, version, connection)
    finally:
        share.give(MIB)


async def unread(node: Listening, requests: int, open_ones: AsyncExitStack) -> KafkaClient:
    """Return a client that sends requests and reads no answer."""
    client = await open_ones.enter_async_context(await KafkaClient.connect(node.port))
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads
    for _ in range(requests):
        client.send("Metadata", 12)
    return client


@pytest.mark.rule("KL-107", "CM-93")
async def test_clients_that_do_not_read_are_cut_when_others_need_the_memory() -> None:
    async with listening({"Metadata": large_after_wait}, budget_bytes=32 * MIB) as node, AsyncExitStack() as open_ones:
        node.server.unfinished.add(node.server.listen())
        node.server.unfinished.start()
        for _ in range(10):
            await unread(node, 64, open_ones)
        async with asyncio.timeout(30):
            while not node.server.budget.is_short:  # noqa: ASYNC110 - nothing says so
                await asyncio.sleep(0.01)
            async with await KafkaClient.connect(node.port) as canary:
                await canary.ask("Metadata", 12)
        assert set(node.refused) == {"memory"}
        await open_ones.aclose()
        await node.idle()


@pytest.mark.rule("KL-2")
async def test_what_a_client_has_left_unread_counts_from_its_first_byte() -> None:
    async with listening({"Metadata": large(1)}) as node, AsyncExitStack() as open_ones:
        client = await unread(node, 0, open_ones)
        async with asyncio.timeout(30):
            while node.listener.under_way or not node.held:  # the network takes the first answers, of 60 KB each
                client.send("Metadata", 12)
                await asyncio.sleep(0.005)
        assert 0 < node.held < 64 * 1024
        await open_ones.aclose()
        await node.idle()
