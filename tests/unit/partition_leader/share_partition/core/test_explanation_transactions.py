"""The core's explanations of transactions' records and of their markers."""

from __future__ import annotations

import pytest

from partition_leader.explain.core.explanation import Obstacle
from partition_leader.explain.core.explanation import RecordState as Is
from partition_leader.share_partition.core.visibility import TransactionKind, TransactionPart, TransactionRole
from tests.unit.partition_leader.explain.core.test_explain import REJECT, answer, fates, question
from tests.unit.partition_leader.share_partition.core.bench import Bench

OPEN = TransactionRole(TransactionKind.OPEN, "orders-7", 45_000)
PARTS = (
    TransactionPart(0, 1, TransactionRole(TransactionKind.ABORTED)),
    TransactionPart(2, 2, TransactionRole(TransactionKind.MARKER)),
    TransactionPart(5, 6, TransactionRole(TransactionKind.ABORTED)),
    TransactionPart(7, 7, TransactionRole(TransactionKind.MARKER)),
    TransactionPart(8, 9, OPEN),
)


@pytest.mark.rule("PL-823")
def test_what_transactions_have_to_do_with_records_is_said() -> None:
    bench = Bench(3, log=[(0, 1), (2, 2), (3, 4), (5, 6), (7, 7), (8, 9), (10, 11)])
    log = question(bench, 0).log._replace(last_stable=8, kept_by="orders-7", kept_ms=45_000, parts=PARTS)
    found = answer(bench, 0, 11, log=log, read_committed=True, fetching=0)
    assert fates(found) == [
        (0, 1, Is.FINISHED, Obstacle.FINISHED),
        (2, 2, Is.FINISHED, Obstacle.FINISHED),
        (3, 4, Is.AVAILABLE, Obstacle.NOT_FETCHED),
        (5, 6, Is.AVAILABLE, Obstacle.NO_RECORD),
        (7, 7, Is.HOLE, Obstacle.NO_RECORD),
        (8, 9, Is.AVAILABLE, Obstacle.UNCOMMITTED),
        (10, 11, Is.AVAILABLE, Obstacle.UNCOMMITTED),
    ]
    assert [fate.append_time_ms for fate, _ in found.records[2:]] == [3_000, 4_000, 5_000, 6_000, 7_000]
    said = [text for _, text in found.records]
    aborted = "belongs to an aborted transaction; a group that reads committed records only passes it over."
    assert said[0] == f"The group is finished with everything before its start offset 3; this {aborted}"
    assert "this is a transaction's marker, and no record" in said[1]
    assert said[3:5] == [f"This {aborted}", "This is a transaction's marker, and no record; the group moves over it."]
    assert "part of the open transaction of transactional id 'orders-7', open for 45.0 s" in said[5]
    assert "it comes when that commits, and is passed over when it aborts" in said[5]
    assert "it follows when that ends" in said[6]


@pytest.mark.rule("PL-821")
def test_a_group_that_reads_everything_passes_over_markers_alone() -> None:
    bench = Bench(log=[(0, 1), (2, 2), (3, 6), (7, 7), (8, 9)])
    log = question(bench, 0).log._replace(parts=PARTS)
    assert fates(answer(bench, 0, 9, log=log)) == [
        (0, 1, Is.AVAILABLE, Obstacle.NONE),
        (2, 2, Is.HOLE, Obstacle.NO_RECORD),
        (3, 6, Is.AVAILABLE, Obstacle.NONE),
        (7, 7, Is.HOLE, Obstacle.NO_RECORD),
        (8, 9, Is.AVAILABLE, Obstacle.NONE),
    ]
    bench.fetch("M")
    assert fates(answer(bench, 0, 9, log=log)) == [(0, 9, Is.ACQUIRED, Obstacle.HELD)], (
        "the member that holds the record keeps it"
    )


@pytest.mark.rule("PL-821")
def test_what_was_archived_for_a_transaction_says_so_and_a_held_record_is_held_to_its_end() -> None:
    bench = Bench(log=[(0, 1), (2, 2), (5, 6)])
    log = question(bench, 0).log._replace(parts=PARTS)
    bench.fetch("M")
    assert fates(answer(bench, 0, 6, log=log, read_committed=True)) == [(0, 6, Is.ACQUIRED, Obstacle.HELD)]
    assert bench.acked("M", (1, 1, REJECT)) is None
    (archived, words), *_ = answer(bench, 1, 1, log=log, read_committed=True).records
    assert (archived.state, archived.obstacle) == (Is.ARCHIVED, Obstacle.NO_RECORD)
    assert words.startswith("This belongs to an aborted transaction")
    (rejected, _), *_ = answer(bench, 1, 1, log=log).records
    assert rejected.obstacle is Obstacle.REJECTED, "it was delivered, since the group reads everything"
