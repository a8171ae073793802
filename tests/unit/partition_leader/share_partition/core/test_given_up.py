"""Late acknowledgements for records that were archived without being accepted (PL-418)."""

from __future__ import annotations

import pytest

from kip932.errors import CoordinatorNotAvailableError, InvalidRecordStateError
from kip932.ids import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from kip932.state_batches import StateBatch
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.given_up import RANGES_MAX, GivenUp
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench

ACCEPT, RELEASE, REJECT, RENEW = ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW
LIMIT = 2


def last_delivery(**changes: bool) -> Bench:
    """A bench whose member M holds 0-3 on their last delivery; N held them before."""
    bench = Bench(log=[(0, 3), (4, 7)])
    bench.set(delivery_count_limit=LIMIT, **changes)
    assert bench.fetch("N", until=3) == [(0, 3, 1)]
    bench.release("N")
    bench.persisted()
    assert bench.fetch("M", until=3) == [(0, 3, 2)]
    return bench


def refused(bench: Bench, member: str, *batches: tuple[int, int, int]) -> bool:
    error = bench.acked(member, *batches)
    assert error is None or isinstance(error, InvalidRecordStateError)
    return error is not None


@pytest.mark.rule("PL-418", "PL-308")
@pytest.mark.parametrize("letters", [False, True], ids=["no letters", "letters"])
def test_who_comes_after_the_last_lock_has_ended_is_refused_below_the_start_offset_too(letters: bool) -> None:
    bench = last_delivery(dlq_enabled=letters)
    bench.pass_time(LOCK_MS)
    assert refused(bench, "M", (0, 3, ACCEPT)), "not stored yet"
    while bench.writes:
        bench.persisted()
    for letter in bench.dead:
        bench.do(ev.DlqDone(letter.dead_letter_id))
        bench.persisted()
    assert bench.spso == 4
    for member in ("M", "N"):
        for kind in (ACCEPT, RELEASE, REJECT, RENEW):
            assert refused(bench, member, (0, 3, kind))
    assert refused(bench, "M", (3, 3, ACCEPT))
    assert bench.fetch("M") == [(4, 7, 1)]
    assert refused(bench, "M", (2, 5, ACCEPT)), "all or nothing"
    assert bench.records() == [(4, 7, 1, 1)]
    assert not refused(bench, "M", (4, 7, ACCEPT))
    assert not refused(bench, "M", (4, 7, ACCEPT)), "a duplicate of what was accepted"


@pytest.mark.rule("PL-418")
@pytest.mark.parametrize("letters", [False, True], ids=["no letters", "letters"])
@pytest.mark.parametrize("kind", [RELEASE, REJECT], ids=["release", "reject"])
def test_only_who_archived_them_by_an_acknowledgement_repeats_it_with_success(kind: int, letters: bool) -> None:
    bench = last_delivery(dlq_enabled=letters)
    assert bench.acked("M", (0, 2, kind), (3, 3, ACCEPT)) is None
    for letter in bench.dead:
        bench.do(ev.DlqDone(letter.dead_letter_id))
        bench.persisted()
    assert bench.spso == 4
    assert not refused(bench, "M", (0, 2, kind), (3, 3, ACCEPT)), "its answer was lost"
    assert refused(bench, "N", (0, 2, ACCEPT))
    assert not refused(bench, "N", (3, 3, ACCEPT)), "it was accepted: its work is done"


@pytest.mark.rule("PL-418")
def test_a_session_that_ends_at_the_limit_leaves_its_member_no_say() -> None:
    bench = last_delivery()
    bench.release("M")
    bench.persisted()
    assert bench.spso == 4
    assert refused(bench, "M", (0, 3, ACCEPT))


@pytest.mark.rule("PL-418", "PL-414")
def test_what_a_failed_write_would_have_archived_is_not_given_up() -> None:
    bench = last_delivery()
    bench.ack("M", (0, 3, REJECT))
    bench.failed(CoordinatorNotAvailableError())
    assert not refused(bench, "M", (0, 3, ACCEPT))
    assert bench.spso == 4
    assert not refused(bench, "M", (0, 3, ACCEPT))
    assert not refused(bench, "N", (0, 3, ACCEPT))


@pytest.mark.rule("PL-418", "PL-307")
def test_a_lock_that_ended_while_its_acknowledgement_failed_gives_up_too() -> None:
    bench = last_delivery()
    op = bench.ack("M", (0, 3, ACCEPT))
    bench.pass_time(LOCK_MS)
    bench.failed(CoordinatorNotAvailableError())
    assert bench.error(op) is not None
    assert bench.spso == 4
    assert refused(bench, "M", (0, 3, ACCEPT))


@pytest.mark.rule("PL-418")
def test_a_gap_and_what_the_log_has_lost_are_not_given_up_and_a_successor_knows_nothing() -> None:
    bench = last_delivery()
    bench.acked("M", (0, 0, 0))
    assert not refused(bench, "N", (0, 0, ACCEPT))
    bench.do(ev.LogStartMoved(3))
    bench.pass_time(LOCK_MS)
    while bench.writes:
        bench.persisted()
    assert bench.spso == 4
    assert not refused(bench, "M", (1, 2, ACCEPT)), "the log start had passed them"
    assert refused(bench, "M", (3, 3, ACCEPT))
    successor = Bench(4, batches=(StateBatch(4, 7, 0, 1),))
    assert not refused(successor, "M", (3, 3, ACCEPT))


@pytest.mark.rule("PL-418")
def test_the_newest_ranges_are_remembered_and_neighbours_are_one() -> None:
    known = GivenUp()
    for offset in range(0, 3 * RANGES_MAX, 3):
        known.note(offset, offset)
        known.note(offset + 1, offset + 1)
    known.check(2, 2, "M")
    with pytest.raises(InvalidRecordStateError, match=r"offset 0 cannot .* by member M: its last delivery"):
        known.check(0, 2, "M")
    known.note(9_999, 9_999, "N")
    known.check(0, 2, "M")
    with pytest.raises(InvalidRecordStateError, match="another member rejected it"):
        known.check(9_000, 10_000, "M")
    known.check(9_000, 10_000, "N")
    assert len(known._ranges) == RANGES_MAX
