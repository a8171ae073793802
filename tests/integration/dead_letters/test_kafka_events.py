"""The ways for a record to end that produce a dead letter, compared with Kafka 4.4.0 (delivery §1.3, and the crash of
§1.6)."""

from __future__ import annotations

import contextlib

import pytest

from kip932.errors import UnknownTopicIdError
from kip932.ids import RESOURCE_TOPIC
from sharegroups import Message, Producer, TopicPartition
from tests.integration.dead_letters.queues import (
    ACCEPT,
    COPY_CONFIG,
    ENABLE_CONFIG,
    REJECT,
    RELEASE,
    TOPIC_CONFIG,
    Queues,
    said,
)
from tests.support.node import BOUND_S, QUICK, Cluster, unique
from tests.support.ports import free_port

LOCK = "share.record.lock.duration.ms"
CLIENT = "Offset rejected by client."
LIMIT = "Offset delivery count exceeded the threshold."


def reported(queues: Queues, count: int) -> dict[str, tuple[str, str]]:
    """Return the delivery count and cause of each dead letter, by the offset of its record."""
    found = queues.until_letters(count)
    assert len(found) == count
    return {said(one)["offset"]: (said(one)["delivery.count"], said(one)["message"]) for one in found}


class GivenUpError(Exception):
    """Raised by an application to abort a transaction."""


def refuse_one(data: bytes) -> str:
    if data == b"v1":
        raise ValueError("not mine")
    return data.decode()


@pytest.mark.rule("PL-905", "T7")
def test_a_lock_that_runs_out_and_a_close_count_as_the_last_delivery_as_a_release_does(queues: Queues) -> None:
    queues.configure(**{"share.delivery.count.limit": "2"})
    queues.produce(1)
    with queues.consumer() as consumer:
        queues.settle(consumer, RELEASE, 1)
    queues.configure(**{LOCK: "1000"})
    with queues.consumer() as consumer:
        (held,) = consumer.poll(timeout=BOUND_S)
        assert held.delivery_count() == 2
        assert reported(queues, 1) == {"0": ("2", LIMIT)}, "its lock ran out"
    queues.configure(**{LOCK: "30000"})
    queues.produce(1, 1)
    with queues.consumer() as consumer:
        queues.settle(consumer, RELEASE, 1)
        assert len(consumer.poll(timeout=BOUND_S)) == 1
    assert reported(queues, 2)["1"] == ("2", LIMIT), "its consumer was closed"


@pytest.mark.rule("PL-905", "CL-44")
def test_a_record_that_cannot_be_decoded_becomes_a_letter_at_the_limit_or_when_it_is_rejected(queues: Queues) -> None:
    """Java's client releases such a record by itself; here the application gets the record with its error, and
    decides."""
    queues.produce(2)
    with queues.consumer(value_deserializer=refuse_one) as consumer:
        seen: list[Message] = []
        queues.work(
            consumer,
            lambda message: ACCEPT if message.error() is None else RELEASE,
            lambda: len(queues.letters()) == 1,
            seen,
        )
        bad = [(message.offset(), message.delivery_count()) for message in seen if message.error() is not None]
        assert bad == [(1, count) for count in range(1, 6)]
        assert reported(queues, 1) == {"1": ("5", LIMIT)}
        queues.produce(1, 1)
        (again,) = consumer.poll(timeout=BOUND_S)
        assert again.error() is not None
        consumer.acknowledge_offset(queues.topic, 0, again.offset(), REJECT)
        assert not any(consumer.commit_sync().values())
        assert reported(queues, 2)["2"] == ("1", CLIENT)


@pytest.mark.rule("PL-905", "PL-803")
def test_markers_and_aborted_records_become_no_letters_unless_all_are_read_and_they_are_rejected(
    queues: Queues,
) -> None:
    with Producer(bootstrap_servers=queues.cluster.bootstrap, transactional_id=queues.topic) as producer:
        with producer.transaction():
            producer.produce(queues.topic, "committed")
        with contextlib.suppress(GivenUpError), producer.transaction():
            producer.produce(queues.topic, "aborted")
            producer.flush()
            raise GivenUpError
        with contextlib.suppress(GivenUpError), producer.transaction():
            producer.produce(queues.topic, "open")
            producer.flush()
            _reject_amid_an_open_transaction(queues)
            raise GivenUpError


def _reject_amid_an_open_transaction(queues: Queues) -> None:
    """Reject during an open transaction: 0 is committed, 1 and 3 are markers, 2 is aborted, 4 belongs to the open
    transaction."""
    queues.configure(**{"share.isolation.level": "read_committed"})
    with queues.consumer() as consumer:
        seen = queues.settle(consumer, REJECT, 1)
        queues.work(consumer, lambda _: REJECT, lambda: queues.offsets().start_offset == 4, seen)
        assert [message.offset() for message in seen] == [0]
        assert reported(queues, 1) == {"0": ("1", CLIENT)}
    other = Queues(queues.cluster, dlq=queues.dlq)
    other.topic = queues.topic
    try:
        with other.consumer() as consumer:
            assert [message.offset() for message in other.settle(consumer, REJECT, 3)] == [0, 2, 4]
        assert [said(letter)["offset"] for letter in queues.until_letters(4)] == ["0", "0", "2", "4"]
    finally:
        other.close()


