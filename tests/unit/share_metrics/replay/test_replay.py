"""The replay of one share-partition, compared with a dictionary of offsets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.state_batches import StateBatch, combine
from share_metrics.metrics.replaying import _rows
from share_metrics.replay.replay import Change, Event, Replay, Tally, changes
from tests.support.pipeline_entries import UNHURRIED

MINUTE = 60_000_000


def played(*events: Event, limit: int = 5) -> Replay:
    replay = Replay(MINUTE, limit)
    for event in events:
        replay.apply(event)
    return replay


def snap(start: int, *batches: StateBatch, at: int = 0, losses: int = 0) -> Event:
    return Event("snapshot", at, losses, start, batches)


def upd(start: int | None, *batches: StateBatch, at: int = 0, losses: int = 0) -> Event:
    return Event("update", at, losses, start, batches)


@pytest.mark.rule("PM-49")
def test_filler_is_no_release() -> None:
    tally = played(snap(0), upd(None, StateBatch(0, 9, 0, 0))).windows[0]
    assert (tally.released_lb, tally.accepted_lb, tally.archived_lb) == (0, 0, 0)


@pytest.mark.rule("PM-47", "PM-49", "PM-50", "PM-51")
def test_transitions_are_counted_by_offset() -> None:
    replay = played(
        snap(10),
        upd(None, StateBatch(10, 14, 0, 1), StateBatch(15, 19, 2, 1)),
        upd(None, StateBatch(10, 12, 2, 2), StateBatch(13, 13, 4, 5)),
        upd(None, StateBatch(13, 13, 4, 5)),
    )
    tally = replay.windows[0]
    assert (tally.released_lb, tally.accepted_lb, tally.archived_lb) == (5, 8, 1)
    assert tally.histogram == [5, 3, 0, 0, 1, 0, 0, 0, 0, 0]
    assert (tally.in_flight_batches, tally.in_flight_width_lb) == (4, 10)


@pytest.mark.rule("PM-32", "SR-28")
def test_nothing_counts_before_the_first_snapshot() -> None:
    replay = played(upd(None, StateBatch(0, 9, 0, 1)), snap(0, StateBatch(0, 9, 0, 1), at=MINUTE))
    assert replay.windows[0].incomplete
    assert replay.windows[0].released_lb == 0
    assert (replay.windows[MINUTE].released_lb, replay.windows[MINUTE].incomplete) == (0, False)


@pytest.mark.rule("PM-11", "SR-30")
def test_after_a_gap_the_replay_waits_for_the_next_snapshot() -> None:
    replay = played(
        snap(0),
        upd(None, StateBatch(0, 0, 0, 1)),
        upd(None, StateBatch(1, 1, 0, 1), at=MINUTE, losses=1),
        snap(0, StateBatch(0, 1, 0, 1), at=2 * MINUTE, losses=1),
        upd(None, StateBatch(2, 2, 0, 1), at=2 * MINUTE, losses=1),
    )
    assert [replay.windows[at].incomplete for at in (0, MINUTE, 2 * MINUTE)] == [False, True, False]
    assert [replay.windows[at].released_lb for at in (0, MINUTE, 2 * MINUTE)] == [1, 0, 1]


@pytest.mark.rule("PM-59")
def test_a_reset_and_a_new_life_count_nothing_of_the_old_one() -> None:
    replay = played(
        snap(100, StateBatch(100, 100, 0, 1)),
        snap(50, StateBatch(60, 60, 0, 1)),
        Event("tombstone", 0, 0, None, ()),
        snap(0, StateBatch(3, 3, 0, 1)),
    )
    assert replay.windows[0].released_lb == 0


@pytest.mark.rule("PM-32", "PM-59", "PM-63")
def test_what_an_administrator_skips_has_not_become_final() -> None:
    """A reset moves the start offset under a new state epoch; a write that moves it within an epoch has finished the
    records."""
    released = snap(0, StateBatch(0, 9, 0, 1))
    again = upd(None, StateBatch(0, 9, 0, 2), at=1_000_000)
    for epoch, latencies in ((2, []), (1, [(8_000, 10)])):
        first, last = released._replace(state_epoch=1), snap(500, at=9_000_000)._replace(state_epoch=epoch)
        replay = played(first, again, last, upd(None, StateBatch(500, 500, 0, 1), at=9_000_000))
        assert replay.windows[0].latencies_ms == latencies
        assert (replay.windows[0].released_lb, replay.windows[0].incomplete) == (11, False)


@pytest.mark.rule("PM-63")
def test_an_offset_is_final_when_it_is_said_so_or_passed() -> None:
    tally = played(
        snap(0),
        upd(None, StateBatch(0, 3, 0, 1), at=1_000_000),
        upd(None, StateBatch(1, 1, 0, 2), at=2_000_000),
        upd(None, StateBatch(1, 1, 2, 3), at=4_000_000),
        upd(3, at=6_000_000),
    ).windows[0]
    assert sorted(tally.latencies_ms) == [(3_000, 1), (5_000, 1), (5_000, 1)]
    assert (tally.percentile_ms(0.3), tally.percentile_ms(0.5), tally.percentile_ms(0.99)) == (3_000, 5_000, 5_000)


@pytest.mark.rule("PM-63")
def test_of_offsets_released_together_each_waits_since_its_own_first_release() -> None:
    tally = played(
        snap(0, StateBatch(0, 2, 0, 2)),
        snap(0, StateBatch(0, 0, 0, 2), StateBatch(1, 1, 0, 1), StateBatch(2, 2, 0, 2), at=1_000_000),
        snap(0, StateBatch(0, 2, 0, 2), at=2_000_000),
        upd(None, StateBatch(0, 2, 0, 3), at=3_000_000),
        upd(None, StateBatch(0, 2, 2, 3), at=5_000_000),
    ).windows[0]
    assert sorted(tally.latencies_ms) == [(2_000, 1), (2_000, 1), (4_000, 1)]


@pytest.mark.rule("PM-47", "PM-63")
def test_a_table_has_the_percentiles_and_the_histogram_of_a_window() -> None:
    tally = Tally(released_lb=1, accepted_lb=2, archived_lb=3, in_flight_batches=4, in_flight_width_lb=5)
    tally.latencies_ms, tally.waits = [(at, 1) for at in range(1, 201)], ((7, 8),)
    tally.ends.add(0, 1000, 3)
    tally.ends.unknown = 2
    replay = Replay(MINUTE)
    replay.windows[MINUTE] = tally
    (row,) = _rows(("g", "t", 7), replay)
    assert row == {
        "group_id": "g", "topic_id": "t", "partition": 7,
        "tally": {
            "window": MINUTE, "released_lb": 1, "accepted_lb": 2, "archived_lb": 3, "in_flight_batches": 4,
            "in_flight_width_lb": 5, "waits": [{"until": 7, "records": 8}], "release_to_final_p50_ms": 100,
            "release_to_final_p95_ms": 190, "release_to_final_p99_ms": 198, "delivery_counts_lb": [0] * 10,
            "incomplete": False, "ends": [
                {"bound": "least", "ms": 0, "records": 3}, {"bound": "most", "ms": 1, "records": 3},
                {"bound": "unknown", "ms": None, "records": 2},
            ],
        },
    }  # fmt: skip


def test_without_latencies_there_is_no_percentile() -> None:
    assert played(snap(0)).windows[0].percentile_ms(0.5) is None


@pytest.mark.rule("PM-48")
def test_offsets_delivered_up_to_the_limit_are_suspects_newest_first() -> None:
    replay = played(
        snap(0),
        upd(None, StateBatch(0, 9, 0, 1)),
        upd(None, StateBatch(3, 3, 0, 4), at=1),
        upd(None, StateBatch(7, 7, 3, 2), at=2),
        upd(None, StateBatch(3, 3, 4, 5), at=3),
        upd(None, StateBatch(5, 5, 4, 2), at=4),
    )
    assert [(one.offset, one.delivery_state, one.delivery_count, one.times_released) for one in replay.poison()] == [
        (3, 4, 5, 4),
        (7, 3, 2, 1),
    ]
    assert replay.poison()[0].first_seen_us == 1


@pytest.mark.rule("PM-48")
def test_suspects_are_bounded_whatever_a_record_claims() -> None:
    replay = played(snap(0), upd(None, StateBatch(0, 2**62, 0, 4)), upd(None, StateBatch(0, 2**62, 4, 5)))
    assert len(replay.poison()) == 100


def test_changes_cover_what_is_new_and_what_is_different() -> None:
    old = [StateBatch(2, 4, 0, 1), StateBatch(8, 9, 2, 1)]
    new = [StateBatch(0, 9, 2, 1)]
    assert list(changes(old, new)) == [
        Change(0, 1, None, 2, 1),
        Change(2, 4, (0, 1), 2, 1),
        Change(5, 7, None, 2, 1),
    ]


_BATCH = st.tuples(
    st.integers(0, 30), st.integers(0, 6), st.sampled_from([0, 2, 3, 4]), st.integers(0, 4), st.integers(0, 3)
).map(lambda made: StateBatch(made[0], made[0] + made[1], made[2], made[3], 0 if made[2] else 59_999 * made[4]))
_WRITES = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.lists(_BATCH, max_size=4)), max_size=12)


def oracle(found: Sequence[StateBatch], writes: Sequence[tuple[bool, int, list[StateBatch]]]) -> Tally:
    """The expected tally for writes one second apart, from a dictionary of all offsets: the highest (count, state,
    instant) wins. No write reports append times."""
    known = {offset: one.rank for one in found for offset in range(one.first_offset, one.last_offset + 1)}
    waiting: dict[int, int] = {}
    tally = Tally()
    start = 0
    for second, (whole, step, batches) in enumerate(writes):
        passed = range(start, start + step)
        tally.ends.unknown += sum(offset not in known or known[offset][1] not in {2, 4} for offset in passed)
        start += step
        stated: dict[int, tuple[int, int, int]] = {} if whole else dict(known)
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                rank = (batch.delivery_count, batch.delivery_state, batch.not_before_ms)
                stated[offset] = max(stated.get(offset, rank), rank)
        stated = {offset: rank for offset, rank in sorted(stated.items()) if offset >= start}
        final = [offset for offset in waiting if offset < start]
        for offset, (count, state, _) in stated.items():
            before = known.get(offset)
            if (before and before[:2] == (count, state)) or (before is None and (count, state) == (0, 0)):
                continue
            if state == 0 and count > 0:
                tally.released_lb += 1
                waiting.setdefault(offset, second)
            elif state in {2, 4} and (before is None or before[1] != state):
                tally.accepted_lb += state == 2
                tally.archived_lb += state == 4
                tally.histogram[min(max(count, 1), 10) - 1] += 1
                tally.ends.unknown += before is None or before[1] not in {2, 4}
                final += [offset] if offset in waiting else []
        tally.latencies_ms += [((second - waiting.pop(offset)) * 1000, 1) for offset in final]
        known = stated
        runs = [offset for offset, rank in known.items() if known.get(offset - 1) != rank]
        tally.in_flight_batches, tally.in_flight_width_lb = len(runs), max(known, default=start - 1) + 1 - start
    ends = sorted(-(-until_ms // 60_000) * MINUTE for _, _, until_ms in known.values() if until_ms > 60_000)
    tally.waits = tuple(Counter(ends).items())
    return tally


@pytest.mark.rule("PM-32", "PM-47", "PM-49", "PM-50", "PM-51", "PM-63", "PM-68")
@UNHURRIED
@given(st.lists(_BATCH, max_size=4), _WRITES)
def test_a_random_history_counts_as_the_oracle_does(
    found: list[StateBatch], writes: list[tuple[bool, int, list[StateBatch]]]
) -> None:
    first = combine((), found)
    events = [snap(0, *first)]
    start = 0
    for second, (whole, step, batches) in enumerate(writes, start=1):
        start += step
        given_batches = tuple(combine((), batches, start)) if whole else tuple(batches)
        at = second * 1_000_000
        made = snap(start, *given_batches, at=at) if whole else upd(start if step else None, *given_batches, at=at)
        events.append(made)
    tally = played(*events).windows[0]
    by_offset = [(latency, 1) for latency, offsets in tally.latencies_ms for _ in range(offsets)]
    expected = oracle(first, [(True, 0, first), *writes])
    tally.latencies_ms, expected.latencies_ms = sorted(by_offset), sorted(expected.latencies_ms)
    assert tally == expected


@pytest.mark.rule("PM-88")
def test_what_waits_at_the_end_of_each_window_is_known_until_when() -> None:
    minute_ms = MINUTE // 1000
    events = [
        snap(
            0, StateBatch(0, 1, 0, 1, 2 * minute_ms), StateBatch(2, 2, 0, 1, 2 * minute_ms + 1), StateBatch(3, 3, 0, 2)
        ),
        upd(None, StateBatch(0, 0, 0, 2, 5 * minute_ms - 1), at=MINUTE),
        upd(None, StateBatch(0, 0, 2, 3), at=4 * MINUTE),
        upd(None, StateBatch(4, 4, 0, 1, 9 * minute_ms), at=7 * MINUTE),
        upd(5, at=7 * MINUTE + 1),
    ]
    replay = played(*events)
    assert {at // MINUTE: tally.waits for at, tally in replay.windows.items()} == {
        0: ((2 * MINUTE, 2), (3 * MINUTE, 1)),
        1: ((3 * MINUTE, 1), (5 * MINUTE, 1)),
        4: (),
        7: (),
    }
    replay.apply(upd(None, StateBatch(8, 8, 0, 1, 9 * minute_ms), at=7 * MINUTE + 2))
    assert replay.windows[7 * MINUTE].waits == ((9 * MINUTE, 1),), "the newest record of a window counts"


@pytest.mark.rule("PM-88", "PM-11")
def test_what_waits_is_unknown_before_a_snapshot_and_after_a_gap() -> None:
    wait = StateBatch(0, 0, 0, 1, 9 * MINUTE // 1000)
    replay = played(upd(None, wait), snap(0, wait, at=MINUTE), upd(None, at=2 * MINUTE, losses=1))
    assert [tally.waits for tally in replay.windows.values()] == [None, ((9 * MINUTE, 1),), None]


@pytest.mark.rule("PM-16", "PM-49")
def test_a_write_that_changes_nothing_but_the_instant_is_no_release() -> None:
    replay = played(snap(0), upd(None, StateBatch(0, 4, 0, 1, 7_000)), upd(None, StateBatch(0, 2, 0, 1, 9_000)))
    tally = replay.windows[0]
    assert (tally.released_lb, tally.in_flight_batches) == (5, 2)
