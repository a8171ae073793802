"""Counts of finished records: once per request and write, when that is durable."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import CoordinatorNotAvailableError, KafkaStorageError
from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVING
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.effects import (
    DLQ_CLIENT_REJECT,
    DLQ_DELIVERY_COUNT_EXCEEDED,
    Counters,
)
from partition_leader.share_partition.core.finished import NONE_FINISHED, Finished
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, REJECT, GAP = 1, 2, 3, 0


def bench_with(records: int = 10, **settings: Any) -> Bench:
    bench = Bench(log=[(0, records - 1)])
    bench.set(**settings)
    bench.fetch("m")
    return bench


@pytest.mark.rule("PL-952")
def test_a_sum_has_the_later_instant_and_what_finishes_nothing_changes_nothing() -> None:
    parts = [Counters(n_accept=2, n_release=9), Counters(), Counters(n_reject=1, n_limit=3)]
    letters = [((0, 0), DLQ_CLIENT_REJECT), ((4, 5), DLQ_DELIVERY_COUNT_EXCEEDED)]
    one = NONE_FINISHED.counted(parts, letters, 70)
    assert one == Finished(2, 1, 3, 70, 1, 2)
    assert one.records == 6
    assert one.counted([Counters(n_release=4), Counters(n_timeout=5)], (), 80) is one
    assert one.plus(one) == Finished(4, 2, 6, 70, 2, 4)
    one = one._replace(rejected_letters=0, limited_letters=0)
    assert one.plus(Finished(1, 0, 0, 40)) == Finished(3, 1, 3, 70)
    assert NONE_FINISHED.plus(NONE_FINISHED).last_ms == -1


@pytest.mark.rule("PL-952")
def test_records_count_once_their_write_is_durable() -> None:
    bench = bench_with()
    bench.ack("m", (0, 2, ACCEPT), (3, 3, REJECT), (4, 4, RELEASE), (5, 5, GAP))
    assert bench.core.state.finished == NONE_FINISHED
    bench.now += 30
    bench.persisted()
    assert bench.core.state.finished == Finished(3, 1, 0, bench.now)


@pytest.mark.rule("PL-952")
def test_records_given_up_at_the_limit_count_by_whatever_they_reach_it() -> None:
    bench = bench_with(delivery_count_limit=1)
    bench.ack("m", (0, 1, RELEASE))
    bench.persisted()
    assert bench.core.state.finished == Finished(0, 0, 2, bench.now)
    bench.pass_time(LOCK_MS)
    bench.persisted()
    assert bench.core.state.finished == Finished(0, 0, 10, bench.now)


@pytest.mark.rule("PL-952")
def test_a_failed_write_counts_nothing_and_what_it_carried_counts_with_the_next() -> None:
    bench = bench_with(delivery_count_limit=1)
    bench.ack("m", (0, 1, ACCEPT))
    bench.failed(CoordinatorNotAvailableError("no"))
    assert bench.core.state.finished == NONE_FINISHED
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("no"))
    assert bench.core.state.finished == NONE_FINISHED
    bench.pass_time(5_000)
    bench.persisted()
    assert bench.core.state.finished == Finished(0, 0, 10, bench.now)


@pytest.mark.rule("PL-952")
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_write_whose_outcome_was_unknown_counts_if_it_is_stored(is_stored: bool) -> None:
    bench = bench_with()
    bench.ack("m", (0, 2, ACCEPT))
    bench.failed(KafkaStorageError("no answer"), unknown=True)
    stored = (StateBatch(0, 2, STATE_ACKNOWLEDGED, 1),) if is_stored else ()
    core = bench.core
    bench.do(ev.ReadBack(core.generation, core.state.state_epoch, 0, stored))
    assert core.state.finished.records == (3 if is_stored else 0)


@pytest.mark.rule("PL-810", "PL-952")
def test_of_those_given_up_what_goes_to_the_dead_letter_queue_counts_by_whatever_it_gets_there() -> None:
    bench = bench_with(delivery_count_limit=1, dlq_enabled=True)
    bench.ack("m", (0, 0, REJECT), (1, 2, RELEASE), (3, 3, ACCEPT))
    bench.persisted()
    assert bench.core.state.finished == Finished(1, 1, 2, bench.now, 1, 2)
    bench.ack("m", (4, 4, ACCEPT))
    bench.pass_time(LOCK_MS)  # the locks of the others end
    bench.persisted()
    assert bench.core.state.finished == Finished(2, 1, 2, bench.now, 1, 2)
    bench.persisted()
    assert bench.core.state.finished == Finished(2, 1, 7, bench.now, 1, 7)


@pytest.mark.rule("PL-810")
def test_a_lock_that_ran_out_while_its_write_failed_counts_as_given_to_the_queue() -> None:
    bench = bench_with(delivery_count_limit=1, dlq_enabled=True)
    bench.ack("m", (0, 9, ACCEPT))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("away"))
    assert bench.persisted().counters.n_limit == 10
    assert bench.core.state.finished == Finished(0, 0, 10, bench.now, 0, 10)


@pytest.mark.rule("PL-810")
@pytest.mark.parametrize("is_stored", [True, False])
def test_letters_of_a_write_whose_outcome_was_unknown_count_if_it_is_stored(is_stored: bool) -> None:
    bench = bench_with(dlq_enabled=True)
    bench.ack("m", (0, 2, REJECT))
    bench.failed(KafkaStorageError("no answer"), unknown=True)
    stored = (StateBatch(0, 2, STATE_ARCHIVING, 1),) if is_stored else ()
    core = bench.core
    bench.do(ev.ReadBack(core.generation, core.state.state_epoch, 0, stored))
    assert core.state.finished[1:3] + core.state.finished[4:] == ((3, 0, 3, 0) if is_stored else (0, 0, 0, 0))
