"""Open and aborted transactions of a log, found from its batches."""

from __future__ import annotations

import pytest

from partition_leader.topic_log.core.batch import CONTROL_ABORT, CONTROL_COMMIT, LogBatch, marker_batch
from partition_leader.topic_log.core.transactions import ABORTED_MAX, COUNTED_MAX, AbortedTransaction, LogTransactions

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
    assert known.aborted == [AbortedTransaction(B, 6, 11, 2)]


@pytest.mark.rule("PL-006")
def test_aborted_transactions_are_found_by_the_offsets_that_they_span() -> None:
    known = after(
        written(0, A), written(2, B), marker(4, B, CONTROL_ABORT), marker(5, A, CONTROL_ABORT),
        written(10, A), marker(12, A, CONTROL_ABORT), written(20, B), marker(22, B, CONTROL_COMMIT),
    )  # fmt: skip
    first, second = AbortedTransaction(B, 2, 4, 2), AbortedTransaction(A, 0, 5, 2)
    third = AbortedTransaction(A, 10, 12, 2)
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
    assert copy.aborted_in(0, 5) == (AbortedTransaction(A, 4, 6, 2),)
    assert copy.last_stable(0, 12) == 8


@pytest.mark.rule("PL-827")
def test_offsets_with_nothing_for_a_group_are_counted_and_never_too_many() -> None:
    known = after(
        written(0, A), written(2, B, records=3), written(5, A), marker(7, A, CONTROL_ABORT),
        written(8, 0), marker(10, B, CONTROL_COMMIT), written(11, A, epoch=1), marker(13, A, CONTROL_ABORT, 1),
        written(14, B, epoch=1),
    )  # fmt: skip
    assert known.empty_in(0, 15, committed=True) == 4 + 1 + 1 + 2 + 1
    assert known.empty_in(0, 15, committed=False) == 3
    assert known.empty_in(1, 12, committed=True) == 2, "the first transaction may have records before"
    assert known.empty_in(8, 13, committed=True) == 1 + 2 + 1
    assert known.empty_in(14, 15, committed=True) == 0
    assert known.empty_in(5, 4, committed=True) == 0


@pytest.mark.rule("PL-827")
def test_the_newest_markers_and_aborted_transactions_are_considered() -> None:
    known = LogTransactions.none()
    for number in range(3 * COUNTED_MAX):
        known.note(written(6 * number, A, epoch=number))
        known.note(marker(6 * number + 2, A, CONTROL_ABORT, number))
        known.note(written(6 * number + 3, B, epoch=number))
        known.note(marker(6 * number + 5, B, CONTROL_COMMIT, number))
    assert COUNTED_MAX <= len(known.markers) < 2 * COUNTED_MAX
    end = 18 * COUNTED_MAX
    assert known.empty_in(end - 6 * COUNTED_MAX, end, committed=True) == 4 * COUNTED_MAX
    assert known.empty_in(0, end, committed=True) < 9 * COUNTED_MAX


@pytest.mark.rule("CM-150", "CM-62")
def test_there_is_a_bound_on_aborted_transactions() -> None:
    known = LogTransactions.none()
    known.aborted = [AbortedTransaction(A, 2 * n, 2 * n + 1) for n in range(ABORTED_MAX - 1)]
    assert not known.full
    known.aborted.append(AbortedTransaction(A, 2 * ABORTED_MAX, 2 * ABORTED_MAX + 1))
    assert known.full
