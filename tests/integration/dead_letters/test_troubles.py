"""Poison records, a missing dead-letter topic and a killed leader: nothing is lost, and no dead letter holds up other
records."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from click.testing import CliRunner

from sharegroups import Message, TopicPartition
from sharegroups.cli.main import main
from tests.integration.dead_letters.plays import play_away, play_kill
from tests.integration.dead_letters.queues import (
    ACCEPT,
    COPY_CONFIG,
    ENABLE_CONFIG,
    FAILURE_CONFIG,
    REJECT,
    RELEASE,
    Queues,
    said,
    topic_id_of,
)
from tests.support.node import BOUND_S

POISON = 250


@pytest.mark.rule("INV-18", "PL-904", "PL-905", "PL-911")
def test_a_poisonous_record_among_five_hundred_becomes_a_letter_and_redriven_is_accepted_once(
    queues: Queues,
) -> None:
    queues.configure(**{COPY_CONFIG: "true"})
    queues.produce(500)
    seen: list[Message] = []
    with queues.consumer() as consumer:
        queues.work(
            consumer,
            lambda message: RELEASE if message.offset() == POISON else ACCEPT,
            lambda: len(queues.letters()) > 0,
            seen,
        )
        queues.until_start(500)
        (letter,) = queues.letters()
        where = ("--bootstrap-server", queues.cluster.bootstrap, "--group", queues.group)
        redriven = CliRunner().invoke(main, ["dlq", "redrive", "--all", *where])
        assert redriven.exit_code == 0, redriven.output
        (fresh,) = queues.settle(consumer, ACCEPT, 1)
        assert (fresh.offset(), fresh.key(), fresh.value(), fresh.delivery_count()) == (500, b"k250", b"v250", 1)
        assert dict(fresh.headers())["__dlq.redrive.origin.offset"] == b"250"
        queues.until_start(501)
        assert len(consumer.poll(timeout=0.2)) == 0
    assert queues.letters() == [letter], "no other record may become a dead letter"
    times = Counter(message.offset() for message in seen)
    assert times[POISON] == 5
    assert {offset for offset, count in times.items() if count == 1} == set(range(500)) - {POISON}
    assert (letter.key, letter.value) == (b"k250", b"v250")
    assert said(letter) == {
        "topic": queues.topic, "partition": "0", "offset": "250", "group": queues.group, "delivery.count": "5",
        "message": "Offset delivery count exceeded the threshold.", "topic.id": topic_id_of(queues),
    }  # fmt: skip


@pytest.mark.rule("INV-18", "PL-907", "PL-915", "PL-920")
def test_a_topic_that_is_away_under_load_loses_nothing_and_stalls_nothing(queues: Queues) -> None:
    """More records than the lock limit arrive after the first dead letter that has to wait."""
    queues.configure(**{"share.partition.max.record.locks": "100"})
    done: set[int] = set()

    def act(message: Message) -> object:
        if message.offset() % 10:
            done.add(message.offset())
            return ACCEPT
        return REJECT

    with queues.consumer() as consumer:
        queues.produce(100)
        queues.work(consumer, act, lambda: len(done) == 90)  # type: ignore[arg-type]
        queues.until_letters(10)
        (error,) = queues.admin.delete_topics([queues.dlq]).values()
        assert error is None
        queues.produce(500, 100)
        queues.work(consumer, act, lambda: len(done) == 540)  # type: ignore[arg-type]
        assert queues.offsets().start_offset == 100
        found = queues.offsets(backlog=True)
        assert (found.lag, found.dead_letters, found.waiting) == (50, 50, 0)
        assert found.dead_letter_age_ms is not None
        (record,) = queues.admin.explain_record(queues.group, TopicPartition(queues.topic, 0), 100).records
        assert record.state == "archiving"
        assert f"50 dead letters for '{queues.dlq}' are not written" in record.explanation
        assert "does not exist" in record.explanation
        queues.create(queues.dlq, 1, **{ENABLE_CONFIG: "true"})
        letters = queues.until_letters(50)
        queues.until_start(600)
    assert sorted(int(said(letter)["offset"]) for letter in letters) == list(range(100, 600, 10))


def test_what_waits_for_its_letter_waits_for_no_worker_while_one_works_nor_after_it_left(
    queues: Queues,
) -> None:
    queues.enable(queues.dlq, False)
    queues.produce(3)
    partition = TopicPartition(queues.topic, 0)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 3)
        found = queues.offsets(backlog=True)
        assert (found.lag, found.dead_letters, found.waiting) == (3, 3, 0)
    mends = f"sharegroups configs alter --topic {queues.dlq} --add-config {ENABLE_CONFIG}=true"
    deadline = time.monotonic() + BOUND_S
    while (reported := queues.admin.explain_record(queues.group, partition, 0)).loaded or mends not in str(
        reported.records
    ):
        assert time.monotonic() < deadline, reported
        time.sleep(0.05)
    found = queues.offsets(backlog=True)
    assert (found.lag, found.waiting) == (3, 0)
    queues.enable(queues.dlq, True)
    assert len(queues.until_letters(3)) == 3


@pytest.mark.rule("PL-907")
def test_with_the_policy_drop_a_topic_that_is_away_loses_letters_as_in_kafka(queues: Queues) -> None:
    queues.configure(**{FAILURE_CONFIG: "drop"})
    (error,) = queues.admin.delete_topics([queues.dlq]).values()
    assert error is None
    queues.produce(5)
    with queues.consumer() as consumer:
        queues.settle(consumer, REJECT, 5)
        queues.until_start(5)
    words = ("records_archived_without_letter", queues.group, "topic_missing", '"offsets": "0-4"')
    assert any(all(word in line for word in words) for line in queues.cluster.node.errors.splitlines())


@pytest.mark.rule("INV-18", "PL-907", "PL-915")
def test_under_load_a_topic_that_is_away_for_a_while_costs_no_letter_and_no_pause(queues: Queues) -> None:
    """A short run of `plays away --seconds 60`."""
    seen = play_away(queues, away_s=1.0, rate=200)
    assert seen.waited_most > 0
    assert seen.accepted + seen.rejected == seen.produced
    assert seen.delivered_again == 0


@pytest.mark.rule("INV-18", "PL-611", "12.22")
def test_a_node_that_is_killed_amid_a_thousand_rejects_writes_each_letter_at_least_once() -> None:
    """`play_kill` asserts that each dead letter exists, and that a duplicate has the same key as the first."""
    seen = play_kill(1_000)
    assert seen.letters == 1_000
    assert seen.answered_before >= 333
    assert seen.delivered_again == 0, "a confirmed record must not be redelivered"
