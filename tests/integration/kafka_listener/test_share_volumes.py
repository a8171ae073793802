"""100,000 records of each compression through confluent_kafka's producer and ShareConsumer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer

from sharegroups import Admin, NewTopic
from tests.integration.kafka_listener.share_members import (
    ACCEPT,
    EXPLICIT,
    REJECT,
    RELEASE,
    Member,
    address_of,
    kafka_cluster,
    member,
)
from tests.support.node import BOUND_S, Cluster, unique

RECORDS = 100_000
KINDS = ["none", "gzip", "snappy", "lz4", "zstd"]
#: Of each hundred offsets, the one that is released at its first delivery, and the one that is rejected.
RELEASED, REJECTED = 7, 8


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


def value_of(number: int) -> bytes:
    return b"record %09d " % number * 5


def produced(node: Cluster, kind: str) -> str:
    """Produce all records to a topic of two partitions, idempotently; return the topic."""
    topic, failed = unique("topic"), list[object]()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
    producer = Producer(
        {
            "bootstrap.servers": address_of(node), "enable.idempotence": True, "compression.type": kind, "linger.ms": 5,
            "queue.buffering.max.messages": 2 * RECORDS, "log_level": 0,
        }
    )  # fmt: skip
    for number in range(RECORDS):
        producer.produce(topic, value_of(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert (producer.flush(BOUND_S), failed) == (0, [])
    return topic


def act(message: Message) -> AcknowledgeType:
    place = (message.offset() or 0) % 100
    if place == RELEASED and message.delivery_count() == 1:
        return RELEASE
    return REJECT if place == REJECTED else ACCEPT


def consume(one: Member, deliveries: int, *, explicit: bool) -> Counter[tuple[bytes | None, int]]:
    """Take so many deliveries, and commit after each poll; return how often each record came with which count."""
    found: Counter[tuple[bytes | None, int]] = Counter()
    deadline = time.monotonic() + 2 * BOUND_S
    while found.total() < deliveries:
        assert time.monotonic() < deadline, f"{found.total()} of {deliveries} came"
        messages = one.poll()
        for message in messages:
            found[message.value(), message.delivery_count() or 0] += 1
            if explicit:
                one.consumer.acknowledge(message, act(message))
        if messages:
            one.commit()
    return found


@pytest.mark.rule("KL-83", "KL-84")
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_delivered_and_every_acknowledgement_confirmed(node: Cluster, kind: str) -> None:
    topic = produced(node, kind)
    everything = Counter({(value_of(number), 1): 1 for number in range(RECORDS)})
    with member(node, unique("g"), topic) as one:
        assert consume(one, RECORDS, explicit=False) == everything
        offsets = one.confirmed
        assert (sum(map(len, offsets.values())), one.refused) == (RECORDS, [])
    again = sum(offset % 100 == RELEASED for found in offsets.values() for offset in found)
    assert again > 0
    with member(node, unique("g"), topic, **EXPLICIT) as one:
        found = consume(one, RECORDS + again, explicit=True)
        assert {key: times for key, times in found.items() if key[1] == 1} == everything
        assert (sum(times for key, times in found.items() if key[1] == 2), one.refused) == (again, [])
        assert one.confirmed == offsets
