"""Transactions of Kafka's clients at a real node: what readers see of them, and requests that come twice, late, early,
or from a producer that was replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.integration.kafka_listener.kip_890_producer import NONE, Identity, Kip890Producer
from tests.integration.kafka_listener.share_members import address_of, kafka_cluster, member
from tests.support.confluent_admin import confluent
from tests.support.node import BOUND_S, Cluster, unique

BAD_EPOCH, FENCED, ABORTABLE, WRONG_STATE = 47, 90, 120, 48
COMMITTED, EVERY = "read_committed", "read_uncommitted"
QUIET: Final = {"log_level": 0}


@pytest.fixture(scope="module")
def node() -> Iterator[Cluster]:
    with kafka_cluster() as cluster:
        yield cluster


@pytest.fixture
def topic(node: Cluster) -> str:
    """Return a topic of its own, with two partitions."""
    name = unique("t")
    client = confluent.AdminClient(
        {"bootstrap.servers": address_of(node), **QUIET}
    )  # kept: what it is asked ends with it
    assert client.create_topics([confluent.NewTopic(name, 2)])[name].result(BOUND_S) is None
    return name


@pytest.fixture
def producer(node: Cluster) -> Kip890Producer:
    return Kip890Producer(node, unique("payments"))


def read(node: Cluster, topic: str, isolation: str, end: bytes = b"end") -> list[bytes]:
    """Return the values of partition 0 before the one that ends it."""
    consumer = Consumer(
        {"bootstrap.servers": address_of(node), "group.id": "none", "isolation.level": isolation, **QUIET}
    )
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + BOUND_S
        while end not in found:
            assert time.monotonic() < deadline, found
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                found.append(message.value() or b"")
    finally:
        consumer.close()
    return found[: found.index(end)]


def close(node: Cluster, topic: str) -> None:
    """Commit a last record, at which `read` ends."""
    last = Kip890Producer(node, unique("last"))
    assert last.produce(topic, b"end") == NONE
    last.finish(committed=True)


@pytest.mark.rule("KL-100", "KL-103", "KL-104")
def test_readers_get_all_of_a_committed_transaction_and_none_of_an_aborted_one(
    node: Cluster, topic: str, producer: Kip890Producer
) -> None:
    expected = []
    for number in range(12):
        value = b"%d" % number
        assert [producer.produce(topic, value, partition) for partition in (0, 1)] == [NONE, NONE]
        before = producer.identity
        producer.finish(committed=number % 3 != 2)
        assert producer.identity == Identity(before.producer_id, before.epoch + 1)
        expected += [value] if number % 3 != 2 else []
    close(node, topic)
    assert read(node, topic, COMMITTED) == expected
    assert read(node, topic, EVERY) == [b"%d" % number for number in range(12)]


@pytest.mark.rule("KL-103")
@pytest.mark.parametrize(("isolation", "expected"), [(COMMITTED, ["yes", "end"]), (EVERY, ["yes", "no", "end"])])
def test_share_consumers_get_the_records_that_their_groups_level_allows(
    node: Cluster, topic: str, producer: Kip890Producer, isolation: str, expected: list[str]
) -> None:
    for value, committed in ((b"yes", True), (b"no", False)):
        assert producer.produce(topic, value) == NONE
        producer.finish(committed=committed)
    close(node, topic)
    group = unique("group")
    kinds = confluent.AlterConfigOpType
    level = confluent.ConfigEntry("share.isolation.level", isolation, incremental_operation=kinds.SET)
    client = confluent.AdminClient(
        {"bootstrap.servers": address_of(node), **QUIET}
    )  # kept: what it is asked ends with it
    resource = confluent.ConfigResource(confluent.ResourceType.GROUP, group, incremental_configs=[level])
    assert client.incremental_alter_configs([resource])[resource].result(BOUND_S) is None
    with member(node, group, topic) as joined:
        assert [taken.value for taken in joined.take(len(expected))] == expected


@pytest.mark.rule("KL-104")
@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_is_lost_comes_again_and_a_late_copy_ends_no_later_transaction(
    node: Cluster, topic: str, producer: Kip890Producer, committed: bool
) -> None:
    assert producer.produce(topic, b"first") == NONE
    first = producer.identity
    answers = [producer.end(committed=committed) for _ in range(3)]
    assert answers == [(NONE, Identity(first.producer_id, first.epoch + 1))] * 3
    assert producer.end(committed=not committed)[0] == (WRONG_STATE if committed else ABORTABLE)
    producer.identity = answers[0][1]
    assert producer.produce(topic, b"second") == NONE
    assert producer.end(committed=committed, identity=first)[0] == FENCED
    close(node, topic)  # while the second one is open
    producer.finish(committed=not committed)
    assert read(node, topic, COMMITTED) == ([b"first"] if committed else [b"second"])


@pytest.mark.rule("KL-103")
def test_a_batch_that_comes_late_or_early_becomes_no_part_of_another_transaction(
    node: Cluster, topic: str, producer: Kip890Producer
) -> None:
    first = producer.identity
    following = Identity(first.producer_id, first.epoch + 1)
    assert producer.produce(topic, b"first") == NONE
    assert producer.produce(topic, b"early", identity=following) == FENCED
    producer.finish(committed=True)
    assert producer.identity == following
    assert producer.produce(topic, b"late", sequence=1, identity=first) == BAD_EPOCH
    assert producer.produce(topic, b"late in a new partition", 1, identity=first) == BAD_EPOCH
    assert producer.produce(topic, b"second") == NONE
    assert producer.produce(topic, b"second") == NONE, "a repeated batch is confirmed"
    assert producer.produce(topic, b"late", sequence=1, identity=first) == BAD_EPOCH
    producer.finish(committed=True)
    close(node, topic)
    assert read(node, topic, EVERY) == read(node, topic, COMMITTED) == [b"first", b"second"]


@pytest.mark.rule("KL-102", "KL-104")
def test_a_producer_that_was_replaced_neither_writes_nor_commits(
    node: Cluster, topic: str, producer: Kip890Producer
) -> None:
    assert producer.produce(topic, b"zombie") == NONE
    successor = Kip890Producer(node, producer.transactional_id)
    assert successor.identity.producer_id == producer.identity.producer_id
    assert producer.produce(topic, b"zombie", sequence=1) in {BAD_EPOCH, FENCED}
    assert producer.produce(topic, b"zombie", 1) == FENCED
    assert producer.end(committed=True)[0] == ABORTABLE, "its transaction was aborted"
    assert producer.end(committed=False)[0] == FENCED
    assert successor.produce(topic, b"successor") == NONE
    successor.finish(committed=True)
    close(node, topic)
    assert read(node, topic, COMMITTED) == [b"successor"]


@pytest.mark.rule("KL-103", "KL-104")
def test_after_its_time_out_a_transaction_is_aborted_and_the_producer_goes_on(node: Cluster, topic: str) -> None:
    producer = Kip890Producer(node, unique("payments"), timeout_ms=100)
    first = producer.identity
    assert producer.produce(topic, b"late") == NONE
    deadline, codes = time.monotonic() + BOUND_S, set[int]()
    while BAD_EPOCH not in codes:  # refused from the time-out on; then a leader aborts it
        assert time.monotonic() < deadline, codes
        code = producer.produce(topic, b"later", 1)
        if code != NONE:
            codes.add(code)
        time.sleep(0.2)
    assert codes <= {ABORTABLE, BAD_EPOCH}
    assert producer.end(committed=True)[0] == ABORTABLE
    producer.finish(committed=False)
    assert producer.identity == Identity(first.producer_id, first.epoch + 1)
    producer = Kip890Producer(node, producer.transactional_id)
    assert producer.produce(topic, b"in time") == NONE
    producer.finish(committed=True)
    close(node, topic)
    assert read(node, topic, COMMITTED) == [b"in time"]


@pytest.mark.rule("KL-101", "KL-104")
def test_a_transaction_outlasts_a_node_that_is_killed() -> None:
    named = "jobs"
    with kafka_cluster() as node:
        client = confluent.AdminClient({"bootstrap.servers": address_of(node), **QUIET})
        assert client.create_topics([confluent.NewTopic(named, 2)])[named].result(BOUND_S) is None
        producer = Kip890Producer(node, "payments")
        assert producer.produce(named, b"before") == NONE
        node.node.kill()
        node.start()
        assert producer.produce(named, b"after", sequence=1) == NONE
        assert (end_of(node, named, COMMITTED), end_of(node, named, EVERY) >= 2) == (0, True)
        ended = producer.identity
        producer.finish(committed=True)
        node.node.kill()
        node.start()
        assert producer.end(committed=True, identity=ended) == (NONE, producer.identity)
        close(node, named)
        assert read(node, named, COMMITTED) == [b"before", b"after"]


def end_of(node: Cluster, topic: str, isolation: str) -> int:
    """Return the end of partition 0 for readers of this isolation level."""
    consumer = Consumer(
        {"bootstrap.servers": address_of(node), "group.id": "none", "isolation.level": isolation, **QUIET}
    )
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), BOUND_S)
        found: int = end
        return found
    finally:
        consumer.close()
