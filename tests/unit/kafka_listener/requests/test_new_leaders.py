"""An answer about new partitions waits for their leaders, for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_listener.requests.new_leaders import WAIT_MAX_S, wait_for_leaders
from kip932.api.v1.metadata_pb2 import MetadataResponse
from kip932.errors import ThrottlingQuotaExceededError
from tests.support.virtual_time import now_s, virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection


def led_at(when_s: float) -> Any:
    """Return a node whose partition has a leader from then on."""

    def metadata(request: Any) -> MetadataResponse:
        response = MetadataResponse()
        for topic in request.topics.values:
            partition = response.topics.add(name=topic.name).partitions.add()
            partition.leader_id = 1 if now_s() >= when_s else -1
        return response

    return metadata


@pytest.mark.rule("KL-57")
@virtual
async def test_it_waits_until_there_are_leaders() -> None:
    started = now_s()
    connection = ScriptedConnection(metadata=led_at(started + 0.1))
    await asyncio.wait_for(wait_for_leaders(connection, ["orders"], 5_000), 10)
    assert 0.1 <= now_s() - started < 0.3
    assert [topic.name for topic in connection.calls[0][1].topics.values] == ["orders"]
    assert len(connection.calls) < 10


@pytest.mark.rule("KL-57")
@pytest.mark.parametrize(("timeout_ms", "waited_s"), [(60_000, WAIT_MAX_S), (200, 0.2), (0, 0.0), (-1, 0.0)])
@virtual
async def test_it_waits_no_longer_than_the_request_says(timeout_ms: int, waited_s: float) -> None:
    started = now_s()
    connection = ScriptedConnection(metadata=led_at(started + 1e9))
    await wait_for_leaders(connection, ["orders"], timeout_ms)
    assert now_s() - started == pytest.approx(waited_s)


@pytest.mark.rule("KL-57")
@virtual
async def test_what_cannot_be_known_is_not_waited_for() -> None:
    started = now_s()
    await wait_for_leaders(ScriptedConnection(), [], 5_000)
    await wait_for_leaders(ScriptedConnection(metadata=ThrottlingQuotaExceededError("no room")), ["orders"], 5_000)
    refused = MetadataResponse()
    refused.topics.add(name="orders", error_code=29)
    await wait_for_leaders(ScriptedConnection(metadata=refused), ["orders"], 5_000)
    assert now_s() == started
