"""Figures of share-partitions, and their sums."""

from __future__ import annotations

import pytest

from partition_leader.progress.core.figures import Figures, Held, Recent, Row, largest_first, plus, unfinished
from partition_leader.share_partition.core.finished import Finished

LEFT = Figures(1, 5, 100, 2, 1, 3, Finished(4, 2, 1, 900), 20, Recent(30_000, 3, 8), 50, Held("slow", 700), 1)
RIGHT = Figures(2, 7, 400, 1, 0, 0, Finished(1, 0, 0, 950), 2, Recent(10_000, 1, 2), 10, Held("slower", 900), 2)


@pytest.mark.rule("PL-951")
def test_a_sum_adds_counts_and_keeps_extremes() -> None:
    expected = Figures(
        3, 12, 400, 3, 1, 3, Finished(5, 2, 1, 950), 22, Recent(30_000, 4, 10), 10, Held("slower", 900), 3
    )
    assert plus(LEFT, RIGHT) == plus(RIGHT, LEFT) == expected


@pytest.mark.rule("PL-951")
def test_a_sum_with_an_unknown_lag_has_none_and_other_unknowns_do_not_count() -> None:
    unknown = Figures(1, None, None)
    found = plus(LEFT, unknown)
    assert (found.lag, found.oldest_ms, found.since_finish_ms) == (None, 100, 50)
    assert plus(unknown, LEFT).longest == Held("slow", 700)
    assert plus(unknown, unknown).longest == Held("", 0)
    assert plus(unknown, unknown).since_finish_ms is None


@pytest.mark.rule("PL-951")
def test_a_member_that_has_just_got_a_record_is_named_in_a_sum() -> None:
    assert plus(Figures(longest=Held("m", 0)), Figures()).longest == Held("m", 0)
    assert plus(Figures(), Figures(longest=Held("m", 0))).longest == Held("m", 0)


@pytest.mark.rule("PL-950")
def test_finished_offsets_and_holes_are_no_lag_and_none_is_subtracted_twice() -> None:
    assert unfinished(130, 100, 6, 0) == 24
    assert unfinished(130, 100, 6, 4) == 24
    assert unfinished(130, 100, 6, 9) == 21
    assert unfinished(90, 100, 0, 0) == 0, "the log end fell back below the start offset"


@pytest.mark.rule("PL-951")
def test_the_rows_with_the_largest_lag_come_first() -> None:
    rows = [Row("g", b"t", number, Figures(lag=lag)) for number, lag in enumerate([3, None, 0, 9])]
    assert [row.figures.lag for row in largest_first(rows, 10)] == [9, 3, 0, None]
    assert [row.partition for row in largest_first(iter(rows), 2)] == [3, 0]
