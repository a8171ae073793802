"""Records delayed after a release or an expired lock, on one share-partition's core (PL-930 … PL-937)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.delays import given_runs, released_runs, with_delays
from partition_leader.share_partition.core.status import DelayCause
from shard_runtime.config.group_config import Backoff, GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, one

START_MS = 1_000
ACCEPT, RELEASE, REJECT, GAP = ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_GAP


def fetched(*, log: list[tuple[int, int]] | None = None, **settings: Any) -> Bench:
    """A bench whose member M holds 0-9, each on its first delivery."""
    bench = Bench(log=log or [(0, 9)], settings=GroupConfig(lock_ms=LOCK_MS, **settings))
    assert bench.fetch(until=9) == [(0, 9, 1)]
    return bench


def delays(bench: Bench) -> dict[int, int]:
    """Return when the delay of each delayed offset ends."""
    bench.core.check()
    return {
        offset: batch.lock_at(offset)[3]
        for batch in bench.core._state.window.walk()
        for offset in range(batch.first, batch.last + 1)
        if batch.lock_at(offset)[0] == 16
    }


def stored(write: fx.Persist) -> list[tuple[int, ...]]:
    return [tuple(batch) for batch in write.state_batches]


@pytest.mark.rule("PL-932", "PL-933", "PL-202")
def test_a_record_released_with_a_delay_waits_and_the_others_do_not() -> None:
    bench = fetched()
    bench.ack("M", (3, 3, RELEASE, 5_000), (4, 5, RELEASE))
    assert delays(bench) == {}, "it takes effect with its write"
    write = bench.persisted()
    assert stored(write) == [(3, 3, 0, 1, START_MS + 5_000), (4, 5, 0, 1, 0)]
    assert write.has_delays
    assert delays(bench) == {3: START_MS + 5_000}
    assert bench.core.next_fetch_offset() == 4
    assert bench.fetch("N") == [(4, 5, 2)]
    assert bench.fetch("N") == []
    assert bench.core.next_deadline() == START_MS + 5_000, "one timer, for the earliest"
    assert not [effect for effect in bench.pass_time(4_999) if isinstance(effect, fx.Wake)]
    effects = bench.pass_time(1)
    assert one(effects, fx.Wake), "waiters look again"
    assert not [effect for effect in effects if isinstance(effect, fx.Persist)], "nothing is written for it"
    assert bench.fetch("N") == [(3, 3, 2)]


@pytest.mark.rule("PL-930")
def test_one_delay_for_all_or_one_for_each_offset() -> None:
    bench = fetched(backoff=Backoff(100, jitter=0.0))
    bench.acked(
        "M",
        (0, 1, RELEASE, 7_000),
        (2, 4, RELEASE, (9_000, 9_000, 0)),
        (5, 8, (RELEASE, ACCEPT, RELEASE, RELEASE), (-1, -1, 8_000, -1)),
    )
    assert delays(bench) == {
        0: START_MS + 7_000, 1: START_MS + 7_000, 2: START_MS + 9_000, 3: START_MS + 9_000, 5: START_MS + 100,
        7: START_MS + 8_000, 8: START_MS + 100,
    }  # fmt: skip
    assert bench.fetch("N") == [(4, 4, 2)], "0 is at once, whatever the back-off"


@pytest.mark.rule("PL-933")
def test_a_delay_that_ended_before_its_write_is_over() -> None:
    bench = fetched()
    bench.ack("M", (0, 4, RELEASE, 2_000))
    bench.pass_time(2_000)
    assert stored(bench.persisted()) == [(0, 4, 0, 1, START_MS + 2_000)]
    assert delays(bench) == {}
    assert bench.fetch("N") == [(0, 4, 2)]


@pytest.mark.rule("PL-933", "T19")
def test_a_failed_write_gives_the_record_back_to_its_holder_and_forgets_the_delay() -> None:
    bench = fetched()
    op = bench.ack("M", (0, 0, RELEASE, 60_000))
    bench.failed(CoordinatorNotAvailableError("no"))
    assert isinstance(bench.error(op), CoordinatorNotAvailableError)
    assert delays(bench) == {}
    assert bench.acked("M", (0, 0, ACCEPT)) is None, "M holds it as before"


@pytest.mark.rule("PL-933", "PL-307", "PL-936")
def test_of_a_failed_write_whose_lock_has_ended_the_back_off_holds() -> None:
    bench = fetched(backoff=Backoff(500, jitter=0.0))
    bench.ack("M", (0, 9, RELEASE, 600_000))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("no"))
    ends = START_MS + LOCK_MS + 500
    assert delays(bench) == dict.fromkeys(range(10), ends)
    assert bench.core._state.delayed_by == {DelayCause.RELEASED: 0, DelayCause.LOCK_EXPIRED: 10}
    bench.pass_time(500)
    assert bench.fetch("N") == [(0, 9, 2)]


@pytest.mark.rule("PL-933", "PL-707")
@pytest.mark.parametrize("applied", [True, False])
def test_a_write_of_unknown_outcome_is_read_back_with_its_delay(applied: bool) -> None:
    bench = fetched()
    bench.ack("M", (0, 3, RELEASE, 9_000))
    bench.failed(CoordinatorNotAvailableError("?"), unknown=True)
    assert delays(bench) == {}
    batches = (StateBatch(0, 3, 0, 1, START_MS + 9_000),) if applied else ()
    bench.do(ev.ReadBack(2, 7, 0, batches))
    assert delays(bench) == (dict.fromkeys(range(4), START_MS + 9_000) if applied else {})
    assert bench.acked("M", (0, 3, ACCEPT)).__class__ is (InvalidRecordStateError if applied else type(None))


@pytest.mark.rule("PL-707")
def test_a_stored_delay_of_a_later_delivery_is_taken_over() -> None:
    bench = fetched()
    bench.ack("M", (0, 3, ACCEPT))
    bench.failed(CoordinatorNotAvailableError("?"), unknown=True)
    bench.do(ev.ReadBack(2, 7, 0, (StateBatch(0, 1, 0, 3, START_MS + 50), StateBatch(2, 2, 0, 3, START_MS))))
    assert delays(bench) == {0: START_MS + 50, 1: START_MS + 50}
    assert bench.fetch("N") == [(2, 2, 4)], "one whose delay is over"


@pytest.mark.rule("PL-932", "T6", "T7")
@pytest.mark.parametrize("dlq", [False, True])
def test_the_delivery_limit_comes_first(dlq: bool) -> None:
    bench = Bench(
        batches=(StateBatch(0, 9, 0, 4),),
        log=[(0, 9)],
        settings=GroupConfig(lock_ms=LOCK_MS, dlq_enabled=dlq, delivery_count_limit=5, backoff=Backoff(100)),
    )
    assert bench.fetch() == [(0, 0, 5)]
    bench.ack("M", (0, 0, RELEASE, 60_000))
    assert stored(bench.persisted()) == ([(0, 0, 3, 5, 0)] if dlq else [])
    assert delays(bench) == {}


@pytest.mark.rule("PL-936", "T12")
def test_a_lock_that_runs_out_waits_by_the_back_off_and_that_is_stored() -> None:
    drawn = iter([0.0, 1.0])
    bench = Bench(
        log=[(0, 9), (10, 19)],
        settings=GroupConfig(lock_ms=LOCK_MS, backoff=Backoff(1_000, 2.0, 60_000, 0.5)),
        chance=lambda: next(drawn),
    )
    assert bench.fetch(until=9) == [(0, 9, 1)]
    assert bench.fetch("N") == [(10, 19, 1)]
    bench.pass_time(LOCK_MS)
    now = START_MS + LOCK_MS
    write = bench.persisted()
    assert stored(write) == [(0, 9, 0, 1, now + 1_000), (10, 19, 0, 1, now + 500)], "drawn once for each stretch"
    bench.pass_time(500)
    assert bench.fetch() == [(10, 19, 2)]
    bench.pass_time(500)
    assert bench.fetch() == [(0, 9, 2)]
    assert bench.core._state.delayed_by[DelayCause.LOCK_EXPIRED] == 20


@pytest.mark.rule("PL-936", "T13", "PL-505")
@pytest.mark.parametrize("ranges", [None, ((0, 9, 1),)])
def test_what_a_session_gives_back_is_free_at_once(ranges: tuple[tuple[int, int, int], ...] | None) -> None:
    bench = fetched(backoff=Backoff(60_000))
    bench.release("M", ranges)
    assert stored(bench.persisted()) == [(0, 9, 0, 1, 0)]
    assert bench.fetch("N") == [(0, 9, 2)]


@pytest.mark.rule("PL-936", "T13", "PL-307")
def test_a_session_whose_release_fails_after_the_lock_does_not_make_its_records_wait() -> None:
    bench = fetched(backoff=Backoff(60_000))
    bench.release("M")
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("no"))
    assert delays(bench) == {}
    assert bench.fetch("N") == [(0, 9, 2)]


@pytest.mark.rule("PL-936")
def test_the_back_off_of_short_acknowledgements_is_drawn_once_for_each_stretch() -> None:
    drawn: list[float] = []
    bench = Bench(
        log=[(0, 9)],
        settings=GroupConfig(lock_ms=LOCK_MS, backoff=Backoff(1_000, jitter=0.1)),
        chance=lambda: drawn.append(0.0) or 0.0,  # type: ignore[func-returns-value]
    )
    bench.fetch()
    bench.acked("M", *[(at, at, ACCEPT if at == 4 else RELEASE) for at in range(10)])
    assert delays(bench) == {offset: START_MS + 1_000 for offset in range(10) if offset != 4}
    assert len(drawn) == 2


@pytest.mark.rule("PL-932", "PL-620", "T16")
def test_the_log_start_passes_delayed_and_pending_ones() -> None:
    bench = fetched()
    bench.acked("M", (0, 2, RELEASE, 60_000))
    bench.ack("M", (3, 4, RELEASE, 60_000))
    bench.do(ev.LogStartMoved(5))
    bench.core.check()
    assert bench.spso == 5
    bench.persisted()
    assert delays(bench) == {}
    assert bench.core.overview().start_offset == 5


@pytest.mark.rule("PL-932", "PL-226", "T17")
def test_compaction_takes_delayed_ones_along() -> None:
    bench = fetched(log=[(0, 9), (10, 19)])
    bench.acked("M", (0, 4, RELEASE, 60_000), (5, 9, RELEASE))
    bench.log = bench.log[1:]
    assert bench.fetch("N") == [(10, 19, 1)]
    assert delays(bench) == dict.fromkeys(range(5), START_MS + 60_000), "the read began behind them"
    bench.pass_time(60_000)
    bench.fetch("N")
    assert delays(bench) == {}
    assert bench.spso == 10


@pytest.mark.rule("PL-308", "PL-932")
def test_a_late_acknowledgement_of_a_delayed_record_is_refused_and_says_why() -> None:
    bench = fetched(backoff=Backoff(60_000))
    bench.pass_time(LOCK_MS)
    op = bench.ack("M", (0, 0, ACCEPT))
    error = bench.error(op)
    assert isinstance(error, InvalidRecordStateError)
    assert "it waits to be retried" in error.message


@pytest.mark.rule("PL-934")
def test_a_successor_lets_the_stored_records_wait_for_what_is_left() -> None:
    bench = Bench(
        batches=(
            StateBatch(0, 3, 0, 2, START_MS + 700),
            StateBatch(4, 5, 2, 1),
            StateBatch(6, 6, 0, 1, START_MS),
            StateBatch(7, 9, 0, 1),
        ),
        log=[(0, 9), (10, 19)],
    )
    assert delays(bench) == dict.fromkeys(range(4), START_MS + 700)
    assert bench.fetch("M", until=9) == [(6, 6, 2), (7, 9, 2)]
    bench.pass_time(700)
    assert bench.fetch("N", until=9) == [(0, 3, 3)]


@pytest.mark.rule("PL-935")
def test_delayed_records_leave_the_limits_way_also_when_one_is_tried_again() -> None:
    log = [(at, at + 9) for at in range(0, 2_000, 10)]
    bench = Bench(log=log, settings=GroupConfig(lock_ms=10 * LOCK_MS, max_record_locks=100))
    given = [bench.fetch(until=9)]
    bench.acked("M", (0, 0, RELEASE, 60_000), (1, 9, ACCEPT))
    while len(given) < 100:
        given.append(bench.fetch(until=10 * len(given) + 9))
        ((first, last, _),) = given[-1]
        bench.acked("M", (first, last, ACCEPT))
    assert bench.spso == 0
    assert bench.core.in_flight == 1_000, "as Kafka counts"
    assert bench.core.numbers().batch_count < 20, "settled records are kept in few pieces"
    bench.pass_time(60_000)
    assert bench.fetch("N", max_records=1, mode=1) == [(0, 0, 2)]
    assert bench.fetch("N", max_records=10, until=1_009) == [(1_000, 1_009, 1)], "it runs, and new ones flow"
    held = 11
    while held < 100:
        ((first, last, _),) = bench.fetch("N", max_records=10)
        held += last - first + 1
    assert bench.fetch("N") == [], "as many as the limit allows are held"
    bench.acked("N", (0, 0, ACCEPT))
    assert bench.spso == 1_000
    assert not bench.core.can_acquire(bench.settings), "from here on offsets count again"


@pytest.mark.rule("PL-935")
def test_at_the_bound_no_new_records_come_and_what_is_available_does() -> None:
    bench = fetched(log=[(0, 9), (10, 19)], delayed_max=3)
    bench.acked("M", (0, 1, RELEASE, 60_000), (2, 9, ACCEPT))
    assert not bench.core.delayed_full(bench.settings)
    assert bench.fetch("M") == [(10, 19, 1)]
    bench.log.append(bench.log[-1].__class__(20, 29))
    bench.acked("M", (10, 10, RELEASE, 60_000), (11, 11, RELEASE), (12, 19, ACCEPT))
    assert bench.core.delayed_full(bench.settings)
    assert bench.fetch("N") == [(11, 11, 2)], "nothing new, for three wait"
    assert bench.fetch("N") == []
    bench.set(delayed_max=4)
    assert bench.fetch("N") == [(20, 29, 1)]


@pytest.mark.rule("PL-935")
def test_a_window_in_too_many_pieces_takes_no_new_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("partition_leader.share_partition.core.room.SHARE_PARTITION_BATCHES_MAX", 4)
    bench = Bench(log=[(at, at) for at in range(8)])
    for offset in range(4):
        assert bench.fetch(until=offset) == [(offset, offset, 1)]
        bench.acked("M", (offset, offset, RELEASE, 60_000 + offset))
    assert bench.core.delayed_full(bench.settings)
    assert bench.fetch() == []
    bench.pass_time(60_000)
    assert bench.fetch() == [(0, 0, 2)]


@pytest.mark.rule("PL-607", "PL-222", "PL-935")
def test_what_a_former_leader_had_in_flight_needs_no_room_at_the_bound_and_new_records_do() -> None:
    stored_batches = (StateBatch(2, 2, 0, 1, START_MS + 60_000), StateBatch(3, 3, 2, 1))
    settings = GroupConfig(lock_ms=10 * LOCK_MS, delayed_max=1)
    bench = Bench(batches=stored_batches, log=[(0, 3), (4, 9)], settings=settings)
    assert bench.core.delayed_full(bench.settings)
    assert bench.fetch() == [(0, 1, 1)]
    assert bench.fetch("N") == [], "nothing new, for one waits"
    assert not bench.core.can_acquire(bench.settings)
    bench.pass_time(60_000)
    assert bench.fetch("N") == [(2, 2, 2), (4, 9, 1)]


@pytest.mark.rule("PL-607", "PL-935", "PL-608")
def test_a_hole_before_too_many_pieces_is_delivered_and_then_they_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start offset cannot pass the hole, and the finished pieces cannot be joined: if the hole had to wait for
    room, there would never be any."""
    monkeypatch.setattr("partition_leader.share_partition.core.room.SHARE_PARTITION_BATCHES_MAX", 4)
    finished = tuple(StateBatch(offset, offset, 2, 1 + offset % 2) for offset in range(3, 8))
    bench = Bench(batches=(StateBatch(2, 2, 0, 1, START_MS + 60_000), *finished), log=[(0, 7), (8, 9)])
    bench.pass_time(60_000)
    assert bench.core.delayed_full(bench.settings), "by its pieces"
    assert bench.fetch() == [(0, 1, 1), (2, 2, 2)]
    assert bench.fetch() == []
    bench.acked("M", (0, 2, ACCEPT))
    assert bench.spso == 8
    assert bench.fetch() == [(8, 9, 1)]


