"""Releases and renewals that take a delivery back, on one share-partition's core (PL-941)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError
from kip932.ids import ACK_ACCEPT, ACK_RELEASE, ACK_RENEW
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core.undelivered import IN_A_ROW_MAX, Undelivered
from shard_runtime.config.group_config import Backoff, GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, RENEW = ACK_ACCEPT, ACK_RELEASE, ACK_RENEW
BACK = ((), True)


def fetched(**settings: Any) -> Bench:
    """A bench whose member M holds 0-9."""
    bench = Bench(log=[(0, 9)], settings=GroupConfig(lock_ms=LOCK_MS, **settings))
    assert bench.fetch(until=9) == [(0, 9, 1)]
    return bench


def counts(bench: Bench) -> list[int]:
    bench.core.check()
    batches = bench.core._state.window.walk()
    return [batch.lock_at(at)[1] for batch in batches for at in range(batch.first, batch.last + 1)]


def stored(write: fx.Persist) -> list[tuple[int, ...]]:
    return [tuple(batch) for batch in write.state_batches]


@pytest.mark.rule("PL-941")
def test_a_release_that_takes_its_delivery_back_leaves_the_count_of_before() -> None:
    bench = fetched(backoff=Backoff(1_000, 2, 9_000, 0))
    bench.ack("M", (0, 3, RELEASE, *BACK), (4, 5, RELEASE, 0), (6, 7, (RELEASE, RELEASE), (), (False, True)))
    assert stored(bench.persisted()) == [(0, 3, 0, 0, 0), (4, 5, 0, 1, 0), (6, 6, 0, 1, 2_000), (7, 7, 0, 0, 0)]
    assert counts(bench) == [0, 0, 0, 0, 1, 1, 1, 0, 1, 1]
    assert bench.fetch("N") == [(0, 3, 1), (4, 5, 2), (7, 7, 1)], "at once, whatever the back-off"


@pytest.mark.rule("PL-941")
def test_a_last_delivery_that_is_taken_back_does_not_archive() -> None:
    bench = fetched(delivery_count_limit=2)
    assert bench.acked("M", (0, 9, RELEASE)) is None
    for _ in range(3):
        assert bench.fetch("N", until=9)[0][2] == 2
        assert bench.acked("N", *[(at, at, RELEASE, *BACK) for at in range(10) if bench.holds("N", at)]) is None
    assert set(counts(bench)) == {1}


@pytest.mark.rule("PL-941")
def test_after_ten_in_a_row_a_release_counts_and_a_counted_delivery_begins_a_new_row() -> None:
    bench = fetched(delivery_count_limit=3)
    rows = 0
    while True:
        before = counts(bench)[0]
        assert bench.acked("M", (0, 0, RELEASE, *BACK)) is None
        rows += 1
        if (0, 0) not in [(first, last) for first, last, _ in bench.fetch(until=0)]:
            break
        assert counts(bench)[0] in (before, before + 1)
        assert rows < 100, "it comes to its limit"
    assert rows == 3 * (IN_A_ROW_MAX + 1)


@pytest.mark.rule("PL-941")
def test_a_write_that_fails_and_a_lock_that_has_run_out_keep_the_delivery() -> None:
    bench = fetched()
    bench.ack("M", (0, 4, RELEASE, *BACK))
    assert counts(bench)[:5] == [0] * 5
    bench.failed(CoordinatorNotAvailableError("away"))
    assert counts(bench) == [1] * 10, "held as before"
    bench.ack("M", (0, 4, RELEASE, *BACK))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("away"))
    assert counts(bench) == [1] * 10
    assert isinstance(bench.acked("M", (5, 5, RELEASE, *BACK)), InvalidRecordStateError)
    assert counts(bench) == [1] * 10


@pytest.mark.rule("PL-941")
def test_a_refused_request_takes_nothing_back() -> None:
    bench = fetched()
    assert isinstance(bench.acked("M", (0, 3, RELEASE, *BACK), (4, 4, ACCEPT), (12, 12, ACCEPT)), Exception)
    assert counts(bench) == [1] * 10
    assert len(bench.core._state.window.undelivered) == 0


@pytest.mark.rule("PL-941")
def test_a_renewal_takes_the_delivery_back_once_and_keeps_the_record() -> None:
    bench = fetched(delivery_count_limit=3)
    bench.pass_time(LOCK_MS)
    bench.persisted()
    assert bench.fetch("M", until=9) == [(0, 9, 2)]
    bench.pass_time(LOCK_MS // 2)
    assert bench.acked("M", (0, 3, RENEW, *BACK), (4, 6, (RENEW, RELEASE, RENEW), (), (True, False, False))) is None
    assert counts(bench) == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert bench.acked("M", (0, 3, RENEW, *BACK)) is None, "it may come twice"
    assert counts(bench)[:4] == [1] * 4
    bench.pass_time(LOCK_MS // 2 + 1)
    assert [bench.holds("M", at) for at in (0, 4, 6, 7)] == [True, True, True, False], "the renewed ones"
    assert bench.acked("M", (0, 0, RELEASE, *BACK), (1, 1, RELEASE)) is None
    assert counts(bench)[:2] == [1, 1], "the delivery that counts is the one in which the work began"


@pytest.mark.rule("PL-941")
def test_a_renewal_leaves_the_first_delivery_and_those_beyond_the_bound_counted() -> None:
    bench = Bench(log=[(0, 0)], settings=GroupConfig(lock_ms=LOCK_MS, delivery_count_limit=3))
    assert bench.fetch("M", until=0) == [(0, 0, 1)]
    assert bench.acked("M", (0, 0, RENEW, *BACK)) is None
    assert counts(bench) == [1]
    lost = 0
    while bench.spso == 0:
        bench.pass_time(LOCK_MS)
        bench.persisted()
        if bench.fetch("M", until=0):
            assert bench.acked("M", (0, 0, RENEW, *BACK)) is None
        lost += 1
        assert lost < 100, "it comes to its limit"
    assert lost == 2 * (IN_A_ROW_MAX + 1) + 1


@pytest.mark.rule("PL-941")
def test_a_renewal_of_a_refused_request_has_taken_its_delivery_back() -> None:
    bench = fetched()
    bench.pass_time(LOCK_MS)
    bench.persisted()
    bench.fetch("M", until=9)
    assert isinstance(bench.acked("M", (0, 3, RENEW, *BACK), (4, 4, ACCEPT), (12, 12, ACCEPT)), Exception)
    assert counts(bench) == [1] * 4 + [2] * 6, "as the renewal itself has taken effect"


def test_what_is_remembered_has_a_bound_and_forgets_what_is_finished() -> None:
    some = Undelivered(in_a_row_max=2, records_max=4)
    assert some.take_back(0, 5, 1, 0) == [(0, 3)]
    assert some.take_back(6, 6, 1, 0) == []
    assert some.take_back(6, 7, 1, 2) == [(6, 7)], "0 and 1 are finished"
    assert (some.times(2, 0), some.times(6, 0), some.times(0, 0), some.times(2, 1)) == (1, 1, 0, 0)
    some.undo(6, 6)
    assert some.times(6, 0) == 0


@pytest.mark.rule("PL-941")
def test_no_schedule_delivers_a_record_more_often_than_its_limit_and_its_rows_allow() -> None:
    for seed in range(60):
        rng = Random(seed)
        limit, most = rng.choice((2, 3, 5)), rng.choice((1, 2, 3))
        bench = fetched(delivery_count_limit=limit)
        bench.core._state.window.undelivered.in_a_row_max = most
        given = [1] * 10
        for _ in range(400):
            held = [at for at in range(10) if bench.holds("M", at)]
            action = rng.choice(("back", "back", "release", "expire", "fail", "fetch"))
            some = [(at, at, RELEASE, *(BACK if action != "release" else ())) for at in held if rng.random() < 0.6]
            if action == "expire":
                bench.pass_time(LOCK_MS)
            elif action != "fetch" and some:
                bench.ack("M", *some)
                while bench.writes:
                    if action == "fail":
                        bench.failed(CoordinatorNotAvailableError("away"))
                        action = "back"
                    else:
                        bench.persisted()
            while bench.writes:
                bench.persisted()
            for first, last, count in bench.fetch(until=9):
                assert count <= limit, seed
                for at in range(first, last + 1):
                    given[at] += 1
            bench.core.check()
        assert max(given) <= limit * (most + 1), seed
