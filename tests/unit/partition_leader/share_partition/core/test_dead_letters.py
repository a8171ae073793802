"""Which records are sent as dead letters, and their states once the letters have been written."""

from __future__ import annotations

import pytest

from kip932.errors import KafkaError, RequestTimedOutError
from kip932.ids import (
    STATE_ACKNOWLEDGED,
    STATE_ACQUIRED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
)
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.dead_letters import PIECES_MAX, DeadLetters
from partition_leader.share_partition.core.effects import AcquiredRange
from partition_leader.share_partition.core.in_flight import Window
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, one, plain, written

REJECTED, LIMIT = "client reject", "delivery count exceeded"


def window() -> Window:
    """A window with 10-14 Available, 15-19 Archiving with count 2, 20-29 Archiving with count 5."""
    made = Window(10)
    for first, last, code, count in (
        (10, 14, STATE_AVAILABLE, 1),
        (15, 19, STATE_ARCHIVING, 2),
        (20, 29, STATE_ARCHIVING, 5),
    ):
        made.add(InFlightBatch(first, last, code, count))
    return made


def states(made: Window) -> list[tuple[int, int, int]]:
    return [
        (first, last, code) for batch in made.walk() for first, last, code, _ in batch.runs(batch.first, batch.last)
    ]


def test_one_letter_for_each_cause_with_the_archiving_records_of_its_spans_in_order() -> None:
    letters = DeadLetters()
    assert not letters
    sent = letters.send(window(), [((22, 24), LIMIT), ((12, 16), REJECTED), ((20, 20), LIMIT)])
    assert [(letter.dead_letter_id, letter.cause, letter.ranges) for letter in sent] == [
        (1, LIMIT, (AcquiredRange(20, 20, 5), AcquiredRange(22, 24, 5))),
        (2, REJECTED, (AcquiredRange(15, 16, 2),)),
    ]
    assert letters
    assert letters.send(window(), [((10, 14), REJECTED)]) == []


@pytest.mark.rule("PL-905")
def test_a_span_that_the_log_start_has_passed_gets_no_letter_from_a_batch_that_goes_on_behind_it() -> None:
    """Moving the start offset does not cut merged batches (PL-915); the spans of their dead letters are those before
    the merge."""
    letters, made = DeadLetters(), Window(24)
    made.add(InFlightBatch(24, 31, STATE_ARCHIVING, 2))
    made.move_start(30)
    (sent,) = letters.send(made, [((24, 27), LIMIT), ((28, 31), LIMIT)])
    assert sent.ranges == (AcquiredRange(30, 31, 2),)
    assert letters.waiting == 2
    assert list(made.overlapping(30, 27)) == []


def test_what_came_back_is_archived_once_and_nothing_beside_it() -> None:
    letters, made = DeadLetters(), window()
    letters.send(made, [((17, 21), LIMIT)])
    assert letters.finish(made, 7) == []
    assert letters.finish(made, 1) == [(17, 19), (20, 21)]
    assert states(made) == [
        (10, 14, STATE_AVAILABLE),
        (15, 16, STATE_ARCHIVING),
        (17, 19, STATE_ARCHIVED),
        (20, 21, STATE_ARCHIVED),
        (22, 29, STATE_ARCHIVING),
    ]
    assert not letters
    assert letters.finish(made, 1) == []


def test_letters_that_are_not_waited_for_change_nothing_when_they_come_back() -> None:
    letters, made = DeadLetters(), window()
    letters.send(made, [((15, 19), REJECTED)])
    letters.forget()
    before = states(made)
    assert not letters
    assert letters.finish(made, 1) == []
    assert states(made) == before
    assert letters.send(made, [((15, 15), REJECTED)])[0].dead_letter_id == 2


