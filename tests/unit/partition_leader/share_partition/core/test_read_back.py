"""The coordinator's stored state decides each record of an unanswered write (PL-707)."""

from __future__ import annotations

import pytest

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.effects import (
    CAUSE_ACK,
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    AcquiredRange,
)
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.operations import Operation
from partition_leader.share_partition.core.transitions import (
    PENDING_ACKNOWLEDGED,
    PENDING_ARCHIVED,
    PENDING_ARCHIVING,
    PENDING_AVAILABLE,
)
from partition_leader.share_partition.core.write_results import StoredRecords, settle_operation

LIMIT = 5
Records = list[tuple[int, int, int, int]]


def window(*batches: tuple[int, int, int, int]) -> Window:
    """A window of batches (first, last, code, delivery count), which M holds until 9,000."""
    made = Window(batches[0][0])
    for first, last, code, count in batches:
        made.add(InFlightBatch(first, last, code, count, member="M", deadline=9_000))
    made.end_offset = batches[-1][1]
    return made


def operation(*spans: tuple[int, int]) -> Operation:
    return Operation(1, CAUSE_ACK, LIMIT, dlq_enabled=True, spans=list(spans))


def records(made: Window) -> Records:
    """Return every cached record, including those below the start offset."""
    return [run for batch in made.walk() for run in batch.runs(batch.first, batch.last)]


def holders(made: Window) -> set[tuple[int, str, int]]:
    """Return the code, holder and deadline of the cached records."""
    return {
        (code, member, deadline)
        for batch in made.walk()
        for _, _, code, _, member, deadline in batch.lock_runs(batch.first, batch.last)
    }


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 20, [(2, 4, 0), (5, 5, 1), (6, 9, 2), (12, 15, 3)]),
        (4, 4, [(4, 4, 0)]),
        (4, 6, [(4, 4, 0), (5, 5, 1), (6, 6, 2)]),
        (0, 2, [(2, 2, 0)]),
        (9, 12, [(9, 9, 2), (12, 12, 3)]),
        (10, 11, []),
        (0, 1, []),
        (16, 20, []),
    ],
)
def test_what_is_stored_of_a_span_is_cut_to_it_and_what_lies_between_is_left_out(
    first: int, last: int, expected: list[tuple[int, int, int]]
) -> None:
    stored = StoredRecords(
        0, [StateBatch(12, 15, 2, 3), StateBatch(2, 4, 2, 0), StateBatch(6, 9, 2, 2), StateBatch(5, 5, 2, 1)]
    )
    assert [(*span, count) for span, (count, _), _ in stored.pieces(first, last)] == expected


@pytest.mark.rule("PL-707")
def test_pending_records_below_the_stored_start_offset_are_committed_and_no_other() -> None:
    made = window((0, 9, PENDING_ACKNOWLEDGED, 1))
    settle_operation(made, operation((0, 9)), StoredRecords(4, [StateBatch(4, 4, STATE_ACKNOWLEDGED, 1)]))
    assert records(made) == [(0, 4, STATE_ACKNOWLEDGED, 1), (5, 9, PENDING_ACKNOWLEDGED, 1)]
    settle_operation(made, operation((5, 9)), StoredRecords(9, []))
    assert records(made) == [(0, 8, STATE_ACKNOWLEDGED, 1), (9, 9, PENDING_ACKNOWLEDGED, 1)]
    settle_operation(made, operation((9, 9)), StoredRecords(9, [StateBatch(9, 9, STATE_ACKNOWLEDGED, 1)]))
    assert records(made) == [(0, 9, STATE_ACKNOWLEDGED, 1)]
    assert holders(made) == {(STATE_ACKNOWLEDGED, "", 0)}


@pytest.mark.rule("PL-707")
def test_a_span_over_two_batches_is_settled_in_both() -> None:
    made = window((0, 4, PENDING_ACKNOWLEDGED, 1), (5, 9, PENDING_ACKNOWLEDGED, 1))
    settle_operation(made, operation((3, 6)), StoredRecords(0, [StateBatch(0, 9, STATE_ACKNOWLEDGED, 1)]))
    assert records(made) == [
        (0, 2, PENDING_ACKNOWLEDGED, 1),
        (3, 4, STATE_ACKNOWLEDGED, 1),
        (5, 6, STATE_ACKNOWLEDGED, 1),
        (7, 9, PENDING_ACKNOWLEDGED, 1),
    ]


