"""The records of a worker that run alone, and when the next of them may begin."""

from __future__ import annotations

import pytest

from sharegroups.worker.core.isolation import PARKED_S, WAIT_S, Isolation, runs_alone


@pytest.mark.parametrize(
    ("limit", "first_alone"),
    [(1, None), (2, None), (3, 3), (4, 3), (5, 4), (6, 4), (10, 6)],
)
def test_what_the_leader_hands_out_in_parts_runs_alone(limit: int, first_alone: int | None) -> None:
    alone = [count for count in range(1, limit + 1) if runs_alone(count, limit)]
    assert alone == ([] if first_alone is None else list(range(first_alone, limit + 1)))


def test_one_after_another_once_nothing_else_is_in_hand_and_no_request_is_out() -> None:
    isolation = Isolation[str]()
    assert not isolation.holds_any
    isolation.asked(10.0)
    isolation.add(["a", "b"], 10.2)
    assert isolation.holds_any
    assert isolation.waiting == 2
    assert isolation.due_in(0, 10.2) == pytest.approx(PARKED_S - 0.2)
    assert isolation.due_in(1, 12.0) == pytest.approx(WAIT_S - 1.8), "another job runs"
    assert isolation.due_in(0, 12.0) == 0
    assert isolation.begin() == "a"
    assert isolation.runs("a")
    assert isolation.due_in(0, 12.0) is None
    isolation.ended("another", 13.0)
    assert isolation.is_running
    isolation.ended("a", 14.0)
    assert isolation.due_in(0, 14.0) == 0
    assert isolation.begin() == "b"
    isolation.ended("b", 15.0)
    assert not isolation.holds_any
    assert isolation.due_in(0, 15.0) is None


def test_beside_jobs_that_run_on_it_begins_after_a_minute() -> None:
    isolation = Isolation[str]()
    isolation.add(["a", "b"], 0.0)
    assert isolation.due_in(3, WAIT_S) == 0
    isolation.begin()
    isolation.ended("a", 100.0)
    assert isolation.due_in(3, 100.0) == WAIT_S, "the next one waits as long"


def test_waiting_ones_can_be_taken_back() -> None:
    isolation = Isolation[str]()
    isolation.add(["a", "b", "c"], 0.0)
    assert isolation.take_back(lambda job: job != "b") == ["a", "c"]
    assert isolation.begin() == "b"
