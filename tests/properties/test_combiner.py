"""The combiner's law: per offset the highest rank wins, in whatever order and however many times batches arrive
(SC-107, SC-111)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.state_batches import StateBatch, clip, combine, merge_into, prune

_SPAN = 40


@st.composite
def _batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, _SPAN))
    last = draw(st.integers(first, min(_SPAN, first + draw(st.sampled_from([0, 3, _SPAN])))))
    state = draw(st.sampled_from([0, 2, 3, 4]))
    until_ms = draw(st.sampled_from([0, 0, 1_000, 2_000])) if state == 0 else 0
    return StateBatch(first, last, state, draw(st.integers(0, 3)), until_ms)


_BATCHES = st.lists(_batch(), max_size=8)
_START = st.one_of(st.just(-1), st.integers(0, _SPAN + 2))


def _oracle(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int, int]]:
    """Return offset → highest rank, computed offset by offset (SC-107)."""
    found: dict[int, tuple[int, int, int]] = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if offset >= start:
                found[offset] = max(found.get(offset, (-1, -1, -1)), batch.rank)
    return found


@pytest.mark.rule("SC-107", "SC-101", "SC-104")
@settings(max_examples=500)
@given(_BATCHES, _BATCHES, _START)
def test_each_offset_holds_the_highest_rank_that_covers_it(
    current: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    assert _oracle(combine(current, new, start), -1) == _oracle(current + new, start)


@pytest.mark.rule("SC-100", "SC-108")
@settings(max_examples=500)
@given(_BATCHES, _BATCHES, _START)
def test_the_result_is_sorted_disjoint_and_maximally_merged(
    current: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    result = combine(current, new, start)
    for left, right in itertools.pairwise(result):
        assert left.last_offset < right.first_offset
        assert left.last_offset + 1 < right.first_offset or left.rank != right.rank


@pytest.mark.rule("SC-111", "SC-45")
@settings(max_examples=300)
@given(_BATCHES, _BATCHES, _BATCHES, _START)
def test_combining_is_idempotent_commutative_and_associative(
    one: list[StateBatch], two: list[StateBatch], three: list[StateBatch], start: int
) -> None:
    both = combine(one, two, start)
    assert combine(two, one, start) == both
    assert combine(both, two, start) == both
    assert combine(both, both, start) == both
    assert combine(both, three, start) == combine(one, combine(two, three, start), start)


@settings(max_examples=500)
@given(_BATCHES, _BATCHES, _START, _START)
def test_merging_into_a_stored_list_is_combining(
    one: list[StateBatch], two: list[StateBatch], before: int, start: int
) -> None:
    stored = combine(one, [], before)
    assert merge_into(stored, two, start) == combine(stored, two, start)


@settings(max_examples=200)
@given(_BATCHES, _START, st.integers(0, _SPAN), st.integers(0, _SPAN))
def test_parts_of_a_list_agree_with_the_offset_map(batches: list[StateBatch], start: int, low: int, width: int) -> None:
    stored = combine(batches, [], start)
    offsets = _oracle(stored, -1)
    expected = {offset: rank for offset, rank in offsets.items() if low <= offset <= low + width}
    assert _oracle(clip(stored, low, low + width), -1) == expected
    assert prune(stored, low) == clip(stored, low, _SPAN)