@pytest.mark.rule("PL-707")
def test_a_lower_stored_rank_changes_nothing_and_a_higher_one_is_taken_with_its_delivery_count() -> None:
    made = window((0, 9, PENDING_AVAILABLE, 2))
    stored = [
        StateBatch(0, 2, STATE_AVAILABLE, 1),
        StateBatch(3, 5, STATE_ACKNOWLEDGED, 2),
        StateBatch(6, 9, STATE_AVAILABLE, 3),
    ]
    settle_operation(made, operation((0, 9)), StoredRecords(0, stored))
    assert records(made) == [
        (0, 2, PENDING_AVAILABLE, 2),
        (3, 5, STATE_ACKNOWLEDGED, 2),
        (6, 9, STATE_AVAILABLE, 3),
    ]
    assert holders(made) == {(PENDING_AVAILABLE, "M", 9_000), (STATE_ACKNOWLEDGED, "", 0), (STATE_AVAILABLE, "", 0)}


@pytest.mark.rule("PL-707")
def test_what_is_stored_as_available_below_the_start_offset_is_archived_for_nothing_delivers_it() -> None:
    made = window((0, 9, PENDING_ACKNOWLEDGED, 1))
    made.move_start(5)
    settle_operation(made, operation((0, 9)), StoredRecords(0, [StateBatch(0, 9, STATE_AVAILABLE, 2)]))
    assert records(made) == [(0, 4, STATE_ARCHIVED, 2), (5, 9, STATE_AVAILABLE, 2)]
    made = window((0, 9, PENDING_AVAILABLE, 1))
    made.move_start(5)
    settle_operation(made, operation((0, 9)), StoredRecords(0, [StateBatch(0, 9, STATE_ACKNOWLEDGED, 1)]))
    assert records(made) == [(0, 9, STATE_ACKNOWLEDGED, 1)], "a finished record stays what it is stored as"


@pytest.mark.rule("PL-707")
def test_the_record_at_the_start_offset_and_the_one_before_it_are_distinguished() -> None:
    made = window((0, 9, PENDING_ACKNOWLEDGED, 1))
    made.move_start(5)
    settle_operation(made, operation((4, 5)), StoredRecords(0, [StateBatch(4, 5, STATE_AVAILABLE, 2)]))
    assert records(made)[1:3] == [(4, 4, STATE_ARCHIVED, 2), (5, 5, STATE_AVAILABLE, 2)]
    settle_operation(made, operation((6, 6)), StoredRecords(0, [StateBatch(6, 6, STATE_AVAILABLE, 2)]))
    assert records(made)[2] == (5, 6, STATE_AVAILABLE, 2)


@pytest.mark.rule("PL-707", "PL-910")
@pytest.mark.parametrize(
    ("count", "cause"),
    [(LIMIT - 1, DLQ_CLIENT_REJECT), (LIMIT, DLQ_DELIVERY_COUNT_EXCEEDED), (LIMIT + 1, DLQ_DELIVERY_COUNT_EXCEEDED)],
)
def test_what_is_stored_as_archiving_goes_to_the_dead_letter_queue_with_the_cause_of_its_count(
    count: int, cause: str
) -> None:
    made, pending = window((0, 9, PENDING_AVAILABLE, 1)), operation((0, 9))
    settle_operation(
        made, pending, StoredRecords(0, [StateBatch(2, 4, STATE_ARCHIVING, count), StateBatch(5, 5, STATE_ARCHIVED, 2)])
    )
    assert pending.dead_letters == [((2, 4), cause)]
    assert records(made)[1:3] == [(2, 4, STATE_ARCHIVING, count), (5, 5, STATE_ARCHIVED, 2)]


@pytest.mark.rule("PL-707")
def test_what_the_operation_sends_to_the_dead_letter_queue_is_not_sent_twice() -> None:
    made, pending = window((0, 9, PENDING_ARCHIVING, 1)), operation((0, 9))
    pending.dead_letters.append(((2, 4), DLQ_CLIENT_REJECT))
    stored = [StateBatch(first, last, STATE_ARCHIVING, 2) for first, last in ((1, 1), (2, 2), (4, 4), (5, 5))]
    settle_operation(made, pending, StoredRecords(0, stored))
    assert [span for span, _ in pending.dead_letters] == [(2, 4), (1, 1), (5, 5)]


def test_records_that_are_settled_already_are_left_alone() -> None:
    made = window((0, 4, STATE_ACKNOWLEDGED, 1), (5, 9, PENDING_ARCHIVED, 1))
    pending = operation((0, 9))
    pending.archived.append((AcquiredRange(5, 9, 1), "rejected"))
    settle_operation(made, pending, StoredRecords(0, [StateBatch(0, 9, STATE_ARCHIVED, 3)]))
    assert records(made) == [(0, 4, STATE_ACKNOWLEDGED, 1), (5, 9, STATE_ARCHIVED, 3)]
