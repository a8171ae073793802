"""The first check that fails gives the reason why dead letters cannot be written (PL-906)."""

from __future__ import annotations

import pytest

from partition_leader.dead_letters.core.destination import (
    GIVEN_UP,
    TRANSIENT,
    Destination,
    Failure,
    Queue,
    QueueTopic,
    Reason,
    View,
    destination,
)

TOPIC = QueueTopic(b"i" * 16, 3, True, 1_000)
GOOD = View(10, True, Queue("dlq.t"), TOPIC, "dlq.", False)


@pytest.mark.rule("PL-906", "PL-901", "PL-917", "PL-918")
@pytest.mark.parametrize(
    ("view", "reason", "word"),
    [
        (GOOD._replace(complete_since_ms=9, served=False), Reason.METADATA, "metadata"),
        (GOOD._replace(served=False), Reason.SWITCHED_OFF, "share.version"),
        (GOOD._replace(queue=Queue("")), Reason.SWITCHED_OFF, "topic.name"),
        (GOOD._replace(queue=Queue("t"), prefix="x"), Reason.LOOP, "loop"),
        (GOOD._replace(queue=Queue("__t")), Reason.INVALID_NAME, "'__t'"),
        (GOOD._replace(queue=Queue("dlq. t")), Reason.INVALID_NAME, "'dlq. t'"),
        (GOOD._replace(topic=TOPIC._replace(enabled=False), prefix="x"), Reason.NOT_ENABLED, "not enabled"),
        (GOOD._replace(topic=None, prefix="x"), Reason.TOPIC_MISSING, "auto.create"),
        (GOOD._replace(topic=None, prefix="x", creates=True), Reason.WRONG_PREFIX, "'x'"),
        (GOOD._replace(prefix="x"), Reason.WRONG_PREFIX, "topic.name.prefix"),
    ],
)
def test_why_letters_cannot_be_written(view: View, reason: Reason, word: str) -> None:
    found = destination(view, "t", 10)
    assert isinstance(found, Failure)
    assert found.reason is reason
    assert word in found.text
    assert found.advice


def test_a_topic_that_is_not_enabled_is_mended_by_the_command_that_is_named() -> None:
    found = destination(GOOD._replace(topic=TOPIC._replace(enabled=False)), "t", 10)
    assert isinstance(found, Failure)
    assert found.with_advice == (
        "topic 'dlq.t' is not enabled as a dead-letter topic (what to do: sharegroups configs alter --topic dlq.t "
        "--add-config errors.deadletterqueue.group.enable=true)"
    )


@pytest.mark.rule("PL-906")
def test_where_letters_go() -> None:
    assert destination(GOOD, "t", 10) == Destination("dlq.t", TOPIC, False)
    assert destination(GOOD._replace(prefix="", queue=Queue("any", copies=True)), "t", 10) == Destination(
        "any", TOPIC, True
    )
    assert destination(GOOD._replace(topic=None, creates=True), "t", 10) == Destination("dlq.t", None, False)


def test_no_reason_is_both_final_and_passing() -> None:
    assert not GIVEN_UP & TRANSIENT
    assert {Reason.NOT_ENABLED, Reason.TOPIC_MISSING, Reason.TOO_LARGE} & (GIVEN_UP | TRANSIENT) == set()