def test_what_is_done_in_part_leaves_the_rest_out() -> None:
    letters, made = DeadLetters(), window()
    letters.send(made, [((15, 29), LIMIT)])
    assert letters.waiting == 15
    assert letters.finish(made, 1, ((16, 17), (19, 20), (29, 40))) == [(16, 17), (19, 19), (20, 20), (29, 29)]
    assert letters.waiting == 10
    letters.postpone(1, ((15, 15), (18, 22)))
    assert letters.waiting == 6
    assert letters.finish(made, 1) == [(23, 28)]
    assert not letters
    assert letters.waiting == 0
    assert [row for row in states(made) if row[2] == STATE_ARCHIVING] == [
        (15, 15, STATE_ARCHIVING),
        (18, 18, STATE_ARCHIVING),
        (21, 22, STATE_ARCHIVING),
    ]


@pytest.mark.rule("PL-915")
def test_letters_and_what_is_finished_in_front_leave_the_locks_free() -> None:
    made, letters = Window(0), DeadLetters(squeeze_at=2)
    for first, code in ((0, STATE_ARCHIVING), (10, STATE_ACKNOWLEDGED), (20, STATE_ACQUIRED), (30, STATE_ARCHIVING)):
        made.add(InFlightBatch(first, first + 9, code, 1))
    made.end_offset = 39
    settings = GroupConfig(max_record_locks=100)
    assert letters.room(made, settings) == 60
    letters.send(made, [((0, 9), REJECTED), ((30, 39), REJECTED)])
    assert letters.room(made, settings) == 90, "20-29 alone count"
    letters.finish(made, 1, ((0, 9),))
    assert letters.room(made, settings) == 90
    letters.finish(made, 1, ((30, 34),))
    assert letters.room(made, settings) == 85, "finished records after one that is held count, as always"


@pytest.mark.rule("PL-916")
def test_at_the_bound_no_new_records_are_acquired_and_older_ones_are() -> None:
    settings = GroupConfig(delivery_count_limit=5, dlq_enabled=True, dead_letters_max=10)
    bench = Bench(settings=settings, log=[(0, 9), (10, 19), (20, 29)])
    assert bench.fetch(max_records=20) == [(0, 19, 1)]
    bench.acked("M", (0, 8, 3))
    assert not bench.core.dead_letters_full(settings)
    bench.acked("M", (10, 10, 3))
    assert bench.core._state.dead_letters.waiting == 10
    assert bench.core.dead_letters_full(settings)
    assert bench.fetch() == []
    bench.acked("M", (9, 9, 2))
    assert bench.fetch() == [(9, 9, 2)]
    woken = bench.do(ev.DlqDone(bench.dead[0].dead_letter_id, ((0, 0),)))
    assert fx.Wake() in woken
    assert bench.fetch() == [(20, 29, 1)]


@pytest.mark.rule("PL-916", "PL-915")
def test_a_million_finished_records_behind_a_letter_are_few_pieces_and_too_many_pieces_are_the_bound() -> None:
    settings = GroupConfig(max_record_locks=100, dlq_enabled=True)
    bench = Bench(batches=(StateBatch(0, 0, STATE_ARCHIVING, 1),), settings=settings)
    window, letters = bench.core._state.window, bench.core._state.dead_letters
    for first in range(1, 1_000_001, 100):
        window.add(InFlightBatch(first, first + 99, STATE_ACKNOWLEDGED, 1))
        window.end_offset = first + 99
        assert letters.room(window, settings) == 100
    assert window.batch_count <= 64 + 12
    window.check()
    for first in range(window.next_offset, window.next_offset + PIECES_MAX + 100):
        window.add(InFlightBatch(first, first, STATE_ACKNOWLEDGED, 1 + first % 2))
        window.end_offset = first
    assert letters.room(window, settings) == 0
    assert bench.core.dead_letters_full(settings)


@pytest.mark.rule("PL-607", "PL-222", "PL-916")
def test_at_the_bound_what_a_former_leader_had_in_flight_is_delivered_and_nothing_new() -> None:
    settings = GroupConfig(dlq_enabled=True, dead_letters_max=1)
    stored = (StateBatch(2, 2, STATE_ARCHIVING, 1), StateBatch(3, 3, STATE_ACKNOWLEDGED, 1))
    bench = Bench(batches=stored, log=[(0, 3), (4, 9)], settings=settings)
    assert bench.core.dead_letters_full(bench.settings)
    assert bench.fetch() == [(0, 1, 1)]
    assert bench.fetch() == []
    bench.do(ev.DlqDone(bench.dead[0].dead_letter_id))
    assert bench.fetch() == [(4, 9, 1)]


