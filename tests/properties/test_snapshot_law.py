"""The snapshot law: replaying the log from any legal trim point gives the live state (SC-59, SC-71)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kip932.errors import KafkaError
from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch, WriteStats
from kip932.state_values import DeleteState, InitializeState, ReadState, WriteState
from share_coordinator.core.commands import ShareCommand
from share_coordinator.core.shard import ShareStateShard
from tests.properties.test_failures import FAILURES, small_limits
from tests.support.share_state import TOPIC, Driver

_KEYS = [SharePartitionKey("g", TOPIC, partition) for partition in range(3)]
_KEY = st.sampled_from(_KEYS)
_EPOCH = st.integers(-1, 4)
_OFFSET = st.integers(-1, 30)


@st.composite
def _batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 30))
    state = draw(st.sampled_from([0, 2, 3, 4]))
    return StateBatch(first, first + draw(st.integers(0, 8)), state, draw(st.integers(0, 3)))


_COMMAND: st.SearchStrategy[ShareCommand] = st.one_of(
    st.builds(InitializeState, _KEY, _EPOCH, _OFFSET),
    st.builds(ReadState, _KEY, _EPOCH, st.integers(0, 2)),
    st.builds(
        WriteState,
        _KEY,
        _EPOCH,
        _EPOCH,
        st.integers(0, 2),
        _OFFSET,
        st.integers(-1, 9),
        st.lists(_batch(), max_size=3).map(tuple),
        st.builds(WriteStats, st.integers(0, 127)),
        FAILURES.map(lambda found: tuple(one for one in found if one.first_offset <= one.last_offset)),
        st.none(),
    ),
    st.builds(DeleteState, _KEY, _EPOCH),
)
_STEP = st.one_of(_COMMAND, st.sampled_from(["cold", "undo"]))


def _same(left: ShareStateShard, right: ShareStateShard) -> bool:
    return all(left.state(key) == right.state(key) for key in _KEYS)


def _legal_trim_points(driver: Driver) -> range:
    """Return the positions at or before every living key's newest snapshot (SC-71)."""
    newest: dict[object, int] = {}
    for position, record in enumerate(driver.log):
        anchor = driver.shard.anchor(record)
        if anchor is None:
            continue
        if anchor.alive:
            newest[anchor.key] = position
        else:
            newest.pop(anchor.key, None)
    return range(min(newest.values(), default=len(driver.log)) + 1)


# Covers the part of SC-71 by which records before the lowest of the newest snapshots are superseded. Which point
# compaction chooses, and when it reports one, is tested in tests/unit/shard_runtime/hosting/test_compaction_plan.py.
@pytest.mark.rule("SC-34", "SC-55", "SC-56", "SC-59", "SC-71", "SC-79", "SC-117")
@small_limits()  # so that reasons often exceed them
@settings(max_examples=200)
@given(st.lists(_STEP, max_size=30), st.integers(0, 4), st.data())
def test_replaying_the_log_gives_the_live_state(
    steps: list[ShareCommand | str], updates_per_snapshot: int, data: st.DataObject
) -> None:
    driver = Driver(updates_per_snapshot)
    tokens: list[object] = []
    for step in steps:
        driver.advance(1)
        before = len(driver.log)
        if step == "undo":
            if tokens:
                driver.shard.undo(tokens.pop())
                driver.log.pop()
            continue
        if isinstance(step, str):
            records = [record for copy in driver.shard.rewrite(_KEYS, driver.wall_ms) for record in copy]
        else:
            try:
                records = list(driver.shard.decide(step, driver.now_ms, driver.wall_ms).records)
            except KafkaError:
                assert len(driver.log) == before
                continue
        tokens += [driver.shard.replay(record) for record in records]
        driver.log += records
    assert _same(driver.replayed(), driver.shard)
    cut = data.draw(st.sampled_from(list(_legal_trim_points(driver))), label="trim point")
    trimmed = driver.replayed(cut)
    assert _same(trimmed, driver.shard)
    assert trimmed.keys == driver.shard.keys
