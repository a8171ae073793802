"""Why members gave records up, on one share-partition's core (PL-942, PL-943)."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError, RequestTimedOutError
from kip932.failures import FAILURES_MAX, REASONS_BYTES_MAX, Failure
from kip932.ids import ACK_ACCEPT, ACK_GAP, ACK_REJECT, ACK_RELEASE, STATE_ARCHIVING, STATE_AVAILABLE
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.effects import DLQ_CLIENT_REJECT, DLQ_DELIVERY_COUNT_EXCEEDED
from partition_leader.share_partition.core.reasons import Reasons, parts
from shard_runtime.config.group_config import Backoff, GroupConfig
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

GAP, ACCEPT, RELEASE, REJECT = ACK_GAP, ACK_ACCEPT, ACK_RELEASE, ACK_REJECT
#: An ack batch with a reason, after its offsets and types: no delays, no delivery taken back.
WHY = ((), (), "why")
AWAY = CoordinatorNotAvailableError("away")


def fetched(**settings: Any) -> Bench:
    """A bench whose member M holds 0-9."""
    bench = Bench(log=[(0, 9)], settings=GroupConfig(lock_ms=LOCK_MS, **settings))
    assert bench.fetch(until=9) == [(0, 9, 1)]
    return bench


def kept(bench: Bench) -> list[tuple[int, int, int, str]]:
    bench.core.check()
    return plain(bench.core.state.reasons.failures)


def plain(failures: Sequence[Failure]) -> list[tuple[int, int, int, str]]:
    return [(first, last, count, reason) for first, last, count, reason in failures]


def letters(bench: Bench) -> list[tuple[list[int], tuple[Failure, ...]]]:
    """Return the offsets and the reasons of all dead letters."""
    return [
        ([at for first, last, _ in letter.ranges for at in range(first, last + 1)], letter.failures)
        for letter in bench.dead
    ]


def causes(bench: Bench) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the causes of all dead letters, with the offsets of each."""
    return [(letter.cause, [(first, last) for first, last, _ in letter.ranges]) for letter in bench.dead]


@pytest.mark.rule("PL-942")
def test_a_reason_is_of_the_releases_and_rejects_of_its_batch_and_kept_once_they_are_stored() -> None:
    bench = fetched()
    op = bench.ack("M", (1, 3, RELEASE, *WHY), (4, 8, (RELEASE, ACCEPT, REJECT, GAP, RELEASE), *WHY))
    expected = [(1, 4, 1, "why"), (6, 6, 1, "why"), (8, 8, 1, "why")]
    assert plain(bench.writes[0].failures) == expected
    assert kept(bench) == []
    bench.persisted()
    assert (bench.error(op), kept(bench)) == (None, expected)
    assert bench.acked("M", (9, 9, RELEASE)) is None
    assert kept(bench) == expected, "a release that does not say why has none"


@pytest.mark.rule("PL-942", "PL-931")
def test_short_acknowledgements_in_one_request_keep_each_its_own() -> None:
    bench = fetched(backoff=Backoff(1_000))
    said = {0: "a", 1: "a", 3: "b", 4: "", 5: "", 6: "a", 9: "c"}
    bench.ack("M", *[(at, at, RELEASE, (), (), why) for at, why in said.items()])
    assert kept(bench) == []
    bench.persisted()
    assert kept(bench) == [(0, 1, 1, "a"), (3, 3, 1, "b"), (6, 6, 1, "a"), (9, 9, 1, "c")]
    bench.pass_time(1_000)
    assert bench.fetch("N") == [(0, 1, 2), (3, 6, 2), (9, 9, 2)], "delayed like any other release"


@pytest.mark.rule("PL-942")
def test_the_reason_of_the_highest_delivery_count_remains() -> None:
    bench = fetched()
    assert bench.acked("M", (0, 9, RELEASE, (), (), "the first")) is None
    bench.fetch("N", until=9)
    assert bench.acked("N", (2, 3, RELEASE, (), (), "a later one"), (4, 4, RELEASE), (5, 5, ACCEPT)) is None
    bench.pass_time(LOCK_MS)
    expected = [(0, 1, 1, "the first"), (2, 3, 2, "a later one"), (4, 9, 1, "the first")]
    while bench.writes:
        bench.persisted()
    assert kept(bench) == expected, "whatever happened to the others since"


