"""Planned ranges, losses, and how a budget is spent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from share_metrics.reader import EntryId, Gap, Position, Range
from share_metrics.reader.planning import Goal, pack, plan_stream, share_out, split
from tests.support.pipeline_entries import STREAM, UNHURRIED, MemoryStream, epochs

EPOCHS = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@pytest.mark.rule("PM-9")
def test_a_plan_goes_to_the_tip() -> None:
    stream = MemoryStream(epochs(3, 4))
    plan = plan_stream(STREAM, stream.tip.earliest, stream.tip, stream)
    assert plan.end == Position(EntryId(2, 3), 7)
    assert plan.gaps == []
    assert [piece.entries for piece in plan.ranges] == [3, 4]


def test_an_idle_stream_needs_nothing() -> None:
    stream = MemoryStream(epochs(3))
    plan = plan_stream(STREAM, stream.tip.latest, stream.tip, stream)
    assert (plan.ranges, plan.gaps, plan.end) == ([], [], stream.tip.latest)


@pytest.mark.rule("PM-68")
def test_a_missing_stream_is_an_empty_one() -> None:
    start = Position(EntryId(0, 0), 0)
    assert plan_stream(STREAM, start, None, MemoryStream([])) == (start, [], [])


@pytest.mark.rule("PM-11", "PM-68", "SR-30")
def test_entries_trimmed_before_they_were_read_are_counted_exactly() -> None:
    stream = MemoryStream(epochs(3))
    start = stream.tip.latest
    stream.append(*(EntryId(2, seq) for seq in range(10)))
    stream.trim(3 + 4)
    plan = plan_stream(STREAM, start, stream.tip, stream)
    assert plan.gaps == [Gap(STREAM, EntryId(1, 2), EntryId(2, 4), 4, "trimmed")]
    assert plan.end == Position(EntryId(2, 9), 13)
    assert [piece.entries for piece in plan.ranges] == [6]


@pytest.mark.rule("PM-11")
def test_what_was_read_before_it_was_trimmed_is_not_lost() -> None:
    stream = MemoryStream(epochs(5))
    start = stream.tip.latest
    stream.append(EntryId(1, 5))
    stream.trim(5)
    plan = plan_stream(STREAM, start, stream.tip, stream)
    assert plan.gaps == []
    assert plan.end == Position(EntryId(1, 5), 6)


@pytest.mark.rule("PM-11")
def test_a_stream_trimmed_empty_is_all_gap() -> None:
    stream = MemoryStream(epochs(5))
    stream.trim(5)
    plan = plan_stream(STREAM, Position(EntryId(1, 1), 2), stream.tip, stream)
    assert plan.gaps == [Gap(STREAM, EntryId(1, 1), EntryId(1, 4), 3, "trimmed")]
    assert plan.end == Position(EntryId(1, 4), 5)


@pytest.mark.rule("PM-11")
@pytest.mark.parametrize("newer", [0, 2, 9])
def test_a_tail_that_the_store_lost_is_a_gap_and_reading_goes_on_with_what_is_there(newer: int) -> None:
    stream = MemoryStream(epochs(8))
    start = stream.tip.latest
    stream.lose_tail(4)
    if newer:
        stream.append(*(EntryId(2, seq) for seq in range(newer)))
    plan = plan_stream(STREAM, start, stream.tip, stream)
    assert [(gap.lost, gap.reason) for gap in plan.gaps] == [(4, "tail")]
    assert sum(piece.entries for piece in plan.ranges) == newer
    assert plan.end == Position(max(start.id, stream.last), stream.added)
    assert plan_stream(STREAM, plan.end, stream.tip, stream).gaps == []


@pytest.mark.rule("PM-11")
def test_a_store_that_was_emptied_is_a_lost_tail() -> None:
    stream = MemoryStream([EntryId(9, 0), EntryId(9, 1)])
    plan = plan_stream(STREAM, Position(EntryId(5, 9), 70), stream.tip, stream)
    assert [(gap.lost, gap.reason) for gap in plan.gaps] == [(70, "tail")]
    assert plan.end == Position(EntryId(9, 1), 2)


@pytest.mark.rule("PM-11")
def test_fewer_entries_than_the_store_counted_are_missing() -> None:
    stream = MemoryStream(epochs(6))
    tip = stream.tip
    del stream.ids[2:4]
    plan = plan_stream(STREAM, Position(EntryId(0, 0), 0), tip, stream)
    assert [(gap.lost, gap.reason) for gap in plan.gaps] == [(2, "missing")]


@pytest.mark.rule("PM-9")
def test_a_goal_ends_the_plan() -> None:
    stream = MemoryStream(epochs(6, 6))
    start = Position(EntryId(1, 1), 2)
    plan = plan_stream(STREAM, start, stream.tip, stream, goal=Goal(EntryId(2, 1), 8))
    assert (plan.end, plan.gaps) == (Position(EntryId(2, 1), 8), [])
    assert sum(piece.entries for piece in plan.ranges) == 6
    open_ended = plan_stream(STREAM, start, stream.tip, stream, goal=Goal(EntryId(2, 1)))
    assert open_ended.end == plan.end


@pytest.mark.rule("PM-9", "PM-68")
@UNHURRIED
@given(EPOCHS, st.lists(st.integers(1, 9), min_size=1, max_size=60), st.integers(1, 5))
def test_any_split_into_triggers_and_ranges_reads_every_entry_once(
    lengths: list[int], budgets: list[int], entries_max: int
) -> None:
    stream = MemoryStream(epochs(*lengths))
    at = stream.tip.earliest
    seen: list[EntryId] = []
    for budget in [*budgets, 1_000]:
        plan = plan_stream(STREAM, at, stream.tip, stream, limit=budget)
        pieces = split(plan.ranges, entries_max)
        assert plan.gaps == []
        assert sum(piece.entries for piece in pieces) <= budget
        assert all(piece.entries <= entries_max for piece in pieces)
        for piece in pieces:
            found = stream.within(piece)
            assert len(found) == piece.entries
            seen += found
        at = plan.end
        assert at.n == len(seen)
    assert seen == stream.ids


@pytest.mark.rule("PM-9", "PM-68")
@UNHURRIED
@given(st.dictionaries(st.text(max_size=3), st.integers(0, 500), max_size=9), st.integers(1, 300))
def test_a_budget_is_kept_and_every_stream_gets_on(lags: dict[str, int], budget: int) -> None:
    shares = share_out(lags, budget)
    behind = {stream for stream, lag in lags.items() if lag}
    assert sum(shares.values()) == min(budget, sum(lags.values()))
    assert all(1 <= share <= lags[stream] for stream, share in shares.items())
    assert len(shares) == min(len(behind), budget)


@pytest.mark.rule("PM-9")
def test_a_budget_is_split_in_proportion_to_the_lag() -> None:
    assert share_out({"a": 600, "b": 300, "c": 100}, 100) == {"a": 60, "b": 30, "c": 10}


@pytest.mark.rule("PM-5")
@UNHURRIED
@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 6))
def test_packed_tasks_hold_every_range_once_and_none_is_empty(sizes: list[int], bins: int) -> None:
    ranges = [Range(f"s{index}", EntryId(0, 0), EntryId(1, size), size) for index, size in enumerate(sizes)]
    tasks = pack(ranges, bins)
    assert sorted(piece for task in tasks for piece in task) == sorted(ranges)
    assert all(tasks)
    assert len(tasks) <= bins
    if ranges:
        loads = [sum(piece.entries for piece in task) for task in tasks]
        assert max(loads) <= sum(sizes) / len(tasks) + max(sizes)


def test_a_goal_that_was_passed_already_plans_nothing() -> None:
    stream = MemoryStream(epochs(6))
    start = Position(EntryId(1, 4), 5)
    assert plan_stream(STREAM, start, stream.tip, stream, goal=Goal(EntryId(1, 2), 3)) == (start, [], [])


@pytest.mark.rule("PM-11", "PM-120")
@pytest.mark.parametrize("consecutive", [True, False])
@pytest.mark.parametrize("newer", [0, 3, 40])
@pytest.mark.parametrize("limit", [None, 2])
def test_what_was_trimmed_before_a_backup_is_not_lost(consecutive: bool, newer: int, limit: int | None) -> None:
    """Entries 6 to 15 are in the backup; the reader had read the first 12 of 16."""
    stream = MemoryStream(epochs(16), consecutive=consecutive)
    at = Position(EntryId(1, 11), 12)
    stream.restore(6, 15)
    if newer:
        stream.append(*(EntryId(2, seq) for seq in range(newer)))
    planned = 0
    gaps: list[Gap] = []
    for _ in range(60):
        plan = plan_stream(STREAM, at, stream.tip, stream, limit=limit)
        planned, gaps = planned + sum(piece.entries for piece in plan.ranges), gaps + plan.gaps
        if plan.end == at:
            break
        at = plan.end
    assert (planned, gaps, at) == (4 + newer, [], stream.tip.latest)


@pytest.mark.rule("PM-11", "PM-120")
@pytest.mark.parametrize("newer", [0, 3, 40])
@pytest.mark.parametrize("limit", [None, 2])
def test_what_is_not_in_a_backup_is_a_lost_tail_counted_by_ids(newer: int, limit: int | None) -> None:
    """Entries 6 to 12 are in the backup; the reader had read all 16: three that it had read are lost."""
    stream = MemoryStream(epochs(16))
    at = stream.tip.latest
    stream.restore(6, 12)
    if newer:
        stream.append(*(EntryId(2, seq) for seq in range(newer)))
    planned = 0
    gaps: list[Gap] = []
    for _ in range(60):
        plan = plan_stream(STREAM, at, stream.tip, stream, limit=limit)
        again = plan_stream(STREAM, at, stream.tip, stream, goal=Goal(plan.end.id, plan.end.n))
        assert (again.end, again.ranges) == (plan.end, plan.ranges), "a batch is planned again as it was recorded"
        assert [gap.lost for gap in again.gaps] == [gap.lost for gap in plan.gaps]
        planned, gaps = planned + sum(piece.entries for piece in plan.ranges), gaps + plan.gaps
        if plan.end == at:
            break
        at = plan.end
    assert planned == newer
    assert [(gap.lost, gap.reason, gap.to_id) for gap in gaps] == [(3, "tail", EntryId(1, 15))]
    assert at.n == stream.added


@pytest.mark.rule("PM-120")
def test_a_loss_after_a_restore_is_counted_once() -> None:
    stream = MemoryStream(epochs(16))
    stream.restore(6, 12)
    at = plan_stream(STREAM, Position(EntryId(1, 15), 16), stream.tip, stream).end
    stream.lose_tail(2)
    plan = plan_stream(STREAM, at, stream.tip, stream)
    assert [gap.lost for gap in plan.gaps] == [2], "and not the three that were reported"
    assert plan_stream(STREAM, plan.end, stream.tip, stream).gaps == []


@pytest.mark.rule("PM-120")
def test_without_an_entry_of_the_last_epoch_the_count_is_an_upper_bound() -> None:
    stream = MemoryStream(epochs(10, 4))
    at = stream.tip.latest
    stream.restore(5, 8)
    plan = plan_stream(STREAM, at, stream.tip, stream)
    assert [gap.lost for gap in plan.gaps] == [14 - 4], "five of them had been trimmed; ids do not say how many"


@pytest.mark.rule("PM-11", "PM-120")
@pytest.mark.parametrize("consecutive", [True, False])
def test_a_lost_tail_is_counted_at_once_though_there_are_as_many_entries_again(consecutive: bool) -> None:
    """A limited batch does not reach the end of the stream, at which counts are compared."""
    stream = MemoryStream(epochs(8), consecutive=consecutive)
    at = stream.tip.latest
    stream.lose_tail(3)
    stream.append(*(EntryId(2, seq) for seq in range(20)))
    plan = plan_stream(STREAM, at, stream.tip, stream, limit=5)
    assert [(gap.lost, gap.reason) for gap in plan.gaps] == [(3, "tail")]
    assert plan.end == Position(EntryId(2, 4), 10)
    assert plan_stream(STREAM, plan.end, stream.tip, stream).gaps == []
