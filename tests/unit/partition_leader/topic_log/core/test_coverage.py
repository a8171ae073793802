"""Offsets of a log that no entry covers."""

from __future__ import annotations

from partition_leader.topic_log.core.coverage import Coverage


def test_offsets_between_entries_are_lost_and_those_below_the_log_start_are_not_reported() -> None:
    coverage = Coverage(10)
    for start, end in ((10, 20), (25, 30), (30, 40), (41, 50)):
        coverage.holds(start, end)
    assert coverage.lost == [(20, 24), (40, 40)]
    assert coverage.above(20) == [(20, 24), (40, 40)]
    assert coverage.above(22) == [(22, 24), (40, 40)]
    assert coverage.above(24) == [(24, 24), (40, 40)], "its last offset is still in the log"
    assert coverage.above(25) == [(40, 40)]


def test_an_entry_within_an_earlier_one_loses_nothing() -> None:
    coverage = Coverage(0)
    for start, end in ((0, 10), (3, 5), (10, 11)):
        coverage.holds(start, end)
    assert coverage.lost == []