@pytest.mark.rule("PL-942")
def test_a_write_that_fails_and_a_request_that_is_refused_discard_it() -> None:
    bench = fetched()
    assert isinstance(bench.acked("M", (0, 3, RELEASE, *WHY), (4, 4, REJECT, *WHY), (12, 12, ACCEPT)), Exception)
    bench.ack("M", (0, 3, RELEASE, *WHY))
    bench.failed(AWAY)
    assert kept(bench) == []
    bench.ack("M", (0, 1, RELEASE), (2, 2, RELEASE, (), (), "another"))
    assert plain(bench.persisted().failures) == [(2, 2, 1, "another")]
    assert kept(bench) == [(2, 2, 1, "another")]


@pytest.mark.rule("PL-942", "PL-705")
def test_one_write_has_the_reasons_of_all_its_operations() -> None:
    bench = fetched()
    bench.ack("M", (0, 0, RELEASE, (), (), "a"))
    for at in range(1, 6):
        bench.ack("M", (at, at, REJECT if at % 2 else RELEASE, (), (), "b"))
    assert plain(bench.persisted().failures) == [(0, 0, 1, "a")]
    assert plain(bench.writes[0].failures) == [(1, 5, 1, "b")]
    bench.persisted()
    assert kept(bench) == [(0, 0, 1, "a"), (1, 5, 1, "b")]


@pytest.mark.rule("PL-942")
def test_what_the_start_offset_has_passed_is_forgotten_also_by_writes_without_reasons() -> None:
    bench = fetched()
    assert bench.acked("M", (0, 0, REJECT, *WHY), (2, 5, RELEASE, *WHY), (7, 8, RELEASE, (), (), "b")) is None
    assert kept(bench) == [(2, 5, 1, "why"), (7, 8, 1, "b")], "0 is finished by the write that would store it"
    bench.fetch("N", until=9)
    assert bench.acked("M", (1, 1, ACCEPT)) is None
    assert bench.acked("N", (2, 3, ACCEPT)) is None
    assert (bench.spso, kept(bench)) == (4, [(4, 5, 1, "why"), (7, 8, 1, "b")])
    bench.do(ev.LogStartMoved(8))
    bench.ack("N", (8, 8, RELEASE, (), (), "c"))
    bench.ack("M", (9, 9, REJECT, *WHY))
    bench.persisted()
    bench.persisted()
    assert kept(bench) == [(8, 8, 2, "c"), (9, 9, 1, "why")]


@pytest.mark.rule("PL-942", "PL-941")
def test_a_delivery_that_is_taken_back_counts_as_the_one_before() -> None:
    bench = fetched()
    bench.ack("M", (0, 1, RELEASE, (), (False, True), "why"))
    bench.failed(AWAY)
    assert kept(bench) == []
    assert bench.acked("M", (0, 1, RELEASE, (), (False, True), "why"), (2, 9, RELEASE, (), True)) is None
    assert kept(bench) == [(0, 0, 1, "why"), (1, 1, 0, "why")]
    bench.fetch("N", until=9)
    assert bench.acked("N", (0, 1, RELEASE, (), (), "a")) is None
    assert kept(bench) == [(0, 0, 2, "a"), (1, 1, 1, "a")], "the reason of a delivery that counts replaces it"


@pytest.mark.rule("PL-943", "PL-905")
def test_letters_have_the_reasons_of_their_records_and_of_no_others() -> None:
    bench = fetched(dlq_enabled=True, delivery_count_limit=2)
    assert bench.acked("M", (1, 2, REJECT, *WHY), (3, 3, REJECT), (4, 4, REJECT, (), (), "b")) is None
    assert letters(bench) == [([1, 2, 3, 4], (Failure(1, 2, 1, "why"), Failure(4, 4, 1, "b")))]
    assert bench.acked("M", (6, 7, RELEASE, *WHY), (8, 9, RELEASE)) is None
    bench.fetch("N", until=9)
    bench.pass_time(LOCK_MS)
    while bench.writes:
        bench.persisted()
    assert letters(bench)[1:] == [([6, 7, 8, 9], (Failure(6, 7, 1, "why"),))], (
        "a record whose lock has expired keeps the last reason that is known"
    )
    assert causes(bench) == [
        (DLQ_CLIENT_REJECT, [(1, 2), (3, 3), (4, 4)]),
        (DLQ_DELIVERY_COUNT_EXCEEDED, [(6, 9)]),
    ]


