"""Every API and version that a real node offers: an empty and a full request, and the answer as kio reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from kafka_listener.messages.apis import APIS, Api
from kafka_listener.messages.headers import read_response_head
from kafka_listener.requests.table import HANDLERS
from tests.integration.kafka_listener.share_members import address_of, kafka_cluster
from tests.support.kafka_client import frame
from tests.support.kafka_values import full
from tests.support.node import BOUND_S, Cluster

PRODUCE = 0
#: Requests of SASL have an order; other tests have it.
SASL = {17, 36}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


async def answered(port: int, api: Api, version: int, request: Any) -> bytes:
    """Return the answer to a request, which has a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(frame(api.name, version, request))
        async with asyncio.timeout(BOUND_S):
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    finally:
        writer.close()


def read_by_kio(api: Api, version: int, data: bytes) -> Any:
    number, body_at = read_response_head(api, version, data)
    assert number == 1
    response, size = entity_reader(load_response_schema(api.key, version))(data, body_at)
    assert size == len(data) - body_at, f"kio leaves {len(data) - body_at - size} bytes of the answer"
    return response


@pytest.mark.rule("KL-10", "KL-40")
@pytest.mark.parametrize("key", sorted(HANDLERS.keys() - SASL))
def test_kio_reads_every_answer_to_its_last_byte(node: Cluster, key: int) -> None:
    api, port = APIS[key], int(address_of(node).rpartition(":")[2])

    async def check() -> None:
        for version in HANDLERS[key].versions_offered:
            if version not in api.versions:
                continue
            for request in (api.request(), full(api, "request", version)):
                if getattr(request, "max_wait_ms", 0) > 100:
                    request.max_wait_ms = 100
                if key == PRODUCE:
                    request.acks = request.acks or -1  # with 0 there is no answer
                read_by_kio(api, version, await answered(port, api, version, request))

    asyncio.run(check())