@pytest.mark.rule("PL-921")
def test_one_that_retires_waits_for_letters_under_way_and_leaves_the_others_to_its_successor() -> None:
    bench = Bench(settings=GroupConfig(dlq_enabled=True), log=[(0, 9)])
    bench.fetch()
    bench.acked("M", (0, 9, 3))
    number = bench.dead[0].dead_letter_id
    bench.do(ev.Retire(KafkaError("the group has left")))
    assert bench.do(ev.DlqPostponed(number, ((0, 4),))) == []
    assert bench.do(ev.DlqDone(number))[0] == bench.writes[0], "T15 is written before it goes"
    assert [plain(batch) for batch in bench.writes[0].state_batches] == [(5, 9, STATE_ARCHIVED, 1)]
    write = bench.writes.pop()
    one(bench.do(ev.Persisted(write.write_id)), fx.Dropped)


@pytest.mark.rule("T13", "PL-107", "PL-905")
def test_a_session_that_closes_at_the_limit_sends_what_it_holds_to_the_queue() -> None:
    bench = Bench(settings=GroupConfig(delivery_count_limit=1, dlq_enabled=True), log=[(0, 9)])
    bench.fetch()
    op = bench.release("M")
    assert [plain(batch) for batch in bench.writes[0].state_batches] == [(0, 9, STATE_ARCHIVING, 1)]
    assert bench.dead == []
    bench.persisted()
    assert bench.error(op) is None
    assert [(letter.ranges, letter.cause) for letter in bench.dead] == [(((0, 9, 1),), LIMIT)]


def last_deliveries(count: int, **changes: int) -> Bench:
    """Records 0 … count − 1, which M has acquired with delivery count 5, the limit; there is a dead-letter queue."""
    bench = Bench(batches=(StateBatch(0, count - 1, 0, 4),), log=[(0, count - 1), (count, count)])
    bench.set(delivery_count_limit=10, dlq_enabled=True, **changes)  # at 5, each record would be delivered alone
    assert bench.fetch(until=0) == [(0, count - 1, 5)]
    bench.set(delivery_count_limit=5)
    return bench


@pytest.mark.rule("PL-305", "PL-707")
def test_a_record_whose_lock_ended_before_the_read_back_gets_one_letter_and_not_before_it_is_stored() -> None:
    bench = last_deliveries(1)
    bench.ack("M", (0, 0, 3))
    bench.failed(RequestTimedOutError("no answer"), unknown=True)
    bench.pass_time(LOCK_MS)
    effects = bench.do(ev.ReadBack(bench.core.generation, 7, 0, (StateBatch(0, 0, STATE_AVAILABLE, 4),)))
    assert bench.records() == [(0, 0, STATE_ARCHIVING, 5)], "at the limit, as its lock has ended (PL-307)"
    assert not [effect for effect in effects if isinstance(effect, fx.DeadLetter)], "a successor would deliver it"
    assert written(bench.persisted()) == (0, 0, [(0, 0, STATE_ARCHIVING, 5)])
    assert [(letter.ranges, letter.cause) for letter in bench.dead] == [((AcquiredRange(0, 0, 5),), LIMIT)]
    assert bench.core._state.dead_letters.waiting == 1


@pytest.mark.rule("PL-214", "PL-915")
def test_a_fetch_that_waits_for_room_is_woken_when_letters_make_it() -> None:
    bench = last_deliveries(2, max_record_locks=2)
    bench.pass_time(LOCK_MS)
    assert not bench.core.can_acquire(bench.settings), "not stored as Archiving yet"
    write = bench.writes.pop()
    effects = bench.do(ev.Persisted(write.write_id))
    assert bench.core.can_acquire(bench.settings)
    assert fx.Wake() in effects
    assert bench.fetch() == [(2, 2, 1)]
