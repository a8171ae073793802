"""Finds the acquired records of a batch, and the gaps."""

from __future__ import annotations

import pytest

from sharegroups.consuming.core.record_batch import Acquired, Extent, Slice, clip, restrict, select


@pytest.mark.rule("PL-250", "CL-22")
def test_only_acquired_parts_of_batches_are_selected() -> None:
    extents = [Extent(0, 10), Extent(10, 10), Extent(20, 10)]
    selection = select([Acquired(5, 12, 1), Acquired(25, 26, 3)], extents)
    assert selection.slices == [Slice(0, 5, 10, 1), Slice(1, 0, 3, 1), Slice(2, 5, 7, 3)]
    assert (selection.gaps, selection.records) == ([], 10)


@pytest.mark.rule("CL-23", "PL-232", "PL-804")
def test_acquired_offsets_without_a_record_are_gaps() -> None:
    extents = [Extent(0, 3), Extent(3, 1, is_control=True), Extent(8, 2)]
    selection = select([Acquired(1, 11, 1)], extents)
    assert selection.slices == [Slice(0, 1, 3, 1), Slice(2, 0, 2, 1)]
    assert selection.gaps == [(3, 7), (10, 11)]
    assert select([Acquired(0, 4, 1)], []).gaps == [(0, 4)]


def test_touching_ranges_with_different_counts_become_one_range() -> None:
    selection = select([Acquired(0, 1, 2), Acquired(2, 3, 1)], [Extent(0, 4)])
    assert selection.ranges == [(0, 3)]
    assert selection.slices == [Slice(0, 0, 2, 2), Slice(0, 2, 4, 1)]


@pytest.mark.rule("CL-27")
def test_slices_are_restricted_to_what_was_renewed() -> None:
    assert restrict([Slice(0, 0, 10, 1)], [Extent(100, 10)], [(102, 103), (109, 120)]) == [
        Slice(0, 2, 4, 1),
        Slice(0, 9, 10, 1),
    ]


@pytest.mark.rule("CL-110")
def test_no_more_offsets_are_taken_than_a_request_can_have_asked_for() -> None:
    ranges = [Acquired(10, 14, 1), Acquired(20, 24, 2), Acquired(30, 34, 3)]
    assert clip(ranges, 15) is ranges
    assert clip(ranges, 14) == [*ranges[:2], Acquired(30, 33, 3)]
    assert clip(ranges, 7) == [ranges[0], Acquired(20, 21, 2)]
    assert clip(ranges, 6) == [ranges[0], Acquired(20, 20, 2)]
    assert clip(ranges, 5) == ranges[:1]
    assert clip(ranges, 1) == [Acquired(10, 10, 1)]
    assert clip(ranges, 0) == []
    assert clip([], 0) == []
