"""Records archived without being accepted are reported with offsets and cause once that is durable (PL-810)."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError, RequestTimedOutError
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, STATE_ARCHIVED
from kip932.state_batches import ArchivedRange, StateBatch
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from shard_runtime.config.group_config import GroupConfig

from .bench import LOCK_MS, Bench

LIMIT, REJECTED = "delivery_limit", "rejected"
Reported = list[tuple[str, tuple[tuple[int, int, int], ...]]]


def reported(bench: Bench) -> Reported:
    return [(effect.cause, effect.ranges) for effect in bench.seen if isinstance(effect, fx.Archived)]


def written(bench: Bench) -> list[fx.Persist]:
    return [effect for effect in bench.seen if isinstance(effect, fx.Persist)]


def at_limit(bench: Bench, deliveries: int = 5) -> None:
    """Deliver and release the records until one more release would archive them."""
    for delivery in range(1, deliveries + 1):
        acquired: list[tuple[int, int, int]] = []
        while found := bench.fetch():
            acquired += found
        assert {count for _, _, count in acquired} == {delivery}
        assert sum(last - first + 1 for first, last, _ in acquired) == 10
        if delivery < deliveries:
            bench.acked("M", (0, 9, ACK_RELEASE))


@pytest.mark.rule("PL-810")
def test_the_release_that_reaches_the_limit_is_reported_when_it_is_durable() -> None:
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    assert reported(bench) == [], "nothing before"
    bench.ack("M", (0, 3, ACK_ACCEPT), (4, 9, ACK_RELEASE))
    assert reported(bench) == [], "not before it is durable"
    assert bench.persisted().counters.n_limit == 6
    assert reported(bench) == [(LIMIT, ((4, 9, 5),))]


@pytest.mark.rule("PL-810")
def test_rejected_records_are_reported_by_range_and_gaps_are_not() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.acked("M", (0, 3, ACK_REJECT), (4, 4, ACK_GAP), (5, 6, ACK_ACCEPT))
    assert reported(bench) == [(REJECTED, ((0, 3, 1),))]
    bench.acked("M", (7, 9, (ACK_REJECT, ACK_ACCEPT, ACK_REJECT)))
    assert reported(bench)[1:] == [(REJECTED, ((7, 7, 1), (9, 9, 1)))]


@pytest.mark.rule("PL-810")
def test_many_short_acknowledgements_are_reported_as_joined_ranges() -> None:
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    bench.acked("M", *((offset, offset, ACK_RELEASE if offset < 5 else ACK_REJECT) for offset in range(10)))
    assert reported(bench) == [(LIMIT, ((0, 4, 5),)), (REJECTED, ((5, 9, 5),))]
    write = written(bench)[-1]
    assert write.archived == (ArchivedRange(0, 4, 5, 1), ArchivedRange(5, 9, 5, 2))
    assert (write.start_offset, write.state_batches) == (10, ()), "no batch names them"


@pytest.mark.rule("PM-20", "X9")
def test_a_write_names_what_it_gives_up_for_good_and_nothing_else() -> None:
    """Released records are delivered again, accepted ones are finished, and a gap has no record. With a dead-letter
    queue, records are named when they become Archiving, and not again once their dead letter is written."""
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.acked("M", (0, 3, ACK_ACCEPT), (4, 4, ACK_GAP), (5, 6, ACK_RELEASE), (7, 9, ACK_REJECT))
    assert written(bench)[-1].archived == (ArchivedRange(7, 9, 1, 2),)
    with_letters = Bench(log=[(0, 9)], settings=GroupConfig(lock_ms=LOCK_MS, dlq_enabled=True))
    at_limit(with_letters)
    with_letters.ack("M", (0, 1, ACK_REJECT), (2, 2, ACK_ACCEPT))
    with_letters.persisted()
    with_letters.pass_time(LOCK_MS)
    assert [write.archived for write in written(with_letters)[-2:]] == [
        (ArchivedRange(0, 1, 5, 2),),
        (ArchivedRange(3, 9, 5, 1),),
    ]
    with_letters.persisted()
    for letter in with_letters.dead:
        with_letters.do(ev.DlqDone(letter.dead_letter_id))
    assert written(with_letters)[-1].archived == ()


@pytest.mark.rule("PL-810", "T12", "T13")
def test_locks_that_run_out_and_sessions_that_close_at_the_limit_are_reported() -> None:
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    bench.pass_time(LOCK_MS)
    bench.persisted()
    assert reported(bench) == [(LIMIT, ((0, 9, 5),))]
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    bench.release("M")
    bench.persisted()
    assert reported(bench) == [(LIMIT, ((0, 9, 5),))]


@pytest.mark.rule("PL-810")
def test_what_failed_is_not_reported_and_what_ran_out_is_reported_with_the_write_that_succeeds() -> None:
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    bench.ack("M", (0, 9, ACK_REJECT))
    bench.failed(CoordinatorNotAvailableError("away"))
    assert reported(bench) == [], "it is held again"
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("away"))
    assert reported(bench) == []
    bench.pass_time(60_000)
    assert bench.persisted().counters.n_limit == 10
    assert reported(bench) == [(LIMIT, ((0, 9, 5),))]


@pytest.mark.rule("PL-810")
def test_a_lock_that_ran_out_while_its_write_failed_is_reported_and_counted() -> None:
    bench = Bench(log=[(0, 9)])
    at_limit(bench)
    bench.ack("M", (0, 9, ACK_ACCEPT))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError("away"))
    bench.pass_time(60_000)
    assert bench.persisted().counters.n_limit == 10
    assert reported(bench) == [(LIMIT, ((0, 9, 5),))]


@pytest.mark.rule("PL-810")
@pytest.mark.parametrize("landed", [True, False])
def test_an_unknown_outcome_is_reported_if_the_store_has_it(landed: bool) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (2, 9, ACK_REJECT))
    bench.failed(CoordinatorNotAvailableError("no answer"), unknown=True)
    stored = (StateBatch(2, 9, STATE_ARCHIVED, 1),) if landed else ()
    bench.do(ev.ReadBack(bench.core.generation, 7, 0, stored))
    assert reported(bench) == ([(REJECTED, ((2, 9, 1),))] if landed else [])


@pytest.mark.rule("PM-96")
def test_one_write_counts_what_members_released_apart_from_what_a_session_gave_back() -> None:
    bench = Bench(log=[(0, 9)])
    assert bench.fetch() == [(0, 9, 1)]
    bench.ack("M", (0, 1, ACK_ACCEPT))  # its write is outstanding, so the next two share one
    bench.ack("M", (2, 4, ACK_RELEASE))
    bench.release("M")
    bench.persisted()
    write = bench.persisted()
    assert write.cause == fx.CAUSE_ACK | fx.CAUSE_SESSION_RELEASE
    assert (write.counters.n_release, write.counters.n_given_back) == (3, 5)


@pytest.mark.rule("PM-96")
def test_a_closed_session_counts_all_that_it_gives_back_and_of_these_what_reached_the_limit() -> None:
    bench = Bench(log=[(0, 4), (5, 9)])
    assert bench.fetch(max_records=5) == [(0, 4, 1)]
    bench.acked("M", (0, 4, ACK_RELEASE))
    bench.set(delivery_count_limit=2)
    while bench.fetch():
        pass
    bench.release("M")
    write = bench.persisted()
    counters = write.counters
    assert (counters.n_given_back, counters.n_release, counters.n_limit) == (10, 0, 5)


@pytest.mark.rule("PL-810")
def test_an_unknown_outcome_that_reached_the_store_in_part_is_reported_in_part() -> None:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.fetch(max_records=20, batch_size=10)
    bench.ack("M", (2, 9, ACK_REJECT), (12, 13, ACK_REJECT))
    bench.failed(CoordinatorNotAvailableError("no answer"), unknown=True)
    stored = (StateBatch(2, 5, STATE_ARCHIVED, 1), StateBatch(12, 13, STATE_ARCHIVED, 1))
    bench.do(ev.ReadBack(bench.core.generation, 7, 0, stored))
    assert reported(bench) == [(REJECTED, ((2, 5, 1), (12, 13, 1)))], "6-9 are held again"


@pytest.mark.rule("PL-810", "PL-707")
@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        pytest.param(ev.ReadBack(2, 7, 0, ()), [], id="not stored: the log lost some of them, no member rejected them"),
        pytest.param(
            ev.ReadBack(2, 7, 0, (StateBatch(0, 3, STATE_ARCHIVED, 1),)), [(REJECTED, ((0, 3, 1),))], id="stored"
        ),
        pytest.param(ev.ReadBack(2, 7, 4, ()), [(REJECTED, ((0, 3, 1),))], id="stored, and the start went past them"),
    ],
)
def test_of_a_rejection_without_an_answer_only_what_is_stored_is_reported(
    stored: ev.ReadBack, wanted: Reported
) -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch()
    bench.ack("M", (0, 3, ACK_REJECT))
    bench.failed(RequestTimedOutError("no answer"), True)
    bench.do(ev.LogStartMoved(4))
    bench.do(stored)
    assert reported(bench) == wanted
