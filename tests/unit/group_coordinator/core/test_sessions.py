"""Session timers: one heap, with lazy cancellation."""

from __future__ import annotations

import pytest

from group_coordinator.core.sessions import Sessions

A, B = ("g", "A"), ("g", "B")


@pytest.mark.rule("P-13", "GC-24h")
def test_a_clock_put_back_over_and_over_costs_no_heap_entry_and_runs_out_once() -> None:
    sessions = Sessions()
    for now_ms in range(1_000):
        sessions.restart(A, now_ms + 100)
    assert sessions.due(100, 10) == []
    assert sessions.next_deadline() == 1_099
    assert sessions.due(1_098, 10) == []
    assert sessions.due(1_099, 10) == [A]
    assert sessions.expired(A, 1_099)


@pytest.mark.rule("GC-138")
def test_a_shorter_timeout_takes_effect_at_once() -> None:
    sessions = Sessions()
    sessions.restart(A, 1_000)
    sessions.restart(A, 500)
    assert sessions.next_deadline() == 500
    assert sessions.due(500, 10) == [A]
    sessions.cancel(A)
    assert sessions.next_deadline() is None
    assert sessions.due(2_000, 10) == []


@pytest.mark.rule("GC-30")
def test_an_expiry_that_could_not_be_written_comes_up_again() -> None:
    sessions = Sessions()
    sessions.restart(A, 10)
    assert sessions.due(10, 10) == [A]
    assert sessions.due(10, 10) == []
    assert sessions.next_deadline() == 1_010
    assert sessions.due(1_010, 10) == [A]
    sessions.restart(A, 1_500)
    assert sessions.next_deadline() == 1_500


def test_due_is_bounded() -> None:
    sessions = Sessions()
    sessions.restart(A, 10)
    sessions.restart(B, 10)
    assert sessions.due(10, 1) == [A]
    assert sessions.due(10, 1) == [B]


@pytest.mark.rule("GC-32a", "GC-69c")
def test_a_reset_starts_exactly_the_given_clocks() -> None:
    sessions = Sessions()
    sessions.restart(A, 10)
    sessions.reset([B, ("h", "C")], lambda group_id: {"g": 70, "h": 60}[group_id])
    assert len(sessions) == 2
    assert sessions.due(65, 10) == [("h", "C")]
    assert not sessions.expired(A, 10**9)
    assert sessions.cancel(B) == 70
    assert sessions.cancel(B) is None


def test_a_reset_asks_for_the_deadline_of_each_group_once() -> None:
    asked: list[str] = []

    def deadline(group_id: str) -> int:
        asked.append(group_id)
        return 70

    Sessions().reset([A, B, ("h", "A")], deadline)
    assert asked == ["g", "h"]
