"""Share-partitions move at once over holes that no record will ever fill (CM-47), and late releases of acquisitions."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev

from .bench import Bench

RELEASE = 2


@pytest.mark.rule("CM-47", "PL-124")
def test_an_empty_window_moves_to_the_end_of_the_hole() -> None:
    bench = Bench(start=100)
    bench.do(ev.HoleFound(100, 1_000))
    assert (bench.core.start_offset, bench.core.next_fetch_offset(), bench.core.in_flight) == (1_000, 1_000, 0)


@pytest.mark.rule("CM-47", "PL-1202")
def test_an_old_report_of_a_hole_moves_nothing() -> None:
    bench = Bench(start=100)
    bench.do(ev.HoleFound(20, 60))
    bench.do(ev.HoleFound(20, 100))
    assert bench.core.start_offset == 100


@pytest.mark.rule("CM-47", "PL-1201")
def test_what_is_in_flight_before_the_hole_stays_with_its_holder() -> None:
    bench = Bench(log=[(0, 9)])
    assert bench.fetch() == [(0, 9, 1)]
    bench.do(ev.HoleFound(10, 50))
    assert bench.core.start_offset == 0
    assert bench.records() == [(0, 9, 1, 1)]


@pytest.mark.rule("CM-47", "T17", "PL-226", "PL-608")
def test_stored_records_that_the_log_has_lost_are_archived_and_holes_between_them_resolved() -> None:
    bench = Bench(start=5, batches=(StateBatch(7, 7, 4, 1), StateBatch(9, 12, 0, 2)))
    assert bench.core.next_fetch_offset() == 5
    bench.do(ev.HoleFound(5, 13))
    assert (bench.core.start_offset, bench.core.next_fetch_offset()) == (13, 13)
    assert bench.core.overview().gap_window is None


@pytest.mark.rule("CM-47", "PL-608")
def test_a_hole_that_ends_within_the_window_is_resolved_up_to_there() -> None:
    bench = Bench(start=5, batches=(StateBatch(9, 12, 0, 2), StateBatch(20, 29, 0, 1)), log=[(20, 29)])
    bench.do(ev.HoleFound(5, 20))
    assert (bench.core.start_offset, bench.core.next_fetch_offset()) == (20, 20)
    assert bench.fetch() == [(20, 29, 2)]


@pytest.mark.rule("PL-621", "CM-47")
def test_the_start_offset_behind_a_hole_is_written_after_five_seconds() -> None:
    bench = Bench(start=100)
    bench.do(ev.HoleFound(100, 1_000))
    assert not bench.writes
    bench.now += 5_000
    bench.do(ev.Tick(bench.settings))
    assert [write.start_offset for write in bench.writes] == [1_000]


@pytest.mark.rule("PL-505", "PL-1201")
def test_giving_back_an_acquisition_leaves_a_later_one_of_the_same_member_alone() -> None:
    bench = Bench(log=[(0, 9)])
    assert bench.fetch() == [(0, 9, 1)]
    bench.release("M")
    bench.persisted()
    assert bench.fetch() == [(0, 9, 2)]
    op = bench.release("M", ((0, 9, 1),))
    assert bench.replies[op] == fx.Reply(op, None, False)
    assert bench.records() == [(0, 9, 1, 2)]


@pytest.mark.rule("PL-523")
@pytest.mark.parametrize(("moved", "written"), [(True, [1_000]), (False, [])])
def test_a_start_offset_behind_a_hole_is_written_when_the_last_session_leaves_at_once(
    moved: bool, written: list[int]
) -> None:
    bench = Bench(start=100)
    if moved:
        bench.do(ev.HoleFound(100, 1_000))
    bench.do(ev.Retire(errors.UnknownServerError("the last session of the group ended")))
    assert [write.start_offset for write in bench.writes] == written


def test_a_hole_over_all_that_is_in_flight_and_further_moves_the_start_offset_to_its_end() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.acked("M", (0, 9, RELEASE))
    bench.do(ev.HoleFound(0, 50))
    assert (bench.spso, bench.core.next_fetch_offset(), bench.core.in_flight) == (50, 50, 0)
