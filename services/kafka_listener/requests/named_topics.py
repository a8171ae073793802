"""Topics of a request as Kafka has them, by name or by id, and as the node has them, by id (KL-41)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kafka_listener.ports import NO_TOPIC_ID, Connection
from kafka_listener.requests.slices import slices
from kip932.acls import Operation, ResourceType
from kip932.errors import KafkaError, UnknownTopicOrPartitionError


class NamedTopic(NamedTuple):
    """One topic of a request. `error`: why none of its partitions can be asked for; then the id is NO_TOPIC_ID."""

    asked: Any
    topic_id: bytes
    error: KafkaError | None = None


def by_id(topics: Iterable[Any]) -> list[NamedTopic]:
    """Return the topics of a request that has their ids."""
    return [NamedTopic(topic, topic.topic_id) for topic in topics]


async def by_name(
    topics: Iterable[Any],
    connection: Connection,
    operation: Operation,
    name_of: Callable[[Any], str] = lambda topic: topic.name,
) -> list[NamedTopic]:
    """Return the topics of a request that has their names. A name without a topic is refused to a caller that may not
    do `operation` to it, as if there were one."""
    found, turns = [], slices()
    for topic in topics:
        await turns.step()
        name = name_of(topic)
        topic_id = connection.cluster.topic_id(name)
        error = _unknown(connection, name, operation) if topic_id == NO_TOPIC_ID else None
        found.append(NamedTopic(topic, topic_id, error))
    return found


def _unknown(connection: Connection, name: str, operation: Operation) -> KafkaError:
    refused = connection.context.refusal(ResourceType.TOPIC, name, operation)
    return refused or UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
