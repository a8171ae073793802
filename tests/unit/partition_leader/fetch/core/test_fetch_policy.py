"""How much a ShareFetch may take and when it has enough, decided without a log, a share-partition or a wait.

Only PL-201 is tested as a whole in this module. The other rules are cited by tests that run a fetch; comments that name
a rule in these tests say which part of it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kip932.errors import KafkaError, NotLeaderOrFollowerError, OffsetOutOfRangeError, UnknownServerError
from partition_leader.fetch.core.fetch_policy import (
    FetchBudget,
    FetchLimits,
    FetchSizes,
    ReadFailure,
    Step,
    effective_sizes,
    read_failed,
)
from partition_leader.share_partition.core.events import Drop, LogStartMoved

MIB = 1 << 20
PLENTY = 1 << 40


def budget(
    partitions: int = 2, *, min_bytes: int = 1, max_bytes: int = MIB, max_records: int = 500, room_bytes: int = MIB
) -> FetchBudget:
    return FetchBudget(FetchSizes(min_bytes, max_bytes, max_records, room_bytes), partitions)


def step(
    one: FetchBudget,
    *available: int,
    erroneous: int = 0,
    room: int = PLENTY,
    expired: bool = False,
) -> Step:
    """Return the next step of an attempt that could lock one share-partition for each number of bytes in
    `available`."""
    return one.next_step(erroneous, len(available), available, room, expired)


@pytest.mark.rule("PL-201")
def test_sizes_are_bounded_by_the_service_and_a_request_for_nothing_is_known_as_such() -> None:
    asked = FetchLimits(max_wait_ms=1, min_bytes=3_000, max_bytes=2_000, max_records=7)
    assert effective_sizes(asked, 10_000, 5_000) == FetchSizes(2_000, 2_000, 7, 5_000)
    assert effective_sizes(asked, 10_000, 900) == FetchSizes(900, 900, 7, 900)
    assert effective_sizes(asked, 600, 5_000) == FetchSizes(600, 600, 7, 600)
    assert not budget().asks_for_nothing
    assert budget(partitions=0).asks_for_nothing
    assert budget(max_records=0).asks_for_nothing
    assert budget(max_bytes=0).asks_for_nothing


def test_a_fetch_reads_as_soon_as_the_bytes_are_enough() -> None:
    # PL-211: the sum over all share-partitions that could be locked.
    one = budget(3, min_bytes=100)
    assert step(one, 60, 39) is Step.WAIT
    assert step(one, 60, 40) is Step.READ
    assert step(one, 0, 0, 100) is Step.READ


@pytest.mark.rule("PL-211")
def test_one_share_partition_counts_for_no_more_than_its_part_of_the_bytes() -> None:
    # PL-211 with PL-207: at most 50 bytes each.
    one = budget(2, min_bytes=80, max_bytes=100)
    assert step(one, 1_000, 29) is Step.WAIT
    assert step(one, 1_000, 30) is Step.READ


def test_no_more_is_checked_than_the_decision_needs() -> None:
    checked: list[int] = []

    def sizes() -> Iterator[int]:
        for size in (10, 20, 40):
            checked.append(size)
            yield size

    assert budget(3, min_bytes=30).next_step(0, 3, sizes(), PLENTY, False) is Step.READ
    assert checked == [10, 20]
    assert budget(3, min_bytes=0).next_step(0, 3, sizes(), PLENTY, False) is Step.READ
    assert budget(3, min_bytes=99).next_step(0, 3, sizes(), PLENTY, True) is Step.READ
    assert checked == [10, 20], "neither a fetch that needs no bytes nor the last attempt needs the estimate"


@pytest.mark.parametrize("min_bytes", [0, 1])
def test_without_anything_to_lock_a_fetch_waits_for_its_deadline(min_bytes: int) -> None:
    # PL-212, PL-213.
    one = budget(min_bytes=min_bytes)
    assert one.needs_bytes is bool(min_bytes)
    assert step(one) is Step.WAIT
    assert step(one, expired=True) is Step.ANSWER


def test_a_fetch_that_needs_no_bytes_reads_from_an_empty_share_partition() -> None:
    # PL-212.
    assert step(budget(min_bytes=0), 0) is Step.READ


def test_the_last_attempt_ignores_min_bytes() -> None:
    # PL-213.
    assert step(budget(min_bytes=MIB), 0, 1) is Step.WAIT
    assert step(budget(min_bytes=MIB), 0, 1, expired=True) is Step.READ


def test_a_fetch_whose_share_partitions_are_all_in_error_is_answered_at_any_time() -> None:
    # PL-205, PL-212.
    assert step(budget(3), erroneous=3) is Step.ANSWER
    assert step(budget(3), erroneous=2) is Step.WAIT
    assert step(budget(3), 10, erroneous=2) is Step.READ


def test_without_room_on_its_connection_a_fetch_waits_and_then_acquires_nothing() -> None:
    # CM-92.
    assert step(budget(), 1_000, 1_000, room=0) is Step.WAIT
    assert step(budget(), 1_000, 1_000, room=0, expired=True) is Step.ANSWER
    assert step(budget(), 1_000, 1_000, room=1) is Step.READ


@pytest.mark.rule("PL-207")
def test_bytes_are_shared_equally_and_each_read_may_have_one() -> None:
    # PL-207.
    one = budget(max_bytes=1_000)
    assert one.bytes_each(1, PLENTY) == 1_000
    assert one.bytes_each(3, PLENTY) == 333
    assert one.bytes_each(3, 600) == 200, "no more than the connection has room for"
    assert one.bytes_each(5_000, PLENTY) == 1


def test_no_more_share_partitions_are_read_than_there_are_bytes() -> None:
    # PL-207.
    one = budget(9, max_bytes=5)
    one.will_read(3)
    assert (one.partitions_left, one.is_spent) == (2, False)
    one.will_read(2)
    assert one.is_spent


def test_records_are_one_budget_for_the_whole_request() -> None:
    # PL-204: a share-partition reached without a budget acquires nothing.
    one = budget(3, max_records=10)
    assert one.records_from(100, PLENTY) == 10
    one.acquired(7, 100)
    assert one.records_from(100, PLENTY) == 3
    one.acquired(0, 100)
    assert one.records_from(100, PLENTY) == 3
    one.acquired(5, 100)  # whole batches
    assert one.records_from(100, PLENTY) == 0
    assert one.is_spent


def test_the_answer_keeps_to_its_room_but_for_the_first_share_partition_in_it() -> None:
    # PL-207, CM-62.
    one = budget(3, room_bytes=1_000)
    assert one.records_from(5_000, 10) == 500, "a fetch that has room at all gets the first batches"
    one.acquired(0, 5_000)
    assert one.records_from(5_000, 10) == 500, "a share-partition that acquired nothing is not in the response"
    one.acquired(1, 600)
    assert one.records_from(401, PLENTY) == 0
    assert one.records_from(400, PLENTY) == 499
    assert one.records_from(400, 999) == 0, "the connection's room counts too"


@pytest.mark.rule("PL-630", "PL-252", "PL-610")
@pytest.mark.parametrize(
    ("error", "lease_valid", "event_type"),
    [
        (OffsetOutOfRangeError("gone"), True, LogStartMoved),
        (OffsetOutOfRangeError("gone"), False, LogStartMoved),
        (NotLeaderOrFollowerError("lost"), True, Drop),
        (NotLeaderOrFollowerError("lapsed"), False, None),
        (UnknownServerError("store"), True, None),
    ],
)
def test_what_a_failed_read_means(error: KafkaError, lease_valid: bool, event_type: type | None) -> None:
    # PL-252: if the log start moved, the request gets no error. PL-630: leadership is lost, unless only the lease has
    # expired.
    events: dict[type | None, LogStartMoved | Drop | None] = {LogStartMoved: LogStartMoved(42), Drop: Drop(error)}
    reported = None if event_type is LogStartMoved else error
    assert read_failed(error, 42, lease_valid) == ReadFailure(events.get(event_type), reported)
