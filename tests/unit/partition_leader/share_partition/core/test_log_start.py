"""The log's start passes the share-partition's start offset (PL-620, PL-622, T16)."""

from __future__ import annotations

import pytest

from kip932.ids import STATE_ACQUIRED, STATE_ARCHIVED, STATE_AVAILABLE
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.share_partition import move_log_start

from .bench import Bench


def window() -> Window:
    """0-9 and 10-19 Available, 20-29 held by M."""
    made = Window(0)
    for first, last in ((0, 9), (10, 19)):
        made.add(InFlightBatch(first, last, STATE_AVAILABLE, 1))
    made.add(InFlightBatch(20, 29, STATE_ACQUIRED, 1, member="M", deadline=9_000))
    made.end_offset = 29
    return made


def codes(made: Window) -> list[tuple[int, int, int]]:
    return [run[:3] for batch in made.walk() for run in batch.runs(batch.first, batch.last)]


@pytest.mark.rule("T16", "PL-620")
def test_available_records_below_the_log_start_are_archived_to_the_last_and_no_other() -> None:
    made = window()
    assert move_log_start(made, 15)
    assert codes(made) == [(10, 14, STATE_ARCHIVED), (15, 19, STATE_AVAILABLE), (20, 29, STATE_ACQUIRED)]
    assert move_log_start(made, 16)
    assert codes(made)[:2] == [(10, 15, STATE_ARCHIVED), (16, 19, STATE_AVAILABLE)]
    assert move_log_start(made, 20)
    assert codes(made) == [(20, 29, STATE_ACQUIRED)]


@pytest.mark.rule("PL-622")
def test_acquired_records_below_the_log_start_stay_with_their_holder() -> None:
    made = window()
    assert move_log_start(made, 25)
    assert [run[2:] for batch in made.walk() for run in batch.lock_runs(20, 29)] == [(STATE_ACQUIRED, 1, "M", 9_000)]
    assert (made.start_offset, made.in_flight) == (25, 5)


@pytest.mark.rule("PL-620")
def test_waiting_fetches_check_again_when_the_log_start_moves_the_start_offset_and_only_then() -> None:
    bench = Bench(5, log=[(5, 14)])
    assert bench.do(ev.LogStartMoved(5)) == [], "it is there already"
    assert bench.do(ev.LogStartMoved(4)) == []
    assert bench.do(ev.LogStartMoved(6)) == [fx.Wake()]
    assert bench.fetch() == [(6, 14, 1)]
    assert bench.do(ev.LogStartMoved(6)) == []
    assert bench.do(ev.LogStartMoved(7)) == [fx.Wake()]
