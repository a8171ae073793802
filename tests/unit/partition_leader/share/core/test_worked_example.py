"""The worked example of the seed, step by step, with the writes of column P (§11)."""

from __future__ import annotations

import pytest

from tests.unit.partition_leader.share.core.bench import LOCK_MS, Bench, written

ACCEPT, RELEASE = 1, 2


@pytest.mark.rule("PL-1101", "PL-1102", "PL-1103", "PL-1104", "PL-609", "PL-703", "PL-704", "PL-306")
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
