"""What a window shows of a group's progress: the lag, the records that members hold, and who holds one for longest."""

from __future__ import annotations

import pytest

from kip932.errors import NotLeaderOrFollowerError
from partition_leader.progress.core.figures import NOT_HELD, Held
from partition_leader.progress.core.window_view import UNWATCHED, WATCHED_MAX, Moment, Watched, WindowView, view
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.share_partition import SharePartition
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def seen(bench: Bench, end: int, watched: Watched = UNWATCHED, holes: frozenset[int] = frozenset()) -> WindowView:
    def holes_from(first: int) -> int:
        return sum(first <= offset < end for offset in holes)

    found = view(bench.core, Moment(bench.now, end, holes_from, LOCK_MS), watched)
    assert found is not None
    return found


@pytest.mark.rule("PL-950")
def test_the_lag_falls_when_a_write_commits_what_is_finished() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    assert seen(bench, 20).lag == 20
    bench.fetch("M", max_records=10)
    assert (seen(bench, 20).lag, seen(bench, 20).in_flight) == (20, 10)
    bench.ack("M", (1, 3, ACCEPT), (5, 5, REJECT))
    found = seen(bench, 20)
    assert (found.lag, found.in_flight) == (16, 10), "finished once the write commits, and held until then"
    bench.persisted()
    found = seen(bench, 25, holes=frozenset({12, 21}))
    assert (found.start_offset, found.complete, found.lag, found.in_flight) == (0, 4, 21, 6)
    bench.ack("M", (0, 0, ACCEPT))
    bench.persisted()
    assert (seen(bench, 20).start_offset, seen(bench, 20).complete, seen(bench, 20).lag) == (4, 1, 15)


@pytest.mark.rule("PL-950")
def test_delayed_records_are_unfinished_and_no_member_holds_them() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch("M")
    bench.ack("M", (2, 6, RELEASE, 5_000))
    bench.persisted()
    found = seen(bench, 10)
    assert (found.lag, found.in_flight, found.delayed) == (10, 5, 5)


@pytest.mark.rule("PL-950")
def test_nothing_is_shown_before_it_is_loaded() -> None:
    core = SharePartition(1)
    moment = Moment(0, 5, lambda _: 0, LOCK_MS)
    assert view(core, moment) is None
    core.handle(ev.Drop(NotLeaderOrFollowerError("moved")), 0)
    assert view(core, moment) is None


@pytest.mark.rule("PL-953")
def test_who_holds_a_record_for_longest_and_renewals_do_not_interrupt_that() -> None:
    bench = Bench(log=[(0, 4), (5, 9), (10, 14)])
    assert seen(bench, 15).longest == NOT_HELD
    bench.fetch("slow", max_records=5)
    found = seen(bench, 15)
    assert found.longest == Held("slow", 0)
    bench.pass_time(2_000)
    bench.fetch("fast", max_records=5)
    found = seen(bench, 15, found.watched)
    assert found.longest == Held("slow", 2_000)
    for _ in range(3):
        bench.pass_time(LOCK_MS // 2)
        bench.ack("slow", (0, 4, RENEW))
        found = seen(bench, 15, found.watched)
    assert found.longest == Held("slow", 2_000 + 3 * (LOCK_MS // 2)), "fast has lost its lock"
    bench.ack("slow", (0, 4, ACCEPT))
    bench.persisted()
    assert seen(bench, 15, found.watched).longest == NOT_HELD


@pytest.mark.rule("PL-953")
def test_a_record_that_comes_again_is_held_from_then_on() -> None:
    bench = Bench(log=[(0, 0)])
    bench.fetch("m")
    first = seen(bench, 1)
    bench.pass_time(LOCK_MS)
    assert seen(bench, 1, first.watched).longest == NOT_HELD
    bench.fetch("m")
    bench.pass_time(10)
    found = seen(bench, 1, first.watched)
    assert found.longest == Held("m", 10), "its member is the same, and it is another delivery"


@pytest.mark.rule("PL-953")
def test_only_the_first_batches_are_watched() -> None:
    bench = Bench(log=[(first, first) for first in range(WATCHED_MAX + 4)])
    for _ in range(WATCHED_MAX + 4):
        bench.fetch("m", max_records=1)
    bench.ack("m", (1, 1, ACCEPT))
    bench.persisted()
    found = seen(bench, WATCHED_MAX + 4)
    assert found.in_flight == WATCHED_MAX + 3
    assert list(found.watched) == [0, *range(2, WATCHED_MAX + 1)]
