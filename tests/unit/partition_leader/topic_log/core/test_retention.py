"""The batches that retention removes."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.batch import marker_batch
from partition_leader.topic_log.core.retention import Cut, Retention, cut

from .batches import stored


@pytest.mark.rule("CM-45")
def test_retention_stops_at_the_first_batch_that_must_stay() -> None:
    batches = [stored(i * 2, 2, 10, at_ms=i) for i in range(5)]
    assert cut(0, batches, Retention(3)).log_start == 6
    assert cut(0, batches, Retention(None, 25)).log_start == 4
    by_both = cut(0, batches, Retention(1, 25))
    assert (by_both.log_start, by_both.exhausted) == (4, False)
    assert cut(0, batches, Retention(99)).exhausted


@pytest.mark.rule("CM-45")
def test_a_cut_says_where_the_next_page_goes_on_and_how_much_is_still_too_much() -> None:
    batches = [stored(i * 2, 2, 10, at_ms=i) for i in range(3)]
    assert cut(1, [], Retention(None)) == Cut(1, 0, exhausted=True)
    assert cut(0, batches, Retention(None)) == Cut(0, 0, exhausted=False)
    assert cut(0, batches, Retention(None, 35)) == Cut(6, 5, exhausted=True)
    assert cut(0, batches, Retention(None, 30)) == Cut(6, 0, exhausted=True)
    assert cut(0, batches, Retention(None, 29)) == Cut(4, 9, exhausted=False)
    assert cut(0, batches, Retention(2, 1)) == Cut(4, 0, exhausted=False)
    assert cut(5, batches[2:], Retention(9)) == Cut(6, 0, exhausted=True)
    assert cut(9, batches, Retention(9)) == Cut(9, 0, exhausted=True)


@pytest.mark.rule("CM-45", "CM-150")
def test_a_marker_without_bytes_stays_until_it_is_old_or_more_is_too_much() -> None:
    batches = [marker_batch(0, (7, 0), 1, 5), stored(1, 1, 10, at_ms=5)]
    assert cut(0, batches, Retention(5)).log_start == 0
    assert cut(0, batches, Retention(6)).log_start == 2
    assert cut(0, batches, Retention(None, 9)).log_start == 1
