"""Which records go out as dead letters, and what becomes of them when they have been written."""

from __future__ import annotations

from kip932.ids import STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from partition_leader.share.core.batch import InFlightBatch
from partition_leader.share.core.dead_letters import DeadLetters
from partition_leader.share.core.effects import AcquiredRange
from partition_leader.share.core.in_flight import Window

REJECTED, LIMIT = "client reject", "delivery count exceeded"


def window() -> Window:
    """10-14 Available, 15-19 Archiving with count 2, 20-29 Archiving with count 5."""
    made = Window(10)
    for first, last, code, count in (
        (10, 14, STATE_AVAILABLE, 1),
        (15, 19, STATE_ARCHIVING, 2),
        (20, 29, STATE_ARCHIVING, 5),
    ):
        made.add(InFlightBatch(first, last, code, count))
    return made


def states(made: Window) -> list[tuple[int, int, int]]:
    return [
        (first, last, code) for batch in made.walk() for first, last, code, _ in batch.runs(batch.first, batch.last)
    ]


def test_one_letter_for_each_cause_with_the_archiving_records_of_its_spans_in_order() -> None:
    letters = DeadLetters()
    assert not letters
    sent = letters.send(window(), [((22, 24), LIMIT), ((12, 16), REJECTED), ((20, 20), LIMIT)])
    assert [(letter.dead_letter_id, letter.cause, letter.ranges) for letter in sent] == [
        (1, LIMIT, (AcquiredRange(20, 20, 5), AcquiredRange(22, 24, 5))),
        (2, REJECTED, (AcquiredRange(15, 16, 2),)),
    ]
    assert letters
    assert letters.send(window(), [((10, 14), REJECTED)]) == []


def test_what_came_back_is_archived_once_and_nothing_beside_it() -> None:
    letters, made = DeadLetters(), window()
    letters.send(made, [((17, 21), LIMIT)])
    assert letters.finish(made, 7) == []
    assert letters.finish(made, 1) == [(17, 19), (20, 21)]
    assert states(made) == [
        (10, 14, STATE_AVAILABLE),
        (15, 16, STATE_ARCHIVING),
        (17, 19, STATE_ARCHIVED),
        (20, 21, STATE_ARCHIVED),
        (22, 29, STATE_ARCHIVING),
    ]
    assert not letters
    assert letters.finish(made, 1) == []


def test_letters_that_nobody_waits_for_change_nothing_when_they_come_back() -> None:
    letters, made = DeadLetters(), window()
    letters.send(made, [((15, 19), REJECTED)])
    letters.forget()
    before = states(made)
    assert not letters
    assert letters.finish(made, 1) == []
    assert states(made) == before
    assert letters.send(made, [((15, 15), REJECTED)])[0].dead_letter_id == 2
