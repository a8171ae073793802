"""The specification's worked example, step by step, with the writes of column P (§11)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kip932.state_batches import StateBatch, merge_into
from tests.support.batch_headers import Header
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, written

ACCEPT, RELEASE = 1, 2
UNFINISHED = (0, 1)


class Stored:
    """The state that a share coordinator stores from the writes, and the records that a fresh leader delivers from
    it."""

    def __init__(self) -> None:
        self.start = 0
        self.batches: list[StateBatch] = []

    def take(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        self.start = max(self.start, start_offset)
        self.batches = merge_into(self.batches, batches, self.start)

    def delivered_after_a_fail_over(self, log: list[Header]) -> dict[int, int]:
        """Return the delivery count of every offset that a fresh leader delivers."""
        fresh = Bench(self.start, batches=tuple(self.batches), generation=2)
        fresh.log = log
        found: dict[int, int] = {}
        while ranges := fresh.fetch("other"):
            found |= {at: count for first, last, count in ranges for at in range(first, last + 1)}
        return found


@pytest.mark.rule("PL-1101", "PL-1102", "PL-1103", "12.2")
def test_a_fresh_leader_delivers_what_is_not_finished_after_each_write_of_the_example() -> None:
    bench, stored = Bench(100, resolved=True, log=[(100, 109)]), Stored()

    def after_the_write() -> dict[int, int]:
        write = bench.persisted()
        stored.take(write.start_offset, write.state_batches)
        delivered = stored.delivered_after_a_fail_over(bench.log)
        cached = bench.records()
        left = {at for first, last, state, *_ in cached if state in UNFINISHED for at in range(first, last + 1)}
        assert delivered.keys() == left
        return delivered

    stored.take(bench.persisted().start_offset, ())  # 1
    bench.fetch("C1")  # 2
    bench.ack("C1", (100, 109, ACCEPT))
    assert after_the_write() == {}  # 3
    for member, first, last in (("C1", 110, 112), ("C2", 113, 118)):  # 4
        bench.log.append(type(bench.log[0])(first, last))
        bench.fetch(member)
    bench.now += 1_000
    bench.ack("C2", (113, 118, 4))
    bench.log.append(type(bench.log[0])(119, 119))
    bench.fetch("C3")
    bench.ack("C1", (110, 110, RELEASE))  # 5
    assert after_the_write() == {110: 2} | dict.fromkeys(range(111, 120), 1)
    bench.ack("C3", (119, 119, ACCEPT))  # 6
    assert after_the_write() == {110: 2} | dict.fromkeys(range(111, 119), 1)
    fillers = Stored()
    fillers.start, fillers.batches = 110, merge_into(stored.batches, [StateBatch(111, 118, 0, 0)])
    assert fillers.delivered_after_a_fail_over(bench.log) == stored.delivered_after_a_fail_over(bench.log)
    bench.log.append(type(bench.log[0])(120, 120))  # 7
    bench.fetch("C1")
    bench.pass_time(LOCK_MS - 1_000)  # 8
    assert after_the_write() == {110: 2, 111: 2, 112: 2} | dict.fromkeys(range(113, 119), 1) | {120: 1}
    bench.ack("C2", (113, 118, ACCEPT))  # 9
    assert after_the_write() == {110: 2, 111: 2, 112: 2, 120: 1}
    bench.fetch("C3")  # 10
    bench.ack("C1", (110, 110, ACCEPT))  # 11
    assert after_the_write() == {111: 2, 112: 2, 120: 1}
    bench.ack("C3", (111, 112, ACCEPT))  # 12
    assert after_the_write() == {120: 1}


LOG = [(100, 109), (110, 112), (113, 118), (119, 119), (120, 120)]
#: For each line of the table: the number of log batches by then, and the offsets in "memory after" that are not
#: terminal. A fresh leader must deliver exactly these.
LEFT: dict[int, tuple[int, set[int]]] = {
    1: (0, set()),
    3: (1, set()),
    5: (4, set(range(110, 120))),
    6: (4, set(range(110, 119))),
    8: (5, {*range(110, 119), 120}),
    9: (5, {110, 111, 112, 120}),
    11: (5, {111, 112, 120}),
    12: (5, {120}),
}
#: The writes in each column as the table prints them: line, start offset, state batches.
COLUMNS: dict[str, list[tuple[int, int, list[tuple[int, int, int, int]]]]] = {
    "KIP": [
        (1, 100, []),
        (3, 110, []),
        (5, -1, [(110, 110, 0, 1)]),
        (6, -1, [(111, 118, 0, 0), (119, 119, 2, 1)]),
        (8, -1, [(111, 112, 0, 1)]),
        (9, -1, [(113, 118, 2, 1)]),
        (11, -1, [(110, 110, 2, 2)]),
        (12, 120, []),
    ],
    "K": [
        (3, 100, [(100, 109, 2, 1)]),
        (5, 110, [(110, 110, 0, 1)]),
        (6, 110, [(119, 119, 2, 1)]),
        (8, 110, [(111, 111, 0, 1)]),
        (8, 110, [(112, 112, 0, 1)]),
        (9, 110, [(113, 118, 2, 1)]),
        (11, 110, [(110, 110, 2, 2)]),
        (12, 111, [(111, 111, 2, 2), (112, 112, 2, 2)]),
    ],
    "P": [
        (1, 100, []),
        (3, 110, []),
        (5, 110, [(110, 110, 0, 1)]),
        (6, 110, [(119, 119, 2, 1)]),
        (8, 110, [(111, 112, 0, 1)]),
        (9, 110, [(113, 118, 2, 1)]),
        (11, 111, []),
        (12, 120, []),
    ],
}


@pytest.mark.rule("PL-1101", "PL-1102", "12.2")
@pytest.mark.parametrize("column", COLUMNS)
def test_after_each_write_of_each_column_a_fresh_leader_delivers_what_is_not_finished(column: str) -> None:
    stored = Stored()
    stored.start = 100  # not written in column K: the group coordinator set it when it initialised the state
    lines = [line for line, *_ in COLUMNS[column]]
    for at, (line, start_offset, batches) in enumerate(COLUMNS[column]):
        stored.take(start_offset, [StateBatch(*batch) for batch in batches])
        if line in lines[at + 1 :]:
            continue  # the first of two writes in one line
        known, left = LEFT[line]
        delivered = stored.delivered_after_a_fail_over([Header(*span) for span in LOG[:known]])
        assert delivered.keys() == left, f"line {line}"


@pytest.mark.rule("PL-1104", "PL-609", "PL-703", "PL-704", "PL-306", "SC-99a", "12.1")
def test_the_worked_example_writes_what_the_table_says() -> None:
    bench = Bench(100, resolved=True, log=[(100, 109)])
    assert written(bench.persisted()) == (100, 0, [])  # 1

    assert bench.fetch("C1") == [(100, 109, 1)]  # 2
    bench.ack("C1", (100, 109, ACCEPT))
    assert written(bench.persisted()) == (110, 0, [])  # 3
    assert (bench.spso, bench.core.speo) == (110, 110)

    for member, first, last in (("C1", 110, 112), ("C2", 113, 118)):  # 4
        bench.log.append(type(bench.log[0])(first, last))
        assert bench.fetch(member) == [(first, last, 1)]
    bench.now += 1_000  # the lock on 119 starts later, so only those on 111 and 112 expire in step 8
    bench.ack("C2", (113, 118, 4))  # a renewal, never written
    bench.log.append(type(bench.log[0])(119, 119))
    assert bench.fetch("C3") == [(119, 119, 1)]

    bench.ack("C1", (110, 110, RELEASE))  # 5
    assert written(bench.persisted()) == (110, 0, [(110, 110, 0, 1)])
    bench.ack("C3", (119, 119, ACCEPT))  # 6
    assert written(bench.persisted()) == (110, 1, [(119, 119, 2, 1)])

    bench.log.append(type(bench.log[0])(120, 120))  # 7
    assert bench.fetch("C1") == [(110, 110, 2), (120, 120, 1)]

    bench.pass_time(LOCK_MS - 1_000)  # 8: one write for all locks that are due
    assert written(bench.persisted()) == (110, 1, [(111, 112, 0, 1)])
    bench.ack("C2", (113, 118, ACCEPT))  # 9
    assert written(bench.persisted()) == (110, 7, [(113, 118, 2, 1)])
    assert bench.fetch("C3") == [(111, 112, 2)]  # 10
    bench.ack("C1", (110, 110, ACCEPT))  # 11
    assert written(bench.persisted()) == (111, 7, [])
    assert bench.spso == 111
    bench.ack("C3", (111, 112, ACCEPT))  # 12
    assert written(bench.persisted()) == (120, 0, [])
    assert bench.records() == [(120, 120, 1, 1)]
