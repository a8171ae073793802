"""The list of failed records, compared with a log of what a group's consumers did with each offset (PM-48)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, STATE_ARCHIVED, STATE_ARCHIVING
from kip932.state_batches import ArchivedRange, StateBatch
from shard_runtime.config.group_config import GroupConfig
from share_metrics.replay.poison import Poison, Reason, Suspects
from share_metrics.replay.replay import Event, Replay
from tests.support.pipeline_entries import UNHURRIED
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

SECOND = 1_000_000
RECORDS = 12
#: How consumers treat a record: the acknowledgement for each delivery, or None; 0 stands for the last delivery.
FATES: dict[str, Callable[[int], int | None]] = {
    "accept": lambda delivery: ACK_ACCEPT,
    "accept at the last": lambda delivery: ACK_ACCEPT if delivery == 0 else ACK_RELEASE,
    "reject": lambda delivery: ACK_REJECT,
    "reject at the second": lambda delivery: ACK_REJECT if delivery == 2 else ACK_RELEASE,
    "release": lambda delivery: ACK_RELEASE,
    "hang": lambda delivery: None,
}


@dataclass
class Ledger:
    """What the workload itself knows: failed offsets with reason and count, and released offsets that no consumer
    holds."""

    accepted: set[int] = field(default_factory=set)
    failed: dict[int, tuple[Reason, int]] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)

    def note(self, offset: int, count: int, ack: int | None, limit: int) -> None:
        self.released.pop(offset, None)
        if ack == ACK_ACCEPT:
            self.accepted.add(offset)
        elif ack == ACK_REJECT:
            self.failed[offset] = Reason.REJECTED, count
        elif count >= limit:
            self.failed[offset] = Reason.AT_LIMIT, count
        else:
            self.released[offset] = count

    def listed(self, limit: int) -> dict[int, tuple[Reason, int]]:
        near = {offset: (Reason.NEAR_LIMIT, count) for offset, count in self.released.items() if count >= limit - 1}
        return near | self.failed


def worked(bench: Bench, fates: list[str], rounds: int, limit: int, sizes: list[int]) -> Ledger:
    """Deliver the records in `rounds` rounds; a record that is not acknowledged stays locked until its lock expires."""
    ledger = Ledger()
    for number in range(rounds):
        for first, last, count in bench.fetch(max_records=sizes[number % len(sizes)]):
            for offset in range(first, last + 1):
                delivery = 0 if count == limit else count
                ack = FATES[fates[offset]](delivery)
                ledger.note(offset, count, ack, limit)
                if ack is not None:
                    bench.ack("M", (offset, offset, ack))
        while bench.writes:
            bench.persisted()
        bench.pass_time(LOCK_MS)
        while bench.writes:
            bench.persisted()
    return ledger


def replayed(bench: Bench) -> Replay:
    replay = Replay(60 * SECOND)
    replay.apply(Event("snapshot", 0, 0, 0, (), 7))
    for second, write in enumerate((one for one in bench.seen if hasattr(one, "write_id")), start=1):
        batches, archived = tuple(write.state_batches), write.archived  # type: ignore[union-attr] # only Persist
        start, at = write.start_offset, second * SECOND  # type: ignore[union-attr] # as above
        limit = bench.settings.delivery_count_limit
        replay.apply(
            Event("update", at, 0, start, batches, None, names_archived=True, delivery_limit=limit, archived=archived)
        )
    return replay


@pytest.mark.rule("PM-48", "X9")
@UNHURRIED
@given(
    st.lists(st.sampled_from(sorted(FATES)), min_size=RECORDS, max_size=RECORDS),
    st.sampled_from([2, 3, 5, 10]),
    st.booleans(),
    st.integers(1, 11),
    st.lists(st.integers(1, RECORDS), min_size=1, max_size=3),
)
def test_the_list_equals_what_the_consumers_know(
    fates: list[str], limit: int, letters: bool, rounds: int, sizes: list[int]
) -> None:
    """For every delivery limit, with and without dead letters: the list has no accepted record and every failed one,
    including those at the front of the queue, for which no state batch is ever written."""
    settings = GroupConfig(lock_ms=LOCK_MS, delivery_count_limit=limit, dlq_enabled=letters)
    bench = Bench(log=[(0, RECORDS - 1)], settings=settings)
    ledger = worked(bench, fates, rounds, limit, sizes)
    found = replayed(bench).poison()
    assert {one.offset: (one.reason, one.delivery_count) for one in found} == ledger.listed(limit)
    assert not ledger.accepted & {one.offset for one in found}


def of(suspects: Suspects) -> list[tuple[int, str, str, int]]:
    return [(one.offset, one.state, str(one.reason), one.delivery_count) for one in suspects.newest()]


@pytest.mark.rule("PM-48")
def test_a_dead_letter_is_archiving_until_it_is_written_and_keeps_its_time() -> None:
    suspects = Suspects(5)
    suspects.take_write(True, 3, (ArchivedRange(4, 5, 3, 1),), 10)
    suspects.change(4, 5, STATE_ARCHIVING, 3, 10)
    assert of(suspects) == [(5, "Archiving", "delivery limit", 3), (4, "Archiving", "delivery limit", 3)]
    suspects.take_write(True, None, (), 90)
    suspects.change(4, 4, STATE_ARCHIVED, 3, 90)
    assert of(suspects) == [(5, "Archiving", "delivery limit", 3), (4, "Archived", "delivery limit", 3)]
    assert [(one.first_seen_us, one.last_seen_us) for one in suspects.newest()] == [(10, 10), (10, 10)]
    suspects.passed(5)
    assert of(suspects)[0] == (5, "Archiving", "delivery limit", 3)
    suspects.passed(6)
    assert of(suspects)[0] == (5, "Archived", "delivery limit", 3), "the start offset passes nothing sooner"


@pytest.mark.rule("PM-48")
def test_a_gap_that_is_acknowledged_is_no_failed_record() -> None:
    """Its batch is Archived too, but the leader does not list it among the archived records."""
    suspects = Suspects(5)
    suspects.take_write(True, None, (), 10)
    suspects.change(7, 7, STATE_ARCHIVED, 5, 10)
    assert of(suspects) == []


@pytest.mark.rule("PM-48")
def test_a_record_that_comes_again_after_a_reset_is_judged_again() -> None:
    replay = Replay(60 * SECOND)
    replay.apply(Event("snapshot", 0, 0, 0, (), 1, names_archived=True))
    update = Event("update", 1, 0, None, (StateBatch(2, 2, 0, 2),), None, names_archived=True, delivery_limit=3)
    replay.apply(update)
    assert [(one.offset, one.reason) for one in replay.poison()] == [(2, Reason.NEAR_LIMIT)]
    replay.apply(Event("snapshot", 2, 0, 0, (), 2))
    assert replay.poison() == [], "its deliveries are counted from 0 again"
    replay.apply(update._replace(archived=(ArchivedRange(3, 3, 1, 2),), time_us=3))
    replay.apply(Event("tombstone", 4, 0, None, ()))
    assert [(one.offset, one.reason) for one in replay.poison()] == [(3, Reason.REJECTED)], "that did happen"


@pytest.mark.rule("PM-48")
def test_what_an_earlier_build_wrote_is_judged_by_the_limit_that_was_given() -> None:
    replay = Replay(60 * SECOND, 4)
    replay.apply(Event("snapshot", 0, 0, 0, (), 1))
    failed = (StateBatch(2, 2, 0, 3), StateBatch(3, 3, 4, 4), StateBatch(4, 4, 3, 1), StateBatch(5, 5, 4, 3))
    replay.apply(Event("update", 1, 0, None, failed))
    assert [(one.offset, one.reason) for one in replay.poison()] == [
        (4, Reason.REJECTED),
        (3, Reason.AT_LIMIT),
        (2, Reason.NEAR_LIMIT),
    ]
    replay.apply(Event("update", 2, 0, 3, ()))
    assert len(replay.poison()) == 3, "whether the one that was passed was accepted is not known"
    replay.apply(Event("update", 3, 0, None, (StateBatch(4, 4, 2, 2),)))
    assert [one.offset for one in replay.poison()] == [3, 2], "that the later one was accepted is known"


@pytest.mark.rule("PM-48")
def test_the_newest_hundred_of_each_share_partition_are_listed() -> None:
    suspects = Suspects(5)
    suspects.take_write(True, 5, (ArchivedRange(0, 2**62, 5, 1),), 10)
    suspects.take_write(True, 5, (ArchivedRange(3, 3, 1, 2),), 20)
    found: list[Poison] = suspects.newest()
    assert len(found) == 100
    assert [one.offset for one in found][:2] == [3, 2**62]
