"""The core's explanations of records, loaded and stored: their states, obstacles and sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRequestError
from kip932.failures import Failure
from kip932.ids import (
    EXPLAINED_OFFSETS_MAX,
    STATE_ACKNOWLEDGED,
    STATE_ACQUIRED,
    STATE_ARCHIVED,
    STATE_ARCHIVING,
    STATE_AVAILABLE,
)
from kip932.state_batches import StateBatch
from kip932.state_values import StateSummary
from partition_leader.explain.core.explain import Explanation, check_offsets, explain_loaded, explain_stored
from partition_leader.explain.core.explanation import Fate, KnownBatch, LogView, Obstacle, Question, WriteStage
from partition_leader.explain.core.explanation import RecordState as Is
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def question(bench: Bench, first: int, last: int | None = None, **given: Any) -> Question:
    """A question about the log of a bench whose batches were appended at 1 s, 2 s and so on."""
    batches = [KnownBatch(at.base_offset, at.last_offset, 1_000 * number) for number, at in enumerate(bench.log, 1)]
    end = batches[-1].last + 1 if batches else 0
    log = given.pop("log", None) or LogView(batches[0].first if batches else 0, end, end, batches)
    return Question("g", first, first if last is None else last, log, bench.settings, bench.now, 1)._replace(**given)


def answer(bench: Bench, first: int, last: int | None = None, **given: Any) -> Explanation:
    found = explain_loaded(bench.core, question(bench, first, last, **given))
    assert found is not None
    return found


def fates(explanation: Explanation) -> list[tuple[int, int, Is, Obstacle]]:
    return [(fate.first, fate.last, fate.state, fate.obstacle) for fate, _ in explanation.records]


def only(explanation: Explanation) -> tuple[Fate, str]:
    (found,) = explanation.records
    return found


@pytest.mark.rule("PL-941")
def test_what_members_gave_back_unseen_is_reported_with_how_often() -> None:
    bench = Bench(log=[(0, 3)])
    for offsets in ((0, 1), (0, 0)):
        bench.fetch(until=3)
        bench.acked("M", (*offsets, RELEASE, (), True))
    assert [fate.taken_back for fate, _ in answer(bench, 0, 1).records] == [2, 0], "and 1 is held again"
    assert only(answer(bench, 0))[1] == (
        "Available, after 0 of 5 deliveries; a member gave it back unseen 2 times in a row, which does not count as a "
        "delivery until that has happened 10 times; the next fetch of a member may get it; one that is busy asks for "
        "none."
    )


@pytest.mark.rule("PL-821")
def test_the_first_place_that_holds_decides_the_state() -> None:
    bench = Bench(10, log=[(5, 19), (25, 39)], settings=GroupConfig(LOCK_MS, delivery_count_limit=2))
    assert bench.fetch("M", max_records=1, batch_size=1, until=5) == [(10, 19, 1)]
    assert bench.acked("M", (10, 11, ACCEPT), (12, 13, REJECT), (14, 15, RELEASE)) is None
    assert bench.spso == 14
    assert bench.acked("M", (17, 17, ACCEPT), (18, 18, REJECT)) is None
    assert fates(answer(bench, 0, 45)) == [
        (0, 4, Is.DELETED, Obstacle.NO_RECORD),
        (5, 13, Is.FINISHED, Obstacle.FINISHED),
        (14, 15, Is.AVAILABLE, Obstacle.NONE),
        (16, 16, Is.ACQUIRED, Obstacle.HELD),
        (17, 17, Is.ACKNOWLEDGED, Obstacle.FINISHED),
        (18, 18, Is.ARCHIVED, Obstacle.REJECTED),
        (19, 19, Is.ACQUIRED, Obstacle.HELD),
        (20, 24, Is.HOLE, Obstacle.NO_RECORD),
        (25, 39, Is.AVAILABLE, Obstacle.NONE),
        (40, 45, Is.BEYOND_END, Obstacle.NO_RECORD),
    ]
    counts = [fate.delivery_count for fate, _ in answer(bench, 13, 25).records]
    assert counts == [None, 1, 1, 1, 1, 1, None, 0], "no count is kept for finished records and offsets without one"


@pytest.mark.rule("PL-820")
def test_neighbours_with_everything_in_common_are_one_and_show_when_the_first_was_appended() -> None:
    bench = Bench(log=[(0, 4), (5, 9), (10, 14)])
    assert bench.fetch("M", max_records=5, batch_size=1, until=0) == [(0, 4, 1)]
    explanation = answer(bench, 2, 12)
    assert [(fate.first, fate.last, fate.append_time_ms) for fate, _ in explanation.records] == [
        (2, 4, 1_000),
        (5, 12, 2_000),
    ]
    assert (explanation.loaded, explanation.start_offset, explanation.end_offset) == (True, 0, 5)
    assert (explanation.state_epoch, explanation.window_offsets, explanation.held) == (7, 5, 5)


@pytest.mark.rule("PL-822", "PL-823")
def test_a_held_record_names_its_member_and_what_happens_when_its_lock_ends() -> None:
    bench = Bench(log=[(0, 9)], settings=GroupConfig(LOCK_MS, delivery_count_limit=2))
    bench.fetch("M")
    bench.now += 12_500
    bench.ack("M", (3, 4, RENEW))
    (fate, words), (renewed, again), _ = answer(bench, 0, 9).records
    assert (fate.member, fate.delivery_count, fate.lock_ms, fate.renewed) == ("M", 1, 17_500, False)
    assert fate.held_ms == 12_500
    assert words == (
        "Member M has held it for 12.5 s, delivery 1 of 2; the lock ends in 17.5 s; it is delivered again then unless "
        "it is acknowledged."
    )
    assert (renewed.first, renewed.last, renewed.lock_ms, renewed.renewed) == (3, 4, 30_000, True)
    assert (renewed.held_ms, again[:20]) == (None, "Member M holds it, d"), "when it began is not known any longer"
    assert (
        "ends in 30.0 s, and was renewed; it is delivered again then unless it is acknowledged or renewed again"
        in again
    )
    bench.pass_time(17_500)  # the locks that were not renewed end
    bench.fetch("N")
    found, at_the_limit = answer(bench, 0).records[0]
    assert (found.member, found.delivery_count) == ("N", 2)
    assert at_the_limit.endswith("it is archived then unless it is acknowledged.")
    assert not found.renewed
    bench.now += LOCK_MS
    assert "the lock has just run out" in only(answer(bench, 0))[1], "its timer has not been heard yet"


@pytest.mark.rule("PL-822")
def test_a_pending_record_names_the_write_that_it_waits_for() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch("M")
    bench.ack("M", (0, 3, ACCEPT))
    bench.now += 400
    bench.ack("M", (4, 5, RELEASE))
    running, queued, held = (fate for fate, _ in answer(bench, 0, 9, write_attempts=3).records)
    assert (running.state, running.obstacle, running.becomes) == (Is.PENDING, Obstacle.WRITE_PENDING, Is.ACKNOWLEDGED)
    assert running.member == "M"
    assert running.write == (WriteStage.RUNNING, 400, 3)
    assert (queued.first, queued.last, queued.becomes) == (4, 5, Is.AVAILABLE)
    assert queued.write == (WriteStage.QUEUED, None, 0)
    assert held.obstacle is Obstacle.HELD
    words = [text for _, text in answer(bench, 0, 9, write_attempts=3).records]
    assert words[0] == (
        "Its acknowledgement is being written for 400 ms, sent 3 times; acknowledged when the share coordinator "
        "confirms it."
    )
    assert words[1] == "Its release waits for the write before it; available after its own."
    bench.failed(CoordinatorNotAvailableError("silent"), unknown=True)
    unknown = answer(bench, 0)
    assert only(unknown)[0].write == (WriteStage.UNKNOWN, None, 0)
    assert "reads what is stored" in only(unknown)[1]


@pytest.mark.rule("PL-822")
def test_who_renews_has_held_since_the_leader_saw_it_first_unless_the_record_has_another_holder_now() -> None:
    bench = Bench(log=[(0, 9)])
    bench.fetch("M")
    bench.now += 12_500
    bench.ack("M", (3, 4, RENEW))
    watched = {3: ("M", 1, bench.now - 60_000)}
    _, (renewed, words), _ = answer(bench, 0, 9, watched=watched).records
    assert (renewed.held_ms, words[:28]) == (60_000, "Member M has held it for 60.")
    for other in ({3: ("N", 1, 5)}, {3: ("M", 2, 5)}, {0: ("M", 1, 5)}):
        assert answer(bench, 3, watched=other).records[0][0].held_ms is None


@pytest.mark.rule("PL-821", "PL-823")
def test_what_was_never_fetched_waits_behind_a_full_window_and_learns_who_holds_it_back() -> None:
    bench = Bench(log=[(0, 9), (10, 19)], settings=GroupConfig(LOCK_MS, max_record_locks=10))
    bench.fetch("M", max_records=10)
    assert bench.acked("M", (1, 8, ACCEPT), (9, 9, RELEASE)) is None
    new, words = only(answer(bench, 10, 19))
    assert (new.state, new.obstacle, new.delivery_count) == (Is.AVAILABLE, Obstacle.WINDOW_FULL, 0)
    assert words.startswith(
        "The window has 10 offsets, finished ones included, and share.partition.max.record.locks allows 10; new records"
    )
    assert "at offset 0, member M has held it for 0 ms" in words
    assert only(answer(bench, 9))[0].obstacle is Obstacle.NONE, "a released record needs no free lock"
    assert only(answer(bench, 10, fetching=0))[0].obstacle is Obstacle.WINDOW_FULL
    bench.set(max_record_locks=11)
    assert only(answer(bench, 10))[0].obstacle is Obstacle.NONE


@pytest.mark.rule("PL-821")
def test_available_records_that_nothing_in_the_window_holds_up() -> None:
    bench = Bench(log=[(0, 9)])
    assert only(answer(bench, 4))[0].obstacle is Obstacle.NONE
    assert only(answer(bench, 4, fetching=0))[0].obstacle is Obstacle.NOT_FETCHED
    open_at_3 = LogView(0, 10, 3, [KnownBatch(0, 2, 1), KnownBatch(3, 9, 1)], "orders-7", 45_000)
    found = answer(bench, 0, 9, log=open_at_3, read_committed=True)
    assert fates(found) == [
        (0, 2, Is.AVAILABLE, Obstacle.NONE),
        (3, 9, Is.AVAILABLE, Obstacle.UNCOMMITTED),
    ]
    assert (
        "offset 3 is not before the last stable offset 3, kept by transactional id 'orders-7', open for 45.0 s"
        in found.records[1][1]
    )
    assert only(answer(bench, 0, 9, log=open_at_3))[0].obstacle is Obstacle.NONE, "read_uncommitted takes all"


@pytest.mark.rule("PL-240")  # the delivery count from which a record is isolated; not with how many others
@pytest.mark.rule("PL-821", "PL-823")
def test_the_words_of_records_that_came_back_and_of_those_that_do_not() -> None:
    bench = Bench(log=[(0, 9)], settings=GroupConfig(LOCK_MS, delivery_count_limit=4))
    assert only(answer(bench, 0))[1] == (
        "Available, and no delivery of it is known; the next fetch of a member may get it; one that is busy asks for "
        "none."
    )
    assert "begins at offset 0" in only(answer(bench, 7))[1]
    for _ in range(2):
        bench.fetch("M")
        bench.acked("M", (0, 0, RELEASE), (1, 9, RELEASE))
    assert only(answer(bench, 0))[1] == (
        "Available again, after 2 of 4 deliveries; the next fetch of a member may get it; one that is busy asks for "
        "none; it has failed often, so it is delivered with few others or alone."
    )
    bench.set(delivery_count_limit=2)
    assert "as many as share.delivery.count.limit allows (2): it is delivered once more" in only(answer(bench, 0))[1]
    assert bench.fetch("M") == [(0, 4, 3)]
    assert bench.acked("M", (0, 4, RELEASE)) is None
    assert "before its start offset" in only(answer(bench, 0))[1]


@pytest.mark.rule("PL-821")
def test_an_archived_record_is_reported_by_the_limit_of_this_moment() -> None:
    stored = (StateBatch(1, 1, STATE_ARCHIVED, 5), StateBatch(2, 2, STATE_ARCHIVED, 2))
    bench = Bench(0, batches=stored, log=[(0, 9)])
    at_limit, rejected = answer(bench, 1, 2).records
    assert at_limit[0].obstacle is Obstacle.DELIVERY_LIMIT
    assert at_limit[1] == ("Archived after 5 deliveries (share.delivery.count.limit is 5); it is not delivered again.")
    assert rejected[0].obstacle is Obstacle.REJECTED
    assert "at delivery 2, because a member rejected it" in rejected[1]
    bench.set(delivery_count_limit=2)
    assert fates(answer(bench, 1, 2)) == [
        (1, 1, Is.ARCHIVED, Obstacle.DELIVERY_LIMIT),
        (2, 2, Is.ARCHIVED, Obstacle.DELIVERY_LIMIT),
    ]


@pytest.mark.rule("PL-821")
def test_offsets_that_the_store_said_nothing_about_are_available_and_holes_of_the_log_are_not() -> None:
    stored = (StateBatch(5, 6, STATE_ACKNOWLEDGED, 1), StateBatch(10, 10, STATE_AVAILABLE, 3))
    bench = Bench(0, batches=stored, log=[(0, 2), (5, 12)])
    assert fates(answer(bench, 0, 12)) == [
        (0, 2, Is.AVAILABLE, Obstacle.NONE),
        (3, 4, Is.HOLE, Obstacle.NO_RECORD),
        (5, 6, Is.ACKNOWLEDGED, Obstacle.FINISHED),
        (7, 9, Is.AVAILABLE, Obstacle.NONE),
        (10, 10, Is.AVAILABLE, Obstacle.NONE),
        (11, 12, Is.AVAILABLE, Obstacle.NONE),
    ]


@pytest.mark.rule("PL-824")
@pytest.mark.parametrize(
    "before",
    [
        lambda bench: bench.fetch("M"),
        lambda bench: (bench.fetch("M"), bench.ack("M", (0, 3, ACCEPT))),
        lambda bench: (bench.fetch("M"), bench.acked("M", (2, 3, RELEASE), (4, 4, REJECT))),
    ],
)
def test_a_question_changes_nothing(before: Callable[[Bench], object]) -> None:
    def play(asks: bool) -> tuple[object, ...]:
        bench = Bench(log=[(0, 9), (10, 19)])
        before(bench)
        bench.now += 100
        if asks:
            answer(bench, 0, 30)
        seen = len(bench.seen)
        deadline, overview = bench.core.next_deadline(), bench.core.overview()
        return seen, deadline, overview, bench.fetch("N"), bench.pass_time(LOCK_MS), bench.core.overview()

    assert play(asks=True) == play(asks=False)


@pytest.mark.rule("PL-825")
def test_a_share_partition_that_is_not_active_explains_nothing_itself() -> None:
    bench = Bench(-1, resolved=True, log=[(0, 9)])  # its start offset is being written
    assert explain_loaded(bench.core, question(bench, 0)) is None


STORED = StateSummary(
    3,
    9,
    5,
    2,
    batches=(
        StateBatch(6, 6, STATE_ACKNOWLEDGED, 1),
        StateBatch(7, 7, STATE_ARCHIVED, 5),
        StateBatch(8, 8, STATE_ACQUIRED, 2),
        StateBatch(9, 9, STATE_ARCHIVING, 5),
    ),
)


@pytest.mark.rule("PL-825")
def test_what_is_stored_answers_for_a_share_partition_that_is_not_loaded() -> None:
    bench = Bench(log=[(0, 11)])
    found = explain_stored(STORED, question(bench, 0, 12, fetching=0))
    assert fates(found) == [
        (0, 4, Is.FINISHED, Obstacle.FINISHED),
        (5, 5, Is.AVAILABLE, Obstacle.NOT_FETCHED),
        (6, 6, Is.ACKNOWLEDGED, Obstacle.FINISHED),
        (7, 7, Is.ARCHIVED, Obstacle.DELIVERY_LIMIT),
        (8, 8, Is.AVAILABLE, Obstacle.NOT_FETCHED),
        (9, 9, Is.ARCHIVING, Obstacle.FINISHED),
        (10, 11, Is.AVAILABLE, Obstacle.NOT_FETCHED),
        (12, 12, Is.BEYOND_END, Obstacle.NO_RECORD),
    ]
    assert (found.loaded, found.state_epoch, found.start_offset, found.window_offsets, found.held) == (
        False,
        3,
        5,
        0,
        0,
    )
    words = found.records[1][1]
    assert "no member has fetched this partition since its leader took over" in words
    assert "stored start offset 5" in words
    loading = explain_stored(STORED, question(bench, 5, loading=True))
    assert only(loading)[0].obstacle is Obstacle.LOADING


@pytest.mark.rule("PL-823")
@pytest.mark.parametrize(
    ("by_limit", "by_reject", "sure"), [(0, 1, True), (1, 1, False), (0, 0, False), (-1, -1, False)]
)
def test_where_only_rejects_were_counted_a_member_rejected_it(by_limit: int, by_reject: int, sure: bool) -> None:
    bench = Bench(log=[(0, 9)])
    batches = (StateBatch(5, 5, STATE_ARCHIVED, 1),)
    _, words = only(explain_stored(StateSummary(3, 9, 5, 1, by_limit, by_reject, batches), question(bench, 5)))
    certain = "Archived at delivery 1, because a member rejected it; it is not delivered again."
    assert (words == certain) is sure
    assert ("or share.delivery.count.limit was lower then" in words) is not sure


@pytest.mark.rule("PL-825")
def test_without_a_start_offset_nothing_belongs_to_the_group_yet() -> None:
    bench = Bench(log=[(2, 4), (8, 11)])
    unset = explain_stored(StateSummary(4, 0, -1), question(bench, 0, 12, reset_policy="earliest"))
    assert fates(unset) == [
        (0, 1, Is.DELETED, Obstacle.NO_RECORD),
        (2, 4, Is.NOT_INITIALIZED, Obstacle.START_NOT_SET),
        (5, 7, Is.HOLE, Obstacle.NO_RECORD),
        (8, 11, Is.NOT_INITIALIZED, Obstacle.START_NOT_SET),
        (12, 12, Is.BEYOND_END, Obstacle.NO_RECORD),
    ]
    assert "share.auto.offset.reset, which is earliest" in unset.records[1][1]
    none = explain_stored(StateSummary(), question(bench, 3))
    assert fates(none) == [(3, 3, Is.NOT_INITIALIZED, Obstacle.NO_STATE)]
    assert only(none)[1].startswith("Group 'g' has not started on this partition: there is no such group")


@pytest.mark.parametrize(("first", "last"), [(-1, 4), (5, 4), (0, EXPLAINED_OFFSETS_MAX)])
def test_offsets_that_cannot_be_asked_for(first: int, last: int) -> None:
    with pytest.raises(InvalidRequestError, match=str(first if first < 0 else last)):
        check_offsets(first, last)
    check_offsets(0, EXPLAINED_OFFSETS_MAX - 1)


class CountedBatches(list[KnownBatch]):
    """The batches of a log, counting how many of them were iterated over."""

    inspected = 0

    def __iter__(self) -> Iterator[KnownBatch]:
        for batch in super().__iter__():
            self.inspected += 1
            yield batch


def test_a_thousand_records_of_different_fates_do_not_each_search_through_the_log() -> None:
    """The event loop serves no other request meanwhile (CM-94). This took 364 ms when each record searched the log."""
    size = EXPLAINED_OFFSETS_MAX
    bench = Bench(log=[(offset, offset) for offset in range(size)])
    bench.fetch("M", max_records=size)
    bench.acked("M", *((offset, offset, RELEASE) for offset in range(0, size, 2)))
    log = question(bench, 0, size - 1).log
    batches = CountedBatches(log.batches)
    explanation = answer(bench, 0, size - 1, log=log._replace(batches=batches))
    assert len(explanation.records) == size
    assert batches.inspected <= 2 * size


@pytest.mark.rule("PL-944", "PL-820")
def test_records_that_were_given_up_for_different_reasons_are_different_entries() -> None:
    bench = Bench(log=[(0, 5), (8, 9)])
    bench.fetch("N", until=9)
    acks: list[Any] = [(0, 1, RELEASE, (), (), "a"), (2, 2, RELEASE, (), (), "b"), (4, 4, REJECT, (), (), "b")]
    assert (
        bench.acked("N", *acks, (3, 3, RELEASE), (5, 5, RELEASE, (), True, "a"), (8, 8, RELEASE, (), (), "a")) is None
    )
    bench.fetch("M", max_records=1, batch_size=1, until=0)
    found = answer(bench, 0, 10)
    assert [(fate.first, fate.last, fate.reason, fate.reason_count) for fate, _ in found.records] == [
        (0, 1, "a", 1), (2, 2, "b", 1), (3, 3, "", 0), (4, 4, "b", 1), (5, 5, "a", 0), (6, 7, "", 0), (8, 8, "a", 1),
        (9, 9, "", 0), (10, 10, "", 0),
    ]  # fmt: skip
    assert only(answer(bench, 1))[0].state is Is.ACQUIRED, "it keeps its reason while it is held again"
    assert bench.acked("M", (0, 1, ACCEPT)) is None
    assert only(answer(bench, 1))[0].reason == "", "it is finished"


@pytest.mark.rule("PL-944", "PL-825")
def test_reasons_of_what_is_not_loaded_come_from_the_stored_state() -> None:
    bench = Bench(log=[(0, 9)])
    batches = (StateBatch(2, 4, STATE_AVAILABLE, 1), StateBatch(5, 6, STATE_ARCHIVED, 5))
    failures = (Failure(1, 2, 1, "a"), Failure(4, 5, 1, "b"))
    stored = StateSummary(1, 1, 2, batches=batches, failures=failures)
    found = explain_stored(stored, question(bench, 0, 9))
    assert [(fate.first, fate.last, fate.reason, fate.reason_count) for fate, _ in found.records] == [
        (0, 1, "", 0), (2, 2, "a", 1), (3, 3, "", 0), (4, 4, "b", 1), (5, 5, "b", 1), (6, 6, "", 0), (7, 9, "", 0),
    ]  # fmt: skip
