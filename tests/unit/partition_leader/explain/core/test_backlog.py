"""A group's backlog in one share-partition: records held by members, waiting records, and delayed ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.explain.core.backlog import Backlog
from partition_leader.explain.core.backlog import backlog as backlog_of
from partition_leader.share_partition.core import events as ev
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, REJECT = 1, 2, 3


def backlog(
    bench: Bench, end: int, holes: frozenset[int] = frozenset(), empty: frozenset[int] = frozenset()
) -> Backlog:
    def among(offsets: frozenset[int]) -> Callable[[int], int]:
        return lambda first: sum(first <= offset < end for offset in offsets)

    found = backlog_of(bench.core, end, among(holes), among(holes | empty))
    assert found is not None
    return found


def counted(bench: Bench, end: int, holes: frozenset[int] = frozenset()) -> tuple[int, int, int]:
    """Return the backlog of a share-partition in which no record is delayed."""
    held, waiting, start, delayed = backlog(bench, end, holes)
    assert delayed == 0
    return held, waiting, start


@pytest.mark.rule("PL-827")
def test_what_members_hold_and_what_waits() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    assert counted(bench, 20) == (0, 20, 0)
    assert bench.fetch("M", max_records=10) == [(0, 9, 1)]
    assert counted(bench, 20) == (10, 10, 0)
    bench.ack("M", (0, 1, ACCEPT), (2, 3, RELEASE), (4, 4, REJECT))
    assert counted(bench, 20) == (10, 10, 0), "until the write is confirmed"
    bench.persisted()
    assert counted(bench, 20) == (5, 12, 2)
    assert counted(bench, 25, frozenset({11, 22})) == (5, 15, 2)
    bench.pass_time(LOCK_MS)
    while bench.writes:
        bench.persisted()
    assert counted(bench, 20) == (0, 17, 2)
    assert bench.core.overview() == bench.core.overview()


@pytest.mark.rule("PL-827")
def test_delayed_records_are_neither_held_nor_waiting() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch("M", max_records=10)
    bench.ack("M", (2, 6, RELEASE, 5_000))
    assert backlog(bench, 20) == (10, 10, 0, 0), "until the write is confirmed"
    bench.persisted()
    assert backlog(bench, 20) == (5, 10, 0, 5)
    bench.do(ev.LogStartMoved(4))
    assert backlog(bench, 20) == (3, 10, 4, 3)
    bench.pass_time(5_000)
    assert backlog(bench, 20) == (3, 13, 4, 0)


@pytest.mark.rule("PL-827")
def test_a_batch_that_the_start_offset_cuts_counts_from_there_on() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch("M")
    assert counted(bench, 10) == (10, 0, 0)
    bench.do(ev.LogStartMoved(4))
    assert counted(bench, 10) == (6, 0, 4)
    assert bench.acked("M", (4, 9, ACCEPT)) is None
    assert counted(bench, 10) == (0, 0, 10)


@pytest.mark.rule("PL-827")
def test_what_the_store_said_nothing_about_waits_unless_the_log_has_it_not() -> None:
    stored = (
        StateBatch(5, 6, STATE_ACKNOWLEDGED, 1),
        StateBatch(10, 10, STATE_AVAILABLE, 3),
        StateBatch(12, 12, STATE_ARCHIVED, 5),
    )
    bench = Bench(0, batches=stored, log=[(0, 12)])
    assert counted(bench, 13) == (0, 5 + 3 + 1 + 1, 0)
    assert counted(bench, 20, frozenset({3, 4, 15})) == (0, 5 + 3 + 1 + 1 + 7 - 3, 0)


def test_one_that_is_not_active_counts_nothing() -> None:
    bench = Bench(-1, resolved=True)
    assert backlog_of(bench.core, 10, lambda first: 0, lambda first: 0) is None


@pytest.mark.rule("PL-827")
def test_what_has_nothing_for_the_group_beyond_its_window_does_not_wait() -> None:
    stored = (StateBatch(4, 4, STATE_AVAILABLE, 3),)
    bench = Bench(0, batches=stored, log=[(0, 9)])
    found = backlog(bench, 10, frozenset({1}), frozenset({2, 3, 6, 7}))
    assert found.waiting == (5 - 1) + (5 - 2), "below what is stored only holes are left out: others may end beyond"
