"""The worked example of the seed, step by step, with the writes of column P (§11)."""

from __future__ import annotations

import pytest

from kip932.state_batches import StateBatch, merge_into
from partition_leader.share.core import effects as fx
from tests.unit.partition_leader.share.core.bench import LOCK_MS, Bench, written

ACCEPT, RELEASE = 1, 2
UNFINISHED = (0, 1)


class Stored:
    """What a share coordinator keeps of the writes, and what leaders that read it deliver."""

    def __init__(self) -> None:
        self.start = 0
        self.batches: list[StateBatch] = []

    def take(self, write: fx.Persist) -> None:
        self.start = max(self.start, write.start_offset)
        self.batches = merge_into(self.batches, write.state_batches, self.start)

    def delivered_after_a_fail_over(self, bench: Bench) -> dict[int, int]:
        """Offset → delivery count, of everything that a fresh leader gives out."""
        fresh = Bench(self.start, batches=tuple(self.batches), generation=2)
        fresh.log = bench.log
        found: dict[int, int] = {}
        while ranges := fresh.fetch("other"):
            found |= {at: count for first, last, count in ranges for at in range(first, last + 1)}
        return found


@pytest.mark.rule("PL-1101", "PL-1102", "PL-1103", "12.2")
def test_a_fresh_leader_delivers_what_is_not_finished_after_each_write_of_the_example() -> None:
    bench, stored = Bench(100, resolved=True, log=[(100, 109)]), Stored()

    def after_the_write() -> dict[int, int]:
        stored.take(bench.persisted())
        delivered = stored.delivered_after_a_fail_over(bench)
        cached = bench.records()
        left = {at for first, last, state, _ in cached if state in UNFINISHED for at in range(first, last + 1)}
        assert delivered.keys() == left
        return delivered

    stored.take(bench.persisted())  # 1
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
    assert fillers.delivered_after_a_fail_over(bench) == stored.delivered_after_a_fail_over(bench)
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
    bench.now += 1_000  # C3 holds 119 longer, so that only 111 and 112 run out in step 8
    bench.ack("C2", (113, 118, 4))  # a renewal, never written
    bench.log.append(type(bench.log[0])(119, 119))
    assert bench.fetch("C3") == [(119, 119, 1)]

    bench.ack("C1", (110, 110, RELEASE))  # 5
    assert written(bench.persisted()) == (110, 0, [(110, 110, 0, 1)])
    bench.ack("C3", (119, 119, ACCEPT))  # 6
    assert written(bench.persisted()) == (110, 1, [(119, 119, 2, 1)])

    bench.log.append(type(bench.log[0])(120, 120))  # 7
    assert bench.fetch("C1") == [(110, 110, 2), (120, 120, 1)]

    bench.pass_time(LOCK_MS - 1_000)  # 8: one write for all that is due
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
