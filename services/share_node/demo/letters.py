"""The demo's dead letters: a topic for records that its workers reject, and the number of letters in it."""

from __future__ import annotations

from sharegroups import Admin, AlterConfig, ConfigResource, KafkaError, NewTopic, TopicPartition


def letters_topic(topic: str) -> str:
    """Return the name of the dead-letter topic that belongs to a topic of the demo."""
    return f"dlq.{topic}"


def set_up(admin: Admin, group: str, topic: str) -> KafkaError | None:
    """Give the group a dead-letter topic. Returns the error when the cluster refuses; the group has none then."""
    made = NewTopic(topic, 1, config={"errors.deadletterqueue.group.enable": "true"})
    error = admin.create_topics([made])[topic]
    if error is not None:
        return error
    changes = [AlterConfig("errors.deadletterqueue.topic.name", topic)]
    resource = ConfigResource.group(group)
    error = admin.incremental_alter_configs({resource: changes})[resource]
    if error is not None:
        admin.delete_topics([topic])
    return error


def how_many(admin: Admin, topic: str) -> int:
    """Return how many letters were written. Raises KafkaError."""
    here = TopicPartition(topic, 0)
    found = admin.list_offsets([here])[here]
    if isinstance(found, KafkaError):
        raise found
    return found
