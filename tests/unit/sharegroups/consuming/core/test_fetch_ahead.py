"""The number of records that one fetch may bring beyond a poll's."""

from __future__ import annotations

import pytest

from sharegroups.consuming.core.fetch_ahead import BATCHES_MAX, BYTES_MAX, QUICK_MS, RECORDS_MAX, Ahead


def quick(most: int = 500) -> Ahead:
    """The state after an application has quickly worked through one full poll of records of 100 bytes, all in one
    batch."""
    ahead = Ahead(most)
    ahead.answered(most, most * 100, 1)
    ahead.held(1)
    return ahead


@pytest.mark.rule("CL-138")
def test_it_is_on_with_a_backlog_and_a_quick_application() -> None:
    ahead = Ahead(500)
    assert (ahead.is_on, ahead.records(1)) == (False, 500), "before anything is known"
    ahead.answered(499, 49_900, 1)
    ahead.held(1)
    assert (ahead.is_on, ahead.records(1)) == (False, 500), "there is no backlog"
    ahead.answered(500, 50_000, 1)
    ahead.held(QUICK_MS)
    assert (ahead.is_on, ahead.records(1)) == (True, RECORDS_MAX)
    ahead.answered(12, 1_200, 1)
    assert (ahead.is_on, ahead.records(1)) == (False, 500), "the next fetch goes out before a poll's records are over"
    ahead.held(1)
    assert (ahead.is_on, ahead.records(1)) == (False, 500), "the backlog is over"
    ahead.answered(500, 50_000, 1)
    ahead.held(1)
    ahead.unknown(QUICK_MS)
    assert not ahead.is_on, "it keeps a record"
    ahead.held(1)
    assert ahead.is_on
    ahead.answered(0, 0, 0)
    assert not ahead.is_on, "nothing came"
    ahead.answered(500, 50_000, 1)
    ahead.unknown(QUICK_MS + 0.1)
    for _ in range(9):
        ahead.held(1)
        assert not ahead.is_on, "one of the last ten polls kept a record, and the others were slow"
    ahead.held(1)
    assert ahead.is_on
    ahead.held(QUICK_MS + 0.1)
    assert not ahead.is_on
    for _ in range(9):
        ahead.held(1)
        assert not ahead.is_on, "one of the last ten polls was slow"
    ahead.held(1)
    assert ahead.is_on
    for small in (1, 10, 499):
        assert not quick(small).is_on, "a small max.poll.records is what the user wants"
        assert quick(small).records(1) == small


@pytest.mark.rule("CL-136")
@pytest.mark.parametrize(
    ("size", "batches", "expected"),
    [
        pytest.param(500 * 1_024, 1, [2_000, 1_000, 666, 500, 500], id="1 KiB"),
        pytest.param(500 * 4_096, 8, [BYTES_MAX // 4_096, 1_000, 666, 500, 500], id="4 KiB: the bytes"),
        pytest.param(500 * 65_536, 125, [500] * 5, id="64 KiB: a poll"),
        pytest.param(50_000, 250, [2 * BATCHES_MAX, 1_000, 666, 500, 500], id="two records in a batch: the batches"),
        pytest.param(50_000, 500, [500] * 5, id="one record in a batch: a poll"),
        pytest.param(0, 0, [2_000, 1_000, 666, 500, 500], id="an answer without a size"),
    ],
)
def test_so_many_are_asked_of_one_to_four_and_of_fifty_leaders(size: int, batches: int, expected: list[int]) -> None:
    ahead = quick()
    ahead.answered(500, size, batches)
    assert [ahead.records(leaders) for leaders in (1, 2, 3, 4, 50)] == expected
    assert quick(5_000).records(1) == 5_000, "never less than a poll may return"