@pytest.mark.rule("PL-905", "PL-943")
def test_a_reason_makes_no_letter_of_a_record_that_gets_none() -> None:
    """Of PL-905 this shows neither compaction nor records of aborted transactions."""
    bench = fetched(dlq_enabled=True, delivery_count_limit=2)
    assert bench.acked("M", (0, 9, RELEASE, *WHY)) is None
    bench.fetch("N", until=9)
    assert bench.acked("N", (0, 2, (GAP, RELEASE, ACCEPT), *WHY)) is None
    assert causes(bench) == [(DLQ_DELIVERY_COUNT_EXCEEDED, [(1, 1)])], "a release at the limit, and no gap"
    bench.do(ev.LogStartMoved(6))
    assert bench.acked("N", (4, 4, REJECT, *WHY), (6, 6, REJECT, *WHY)) is None
    bench.release("N")
    while bench.writes:
        bench.persisted()
    assert causes(bench)[1:] == [
        (DLQ_CLIENT_REJECT, [(6, 6)]),
        (DLQ_DELIVERY_COUNT_EXCEEDED, [(7, 9)]),
    ], "a session's end at the limit, and nothing that the log's start has passed"


@pytest.mark.rule("PL-942", "PL-943", "PL-611")
def test_a_successor_has_what_is_stored_and_sends_letters_with_it() -> None:
    stored = (StateBatch(4, 7, STATE_ARCHIVING, 2), StateBatch(8, 9, STATE_AVAILABLE, 1))
    failures = (Failure(0, 5, 2, "why"), Failure(8, 8, 1, "b"))
    bench = Bench(4, batches=stored, failures=failures, log=[(0, 9)])
    assert letters(bench) == [([4, 5, 6, 7], (Failure(4, 5, 2, "why"),))]
    assert kept(bench) == [(4, 5, 2, "why"), (8, 8, 1, "b")]


def unanswered(**settings: Any) -> Bench:
    """A bench whose rejection of 1-3 has an unknown outcome; 0 was given up before, with a reason."""
    bench = fetched(**settings)
    assert bench.acked("M", (0, 0, RELEASE, (), (), "before")) is None
    bench.ack("M", (1, 3, REJECT, *WHY))
    bench.failed(RequestTimedOutError("no answer"), unknown=True)
    assert kept(bench) == [(0, 0, 1, "before")]
    return bench


@pytest.mark.rule("PL-942", "PL-707", "PL-943")
def test_after_an_unknown_outcome_the_stored_state_decides() -> None:
    before = Failure(0, 0, 1, "before")
    batches = (StateBatch(0, 0, STATE_AVAILABLE, 1), StateBatch(1, 3, STATE_ARCHIVING, 1))
    bench = unanswered(dlq_enabled=True)
    bench.do(ev.ReadBack(2, 7, 0, batches, (before, Failure(1, 3, 1, "why"))))
    assert kept(bench) == [(0, 0, 1, "before"), (1, 3, 1, "why")]
    assert letters(bench) == [([1, 2, 3], (Failure(1, 3, 1, "why"),))]

    bench = unanswered(dlq_enabled=True)
    bench.do(ev.ReadBack(2, 7, 0, batches[:1], (before,)))
    assert (kept(bench), letters(bench)) == ([(0, 0, 1, "before")], [])
    assert all(bench.holds("M", at) for at in (1, 2, 3))

    bench = unanswered()
    bench.do(ev.ReadBack(2, 8, 5, (), (Failure(5, 9, 1, "of other records"),)))
    assert kept(bench) == [(0, 0, 1, "before")], "the state was reset: these are reasons of another state"


