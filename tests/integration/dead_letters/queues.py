"""A topic, a group and its dead-letter topic on a real node, with the operations that tests of dead letters need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kip932.ids import RESOURCE_GROUP, RESOURCE_TOPIC, topic_id_text
from sharegroups import (
    AcknowledgeType,
    Admin,
    AlterConfig,
    ConfigResource,
    Message,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from sharegroups.admin_values import OP_DELETE, ReadRecord, ShareGroupOffset
from tests.support.node import BOUND_S, Cluster, unique

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
TOPIC_CONFIG = "errors.deadletterqueue.topic.name"
COPY_CONFIG = "errors.deadletterqueue.copy.record.enable"
ENABLE_CONFIG = "errors.deadletterqueue.group.enable"
FAILURE_CONFIG = "sharegroups.errors.deadletterqueue.failure"
PREFIX = "__dlq.errors."


class Queues:
    """One source topic, one group whose dead letters go to `dlq`, and the clients for them."""

    def __init__(self, cluster: Cluster, *, partitions: int = 1, dlq: str | None = None, **configs: str) -> None:
        self.cluster = cluster
        self.topic, self.group = unique("t"), unique("g")
        self.dlq = dlq or unique("dlq.t")
        self.admin = Admin(bootstrap_servers=cluster.bootstrap)
        self.create(self.topic, partitions)
        if dlq is None:
            self.create(self.dlq, 1, **{ENABLE_CONFIG: "true"})
        self.configure(**{TOPIC_CONFIG: self.dlq, "share.auto.offset.reset": "earliest", **configs})

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        (error,) = self.admin.create_topics([NewTopic(name, partitions, configs)]).values()
        assert error is None, error

    def configure(self, **configs: str) -> None:
        assert self.refusal(**configs) == ""

    def refusal(self, **configs: str) -> str:
        """Set configs of the group, which must be refused; returns the reason."""
        return self.alter(RESOURCE_GROUP, self.group, configs)

    def alter(self, kind: int, name: str, configs: Mapping[str, str]) -> str:
        changes = {ConfigResource(kind, name): [AlterConfig(key, value) for key, value in configs.items()]}
        (error,) = self.admin.incremental_alter_configs(changes).values()
        return "" if error is None else str(error)

    def config(self, name: str) -> str | None:
        """The effective value of a config of the group."""
        resource = ConfigResource(RESOURCE_GROUP, self.group)
        found = self.admin.describe_configs([resource])[resource]
        assert isinstance(found, Mapping), found
        return found[name].value

    def take_away(self, name: str) -> None:
        """Delete a config of the group, so that its default applies."""
        resource = ConfigResource(RESOURCE_GROUP, self.group)
        changes = {resource: [AlterConfig(name, operation=OP_DELETE)]}
        assert self.admin.incremental_alter_configs(changes) == {resource: None}

    def enable(self, topic: str, enabled: bool) -> None:
        assert self.alter(RESOURCE_TOPIC, topic, {ENABLE_CONFIG: "true" if enabled else "false"}) == ""

    def produce(self, count: int, first: int = 0, partition: int = 0) -> None:
        """Produce records, each with its own key, value, header and timestamp."""
        with Producer(bootstrap_servers=self.cluster.bootstrap) as producer:
            for number in range(first, first + count):
                producer.produce(
                    self.topic, f"v{number}", key=f"k{number}", partition=partition,
                    headers=[("trace", str(number).encode()), (PREFIX + "topic", b"forged")],
                    timestamp=1_600_000_000_000 + number,
                )  # fmt: skip

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[ShareConsumer]:
        with ShareConsumer(
            bootstrap_servers=self.cluster.bootstrap,
            group_id=self.group,
            share_acknowledgement_mode="explicit",
            **settings,
        ) as made:
            made.subscribe([self.topic])
            yield made

    def work(
        self,
        consumer: ShareConsumer,
        act: Callable[[Message], AcknowledgeType],
        until: Callable[[], bool],
        seen: list[Message] | None = None,
    ) -> None:
        """Poll and acknowledge until `until` holds; raises on the first failed commit."""
        deadline = time.monotonic() + BOUND_S
        while not until():
            assert time.monotonic() < deadline, "it is not done in time"
            for message in consumer.poll(timeout=0.2):
                consumer.acknowledge(message, act(message))
                if seen is not None:
                    seen.append(message)
            assert not any(consumer.commit_sync().values())

    def settle(self, consumer: ShareConsumer, kind: AcknowledgeType, count: int) -> list[Message]:
        """Acknowledge the next `count` records with this type."""
        seen: list[Message] = []
        self.work(consumer, lambda _: kind, lambda: len(seen) >= count, seen)
        assert len(seen) == count
        return seen

    def letters(self, partition: int = 0, topic: str | None = None) -> list[ReadRecord]:
        """Return all records in a partition of the dead-letter topic."""
        found: list[ReadRecord] = []
        at = TopicPartition(topic or self.dlq, partition)
        while True:
            offset = found[-1].offset + 1 if found else 0
            read = self.admin.read_records(at, max(offset, 0))
            if not read.records:
                return found
            found += read.records

    def until_letters(self, count: int, partition: int = 0, topic: str | None = None) -> list[ReadRecord]:
        """Wait for at least `count` dead letters; returns them."""
        deadline = time.monotonic() + BOUND_S
        while True:
            found = self.letters(partition, topic)
            if len(found) >= count:
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {count} dead letters arrived"
            time.sleep(0.05)

    def offsets(self, partition: int = 0, backlog: bool = False) -> ShareGroupOffset:
        """The group's offsets in a partition."""
        (found,) = self.admin.list_share_group_offsets({self.group: None}, backlog).values()
        assert isinstance(found, Mapping), found
        offset = found[TopicPartition(self.topic, partition)]
        assert isinstance(offset, ShareGroupOffset), offset
        return offset

    def until_start(self, offset: int) -> None:
        deadline = time.monotonic() + BOUND_S
        while (found := self.offsets().start_offset) != offset:
            assert time.monotonic() < deadline, f"the start offset is {found}, not {offset}"
            time.sleep(0.05)

    def close(self) -> None:
        self.admin.close()


def topic_id_of(queues: Queues) -> str:
    """Return the id of the source topic, as text in the form that dead letters use."""
    return topic_id_text(queues.admin.list_topics([queues.topic])[queues.topic].topic_id)


def said(letter: ReadRecord) -> dict[str, str]:
    """Return the headers that the server added to a dead letter, by name without the prefix; asserts that they come
    last and in order."""
    assert [name for name, _ in letter.headers[-7:]] == [
        PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message", "topic.id")
    ]
    return {name.removeprefix(PREFIX): (value or b"").decode() for name, value in letter.headers[-7:]}