def test_retiring_leaves_delays_to_the_successor() -> None:
    """PL-937: the delays are in the stored state."""
    bench = fetched()
    bench.acked("M", (0, 9, RELEASE, 60_000))
    bench.do(ev.Retire(CoordinatorNotAvailableError("over")))
    assert bench.writes == []
    assert bench.core.next_deadline() is None


# Functions on runs of offsets.


def test_delays_of_a_request_by_stretch() -> None:
    assert list(given_runs(5, 9, (), 5)) == [(5, 9, -1)]
    assert list(given_runs(5, 9, (7,), 0)) == [(5, 9, 7)]
    assert list(given_runs(5, 9, (0, 1, 1, 2, 2, 2, 3), 3)) == [(5, 5, 1), (6, 8, 2), (9, 9, 3)]


def test_released_records_by_stretch() -> None:
    types = bytes([RELEASE, RELEASE, ACCEPT, RELEASE, 64, RELEASE])
    assert list(released_runs(types, [1, 1, 1, 1, 1, 2], 10, ())) == [(10, 11, 1, -1), (13, 13, 1, -1), (15, 15, 2, -1)]
    delays_given = (5, 6, -1, 6, -1, 6)
    assert list(released_runs(types, [1] * 6, 10, delays_given)) == [
        (10, 10, 1, 5), (11, 11, 1, 6), (13, 13, 1, 6), (15, 15, 1, 6),
    ]  # fmt: skip


