"""When locks are renewed, and in which requests."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.ids import ACK_RENEW
from sharegroups.consuming.core.acknowledgements import AckBatch, offsets_with
from sharegroups.consuming.core.renewals import Lock, halves, renewal_batches


@pytest.mark.rule("CL-94")
def test_a_renewal_is_due_at_a_third_of_the_lock() -> None:
    assert Lock(1_000, 30_000).due_ms == 11_000
    assert Lock(1_000, 0).due_ms == 2_000, "one of unknown length, each second"


@pytest.mark.rule("CL-96")
def test_a_lock_is_over_by_its_length_if_that_is_known() -> None:
    assert Lock(1_000, 30_000).ends_ms == 31_000
    assert Lock(1_000, 0).ends_ms > 10**15


@pytest.mark.rule("CL-94")
@given(st.sets(st.integers(0, 200)))
def test_the_batches_renew_exactly_the_offsets_without_touching_each_other(offsets: set[int]) -> None:
    batches = renewal_batches(sorted(offsets))
    found = [offset for low, high in offsets_with(batches, ACK_RENEW) for offset in range(low, high + 1)]
    assert found == sorted(offsets)
    assert all(left.last + 1 < right.first for left, right in pairwise(batches))
    assert renewal_batches([3, 4, 7]) == [AckBatch(3, 4, (ACK_RENEW,)), AckBatch(7, 7, (ACK_RENEW,))]


@pytest.mark.rule("CL-94")
@given(st.lists(st.integers(), min_size=2, unique=True))
def test_halves_are_smaller_and_lose_nothing(offsets: list[int]) -> None:
    left, right = halves(offsets)
    assert left + right == offsets
    assert left
    assert right
