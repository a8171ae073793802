"""Kafka 4.4.0's behaviour with dead letters, row by row (delivery §1.4, §1.5), and the rules by which this suite does
better."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kip932.ids import RESOURCE_BROKER, RESOURCE_TOPIC
from sharegroups import ConfigResource, Producer, TopicPartition
from sharegroups.admin_values import ReadRecord
from tests.integration.dead_letters.queues import (
    COPY_CONFIG,
    ENABLE_CONFIG,
    REJECT,
    TOPIC_CONFIG,
    Queues,
    said,
)
from tests.support.node import BOUND_S, Cluster, unique

AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"


@pytest.fixture
def wide(node: Cluster) -> Iterator[Queues]:
    """Five source partitions, three of the dead-letter topic."""
    queues = Queues(node, partitions=5, dlq=unique("dlq.wide"))
    queues.create(queues.dlq, 3, **{ENABLE_CONFIG: "true"})
    yield queues
    queues.close()


@pytest.mark.rule("PL-909")
def test_a_letter_goes_to_the_source_partition_modulo_their_number_and_in_order(wide: Queues) -> None:
    """As in Kafka: 0→0, 1→1, 2→2, 3→0, 4→1."""
    for partition in range(5):
        wide.produce(3, partition=partition)
    with wide.consumer() as consumer:
        wide.settle(consumer, REJECT, 15)
        found = [wide.until_letters(count, number) for number, count in enumerate((6, 6, 3))]
    sources = [[(said(letter)["partition"], said(letter)["offset"]) for letter in letters] for letters in found]
    assert {partition for partition, _ in sources[0]} == {"0", "3"}
    assert {partition for partition, _ in sources[1]} == {"1", "4"}
    assert sources[2] == [("2", "0"), ("2", "1"), ("2", "2")]
    for letters in sources[:2]:
        for source in {source for source, _ in letters}:
            assert [offset for one, offset in letters if one == source] == ["0", "1", "2"]


@pytest.mark.rule("PL-909")
def test_two_groups_on_one_topic_are_distinguished_by_header_and_key(queues: Queues) -> None:
    other = Queues(queues.cluster, dlq=queues.dlq)
    try:
        for each in (queues, other):
            each.produce(1)
            with each.consumer() as consumer:
                each.settle(consumer, REJECT, 1)
        found = queues.until_letters(2)
    finally:
        other.close()
    assert {said(letter)["group"] for letter in found} == {queues.group, other.group}
    assert len({letter.key for letter in found}) == 2


@pytest.mark.rule("PL-911")
def test_a_record_larger_than_the_topic_takes_gets_a_letter_without_a_copy(queues: Queues) -> None:
    """As in Kafka. A dead letter that is too large even without a copy waits; Kafka loses it with its whole batch."""
    queues.configure(**{COPY_CONFIG: "true"})
    assert queues.alter(RESOURCE_TOPIC, queues.dlq, {"max.message.bytes": "2000"}) == ""
    with Producer(bootstrap_servers=queues.cluster.bootstrap) as producer:
        for value in (b"small", b"x" * 3_000, b"small too"):
            producer.produce(queues.topic, value)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 3)
        found = queues.until_letters(3)
        assert [letter.value for letter in found] == [b"small", None, b"small too"]
        assert queues.alter(RESOURCE_TOPIC, queues.dlq, {"max.message.bytes": "100"}) == ""
        queues.produce(2, 3)
        queues.settle(consumer, REJECT, 2)
        assert queues.offsets().lag == 2
        assert queues.alter(RESOURCE_TOPIC, queues.dlq, {"max.message.bytes": "2000"}) == ""
        queues.until_letters(5)
        queues.until_start(5)


@pytest.mark.rule("PL-908")
def test_a_missing_topic_is_created_when_the_cluster_says_so_and_again_when_it_was_deleted(node: Cluster) -> None:
    queues = Queues(node, dlq=unique("dlq.made"))
    try:
        assert queues.alter(RESOURCE_BROKER, "", {AUTO_CREATE: "true"}) == ""
        queues.produce(3)
        with queues.consumer() as consumer:
            queues.settle(consumer, REJECT, 3)
            assert len(until_made(queues, 3)) == 3
            assert queues.admin.delete_topics([queues.dlq]) == {queues.dlq: None}
            queues.produce(2, 3)
            queues.settle(consumer, REJECT, 2)
            assert [said(letter)["offset"] for letter in until_made(queues, 2)] == ["3", "4"]
            resource = ConfigResource(RESOURCE_TOPIC, queues.dlq)
            found = queues.admin.describe_configs([resource])[resource]
            assert isinstance(found, dict)
            assert found[ENABLE_CONFIG].value == "true"
            assert len(queues.admin.list_topics([queues.dlq])[queues.dlq].partitions) == 1, "num.partitions"
    finally:
        assert queues.alter(RESOURCE_BROKER, "", {AUTO_CREATE: "false"}) == ""
        queues.close()


@pytest.mark.rule("PL-906", "PL-908")
def test_nothing_is_created_for_a_name_whose_prefix_does_not_fit_any_more(node: Cluster) -> None:
    """Kafka archives these records without a dead letter."""
    queues = Queues(node, dlq=unique("dlq.made"))
    try:
        queues.produce(1)
        with queues.consumer() as consumer:
            (message,) = consumer.poll(timeout=BOUND_S)
            assert queues.alter(RESOURCE_BROKER, "", {AUTO_CREATE: "true", PREFIX: "letters."}) == ""
            consumer.acknowledge(message, REJECT)
            assert not any(consumer.commit_sync().values())
            assert queues.offsets(backlog=True).dead_letters == 1
            assert queues.dlq not in queues.admin.list_topics()
            assert queues.alter(RESOURCE_BROKER, "", {PREFIX: "dlq."}) == ""
            until_made(queues, 1)
    finally:
        assert queues.alter(RESOURCE_BROKER, "", {AUTO_CREATE: "false", PREFIX: "dlq."}) == ""
        queues.close()


def until_made(queues: Queues, count: int) -> list[ReadRecord]:
    """Wait for the topic to exist and to contain `count` dead letters; returns them."""
    deadline = time.monotonic() + BOUND_S
    while queues.dlq not in queues.admin.list_topics():
        assert time.monotonic() < deadline, "the topic was not created"
        time.sleep(0.1)
    return queues.until_letters(count)


@pytest.mark.rule("PL-905", "PL-404")
def test_a_record_that_was_deleted_before_its_reject_gets_no_letter(queues: Queues) -> None:
    """Kafka writes a dead letter without a copy if its leader has not moved the start offset yet."""
    queues.produce(1)
    with queues.consumer() as consumer:
        (message,) = consumer.poll(timeout=BOUND_S)
        queues.produce(1, 1)
        deleted = TopicPartition(queues.topic, 0)
        assert queues.admin.delete_records({deleted: 1}) == {deleted: 1}
        consumer.acknowledge(message, REJECT)
        assert not any(consumer.commit_sync().values())
        queues.settle(consumer, REJECT, 1)
        (letter,) = queues.until_letters(1)
        assert said(letter)["offset"] == "1"
        queues.until_start(2)


@pytest.mark.rule("PL-918")
def test_letters_that_wait_when_the_queue_is_switched_off_are_given_up_and_reported(node: Cluster) -> None:
    queues = Queues(node, dlq=unique("dlq.never"))
    try:
        queues.produce(3)
        with queues.consumer() as consumer:
            queues.settle(consumer, REJECT, 3)
            assert queues.offsets().lag == 3
            queues.configure(**{TOPIC_CONFIG: ""})
            queues.until_start(3)
        words = ("records_archived_without_letter", queues.group, "switched_off")
        assert any(all(word in line for word in words) for line in node.node.errors.splitlines())
    finally:
        queues.close()
