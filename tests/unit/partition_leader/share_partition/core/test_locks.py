"""The deadline that a host arms for record locks: however often the host asks, it is the time at which the earliest
lock ends."""

from __future__ import annotations

import pytest

from kip932.ids import STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core.limits import LIMITS
from partition_leader.share_partition.core.locks import LockHeap
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench


@pytest.mark.rule("PL-301", "PL-303", "PL-203")
@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1), (0, 9), (7, 9)])
def test_asking_for_the_deadline_again_changes_nothing(first: int, last: int) -> None:
    bench = Bench(first, log=[(first, last)])
    assert bench.fetch() == [(first, last, 1)]
    assert [bench.core.next_deadline() for _ in range(3)] == [bench.now + LOCK_MS] * 3
    bench.pass_time(LOCK_MS)
    while bench.writes:
        bench.persisted()
    assert bench.records() == [(first, last, STATE_AVAILABLE, 1)]
    assert bench.core.next_deadline() is None
    assert bench.fetch("other") == [(first, last, 2)]


@pytest.mark.rule("PL-303")
def test_a_heap_of_many_locks_loses_none_that_is_live_and_drops_those_that_are_not() -> None:
    heap = LockHeap()
    live = {(1_000 + number, number, number) for number in range(600)}
    for entry in sorted(live, key=lambda each: -each[0]):
        heap.push(*entry, live.__contains__)
        heap.push(entry[0] - 1_000, entry[1], entry[2], live.__contains__)  # an outdated copy, as left by a renewal
    assert len(heap) < 2 * len(live)
    assert live <= set(heap.entries())
    assert live <= set(heap.due(1_599))
    assert heap.due(10_000) == []


@pytest.mark.rule("PL-302", "PL-303")
@pytest.mark.parametrize("again", [False, True], ids=["new", "loaded"])
def test_locks_of_more_batches_than_are_swept_at_once_all_end(again: bool) -> None:
    many = LIMITS.lock_entries + 50
    settings = GroupConfig(LOCK_MS, max_record_locks=2 * many)
    loaded = tuple(StateBatch(at, at, STATE_AVAILABLE, 1) for at in range(many if again else 0))
    bench = Bench(batches=loaded, log=[(at, at) for at in range(many)], settings=settings)
    assert len(bench.fetch(max_records=many, batch_size=1)) == many
    bench.core.check()
    bench.pass_time(LOCK_MS)
    bench.persisted()
    assert bench.records() == [(0, many - 1, STATE_AVAILABLE, 1 + again)]
