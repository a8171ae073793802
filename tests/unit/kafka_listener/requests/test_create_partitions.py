"""CreatePartitions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.requests import create_partitions
from kip932.api.v1.create_partitions_pb2 import CreatePartitionsResponse
from kip932.errors import RequestTimedOutError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ScriptedConnection, answered

REQUEST = api("CreatePartitions").request
answer = partial(answered, "CreatePartitions")


def topic(name: str, count: int, assigned: list[Any] | None = None) -> Any:
    return REQUEST.CreatePartitionsTopic(name=name, count=count, assignments=assigned)


@pytest.mark.rule("KL-58")
@pytest.mark.parametrize("version", range(4))
@virtual
async def test_topics_grow_or_say_why_not(version: int) -> None:
    response = CreatePartitionsResponse()
    response.results.add(name="orders")
    response.results.add(name="payments", error_code=37, error_message="no growth")
    connection = ScriptedConnection(create_partitions=response)
    placed = topic("placed", 5, [REQUEST.CreatePartitionsAssignment(broker_ids=[1])])
    asked = REQUEST(topics=[topic("orders", 4), placed, topic("payments", 1, [])], timeout_ms=300, validate_only=True)
    got = await answer(version, asked, connection, create_partitions.answer)
    request = connection.request
    assert [(each.name, each.count) for each in request.topics] == [("orders", 4), ("payments", 1)]
    assert (request.timeout_ms, request.validate_only) == (300, True)
    assert [(each.name, each.error_code) for each in got.results] == [("orders", 0), ("placed", 39), ("payments", 37)]
    assert [each.error_message for each in got.results][::2] == [None, "no growth"]


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_topic() -> None:
    connection = ScriptedConnection(create_partitions=RequestTimedOutError("late"))
    got = await answer(3, REQUEST(topics=[topic("a", 2), topic("b", 2)]), connection, create_partitions.answer)
    assert [(each.name, each.error_code) for each in got.results] == [("a", 7), ("b", 7)]
