"""DeleteTopics by name and by id."""

from __future__ import annotations

from functools import partial

import pytest

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID
from kafka_listener.requests import delete_topics
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsResponse
from kip932.api.v1.error_code_pb2 import ErrorCode
from kip932.errors import RequestTimedOutError
from tests.support.virtual_time import virtual
from tests.unit.kafka_listener.requests.scripted import ORDERS, ScriptedConnection, answered

REQUEST = api("DeleteTopics").request
answer = partial(answered, "DeleteTopics")
BOTH = DeleteTopicsResponse(
    responses=[
        DeleteTopicsResponse.TopicResult(name="orders", topic_id=ORDERS),
        DeleteTopicsResponse.TopicResult(
            topic_id=b"?" * 16,
            error_code=ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_ID,
            error_message="unknown",
        ),
    ]
)


@pytest.mark.rule("KL-58")
@pytest.mark.parametrize("version", range(1, 6))
@virtual
async def test_topics_are_deleted_by_name(version: int) -> None:
    response = DeleteTopicsResponse()
    response.responses.add(name="orders", topic_id=ORDERS)
    response.responses.add(name="nope", topic_id=NO_TOPIC_ID, error_code=3, error_message="none")
    connection = ScriptedConnection(delete_topics=response)
    asked = REQUEST(topic_names=["orders", "nope"], timeout_ms=400)
    got = await answer(version, asked, connection, delete_topics.answer)
    assert [(each.name, each.HasField("topic_id")) for each in connection.request.topics] == [
        ("orders", False),
        ("nope", False),
    ]
    assert connection.request.timeout_ms == 400
    assert [(each.name, each.error_code) for each in got.responses] == [("orders", 0), ("nope", 3)]
    if version >= 5:
        assert got.responses[1].error_message == "none"


@pytest.mark.rule("KL-58")
@virtual
async def test_topics_are_deleted_by_id_or_by_name_and_by_one_of_them() -> None:
    state = REQUEST.DeleteTopicState
    asked = REQUEST(
        topics=[
            state(name="orders", topic_id=NO_TOPIC_ID),
            state(name="both", topic_id=ORDERS),
            state(name=None, topic_id=NO_TOPIC_ID),
            state(name=None, topic_id=b"?" * 16),
        ]
    )
    connection = ScriptedConnection(delete_topics=BOTH)
    got = await answer(6, asked, connection, delete_topics.answer)
    assert [(each.HasField("name"), each.topic_id) for each in connection.request.topics] == [
        (True, b""),
        (False, b"?" * 16),
    ]
    assert [(each.name, each.error_code) for each in got.responses] == [
        ("orders", 0),
        ("both", 42),
        (None, 42),
        (None, 100),
    ]
    assert got.responses[0].topic_id.bytes == ORDERS


@pytest.mark.rule("KL-40")
@virtual
async def test_a_refusal_of_the_whole_request_is_that_of_each_topic() -> None:
    connection = ScriptedConnection(delete_topics=RequestTimedOutError("late"))
    got = await answer(4, REQUEST(topic_names=["a", "b"]), connection, delete_topics.answer)
    assert [(each.name, each.error_code) for each in got.responses] == [("a", 7), ("b", 7)]
