"""Open and aborted transactions of a log, as its batches tell."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT, LogBatch, marker_batch
from partition_leader.topic_log.core.transactions import ABORTED_MAX, AbortedTransaction, LogTransactions

A, B = 71, 72


def written(base: int, producer: int, *, epoch: int = 0, records: int = 2) -> LogBatch:
    return LogBatch(base, base + records - 1, 1, b"x", 5, 0, producer, epoch, 0, True, transactional_id=f"t{producer}")


def after(*batches: LogBatch) -> LogTransactions:
    known = LogTransactions.none()
    for batch in batches:
        known.note(batch)
    return known


def marker(base: int, producer: int, kind: int, epoch: int = 0) -> LogBatch:
    return marker_batch(base, (producer, epoch), kind, 9)


@pytest.mark.rule("PL-008", "PL-808")
def test_last_stable_is_the_first_offset_of_the_earliest_open_transaction() -> None:
    known = after(written(4, A), written(6, B), written(8, A))
    assert known.last_stable(0, 10) == 4
    known.note(marker(10, A, CONTROL_COMMIT))
    assert known.last_stable(0, 11) == 6
    assert known.last_stable(8, 11) == 8
    known.note(marker(11, B, CONTROL_ABORT))
    assert known.last_stable(0, 12) == 12
    assert known.aborted == [AbortedTransaction(B, 6, 11)]


@pytest.mark.rule("PL-006")
def test_aborted_transactions_are_found_by_the_offsets_that_they_span() -> None:
    known = after(
        written(0, A), written(2, B), marker(4, B, CONTROL_ABORT), marker(5, A, CONTROL_ABORT),
        written(10, A), marker(12, A, CONTROL_ABORT), written(20, B), marker(22, B, CONTROL_COMMIT),
    )  # fmt: skip
    first, second, third = AbortedTransaction(B, 2, 4), AbortedTransaction(A, 0, 5), AbortedTransaction(A, 10, 12)
    assert known.aborted_in(0, 100) == (first, second, third)
    assert known.aborted_in(0, 1) == (second,)
    assert known.aborted_in(5, 9) == (second,)
    assert known.aborted_in(6, 10) == (third,)
    assert known.aborted_in(13, 100) == ()
    known.trim(5)
    assert known.aborted == [second, third]
    known.trim(13)
    assert known.aborted == []


@pytest.mark.rule("CM-150")
def test_a_marker_without_a_batch_opens_and_hides_nothing() -> None:
    known = after(marker(0, A, CONTROL_ABORT))
    assert not known.any
    assert known.last_stable(0, 1) == 1


@pytest.mark.rule("CM-150")
def test_a_snapshots_transactions_go_on_and_what_lies_beyond_the_logs_end_is_left_out() -> None:
    known = after(written(4, A), marker(6, A, CONTROL_ABORT), written(8, B), written(12, A, epoch=1))
    copy = LogTransactions.none()
    copy.restore(reversed(known.open.values()), known.aborted, 12)
    assert list(copy.open) == [B]
    assert copy.aborted_in(0, 5) == (AbortedTransaction(A, 4, 6),)
    assert copy.last_stable(0, 12) == 8


@pytest.mark.rule("CM-150", "CM-62")
def test_there_is_a_bound_on_aborted_transactions() -> None:
    known = LogTransactions.none()
    known.aborted = [AbortedTransaction(A, 2 * n, 2 * n + 1) for n in range(ABORTED_MAX - 1)]
    assert not known.full
    known.aborted.append(AbortedTransaction(A, 2 * ABORTED_MAX, 2 * ABORTED_MAX + 1))
    assert known.full