@pytest.mark.rule("PL-942", "PL-707")
def test_what_the_stored_start_offset_has_passed_is_forgotten_when_the_state_is_read_back() -> None:
    bench = fetched()
    assert bench.acked("M", (0, 1, RELEASE, *WHY)) is None
    bench.fetch("M")
    bench.ack("M", (0, 1, ACCEPT), (2, 2, RELEASE, *WHY))
    bench.failed(RequestTimedOutError("late"), unknown=True)
    core, stored = bench.core, (StateBatch(2, 2, STATE_AVAILABLE, 1),)
    bench.do(ev.ReadBack(core.generation, core.state.state_epoch, 2, stored, (Failure(2, 2, 1, "why"),)))
    assert (bench.spso, kept(bench)) == (2, [(2, 2, 1, "why")])


@pytest.mark.rule("PL-942")
def test_a_write_and_the_memory_have_a_bound() -> None:
    size = 2_000
    bench = Bench(log=[(0, size - 1)], settings=GroupConfig(lock_ms=LOCK_MS, max_record_locks=size))
    bench.fetch(max_records=size)
    text = f"Error: {'x' * 180}\n{'y' * 800}"
    bench.ack("M", *[(at, at, RELEASE, (), (), f"{at} {text}") for at in range(0, size, 2)])
    (write,) = bench.writes
    assert [one.reason for one in write.failures] == [f"{at} Error: {'x' * 180}" for at in range(0, size, 2)]
    bench.persisted()
    bench.ack("M", *[(at, at, RELEASE, (), (), f"{at} {text}") for at in range(1, size, 2)])
    bench.persisted()
    found = bench.core.state.reasons.failures
    assert sum(len(one.reason) for one in found) <= REASONS_BYTES_MAX
    assert (found[0].first_offset, len(found) > 1_300) == (0, True), "those of the lowest offsets are kept"


@pytest.mark.rule("PL-942")
def test_only_the_holder_can_say_why_a_record_is_given_up() -> None:
    bench = fetched()
    assert isinstance(bench.acked("N", (0, 3, RELEASE, *WHY)), InvalidRecordStateError)
    assert bench.acked("M", (0, 3, RELEASE)) is None
    assert isinstance(bench.acked("M", (0, 3, RELEASE, *WHY)), InvalidRecordStateError)
    bench.release("M")
    bench.persisted()
    assert kept(bench) == []


def test_spans_are_cut_where_the_reason_changes() -> None:
    some = (Failure(2, 4, 1, "a"), Failure(5, 5, 2, "b"), Failure(9, 12, 1, "a"))
    assert list(parts(0, 1, some)) == [(0, 1, 0, "")]
    assert list(parts(3, 10, some)) == [(3, 4, 1, "a"), (5, 5, 2, "b"), (6, 8, 0, ""), (9, 10, 1, "a")]
    assert list(parts(12, 20, some)) == [(12, 12, 1, "a"), (13, 20, 0, "")]
    assert list(parts(4, 4, some)) == [(4, 4, 1, "a")]
    assert list(parts(13, 13, ())) == [(13, 13, 0, "")]


def test_all_are_forgotten_when_the_start_offset_has_passed_the_last() -> None:
    reasons = Reasons()
    reasons.add((Failure(0, 3, 1, "a"),), 0)
    reasons.add((), 3)
    assert plain(reasons.failures) == [(3, 3, 1, "a")]
    reasons.add((), 4)
    assert plain(reasons.failures) == []


@pytest.mark.rule("PL-942")
@pytest.mark.parametrize("ranges", [257, 1_300, FAILURES_MAX])
@pytest.mark.parametrize("wide", ["", "\U0001f40c"])
def test_the_reasons_of_a_share_partition_take_no_more_memory_than_the_rule_says(ranges: int, wide: str) -> None:
    """Shows (f). One character beyond U+FFFF makes each of a text's characters take four bytes."""
    size = REASONS_BYTES_MAX // ranges - 3 * len(wide)
    reasons = Reasons()
    gc.collect()
    tracemalloc.start()
    try:
        for begin in (0, 1):  # in two parts, as stored ones and new ones come
            given = [Failure(at, at, 1, f"{wide}{at} ".ljust(size, "x")) for at in range(begin, ranges, 2)]
            reasons.add(given, 0)
            del given
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reasons.failures) == ranges
    assert sum(len(one.reason.encode()) for one in reasons.failures) > 0.9 * REASONS_BYTES_MAX
    assert taken <= (2.5 if wide else 1.1) * 1024 * 1024
