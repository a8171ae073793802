"""The records of a partition that some group still needs; records are kept whenever that is uncertain (CM-160)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip932.state_values import StoredStart
from partition_leader.topic_log.core.consumed import Kept, Needed, needed_from


def needed(
    groups: dict[str, dict[int, int]],
    loaded: dict[str, int | None] | None = None,
    *,
    log_start: int = 10,
    last_stable: int = 100,
) -> Needed:
    stored = {group: {at: StoredStart(start, 0) for at, start in starts.items()} for group, starts in groups.items()}
    return needed_from(0, stored, loaded or {}, log_start=log_start, last_stable=last_stable)


@pytest.mark.rule("CM-160")
@pytest.mark.parametrize(
    ("groups", "loaded", "expected"),
    [
        pytest.param({}, {}, Needed(10, Kept.NO_GROUP), id="no group"),
        pytest.param({}, {"a": 50}, Needed(10, Kept.NO_GROUP), id="a group in memory alone"),
        pytest.param({"a": {0: 40}}, {}, Needed(40, Kept.UNFINISHED, "a"), id="one group"),
        pytest.param(
            {"a": {0: 40}, "b": {0: 30}, "c": {0: 90}}, {}, Needed(30, Kept.UNFINISHED, "b"), id="the slowest"
        ),
        pytest.param({"a": {0: 40}, "b": {1: 30}}, {}, Needed(10, Kept.NO_STATE, "b"), id="none for this partition"),
        pytest.param({"a": {0: 40}, "b": {0: -1}}, {}, Needed(10, Kept.NOT_BEGUN, "b"), id="no start offset yet"),
        pytest.param({"a": {0: 40}}, {"a": 60, "b": 20}, Needed(20, Kept.UNFINISHED, "b"), id="lower in memory"),
        pytest.param({"a": {0: 40}}, {"a": 60}, Needed(40, Kept.UNFINISHED, "a"), id="memory is ahead of the store"),
        pytest.param({"a": {0: 40}}, {"b": None}, Needed(10, Kept.LOADING, "b"), id="being loaded"),
        pytest.param({"a": {0: 4}}, {}, Needed(10, Kept.UNFINISHED, "a"), id="below the log start"),
        pytest.param({"a": {0: 100}}, {}, Needed(100, Kept.READABLE), id="all of it"),
        pytest.param({"a": {0: 500}}, {}, Needed(100, Kept.READABLE), id="beyond a log that lost its tail"),
    ],
)
def test_what_some_group_may_still_need(
    groups: dict[str, dict[int, int]], loaded: dict[str, int | None], expected: Needed
) -> None:
    assert needed(groups, loaded) == expected


@pytest.mark.rule("CM-160")
def test_an_open_transaction_stays_whole() -> None:
    assert needed({"a": {0: 90}}, last_stable=70) == Needed(70, Kept.READABLE)


_STARTS = st.dictionaries(st.sampled_from("abc"), st.dictionaries(st.integers(0, 1), st.integers(-1, 120)))
_LOADED = st.dictionaries(st.sampled_from("abcd"), st.none() | st.integers(0, 120))


@pytest.mark.rule("CM-160")
@given(groups=_STARTS, loaded=_LOADED, log_start=st.integers(0, 50), length=st.integers(0, 50))
def test_nothing_that_a_known_group_has_not_finished_goes(
    groups: dict[str, dict[int, int]], loaded: dict[str, int | None], log_start: int, length: int
) -> None:
    found = needed(groups, loaded, log_start=log_start, last_stable=log_start + length)
    assert log_start <= found.start <= log_start + length
    if found.start > log_start:
        starts = [each.get(0, -1) for each in groups.values()]
        assert starts, "some group has state"
        assert min(starts) >= found.start
        assert all(start is not None and start >= found.start for start in loaded.values())


@pytest.mark.rule("CM-160")
@given(groups=_STARTS, loaded=_LOADED, more=st.integers(-1, 120))
def test_to_know_of_one_group_more_never_lets_more_go(
    groups: dict[str, dict[int, int]], loaded: dict[str, int | None], more: int
) -> None:
    known = needed(groups, loaded)
    if known.why is not Kept.NO_GROUP:
        assert needed({**groups, "one more": {0: more}}, loaded).start <= known.start
        assert needed(groups, {**loaded, "one more": more}).start <= known.start
