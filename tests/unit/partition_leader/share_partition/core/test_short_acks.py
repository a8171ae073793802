"""Many short acknowledgements of one cached batch in one request: applied together, with the same outcome as one by
one."""

from __future__ import annotations

import pytest

from kip932.errors import InvalidRecordStateError
from kip932.ids import STATE_ACQUIRED
from partition_leader.share_partition.core import effects as fx
from partition_leader.share_partition.core import events as ev
from partition_leader.share_partition.core.acknowledge import AckStretch, gather_stretch
from partition_leader.share_partition.core.batch import InFlightBatch
from partition_leader.share_partition.core.in_flight import Window
from tests.unit.partition_leader.share_partition.core.bench import LOCK_MS, Bench, written

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def fetched(**changes: int | bool) -> Bench:
    bench = Bench(log=[(0, 9), (10, 19)])
    bench.set(**changes)
    assert bench.fetch(max_records=20) == [(0, 19, 1)]
    return bench


@pytest.mark.rule("PL-408", "PL-409", "PL-703")
def test_scattered_single_records_are_written_and_the_others_stay_acquired() -> None:
    bench = fetched()
    bench.ack("M", (1, 1, ACCEPT), (3, 3, RELEASE), (5, 6, ACCEPT), (8, 9, (REJECT, RELEASE)))
    write = bench.persisted()
    assert written(write) == (0, 4, [(1, 1, 2, 1), (3, 3, 0, 1), (5, 6, 2, 1), (8, 8, 4, 1), (9, 9, 0, 1)])
    assert write.counters == fx.Counters(3, 2, 1, max_dc=1, sum_dc=4)
    assert bench.fetch("N", until=19) == [(3, 3, 2), (9, 9, 2)]
    assert bench.acked("M", *[(at, at, ACCEPT) for at in (0, 2, 4, 7)]) is None
    assert bench.spso == 3


@pytest.mark.rule("PL-705", "PL-412")
def test_a_commit_leaves_alone_what_a_later_request_has_pending_in_the_same_batch() -> None:
    bench = fetched()
    bench.ack("M", *[(at, at, ACCEPT) for at in range(0, 20, 2)])
    waiting = bench.ack("M", *[(at, at, RELEASE) for at in range(1, 20, 2)])
    bench.persisted()
    assert waiting not in bench.replies
    assert bench.fetch("N", until=19) == []
    bench.persisted()
    assert bench.replies[waiting].error is None
    assert bench.fetch("N", until=19) == [(at, at, 2) for at in range(1, 20, 2)]


@pytest.mark.rule("INV-6")
@pytest.mark.rule("PL-410", "PL-407")
@pytest.mark.parametrize("refused", [(12, 12, ACCEPT), (3, 3, ACCEPT)])
def test_one_refused_record_among_many_undoes_them_all(refused: tuple[int, int, int]) -> None:
    bench = fetched()
    bench.acked("M", (3, 3, RELEASE), (12, 12, ACCEPT))
    before = bench.records()
    op = bench.ack("M", *sorted([(1, 1, ACCEPT), (2, 2, RELEASE), refused, (14, 14, ACCEPT)]))
    assert isinstance(bench.error(op), InvalidRecordStateError)
    assert f"offset {refused[0]} " in str(bench.error(op))
    assert (bench.records(), bench.writes) == (before, [])


@pytest.mark.rule("PL-406", "PL-407")
def test_a_record_of_another_member_among_many_is_refused() -> None:
    bench = fetched()
    bench.acked("M", (3, 3, RELEASE))
    bench.fetch("N", until=19)
    op = bench.ack("M", (1, 1, ACCEPT), (3, 3, ACCEPT), (5, 5, ACCEPT))
    assert "another member holds it" in str(bench.error(op))


@pytest.mark.rule("PL-324", "PL-325", "PL-303")
def test_renewals_among_many_keep_their_lock_and_only_the_rest_is_written() -> None:
    bench = fetched()
    bench.now += LOCK_MS - 1
    bench.ack("M", (0, 0, ACCEPT), (2, 2, RENEW), (4, 4, RELEASE), (5, 5, RENEW))
    assert written(bench.persisted()) == (1, 0, [(4, 4, 0, 1)])
    bench.pass_time(1)
    assert [run for run in bench.records() if run[2] == 1] == [(2, 2, 1, 1), (5, 5, 1, 1)]
    assert bench.core.next_deadline() == bench.now - 1 + LOCK_MS


