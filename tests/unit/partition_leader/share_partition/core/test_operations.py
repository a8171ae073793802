"""The states of records after the commit or the roll-back of a write (PL-307, PL-412, PL-414)."""

from __future__ import annotations

import pytest

from kip932.ids import STATE_ACKNOWLEDGED, STATE_ACQUIRED, STATE_ARCHIVED, STATE_AVAILABLE
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.effects import CAUSE_ACK, AcquiredRange
from partition_leader.share_partition.core.in_flight import Window
from partition_leader.share_partition.core.operations import Operation, RolledBack, commit, roll_back
from partition_leader.share_partition.core.transitions import PENDING_ACKNOWLEDGED

DEADLINE, LIMIT = 9_000, 5


def window(count: int = 1) -> Window:
    """A window with 0-9, whose acknowledgement by M is being written."""
    made = Window(0)
    made.add(InFlightBatch(0, 9, PENDING_ACKNOWLEDGED, count, member="M", deadline=DEADLINE))
    made.end_offset = 9
    return made


def operation(*spans: tuple[int, int]) -> Operation:
    return Operation(1, CAUSE_ACK, LIMIT, dlq_enabled=False, spans=list(spans))


def records(made: Window) -> list[tuple[int, int, int, str]]:
    """Return the offsets, code and holder of each run."""
    return [
        (first, last, code, member)
        for batch in made.walk()
        for first, last, code, _, member, _ in batch.lock_runs(batch.first, batch.last)
    ]


@pytest.mark.rule("PL-412")
def test_what_is_written_takes_its_state_and_has_no_holder_any_more() -> None:
    made = window()
    commit(made, [(2, 2), (4, 4), (9, 9)])
    assert records(made) == [
        (0, 1, PENDING_ACKNOWLEDGED, "M"),
        (2, 2, STATE_ACKNOWLEDGED, ""),
        (3, 3, PENDING_ACKNOWLEDGED, "M"),
        (4, 4, STATE_ACKNOWLEDGED, ""),
        (5, 8, PENDING_ACKNOWLEDGED, "M"),
        (9, 9, STATE_ACKNOWLEDGED, ""),
    ]


def test_a_batch_that_is_acknowledged_whole_keeps_one_state_for_all_its_records() -> None:
    made = window()
    commit(made, [(0, 9)])
    (batch,) = made.walk()
    assert batch.codes is None, "arrays of a state for each record would cost every consumer that takes whole batches"
    assert records(made) == [(0, 9, STATE_ACKNOWLEDGED, "")]


@pytest.mark.rule("PL-307")
@pytest.mark.parametrize("start", [3, 5, 9])
def test_a_failed_write_gives_back_what_lies_from_the_start_offset_on_and_archives_the_rest(start: int) -> None:
    made, into = window(), RolledBack()
    made.move_start(start)
    roll_back(made, operation((0, 9)), DEADLINE - 1, into)
    assert records(made) == [(0, start - 1, STATE_ARCHIVED, ""), (start, 9, STATE_ACQUIRED, "M")]
    assert into == RolledBack(changed=[(0, start - 1)])


@pytest.mark.rule("PL-414")
def test_a_failed_write_from_the_start_offset_on_leaves_nothing_to_write() -> None:
    made, into = window(), RolledBack()
    made.move_start(5)
    roll_back(made, operation((5, 9)), DEADLINE - 1, into)
    assert records(made) == [(0, 4, PENDING_ACKNOWLEDGED, "M"), (5, 9, STATE_ACQUIRED, "M")]
    assert into == RolledBack()


@pytest.mark.rule("PL-307")
def test_of_a_failed_write_whose_lock_has_ended_each_record_is_freed_or_at_the_limit_archived_and_reported() -> None:
    made, into = window(), RolledBack()
    roll_back(made, operation((0, 4)), DEADLINE, into)
    assert records(made) == [(0, 4, STATE_AVAILABLE, ""), (5, 9, PENDING_ACKNOWLEDGED, "M")]
    assert into == RolledBack(changed=[(0, 4)])
    made, into = window(LIMIT), RolledBack()
    roll_back(made, operation((0, 4)), DEADLINE, into)
    assert records(made)[0] == (0, 4, STATE_ARCHIVED, "")
    assert into == RolledBack(changed=[(0, 4)], archived=[AcquiredRange(0, 4, LIMIT)])
