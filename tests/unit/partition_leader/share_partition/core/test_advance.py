"""How far the start offset advances, and which start offset a write may carry (PL-120 … PL-125, PL-704)."""

from __future__ import annotations

import pytest

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ACQUIRED, STATE_ARCHIVED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.advance import Progress, advance, committed, prospective
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.transitions import PENDING_ACKNOWLEDGED, PENDING_AVAILABLE

from .bench import Bench

ACCEPT = 1


def window(*batches: tuple[int, int, int], start: int | None = None) -> Window:
    """A window of batches (first, last, code). Its start offset is that of the first batch, unless `start` is given."""
    made = Window(batches[0][0] if start is None else start)
    for first, last, code in batches:
        held = code in (STATE_ACQUIRED, PENDING_ACKNOWLEDGED, PENDING_AVAILABLE)
        made.add(InFlightBatch(first, last, code, 1, member="M" if held else "", deadline=9_000 if held else 0))
    made.end_offset = batches[-1][1]
    return made


@pytest.mark.rule("PL-122")
def test_the_start_offset_stops_at_a_record_whose_write_is_outstanding() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch(max_records=20)
    bench.ack("M", (0, 9, ACCEPT))
    bench.ack("M", (10, 19, ACCEPT))
    bench.persisted()
    assert bench.spso == 10, "the second write has just left"
    bench.persisted()
    assert bench.spso == 20


@pytest.mark.rule("PL-704", "PL-125")
def test_a_write_says_the_start_offset_and_the_count_that_hold_once_it_is_durable() -> None:
    made = window((0, 9, STATE_ACKNOWLEDGED), (10, 19, PENDING_ACKNOWLEDGED), (20, 29, STATE_ACQUIRED))
    *_, third = made.walk()
    made.assign(third, 25, bytes([STATE_ARCHIVED]))
    assert committed(made) == Progress(0, 21)
    assert prospective(made) == Progress(20, 1)
    assert advance(made)
    assert committed(made) == Progress(10, 11)


@pytest.mark.rule("PL-125")
def test_a_pending_record_at_the_start_offset_that_ends_its_batch_is_counted() -> None:
    made = window((0, 9, PENDING_ACKNOWLEDGED), (10, 19, STATE_AVAILABLE))
    made.move_start(9)
    assert committed(made) == Progress(9, 1)


@pytest.mark.rule("PL-121", "PL-122")
def test_unfinished_records_below_the_start_offset_do_not_hold_it_back() -> None:
    made = window((0, 9, STATE_ACQUIRED), (12, 19, STATE_ACKNOWLEDGED), (20, 29, STATE_AVAILABLE))
    made.move_start(5)
    made.assign(next(made.walk()), 5, bytes([STATE_ACKNOWLEDGED]) * 5)
    assert advance(made)
    assert made.start_offset == 20
    made = window((0, 9, STATE_ACQUIRED), (12, 19, STATE_AVAILABLE))
    made.move_start(5)
    made.assign(next(made.walk()), 5, bytes([STATE_ACKNOWLEDGED]) * 5)
    assert advance(made)
    assert made.start_offset == 12, "natural gaps are skipped"


@pytest.mark.rule("PL-122", "PL-123", "PL-606")
@pytest.mark.parametrize("state", [STATE_ACKNOWLEDGED, STATE_AVAILABLE])
def test_the_start_offset_stops_where_an_unresolved_hole_begins(state: int) -> None:
    """It stops whether or not the records after the hole are finished, and however many there are."""
    stored = (StateBatch(10, 20, 2, 1), StateBatch(25, 30, state, 1), StateBatch(31, 40, 0, 1))
    bench = Bench(10, batches=stored)
    assert bench.spso == 21
    assert bench.core.overview().gap_window == (21, 40)


def test_a_start_offset_that_waits_at_a_hole_wakes_no_fetch() -> None:
    bench = Bench(10, batches=(StateBatch(21, 30, 2, 1),))
    assert bench.do(ev.SettingsChanged(bench.settings)) == [fx.Wake()], "new settings may let more be acquired"
    assert bench.do(ev.LogStartMoved(5)) == []
    assert bench.spso == 10


def test_an_empty_window_has_no_record_to_pass() -> None:
    made = Window(7)
    assert not advance(made)
    assert (committed(made), prospective(made)) == (Progress(7, 0), Progress(7, 0))
