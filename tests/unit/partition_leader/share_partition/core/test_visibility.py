"""The batches that read_committed hides, decided from the headers of the batches read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_partition.core.events import AbortedTransaction
from partition_leader.share_partition.core.visibility import aborted_spans, without
from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT, LogBatch

A, B = 71, 72


def written(base: int, producer: int, *, transactional: bool = True) -> LogBatch:
    return LogBatch(base, base + 1, 10, b"", 0, 0, producer_id=producer, is_transactional=transactional)


def marker(base: int, producer: int, kind: int = CONTROL_ABORT) -> LogBatch:
    return LogBatch(base, base, 10, b"", 0, 0, producer, is_transactional=True, is_control=True, control_type=kind)


def test_only_an_abort_marker_is_one() -> None:
    assert marker(0, A).is_abort
    assert not marker(0, A, CONTROL_COMMIT).is_abort
    assert not LogBatch(0, 1, 10, b"", 0, 0, control_type=CONTROL_ABORT).is_abort


def test_an_aborted_transaction_hides_its_producers_batches_up_to_its_marker_and_nothing_else() -> None:
    batches = [
        written(0, A),
        written(2, B),
        written(4, A, transactional=False),
        written(6, A),
        marker(8, B, CONTROL_COMMIT),
        marker(9, A),
        written(10, A),
    ]
    assert aborted_spans(batches, []) == []
    assert aborted_spans(batches, [AbortedTransaction(A, 0, 9)]) == [(0, 1), (6, 7)]
    assert aborted_spans(batches, [AbortedTransaction(A, 10, 12)]) == [(10, 11)]


@pytest.mark.parametrize(("first", "hidden"), [(0, [(4, 5)]), (5, [(4, 5)]), (6, [])])
def test_a_transaction_begins_with_the_batch_that_holds_its_first_offset(
    first: int, hidden: list[tuple[int, int]]
) -> None:
    assert aborted_spans([written(4, A), marker(6, A)], [AbortedTransaction(A, first, 6)]) == hidden


def test_transactions_of_several_producers_are_distinguished_in_whatever_order_they_are_named() -> None:
    batches = [written(0, A), written(2, B), marker(4, B), written(5, B), written(7, A), marker(9, A)]
    named = [AbortedTransaction(B, 2, 4), AbortedTransaction(A, 0, 9)]
    assert aborted_spans(batches, named) == [(0, 1), (2, 3), (7, 8)]
    assert aborted_spans(batches, named[::-1]) == [(0, 1), (2, 3), (7, 8)]


@pytest.mark.rule("PL-803")
def test_a_marker_that_cannot_be_read_hides_nothing_of_what_follows() -> None:
    batches = [written(0, A), written(3, A)]  # the marker at 2 is damaged
    assert aborted_spans(batches, [AbortedTransaction(A, 0, 2)]) == [(0, 1)]


def test_ranges_are_cut_around_what_is_hidden_and_keep_their_counts() -> None:
    ranges = [AcquiredRange(0, 9, 1), AcquiredRange(12, 12, 3), AcquiredRange(20, 29, 2)]
    assert without(ranges, []) == tuple(ranges)
    assert without(ranges, [(2, 3), (7, 12), (25, 40)]) == (
        AcquiredRange(0, 1, 1),
        AcquiredRange(4, 6, 1),
        AcquiredRange(20, 24, 2),
    )
    assert without(ranges, [(0, 40)]) == ()
    assert without([AcquiredRange(5, 8, 1)], [(5, 5), (8, 8)]) == (AcquiredRange(6, 7, 1),)
    assert without([AcquiredRange(5, 8, 1)], [(0, 4), (9, 9)]) == (AcquiredRange(5, 8, 1),)


@given(st.lists(st.booleans(), max_size=30), st.lists(st.sampled_from("x12"), max_size=30))
def test_what_is_left_is_what_was_acquired_and_is_not_hidden(hidden: list[bool], acquired: list[str]) -> None:
    spans = [(at, at) for at, is_in in enumerate(hidden) if is_in]
    ranges = [AcquiredRange(at, at, int(count)) for at, count in enumerate(acquired) if count != "x"]
    gone = {first for first, _ in spans}
    assert without(ranges, spans) == tuple(one for one in ranges if one.first_offset not in gone)