@pytest.mark.rule("PL-934")
def test_a_write_has_the_delays_on_the_parts_that_wait_and_on_no_other_state() -> None:
    batches = [StateBatch(0, 9, 0, 1), StateBatch(10, 14, 2, 1), StateBatch(20, 29, 0, 3), StateBatch(30, 31, 0, 1)]
    waiting = [((25, 30), 7), ((2, 3), 5), ((6, 12), 6)]
    assert with_delays(batches, waiting) == [
        StateBatch(0, 1, 0, 1),
        StateBatch(2, 3, 0, 1, 5),
        StateBatch(4, 5, 0, 1),
        StateBatch(6, 9, 0, 1, 6),
        StateBatch(10, 14, 2, 1),
        StateBatch(20, 24, 0, 3),
        StateBatch(25, 29, 0, 3, 7),
        StateBatch(30, 30, 0, 1, 7),
        StateBatch(31, 31, 0, 1),
    ]
    assert with_delays(batches, []) == batches


@pytest.mark.rule("PL-703")
def test_neighbours_whose_delays_end_together_are_one_state_batch() -> None:
    waiting = [((0, 3), 7), ((4, 5), 7), ((6, 6), 8), ((7, 9), 8)]
    assert with_delays([StateBatch(0, 4, 0, 1), StateBatch(5, 9, 0, 1)], waiting) == [
        StateBatch(0, 5, 0, 1, 7),
        StateBatch(6, 9, 0, 1, 8),
    ]
