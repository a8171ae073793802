"""Which dead letters of a share-partition are sent next, and when they are retried."""

from __future__ import annotations

import pytest

from kip932.failures import Failure
from partition_leader.dead_letters.core.waiting import (
    BACKOFF_MAX_MS,
    Stretch,
    WaitingLetters,
    by_letter,
    pause_ms,
)
from partition_leader.share_partition.core.effects import AcquiredRange, DeadLetter


def add(waiting: WaitingLetters, now_ms: int, *ranges: tuple[int, int], number: int = 1) -> None:
    waiting.add(DeadLetter(number, tuple(AcquiredRange(*each, 2) for each in ranges), "why"), now_ms)


@pytest.mark.rule("PL-943")
def test_letters_with_different_reasons_are_different_stretches_that_keep_theirs() -> None:
    waiting = WaitingLetters()
    failures = (Failure(2, 4, 1, "a"), Failure(5, 6, 2, "b"))
    waiting.add(DeadLetter(1, (AcquiredRange(0, 5, 2), AcquiredRange(6, 7, 3)), "why", failures), 0)
    found = waiting.take(0)
    expected = [(0, 1, 2, ""), (2, 4, 2, "a"), (5, 5, 2, "b"), (6, 6, 3, "b"), (7, 7, 3, "")]
    assert [(one.first, one.last, one.delivery_count, one.reason) for one in found] == expected
    assert [one.reason for one in found[1].singles(bare=True)] == ["a"] * 3


def spans(found: list[Stretch]) -> list[tuple[int, int]]:
    return [(stretch.first, stretch.last) for stretch in found]


def test_a_round_takes_what_is_due_in_order_and_no_more_than_it_may() -> None:
    waiting = WaitingLetters()
    add(waiting, 100, (20, 29), (40, 40))
    add(waiting, 150, (0, 4), number=2)
    assert (waiting.count, waiting.oldest_ms, waiting.due_ms) == (16, 100, 100)
    assert spans(waiting.take(149, 6)) == [(20, 25)], "0-4 is not due before 150"
    assert waiting.take(200) == [], "one round at a time"
    assert (waiting.count, waiting.due_ms) == (16, None)
    waiting.end([])
    assert spans(waiting.take(150, 8)) == [(0, 4), (26, 28)]
    assert by_letter(waiting._out) == {2: [(0, 4)], 1: [(26, 28)]}


@pytest.mark.rule("PL-912")
def test_what_failed_waits_and_so_does_what_comes_meanwhile_until_something_changes() -> None:
    waiting = WaitingLetters()
    add(waiting, 0, (0, 4))
    taken = waiting.take(0)
    waiting.attempts = 1
    waiting.end(taken)
    waiting.put_off(1_000)
    add(waiting, 10, (5, 5), number=2)
    assert waiting.due_ms == 1_000
    assert waiting.take(999) == []
    waiting.hurry(500)
    assert spans(waiting.take(500)) == [(0, 4), (5, 5)]


def test_one_that_failed_by_itself_keeps_no_other_waiting() -> None:
    waiting = WaitingLetters()
    add(waiting, 0, (0, 9))
    (taken,) = waiting.take(0)
    waiting.end([taken.cut(3, 3).failed(5_000), taken.cut(4, 9)])
    assert spans(waiting.take(0)) == [(4, 9)]
    waiting.end([])
    assert waiting.due_ms == 5_000
    assert waiting.take(5_000)[0].attempts == 1


def test_letters_alone_have_rounds_of_their_own() -> None:
    waiting = WaitingLetters()
    add(waiting, 0, (0, 2))
    (taken,) = waiting.take(0)
    waiting.end(taken.singles())
    add(waiting, 0, (3, 9), number=2)
    rounds = []
    while found := waiting.take(0):
        rounds.append(spans(found))
        waiting.end([])
    assert rounds == [[(0, 0)], [(1, 1)], [(2, 2)], [(3, 9)]]
    assert [single.bare for single in taken.singles(bare=True)] == [True] * 3


@pytest.mark.rule("PL-921")
def test_one_that_leaves_gives_back_what_failed_and_keeps_what_was_not_tried() -> None:
    waiting = WaitingLetters()
    add(waiting, 0, (0, 1))
    (taken,) = waiting.take(0)
    waiting.end([taken.cut(0, 0).failed(9), taken.cut(1, 1)])
    assert spans(waiting.take_failed()) == [(0, 0)]
    assert waiting.count == 1
    waiting.attempts = 1
    assert spans(waiting.take_failed()) == [(1, 1)]
    assert waiting.oldest_ms is None


@pytest.mark.rule("PL-912")
def test_the_pause_doubles_to_its_cap_and_is_jittered_by_a_fifth() -> None:
    assert [pause_ms(attempts, 0.5) for attempts in (1, 2, 3, 4, 5, 6, 60)] == [
        1_000, 2_000, 4_000, 8_000, 16_000, BACKOFF_MAX_MS, BACKOFF_MAX_MS,
    ]  # fmt: skip
    assert (pause_ms(1, 0.0), pause_ms(1, 1.0)) == (800, 1_200)