@pytest.mark.rule("PL-905", "GC-102")
def test_records_that_an_altered_offset_or_a_deletion_skips_become_no_letters(queues: Queues) -> None:
    queues.produce(4)
    with queues.consumer() as consumer:
        for message in consumer.poll(timeout=BOUND_S):
            consumer.acknowledge(message, RELEASE)
        assert not any(consumer.commit_sync().values())
    at = TopicPartition(queues.topic, 0)
    assert queues.admin.alter_share_group_offsets(queues.group, {at: 2}) == {at: None}
    assert queues.admin.delete_records({at: 3}) == {at: 3}
    with queues.consumer() as consumer:
        (last,) = queues.settle(consumer, REJECT, 1)
        assert (last.offset(), last.delivery_count()) == (3, 1)
        assert reported(queues, 1) == {"3": ("1", CLIENT)}


@pytest.mark.rule("PL-509", "PL-905")
def test_a_reject_of_a_record_whose_topic_was_deleted_is_refused_and_becomes_no_letter(queues: Queues) -> None:
    queues.produce(1)
    with queues.consumer() as consumer:
        (message,) = consumer.poll(timeout=BOUND_S)
        assert queues.admin.delete_topics([queues.topic]) == {queues.topic: None}
        consumer.acknowledge(message, REJECT)
        (error,) = consumer.commit_sync().values()
        assert error is not None
        assert error.code == UnknownTopicIdError.code
    assert queues.letters() == []


@pytest.mark.rule("PL-906", "PL-907")
@pytest.mark.parametrize("meanwhile", ["not enabled", "deleted"])
def test_a_topic_that_is_taken_away_between_delivery_and_reject_is_waited_for(queues: Queues, meanwhile: str) -> None:
    """Kafka archives these records without a dead letter, and reports success to the client."""
    queues.produce(2)
    with queues.consumer() as consumer:
        seen = consumer.poll(timeout=BOUND_S)
        if meanwhile == "deleted":
            assert queues.admin.delete_topics([queues.dlq]) == {queues.dlq: None}
        else:
            queues.enable(queues.dlq, False)
        for message in seen:
            consumer.acknowledge(message, REJECT)
        assert not any(consumer.commit_sync().values())
        queues.settle(consumer, REJECT, 2 - len(seen))
        found = queues.offsets(backlog=True)
        assert (found.lag, found.dead_letters) == (2, 2)
        if meanwhile == "deleted":
            queues.create(queues.dlq, 1, **{ENABLE_CONFIG: "true"})
        else:
            queues.enable(queues.dlq, True)
        assert reported(queues, 2) == {"0": ("1", CLIENT), "1": ("1", CLIENT)}


@pytest.mark.rule("PL-911")
def test_a_copy_keeps_what_is_null_and_what_is_large(queues: Queues) -> None:
    large = {"max.message.bytes": "4194304"}
    for name in (queues.topic, queues.dlq):
        assert queues.alter(RESOURCE_TOPIC, name, large) == ""
    queues.configure(**{COPY_CONFIG: "true"})
    values = (None, b"", b"x" * 1_500_000)
    with Producer(bootstrap_servers=queues.cluster.bootstrap, max_request_size=4_000_000) as producer:
        for value in values:
            producer.produce(queues.topic, value)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 3)
        found = queues.until_letters(3)
    assert [(letter.key, letter.value) for letter in found] == [(None, value) for value in values]


@pytest.mark.rule("INV-18", "PL-611", "PL-922")
def test_letters_of_a_node_that_is_killed_before_any_is_written_are_written_once_when_a_member_comes() -> None:
    with Cluster(QUICK, "--port", str(free_port())) as cluster:
        queues = Queues(cluster, dlq=unique("dlq.later"))
        try:
            queues.produce(3)
            with queues.consumer() as consumer:
                queues.settle(consumer, REJECT, 3)
                cluster.node.kill()
            cluster.start()
            assert queues.offsets().lag == 3
            queues.create(queues.dlq, 1, **{ENABLE_CONFIG: "true"})
            with queues.consumer() as consumer:
                queues.produce(1, 3)
                again = queues.settle(consumer, ACCEPT, 1)
                assert [(one.offset(), one.delivery_count()) for one in again] == [(3, 1)], (
                    "confirmed records must not be redelivered"
                )
                assert reported(queues, 3) == {str(offset): ("1", CLIENT) for offset in range(3)}
                queues.until_start(4)
        finally:
            queues.close()


@pytest.mark.rule("PL-902", "GC-147")
def test_a_name_that_is_taken_away_is_the_empty_one_and_a_deleted_group_keeps_its_configs(queues: Queues) -> None:
    queues.produce(1)
    with queues.consumer() as consumer:
        queues.settle(consumer, ACCEPT, 1)
    assert queues.admin.delete_share_groups([queues.group]) == {queues.group: None}
    assert queues.config(TOPIC_CONFIG) == queues.dlq
    queues.take_away(TOPIC_CONFIG)
    assert queues.config(TOPIC_CONFIG) == ""
