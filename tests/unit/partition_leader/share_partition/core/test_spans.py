"""Arithmetic on whole arrays, compared with the plain loop that it replaces (P-3)."""

from __future__ import annotations

from array import array
from itertools import groupby
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.ids import STATE_ACQUIRED, TERMINAL_STATES
from partition_leader.share_partition.core.batch import InFlightBatch, runs_of
from partition_leader.share_partition.core.spans import ALL, Span, is_dense, mask_of, split_at, stretches
from partition_leader.share_partition.core.transitions import (
    COMMIT,
    ILLEGAL,
    PENDING,
    PENDING_CODES,
    STATE_MASK,
    IllegalTransitionError,
)

FIRST = 1_000
RECORDS = st.lists(st.tuples(st.sampled_from([0, 1, 2, 4, *PENDING_CODES]), st.integers(1, 3)), min_size=1, max_size=40)


def batch_of(records: list[tuple[int, int]]) -> InFlightBatch:
    batch = InFlightBatch(FIRST, FIRST + len(records) - 1, STATE_ACQUIRED, 1, member="m", deadline=9)
    batch.assign(FIRST, bytes(code for code, _ in records))
    for offset, (_, count) in enumerate(records, FIRST):
        batch.set_counts(offset, offset, count)
    return batch


def spans_of(mask: list[bool]) -> list[Span]:
    found = [
        [offset for offset, _ in group] for is_in, group in groupby(enumerate(mask, FIRST), itemgetter(1)) if is_in
    ]
    return [(offsets[0], offsets[-1]) for offsets in found]


@given(st.lists(st.booleans(), max_size=40))
def test_spans_become_a_mask_and_a_mask_becomes_spans(mask: list[bool]) -> None:
    spans = spans_of(mask)
    assert stretches(bytes(mask), FIRST) == spans
    assert list(mask_of(spans, FIRST, FIRST + len(mask) - 1)) == [ALL * is_in for is_in in mask]


@given(RECORDS)
def test_runs_are_stretches_of_equal_code_and_count_and_may_be_of_some_codes_only(
    records: list[tuple[int, int]],
) -> None:
    codes, counts = bytes(code for code, _ in records), array("i", [count for _, count in records])
    expected: list[tuple[int, int, int, int]] = []
    at = FIRST
    for (code, count), group in groupby(records):
        size = len(list(group))
        expected.append((at, at + size - 1, code, count))
        at += size
    assert list(runs_of(FIRST, codes, counts)) == expected
    only_available = bytes([ALL]) + bytes(255)
    assert list(runs_of(FIRST, codes, counts, only_available)) == [run for run in expected if run[2] == 0]


@given(RECORDS, st.data())
def test_what_a_write_says_and_what_its_commit_does_is_what_each_record_says(
    records: list[tuple[int, int]], data: st.DataObject
) -> None:
    mask = data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records)).filter(any))
    batch, spans = batch_of(records), spans_of(mask)
    written = batch.states_to_write(spans)

    said = {
        offset: (state, count) for first, last, state, count, _ in written.states for offset in range(first, last + 1)
    }
    expected = {
        offset: (code & STATE_MASK, count)
        for offset, ((code, count), is_in) in enumerate(zip(records, mask, strict=True), FIRST)
        if is_in and code & STATE_MASK != STATE_ACQUIRED
    }
    finished = [count for state, count in expected.values() if state in TERMINAL_STATES]
    assert said == expected
    assert (written.max_count, written.sum_counts) == (max(finished, default=0), sum(finished))

    reported = list(zip(records, mask, strict=True))
    illegal = [FIRST + at for at, ((code, _), is_in) in enumerate(reported) if is_in and COMMIT[code] == ILLEGAL]
    if illegal:
        before = [batch.lock_at(offset) for offset in range(batch.first, batch.last + 1)]
        with pytest.raises(IllegalTransitionError, match=rf"^offset {illegal[0]} is "):
            batch.settle(spans, COMMIT)
        assert [batch.lock_at(offset) for offset in range(batch.first, batch.last + 1)] == before
        mask = [is_in and COMMIT[code] != ILLEGAL for (code, _), is_in in reported]
        spans = spans_of(mask)
        if not spans:
            return

    batch.settle(spans, COMMIT)
    arrived = [is_in and code in PENDING_CODES for (code, _), is_in in zip(records, mask, strict=True)]
    after = [batch.lock_at(offset) for offset in range(batch.first, batch.last + 1)]
    assert [code for code, *_ in after] == [
        code & ~PENDING if gone else code for (code, _), gone in zip(records, arrived, strict=True)
    ]
    assert [(member, deadline) for *_, member, deadline in after] == [("", 0) if gone else ("m", 9) for gone in arrived]


@pytest.mark.parametrize(
    ("spans", "dense"),
    [([], False), ([(0, 0)], False), ([(0, 0), (31, 31)], True), ([(0, 0), (32, 32)], False)],
)
def test_spans_are_dense_with_fewer_than_sixteen_offsets_for_each(spans: list[Span], dense: bool) -> None:
    assert is_dense(spans) is dense


@pytest.mark.parametrize(
    ("start_offset", "parts"),
    [(3, [(5, 9)]), (5, [(5, 9)]), (6, [(5, 5), (6, 9)]), (9, [(5, 8), (9, 9)]), (10, [(5, 9)])],
)
def test_a_span_is_cut_at_the_start_offset(start_offset: int, parts: list[tuple[int, int]]) -> None:
    assert split_at(5, 9, start_offset) == parts
