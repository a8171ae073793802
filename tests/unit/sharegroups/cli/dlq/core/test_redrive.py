"""What happens to each dead letter, and up to where the queue may be deleted."""

from __future__ import annotations

import pytest

from sharegroups.cli.dlq.core.dead_letters import Letter, letter_of
from sharegroups.cli.dlq.core.redrive import Fate, Redrive, SettledPrefix, scope_of
from sharegroups.cli.dlq.core.seen_origins import SeenOrigins
from tests.support.letters import letter_headers


def letter(offset: int, group: str = "g", topic: str = "orders", partition: int = 0) -> Letter:
    made = letter_of(letter_headers(offset, topic, partition, group), b"k", b"v")
    assert made is not None
    return made


GARBLED = letter_of([(name, b"x") for name, _ in letter_headers(0)], b"k", b"v")


@pytest.mark.rule("CT-126", "CT-127")
def test_each_origin_of_a_group_is_sent_once() -> None:
    redrive = Redrive(SeenOrigins())
    assert redrive.decide(letter(1), True, 1, 1) is Fate.SENT
    assert redrive.decide(letter(1), True, 1, 1) is Fate.DUPLICATE
    for other in (letter(2), letter(1, group="h"), letter(1, topic="jobs"), letter(1, partition=1)):
        assert redrive.decide(other, True, 1, 1) is Fate.SENT
    assert redrive.decide(None, False, 1, 1) is Fate.LEFT
    assert redrive.decide(letter(9), False, 1, 1) is Fate.LEFT
    assert redrive.decide(letter(9), True, 1, 1) is Fate.SENT, "a dead letter that was left is not a duplicate"
    assert GARBLED is not None
    assert redrive.decide(GARBLED, True, 1, 1) is Fate.FAILED


@pytest.mark.rule("CT-126")
def test_what_was_redriven_before_is_passed_over_and_counts_as_settled() -> None:
    before = SeenOrigins()
    before.add(*scope_of(letter(1)), 1)
    redrive = Redrive(before)
    for _ in range(2):
        assert redrive.decide(letter(1), True, 1, 1) is Fate.BEFORE
    assert redrive.is_settled(letter(1), Fate.BEFORE, 1, 1)


@pytest.mark.rule("CT-126", "CT-127")
def test_other_contents_and_other_topic_ids_are_other_letters() -> None:
    before = SeenOrigins()
    before.add(*scope_of(letter(1)), 7)
    redrive = Redrive(before)
    assert redrive.decide(letter(1), True, 8, 8) is Fate.SENT, "a record that claims to be its fresh one is not"
    assert redrive.decide(letter(1), True, 9, 9) is Fate.SENT
    assert redrive.decide(letter(1), True, 9, 9) is Fate.DUPLICATE
    assert redrive.decide(letter(1)._replace(topic_id="another"), True, 7, 7) is Fate.SENT
    assert (redrive.is_claimed(letter(1)), redrive.is_claimed(letter(2))) == (True, False)
    assert redrive.decide(letter(1), True, 1, None) is Fate.BEFORE
    assert not redrive.is_settled(letter(1), Fate.BEFORE, 1, None), "believed, and not deleted"


@pytest.mark.rule("CT-127")
def test_a_duplicate_is_settled_only_with_the_letter_that_was_sent() -> None:
    redrive = Redrive(SeenOrigins())
    for one in (letter(1), letter(2)):
        redrive.decide(one, True, 1, 1)
        assert redrive.decide(one, True, 1, 1) is Fate.DUPLICATE
    redrive.failed(letter(1), 1)
    assert not redrive.is_settled(letter(1), Fate.DUPLICATE, 1, 1)
    assert redrive.is_settled(letter(2), Fate.DUPLICATE, 1, 1)
    assert redrive.decide(letter(1), True, 1, 1) is Fate.SENT, "the next one with its origin is tried"
    for fate, settled in ((Fate.SENT, True), (Fate.FAILED, False), (Fate.LEFT, False)):
        assert redrive.is_settled(letter(2), fate, 1, 1) is settled
    assert not redrive.is_settled(None, Fate.LEFT, 1, 1)


@pytest.mark.rule("CT-127")
def test_the_prefix_ends_at_the_first_record_that_must_stay() -> None:
    prefix = SettledPrefix(10)
    prefix.meet(10, True)
    prefix.meet(12, True)
    assert prefix.end == 10, "known only when the page was gone through"
    prefix.reach(20)
    assert (prefix.end, prefix.is_open) == (20, True)
    prefix.meet(21, True)
    prefix.meet(23, False)
    prefix.meet(24, True)
    prefix.reach(30)
    assert (prefix.end, prefix.is_open) == (23, False)