@pytest.mark.rule("PL-107", "T7")
def test_a_release_among_many_ends_at_the_delivery_limit() -> None:
    bench = fetched(delivery_count_limit=2, dlq_enabled=True)
    bench.acked("M", (2, 6, RELEASE))
    while bench.fetch("N", until=19):
        pass
    bench.ack("N", *[(at, at, RELEASE) for at in (2, 4, 6)])
    assert bench.writes[0].counters.n_limit == 3
    bench.persisted()
    assert [(d.ranges, d.cause) for d in bench.dead] == [
        (((2, 2, 2), (4, 4, 2), (6, 6, 2)), "delivery count exceeded"),
    ]


@pytest.mark.rule("PL-303")
def test_the_next_deadline_follows_the_records_still_held() -> None:
    bench = fetched()
    first_lock = bench.core.next_deadline()
    bench.acked("M", (19, 19, RELEASE))
    bench.now += 10
    bench.fetch("N", until=19)
    for at in range(19):
        assert bench.core.next_deadline() == first_lock
        assert bench.acked("M", (at, at, ACCEPT)) is None
    assert bench.core.next_deadline() == bench.now + LOCK_MS


def stretch(*acks: tuple[int, int, bytes], at: int = 0, start: int = 0, last: int = 99) -> AckStretch | None:
    window = Window(start)
    window.add(InFlightBatch(0, last, STATE_ACQUIRED, 1, member="M", deadline=9))
    return gather_stretch(window, [ev.AckBatch(*ack) for ack in acks], at)


A, R = bytes([ACCEPT]), bytes([RELEASE])


def test_two_neighbours_of_one_batch_make_a_stretch_and_one_alone_makes_none() -> None:
    assert stretch((3, 3, A)) is None
    assert stretch((3, 3, A), (4, 4, R), at=1) is None
    found = stretch((3, 3, A), (4, 4, R))
    assert found is not None
    assert (found.first, bytes(found.types), found.acks, found.records) == (3, A + R, 2, 2)


def test_what_stands_between_is_untouched_and_not_counted() -> None:
    found = stretch((1, 1, A), (3, 4, R), (6, 7, R + A))
    assert found is not None
    assert (found.first, found.acks, found.records, len(found.types)) == (1, 3, 5, 7)
    assert [kind for kind in found.types if kind in (ACCEPT, RELEASE)] == [ACCEPT, RELEASE, RELEASE, RELEASE, ACCEPT]
    later = stretch((1, 1, A), (3, 4, R), (6, 7, R + A), at=1)
    assert later is not None
    assert (later.first, later.acks, later.records) == (3, 2, 4)


@pytest.mark.parametrize(
    ("acks", "taken"),
    [
        (((1, 1, A), (2, 2, A), (2, 3, A)), 2),
        (((1, 1, A), (2, 2, A), (4, 3, A)), 2),
        (((1, 1, A), (2, 2, A), (3, 5, A + R)), 2),
        (((1, 1, A), (2, 2, A), (3, 4, A + R)), 3),
        (((1, 1, A), (1, 1, A), (2, 2, A)), 0),
        (((1, 2, A), (3, 5, A + R)), 0),
    ],
)
def test_a_stretch_ends_before_what_does_not_follow(acks: tuple[tuple[int, int, bytes], ...], taken: int) -> None:
    found = stretch(*acks)
    assert (0 if found is None else found.acks) == taken
    assert found is None or len(found.types) == acks[taken - 1][1] - acks[0][0] + 1


def test_a_stretch_lies_within_one_batch_and_the_window() -> None:
    assert stretch((3, 3, A), (4, 4, A), start=4) is None
    assert stretch((4, 4, A), (5, 5, A), start=4) is not None
    assert stretch((8, 8, A), (9, 9, A), last=9) is not None
    assert stretch((8, 8, A), (10, 10, A), last=9) is None
    cut = stretch((7, 7, A), (8, 8, A), (10, 10, A), last=9)
    assert cut is not None
    assert cut.acks == 2


def test_what_is_too_wide_for_its_acknowledgements_is_no_stretch() -> None:
    assert stretch((0, 0, A), (31, 31, A)) is not None
    assert stretch((0, 0, A), (32, 32, A)) is None
    assert stretch((0, 0, A), (1, 1, A), (47, 47, A)) is not None
    assert stretch((0, 0, A), (1, 1, A), (48, 48, A)) is None
    assert stretch((0, 0, A), (1, 1, A), (33, 33, A), at=1) is None
