"""The time from a record's append to its end, derived from writes, compared with records whose append times are
known."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.state_batches import StateBatch
from share_metrics.replay.append_times import STEPS_MAX, AppendTimes, Spans, percentile_ms
from share_metrics.replay.replay import Event, Replay

MS = 1000
FIFTH = 2 ** (1 / 4)


def spans(*rows: Spans) -> list[dict[str, int | str | None]]:
    return [row for one in rows for row in one.rows]


def counted(found: Spans, bound: str) -> dict[int, int]:
    sums: Counter[int] = Counter()
    for row in found.rows:
        if row["bound"] == bound:
            sums[int(row["ms"] or 0)] += int(row["records"] or 0)
    return dict(sums)


@pytest.mark.rule("PM-91")
def test_a_record_was_appended_between_two_writes() -> None:
    times, found = AppendTimes(), Spans()
    for hwm, at_ms in ((10, 0), (10, 64), (12, 128)):
        times.seen(hwm, at_ms * MS)
    times.took(10, 11, 1152 * MS, found)
    assert counted(found, "least") == {1024: 2}
    assert list(counted(found, "most")) == [pytest.approx(1152 - 64, rel=FIFTH - 1)]
    assert found.unknown == 0


@pytest.mark.rule("PM-91")
def test_what_was_there_before_the_first_write_and_what_none_has_reported_is_unknown() -> None:
    times, found = AppendTimes(), Spans()
    times.seen(10, 0)
    times.seen(12, 1 * MS)
    times.took(7, 14, 2 * MS, found)
    assert found.unknown == 3 + 3
    assert sum(counted(found, "least").values()) == 2


@pytest.mark.rule("PM-91")
def test_what_ended_above_the_start_offset_ends_once() -> None:
    replay = Replay(60_000_000)
    replay.apply(Event("snapshot", 0, 0, 0, (), hwm=0))
    replay.apply(Event("update", 1 * MS, 0, None, (StateBatch(2, 3, 2, 1),), hwm=5))
    replay.apply(Event("update", 2 * MS, 0, 5, (), hwm=5))
    (tally,) = replay.windows.values()
    assert counted(tally.ends, "least") == {0: 2, 1: 3}
    assert counted(tally.ends, "most") == {1: 2, 2: 3}


@pytest.mark.rule("PM-91")
def test_a_reset_ends_nothing() -> None:
    replay = Replay(60_000_000)
    replay.apply(Event("snapshot", 0, 0, 0, (), 1, hwm=0))
    replay.apply(Event("snapshot", 1 * MS, 0, 50, (), 2, hwm=50))
    (tally,) = replay.windows.values()
    assert tally.ends.rows == []


@pytest.mark.rule("PM-91")
def test_what_ends_while_the_state_is_not_known_is_not_counted() -> None:
    replay = Replay(60_000_000)
    replay.apply(Event("snapshot", 0, 0, 0, (), hwm=9))
    replay.apply(Event("update", 1 * MS, 1, 4, (), hwm=9))
    replay.apply(Event("snapshot", 2 * MS, 1, 6, (), hwm=9))
    replay.apply(Event("update", 3 * MS, 1, 8, (), hwm=9))
    (tally,) = replay.windows.values()
    assert tally.ends.rows == [{"bound": "unknown", "ms": None, "records": 2}]


@pytest.mark.rule("PM-91")
def test_many_steps_become_few_and_their_bounds_wider() -> None:
    times, exact = AppendTimes(), Spans()
    for hwm in range(3 * STEPS_MAX):
        times.seen(hwm, hwm * MS)
    assert len(times._steps) <= STEPS_MAX
    now = 3 * STEPS_MAX * MS
    times.took(0, 3 * STEPS_MAX - 2, now, exact)
    assert exact.unknown == 0
    for offset in (0, STEPS_MAX, 3 * STEPS_MAX - 2):
        one = Spans()
        times.took(offset, offset, now, one)
        ((least, _),), ((most, _),) = counted(one, "least").items(), counted(one, "most").items()
        assert least <= (now / MS) - (offset + 1) <= most


@pytest.mark.rule("PM-91")
@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.integers(0, 4), st.integers(0, 4), st.booleans()), min_size=1, max_size=40
    )
)
def test_each_record_took_no_less_and_no_more(steps: list[tuple[int, int, int, bool]]) -> None:
    """Records are appended at known times, and some of the writes report the high watermark."""
    replay = Replay(10**15)
    replay.apply(Event("snapshot", 0, 0, 0, (), hwm=0))
    appended: list[int] = []
    now = start = 0
    took: list[float] = []
    for pause, new, done, reported in steps:
        now += pause
        appended += [now] * new
        now += pause
        end = min(start + done, len(appended)) if reported else start
        took += [now - at for at in appended[start:end]]
        start = end
        if reported:
            replay.apply(Event("update", now, 0, start, (), hwm=len(appended)))
    (tally,) = replay.windows.values()
    least, most = counted(tally.ends, "least"), counted(tally.ends, "most")
    assert sum(least.values()) == sum(most.values()) == len(took)
    assert tally.ends.unknown == 0
    for share in (0.01, 0.5, 0.95, 0.99, 1.0):
        exact = percentile_ms(Counter(took), share)  # type: ignore[arg-type]
        if exact is not None:
            low, high = percentile_ms(least, share), percentile_ms(most, share)
            assert low is not None
            assert high is not None
            assert low <= exact / MS <= high


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile_ms({}, 0.5) is None
