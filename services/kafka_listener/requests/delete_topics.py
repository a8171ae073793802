"""DeleteTopics, by name and, from version 6 on, by id (KL-58)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka_listener.messages.apis import api
from kafka_listener.ports import NO_TOPIC_ID, Connection
from kafka_listener.requests.refusals import message_of
from kafka_listener.requests.slices import slices
from kip932.api.v1.delete_topics_pb2 import DeleteTopicsRequest, DeleteTopicsResponse
from kip932.errors import InvalidRequestError, KafkaError

_RESPONSE: Final = api("DeleteTopics").response
#: From this version on a request has names or ids of topics.
_BY_ID: Final = 6


class Asked(NamedTuple):
    """One topic of a request, by its name or its id."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID

    def refusal(self) -> KafkaError | None:
        """Return the error unless it has either a name or an id."""
        if (self.name is None) is (self.topic_id == NO_TOPIC_ID):
            found = "neither a name nor an id" if self.name is None else "a name and an id"
            return InvalidRequestError(f"a topic to delete has {found}; expected exactly one of the two")
        return None


async def answer(request: Any, version: int, connection: Connection) -> Any:
    """Delete topics."""
    topics = asked_topics(request, version)
    asked = DeleteTopicsRequest(timeout_ms=request.timeout_ms)
    turns = slices()
    for topic in topics:
        await turns.step()
        if topic.refusal() is None:
            asked.topics.add(name=topic.name, topic_id=None if topic.topic_id == NO_TOPIC_ID else topic.topic_id)
    response, failure = DeleteTopicsResponse(), None
    if asked.topics:
        try:
            response = await connection.call("delete_topics", asked)
        except KafkaError as error:
            failure = error
    answered = _RESPONSE(throttle_time_ms=response.throttle_time_ms)
    results = iter(response.responses)
    for topic in topics:
        await turns.step()
        refused = topic.refusal() or failure
        if refused is not None:
            answered.responses.append(_result(topic.name, topic.topic_id, refused.code, refused.message))
            continue
        result = next(results)
        name = result.name if result.HasField("name") else None
        answered.responses.append(_result(name, result.topic_id or NO_TOPIC_ID, result.error_code, message_of(result)))
    return answered


def asked_topics(request: Any, version: int) -> list[Asked]:
    """Return the topics to delete."""
    if version < _BY_ID:
        return [Asked(name) for name in request.topic_names]
    return [Asked(topic.name, topic.topic_id) for topic in request.topics]


def _result(name: str | None, topic_id: bytes, code: int, message: str | None) -> Any:
    return _RESPONSE.DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
