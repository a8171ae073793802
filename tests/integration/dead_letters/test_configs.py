"""Which topics may be set as a dead-letter queue, and when a change takes effect, compared with Kafka (delivery
§1.2)."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from kip932.ids import RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC
from tests.integration.dead_letters.queues import (
    ACCEPT,
    COPY_CONFIG,
    ENABLE_CONFIG,
    FAILURE_CONFIG,
    REJECT,
    TOPIC_CONFIG,
    Queues,
)
from tests.support.node import BOUND_S, Cluster, unique

PREFIX_CONFIG = "errors.deadletterqueue.topic.name.prefix"


@pytest.mark.rule("PL-903", "GC-145")
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("__consumer_offsets", "must not start with '__'"),
        ("__x", "must not start with '__'"),
        ("letters", "must begin with 'dlq.'"),
        ("dlq.a b", "topic name"),
        ("dlq." + "x" * 260, "topic name"),
        (" dlq.a", "topic name"),
        ("  ", "topic name"),
    ],
)
def test_a_name_that_no_letter_could_go_to_is_refused(queues: Queues, name: str, word: str) -> None:
    """Kafka 4.4.0 refuses only the first two; the others fail later, and records are lost."""
    text = queues.refusal(**{TOPIC_CONFIG: name})
    assert word in text
    assert TOPIC_CONFIG in text


@pytest.mark.rule("PL-903", "PL-917")
def test_a_topic_that_is_not_enabled_or_that_the_group_reads_is_refused(queues: Queues) -> None:
    other = unique("dlq.other")
    queues.create(other)
    assert f"set {ENABLE_CONFIG}=true on it" in queues.refusal(**{TOPIC_CONFIG: other})
    queues.enable(other, True)
    assert queues.refusal(**{TOPIC_CONFIG: other}) == ""
    looping = Queues(queues.cluster)
    try:
        looping.topic = looping.dlq
        looping.configure(**{TOPIC_CONFIG: ""})
        looping.produce(1)
        with looping.consumer() as consumer:
            looping.settle(consumer, REJECT, 1)
            assert "reads that topic" in looping.refusal(**{TOPIC_CONFIG: looping.dlq})
    finally:
        looping.close()


@pytest.mark.rule("PL-903", "PL-917")
def test_a_group_that_subscribes_to_its_queue_is_warned_of_and_what_it_rejects_there_does_not_loop(
    queues: Queues,
) -> None:
    """Kafka 4.4.0 writes each rejected dead letter to the queue again, forever."""
    queues.configure(**{"share.heartbeat.interval.ms": "200"})
    queues.produce(1)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 1)
        queues.until_letters(1)
        consumer.subscribe([queues.topic, queues.dlq])
        letter = queues.settle(consumer, REJECT, 1)
        assert [message.topic() for message in letter] == [queues.dlq]
        queues.produce(1, 1)
        queues.settle(consumer, ACCEPT, 1)
        queues.create(unique("any.change.brings.a.sweep"))
        until_logged(queues, "own_dead_letter_topic_read", queues.group, queues.dlq)
        until_logged(queues, "records_archived_without_letter", queues.group, "loop")
    assert len(queues.letters()) == 1


@pytest.mark.rule("PL-903", "PL-923")
def test_a_longer_circle_is_refused_when_it_is_set_and_warned_of_when_a_subscription_closes_it(queues: Queues) -> None:
    """Three groups, each of which reads the dead-letter topic of the previous one."""
    others = [Queues(queues.cluster), Queues(queues.cluster)]
    circle = [queues, *others]
    try:
        with ExitStack() as consumers:
            for number, each in enumerate(circle):
                each.topic = circle[number - 1].dlq
                each.configure(**{"share.heartbeat.interval.ms": "200"})
                consumers.enter_context(each.consumer()).poll(timeout=0.5)
            last = others[1]
            # The configs were set before any group subscribed, so the circle could only be reported in the log.
            until_logged(queues, "dead_letter_circle_found", *(each.group for each in circle))
            last.configure(**{TOPIC_CONFIG: ""})
            refused = last.refusal(**{TOPIC_CONFIG: last.dlq})
            assert "lead in a circle" in refused
            assert all(each.group in refused for each in circle)
            free = unique("dlq.free")
            last.create(free, 1, **{ENABLE_CONFIG: "true"})
            last.configure(**{TOPIC_CONFIG: free})
    finally:
        for each in others:
            each.close()


def until_logged(queues: Queues, *words: str) -> None:
    """Wait until the node has logged a line with all these words."""
    deadline = time.monotonic() + BOUND_S
    while not any(all(word in line for word in words) for line in queues.cluster.node.errors.splitlines()):
        assert time.monotonic() < deadline, f"no line has {words}"
        time.sleep(0.05)


@pytest.mark.rule("PL-902", "PL-903")
def test_what_is_accepted(queues: Queues) -> None:
    for values in (
        {TOPIC_CONFIG: unique("dlq.not.there.yet")},
        {TOPIC_CONFIG: "dlq."},
        {TOPIC_CONFIG: ""},
        {COPY_CONFIG: "TRUE"},
        {FAILURE_CONFIG: "drop"},
    ):
        assert queues.refusal(**values) == "", values
    for values in ({COPY_CONFIG: "maybe"}, {FAILURE_CONFIG: "lose"}):
        assert next(iter(values)) in queues.refusal(**values)
    assert ENABLE_CONFIG in queues.alter(RESOURCE_TOPIC, queues.topic, {ENABLE_CONFIG: "yes"})
    assert "Default group resources are not allowed" in queues.alter(RESOURCE_GROUP, "", {TOPIC_CONFIG: "dlq.x"})


@pytest.mark.rule("PL-901", "PL-906")
def test_a_prefix_that_changes_takes_effect_at_once_and_letters_wait_for_it(queues: Queues) -> None:
    """Kafka 4.4.0 archives these records without a dead letter."""
    queues.produce(2)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 2)
        queues.until_letters(2)
        queues.produce(2, 2)
        assert queues.alter(RESOURCE_BROKER, "", {PREFIX_CONFIG: "letters."}) == ""
        try:
            queues.settle(consumer, REJECT, 2)
            assert queues.offsets().start_offset == 2
        finally:
            assert queues.alter(RESOURCE_BROKER, "", {PREFIX_CONFIG: "dlq."}) == ""
        queues.until_letters(4)
        queues.until_start(4)


@pytest.mark.rule("PL-901")
def test_the_name_that_is_set_between_delivery_and_reject_counts(queues: Queues) -> None:
    queues.configure(**{TOPIC_CONFIG: ""})
    queues.produce(1)
    with queues.consumer() as consumer:
        (message,) = consumer.poll(timeout=BOUND_S)
        queues.configure(**{TOPIC_CONFIG: queues.dlq})
        consumer.acknowledge(message, REJECT)
        assert not any(consumer.commit_sync().values())
        queues.until_letters(1)


@pytest.mark.rule("PL-901", "GC-8")
def test_below_version_two_there_are_no_letters() -> None:
    with Cluster({"share.version": "1"}) as cluster:
        queues = Queues(cluster)
        try:
            queues.produce(2)
            with queues.consumer() as consumer:
                queues.settle(consumer, REJECT, 2)
                queues.until_start(2)
            assert queues.letters() == []
        finally:
            queues.close()
