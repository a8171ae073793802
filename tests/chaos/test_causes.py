"""Tests the judge: each bad history is refused for its own reason, and the good one next to it passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.checker import judge
from tests.chaos.history import (
    Acknowledged,
    Configured,
    Delivered,
    Dropped,
    Ended,
    Event,
    Failed,
    Fault,
    Observed,
    Produced,
    SessionEnded,
    Unseen,
)
from tests.chaos.verdict import judge_history

LOCK_MS, LIMIT = 2_000, 5
SETTINGS = Configured("g", LOCK_MS, LIMIT, 0)
#: So late that earlier faults no longer have effects.
LATER = 100_000
END = 200_000


def produced(at_ms: int = 1) -> Produced:
    return Produced("t", 0, 0, "v", at_ms)


def went(at_ms: int, count: int = 1, worker: str = "w1") -> Delivered:
    return Delivered(worker, "t", 0, 0, "v", count, at_ms - 5, at_ms)


def unseen(at_ms: int, count: int = 1, worker: str = "w1") -> Unseen:
    return Unseen(worker, "t", 0, 0, count, at_ms - 5, at_ms)


def acked(at_ms: int, kind: str = "ACCEPT", error: str = "", worker: str = "w1", count: int = 1) -> Acknowledged:
    return Acknowledged(worker, "t", 0, 0, kind, count, error, at_ms - 5, at_ms)


def fault(at_ms: int, name: str = "SIGKILL", target: str = "partition_leader-0") -> Fault:
    return Fault(name, target, at_ms)


def observed(start: int = 1, lag: int = 0, at_ms: int = END) -> Observed:
    return Observed("t", 0, start, lag, at_ms, at_ms - 1)


def judged(*events: Event) -> list[str]:
    return judge(sorted([SETTINGS, *events], key=lambda event: event.at_ms))


#: Deliveries up to this count, each released by the same worker.
def released(count: int) -> list[Event]:
    return [
        event
        for number in range(1, count + 1)
        for event in (went(number * 1_000, number), acked(number * 1_000 + 100, "RELEASE", count=number))
    ]


#: For each case: how the judge's sentence starts, the bad history, and the good one, which differs only in the cause.
VANISHED: dict[str, tuple[list[Event], list[Event]]] = {
    "delivered, never acknowledged": ([went(10)], [went(10), acked(20)]),
    "only released": (
        [went(10), acked(20, "RELEASE")],
        [went(10), acked(20, "RELEASE"), went(30, 2), acked(40, count=2)],
    ),
    "archived on its second release": (released(2), released(LIMIT)),
    "a release at the limit, and one below": (released(LIMIT - 1), released(LIMIT)),
    "its accept was refused": (
        [went(10), acked(20, error="INVALID_RECORD_STATE")],
        [went(10), acked(20, error="UNKNOWN")],
    ),
    "its accept was lost, but it came again": (
        [went(10), acked(20, error="UNKNOWN"), went(LATER, 2)],
        [went(10), acked(20, error="UNKNOWN"), went(LATER, 2), acked(LATER + 10, count=2)],
    ),
    "its holder was killed long after": (
        [went(10), fault(LATER, target="w1")],
        [went(10), fault(1_000, target="w1")],
    ),
    "another worker was killed": ([went(10), fault(1_000, target="w2")], [went(10), fault(1_000, target="w1")]),
    "it came again after its holder was killed": (
        [went(10), fault(1_000, target="w1"), went(LATER, 2, "w2")],
        [went(10), fault(1_000, target="w1"), went(LATER, 2, "w2"), acked(LATER + 10, worker="w2", count=2)],
    ),
    "a worker that had to be killed": (
        [went(10), Ended("w1", 0, 1_000)],
        [went(10), acked(20), Ended("w1", 0, 1_000)],
    ),
    "it worked on between the order to kill it and its death": (
        [fault(1, target="w1"), went(10)],
        [fault(1, target="w1"), went(10), Ended("w1", -1, 120, killed=True)],
    ),
    "too few faults to hide the rest": (
        [went(10), fault(1_000), fault(2_000)],
        [went(10), *(fault(1_000 * number) for number in range(1, LIMIT))],
    ),
    "the faults were long before": (
        [*(fault(1_000 * number) for number in range(1, LIMIT)), went(LATER)],
        [*(fault(1_000 * number) for number in range(1, LIMIT)), went(LATER), acked(LATER + 10)],
    ),
    "never handed out, though its client had it": (
        [went(10), acked(20, "RELEASE"), unseen(30, 2)],
        [*released(4), unseen(9_000, 5)],
    ),
}


@pytest.mark.rule("INV-1")
@pytest.mark.parametrize("name", VANISHED)
def test_a_record_that_ends_without_a_cause_is_lost(name: str) -> None:
    bad, good = VANISHED[name]
    (found,) = [said for said in judged(produced(), *bad, observed()) if said.startswith("INV-1:")]
    assert "ended without an ACCEPT or REJECT, a reached limit, or a killed holder" in found
    assert [said for said in judged(produced(), *good, observed()) if said.startswith("INV-1:")] == []


@pytest.mark.rule("INV-1")
def test_it_counts_as_lost_and_the_sentence_says_what_was_answered() -> None:
    verdict = judge_history([SETTINGS, produced(), went(10), acked(20, "RELEASE"), observed()])
    assert verdict.lost == 1
    (said,) = [said for said in verdict.violations if said.startswith("INV-1:")]
    assert "Place(topic='t', partition=0, offset=0) (v) was delivered 1 times" in said
    assert said.endswith("acknowledgements: w1 RELEASE of count 1 NONE")


@pytest.mark.rule("INV-1", "INV-9")
def test_below_the_start_offset_a_cause_is_asked_for_though_nothing_is_drained() -> None:
    (found,) = [said for said in judged(produced(), went(10), observed(1, 7)) if said.startswith("INV-1:")]
    assert "ended without" in found
    assert [said for said in judged(produced(), went(10), observed(0, 7)) if said.startswith("INV-1:")] == []


#: A second worker gets the record while the first one's lock is held; in the good history that lock has ended.
SHARED: dict[str, tuple[list[Event], list[Event]]] = {
    "the lock was not over": ([went(100), went(1_900, 2, "w2")], [went(100), went(2_100, 2, "w2")]),
    "the same count": (
        [went(100), went(1_900, 1, "w2")],
        [went(100), Dropped("n", "t", 0, "released", 500), went(1_900, 1, "w2")],
    ),
    "released only afterwards": (
        [went(100), went(500, 2, "w2"), acked(600, "RELEASE")],
        [went(100), acked(400, "RELEASE"), went(500, 2, "w2")],
    ),
    "it went to the same worker again": (
        [went(100), went(500, 2)],
        [went(100), acked(400, "RELEASE"), went(500, 2)],
    ),
    "its acknowledgement was refused": (
        [went(100), acked(400, error="INVALID_RECORD_STATE"), went(500, 2, "w2")],
        [went(100), acked(400, error="UNKNOWN"), went(500, 2, "w2")],
    ),
    "another worker released it": (
        [went(100), acked(400, "RELEASE", worker="w3"), went(500, 2, "w2")],
        [went(100), acked(400, "RELEASE"), went(500, 2, "w2")],
    ),
    "another worker's session ended": (
        [went(100), SessionEnded("w3", 300), went(500, 2, "w2")],
        [went(100), SessionEnded("w1", 300), went(500, 2, "w2")],
    ),
    "its session had ended before": (
        [SessionEnded("w1", 95), went(100), went(500, 2, "w2")],
        [went(100), Failed("w1", "poll", "NETWORK_EXCEPTION", 700), went(500, 2, "w2")],
    ),
    "it ended in good order later": (
        [went(100), went(500, 2, "w2"), Ended("w1", 0, 5_000)],
        [went(100), Ended("w1", 0, 300), went(500, 2, "w2")],
    ),
    "another share-partition was let go": (
        [went(100), Dropped("n", "t", 1, "released", 300), went(500, 2, "w2")],
        [went(100), Dropped("n", "t", 0, "released", 300), went(500, 2, "w2")],
    ),
    "a fault came later": (
        [went(100), went(500, 2, "w2"), fault(600)],
        [went(100), fault(300), went(500, 2, "w2")],
    ),
    "mending what was not broken": (
        [went(100), fault(300, "mended", "everything"), went(500, 2, "w2")],
        [fault(50), went(100), fault(300, "mended", "everything"), went(500, 2, "w2")],
    ),
    "a record that lay in the second one's client": (
        [went(100), unseen(500, 2, "w2")],
        [unseen(100), went(500, 2, "w2")],
    ),
}


@pytest.mark.rule("INV-3")
@pytest.mark.parametrize("name", SHARED)
def test_two_workers_that_hold_a_record_at_once_are_found(name: str) -> None:
    bad, good = SHARED[name]
    (found,) = [said for said in judged(produced(), *bad) if said.startswith("INV-3")]
    assert "its lock lasts 2000 ms" in found
    assert [said for said in judged(produced(), *good) if said.startswith("INV-3")] == []


@pytest.mark.rule("INV-8")
@pytest.mark.parametrize(
    ("bad", "good"),
    [
        pytest.param([went(10, LIMIT + 1)], [went(10, LIMIT)], id="a count above the limit"),
        pytest.param(
            [went(LOCK_MS * number, 1) for number in range(1, LIMIT + 2)],
            [went(LOCK_MS * number, 1) for number in range(1, LIMIT + 1)],
            id="too many deliveries",
        ),
        pytest.param(
            [*(went(LOCK_MS * number, 1) for number in range(1, LIMIT + 2)), Dropped("n", "t", 1, "released", 9)],
            [*(went(LOCK_MS * number, 1) for number in range(1, LIMIT + 2)), Dropped("n", "t", 0, "released", 9)],
            id="another share-partition was let go",
        ),
        pytest.param(
            [*(went(LOCK_MS * number, 1) for number in range(1, LIMIT + 2)), fault(9, "mended", "everything")],
            [*(went(LOCK_MS * number, 1) for number in range(1, LIMIT + 2)), fault(9)],
            id="mending what was not broken",
        ),
    ],
)
def test_more_attempts_than_the_limit_allows_are_found(bad: list[Event], good: list[Event]) -> None:
    assert [said for said in judged(produced(), *bad) if said.startswith("INV-8")]
    assert [said for said in judged(produced(), *good) if said.startswith("INV-8")] == []


@pytest.mark.parametrize("rule", ["INV-1", "INV-3", "INV-8"])
def test_a_history_without_the_groups_settings_is_refused_and_not_excused(rule: str) -> None:
    events: list[Event] = [produced(), went(10), acked(20), observed()]
    (found,) = judge(events)
    assert found == "the history does not contain the lock duration and the delivery limit of the group"
    assert judge([SETTINGS, *events]) == []


def _shuffled(events: list[Event]) -> list[Event]:
    return list(reversed(events))


@pytest.mark.rule("INV-3")
@pytest.mark.parametrize("order", [list, _shuffled])
def test_answers_that_came_in_the_other_order_are_no_violation(order: Callable[[list[Event]], list[Event]]) -> None:
    """w1's delivery of count 2 arrives before that of count 1, which the end of w2's session released."""
    ordered = order([went(110, 2, "w1"), went(120, 1, "w2"), SessionEnded("w2", 118)])
    assert [said for said in judged(produced(), *ordered) if said.startswith("INV-3")] == []
