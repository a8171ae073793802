"""Tests the checkers of dead letters: each finds its violations, and reports nothing in a correct history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING
from tests.simulation.checkers.dead_letters import LettersArrive, LettersTrue, NoLettersUnasked
from tests.simulation.final import Letter
from tests.simulation.history import LETTER_TOPIC, Administered, ProduceSent
from tests.simulation.made import SHARE, TOPIC, Made, found

_TEXT = {
    "topic": "t", "partition": "0", "offset": "3", "group": "g", "delivery.count": "2",
    "message": "Offset rejected by client.", "topic.id": "i",
}  # fmt: skip


def letter(*labels: tuple[str, bytes | None], key: bytes | None = b"g:t:0:3", value: Any = None, **said: str) -> Letter:
    texts = {**_TEXT, **{name.replace("_", "."): text for name, text in said.items()}}
    server = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in texts.items())
    return Letter(0, 0, key, value, (*labels, *server))


def on_its_way(*letters: Letter, code: int = 0, still: bool = False) -> Made:
    made = Made()
    made.add(Administered, "CreateTopics", "t", TOPIC, "")
    made.add(ProduceSent, "t", b"v", b"k", (("h", b"1"),))
    made.at(10).writes(3, (3, 3, STATE_ARCHIVING, 2), code=code)
    made.rests(3, (3, 3, STATE_ARCHIVING, 2)) if still else made.rests(4)
    made.final = replace(made.final, letters=letters)
    return made


@pytest.mark.rule("INV-18")
def test_a_record_on_its_way_has_a_letter_or_is_on_its_way_still() -> None:
    assert not found(LettersArrive(), on_its_way(letter()))
    assert not found(LettersArrive(), on_its_way(letter(), letter()))
    assert not found(LettersArrive(), on_its_way(still=True))
    assert not found(LettersArrive(), on_its_way(code=7)), "no answer shows whether it was"
    assert found(LettersArrive(), on_its_way()) == ["INV-18"]
    assert found(LettersArrive(), on_its_way(letter(offset="4"))) == ["INV-18"]
    assert found(LettersArrive(), on_its_way(letter(group="other"))) == ["INV-18"]


@pytest.mark.rule("INV-18")
def test_letters_that_went_with_their_topic_or_with_the_groups_state_are_not_missed() -> None:
    made = on_its_way()
    made.at(20).add(Administered, "DeleteTopics", LETTER_TOPIC, "cd" * 16, "")
    assert not found(LettersArrive(), made)
    for ms, rules in ((5_000, []), (5_001, ["INV-18"])):
        made = Made()
        made.add(Administered, "CreateTopics", "t", TOPIC, "")
        made.add(Administered, "DeleteTopics", LETTER_TOPIC, "cd" * 16, "")
        made.at(ms).writes(3, (3, 3, STATE_ARCHIVING, 2)).rests(4)
        assert found(LettersArrive(), made) == rules
    made = on_its_way()
    made.state_epoch += 1
    made.rests(0)
    assert not found(LettersArrive(), made)


@pytest.mark.rule("INV-18", "INV-2")
def test_a_letter_says_whose_it_is() -> None:
    assert not found(LettersTrue(), on_its_way(letter(), code=7))
    assert found(LettersTrue(), on_its_way(letter(delivery_count="1"))) == ["INV-18"]
    assert "INV-18" in found(LettersTrue(), on_its_way(letter(offset="9", key=None)))
    assert found(LettersTrue(), on_its_way(letter(message="?"))) == ["INV-18"]
    assert found(LettersTrue(), on_its_way(letter(key=b"k"))) == ["INV-18"]
    assert found(LettersTrue(), on_its_way(Letter(0, 0, None, None, ()))) == ["INV-18"]
    assert not found(LettersTrue(), on_its_way(letter(("h", b"1"), key=b"k", value=b"v")))
    assert found(LettersTrue(), on_its_way(letter(key=b"k", value=b"v"))) == ["INV-2"]
    assert found(LettersTrue(), on_its_way(letter(("h", b"1"), key=b"k", value=b"w"))) == ["INV-2"]


@pytest.mark.rule("INV-18")
def test_nothing_is_on_its_way_without_a_queue() -> None:
    assert found(NoLettersUnasked(), on_its_way()) == ["INV-18"]
    made = on_its_way()
    made.add(Administered, "IncrementalAlterConfigs", SHARE.group_id, "errors.deadletterqueue.topic.name=x", "")
    assert not found(NoLettersUnasked(), made)
    assert not found(NoLettersUnasked(), Made().writes(0, (0, 0, STATE_ARCHIVED, 1)).rests(1))
