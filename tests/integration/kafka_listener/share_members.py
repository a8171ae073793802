"""Members of share groups that are confluent_kafka's ShareConsumer, its producer, and single requests of Kafka's
protocol, at a node that a test has started."""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import AcknowledgeType, KafkaException, Message, Producer, ShareConsumer

from kafka_listener.messages.apis import api
from kafka_listener.messages.headers import read_response_head, request_head
from tests.support.node import BOUND_S, QUICK, Cluster
from tests.support.ports import free_port

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
EXPLICIT: Final = {"share.acknowledgement.mode": "explicit"}
#: Of the client's own log, nothing: its connections end with the node's.
_QUIET: Final = {"log_level": 0}
_FRAME: Final = struct.Struct(">i")
_NUMBER: Final = 77

Act = Callable[[Message], AcknowledgeType]


class Taken(NamedTuple):
    """A record as a member was given it."""

    value: str
    offset: int
    delivery_count: int


def kafka_cluster(**settings: str) -> Cluster:
    """A node with a Kafka listener."""
    return Cluster({**QUICK, **settings}, "--kafka-port", str(free_port()))


def address_of(cluster: Cluster) -> str:
    """Where its Kafka listener is."""
    found: str = cluster.ready["kafka"][0]
    return found


def produce(cluster: Cluster, topic: str, values: Iterable[str | None], **settings: Any) -> None:
    """Produce records with Kafka's client, idempotently; each has its own key and header."""
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": address_of(cluster), "enable.idempotence": True, **_QUIET, **settings})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=f"k{number}",
            headers=[("n", str(number).encode()), ("null", None)],
            timestamp=1_000 + number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert (producer.flush(BOUND_S), failed) == (0, [])


class Member:
    """A ShareConsumer of one topic. `confirmed`: offsets by partition whose acknowledgements have been confirmed;
    `refused`: the errors of others."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.consumer = consumer
        self.confirmed: dict[int, set[int]] = defaultdict(set)
        self.refused: list[KafkaException] = []
        consumer.set_acknowledgement_commit_callback(self._committed)

    def _committed(self, offsets: dict[Any, set[int]], error: KafkaException | None) -> None:
        if error is not None:
            self.refused.append(error)
            return
        for partition, found in offsets.items():
            self.confirmed[partition.partition] |= found

    def poll(self, seconds: float = 0.2) -> list[Message]:
        """Return the next records; none of them may be an error."""
        found = list(self.consumer.poll(seconds))
        assert [message.error() for message in found if message.error() is not None] == []
        return found

    def take(self, count: int, act: Act | None = None) -> list[Taken]:
        """Poll until `count` records have come. With `act`, acknowledge each, and commit after each poll."""
        taken: list[Taken] = []
        deadline = time.monotonic() + BOUND_S
        while len(taken) < count:
            assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
            found = self.poll()
            for message in found:
                taken.append(taken_of(message))
                if act is not None:
                    self.consumer.acknowledge(message, act(message))
            if found and act is not None:
                self.commit()
        return taken

    def commit(self) -> None:
        """Commit, and check that each partition confirms."""
        assert set(self.consumer.commit_sync(BOUND_S).values()) <= {None}


def taken_of(message: Message) -> Taken:
    """Return what a test compares of a record."""
    value = message.value()
    return Taken("" if value is None else value.decode(), message.offset() or 0, message.delivery_count() or 0)


@contextmanager
def member(cluster: Cluster, group: str, topic: str, **settings: Any) -> Iterator[Member]:
    """A member of the group that is subscribed to the topic."""
    consumer = ShareConsumer({"bootstrap.servers": address_of(cluster), "group.id": group, **_QUIET, **settings})
    try:
        consumer.subscribe([topic])
        yield Member(consumer)
    finally:
        consumer.close()


def ask(cluster: Cluster, name: str, version: int, request: Any) -> Any:
    """Send one request of Kafka's protocol over a connection of its own; return the response."""
    one = api(name)
    host, _, port = address_of(cluster).rpartition(":")
    frame = request_head(one, version, _NUMBER, "test") + b"".join(one.encode_request(version, request))
    with socket.create_connection((host, int(port)), BOUND_S) as connection:
        connection.sendall(_FRAME.pack(len(frame)) + frame)
        reader = connection.makefile("rb")
        (size,) = _FRAME.unpack(reader.read(_FRAME.size))
        answer = reader.read(size)
    number, body_at = read_response_head(one, version, answer)
    assert number == _NUMBER
    return one.decode_response(version, answer, body_at)
