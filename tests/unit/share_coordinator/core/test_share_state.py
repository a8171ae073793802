"""The effect of each record on the state of one share-partition (SC-55, SC-56)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kip932.state_batches import CAUSE_INIT, UNSET_OFFSET, StateBatch, WriteStats
from share_coordinator.core.records import NO_LEADER_EPOCH, ShareSnapshot, ShareUpdate
from share_coordinator.core.share_state import ShareState, after_snapshot, after_update, initial_snapshot
from tests.support.share_state import KEY


def snapshot(**fields: Any) -> ShareSnapshot:
    """Return an initialised state's snapshot with `fields` replaced."""
    record = initial_snapshot(KEY, None, 3, 10, wall_ms=1_000, stats=WriteStats(CAUSE_INIT))
    return replace(record, **fields)


def update(**fields: Any) -> ShareUpdate:
    """Return an update of leader epoch 2, generation 1, with `fields` replaced."""
    record = ShareUpdate(
        key=KEY, snapshot_epoch=0, leader_epoch=2, generation=1, start_offset=10, delivery_complete_count=0,
        batches=(), stats=WriteStats(CAUSE_INIT),
    )  # fmt: skip
    return record._replace(**fields)


def led(state: ShareState) -> tuple[int, int]:
    return state.leader_epoch, state.generation


@pytest.mark.rule("SC-55")
def test_the_fences_of_a_snapshot_are_the_larger_of_its_leader_and_its_maxima() -> None:
    later = after_snapshot(snapshot(leader_epoch=4, generation=7, fence_leader_epoch=6, fence_generation=2))
    assert (led(later), later.fence) == ((4, 7), (6, 2))
    assert after_snapshot(snapshot(leader_epoch=6, generation=3, fence_leader_epoch=6)).fence == (6, 3)
    assert after_snapshot(snapshot(state_epoch=9)).fence_state_epoch == 9


def test_an_update_without_a_leader_epoch_keeps_the_leader() -> None:
    state = after_update(after_snapshot(snapshot()), update())
    assert led(state) == (2, 1)
    assert led(after_update(state, update(leader_epoch=NO_LEADER_EPOCH, generation=0))) == (2, 1)


def test_an_update_of_an_older_leader_does_not_lower_the_fence() -> None:
    state = after_update(after_snapshot(snapshot()), update())
    later = after_update(state, update(leader_epoch=1, generation=5))
    assert (led(later), later.fence) == ((1, 5), (2, 1))


def test_an_update_counts_and_merges_and_leaves_the_rest() -> None:
    state = after_snapshot(snapshot())
    batch = StateBatch(10, 14, 2, 1)
    later = after_update(state, update(batches=(batch,), stats=WriteStats(CAUSE_INIT, n_limit=2, n_reject=3)))
    assert later.batches == (batch,)
    assert (later.updates, later.archived_by_limit, later.archived_by_reject) == (1, 2, 3)
    assert (later.state_epoch, later.snapshot_epoch, later.write_ms) == (3, 0, 1_000)
    again = after_update(later, update(start_offset=UNSET_OFFSET))
    assert (again.start_offset, again.batches, again.archived_by_limit) == (10, (batch,), 2)


@pytest.mark.rule("SC-34")
def test_a_snapshot_of_a_state_keeps_all_of_it_and_every_fence() -> None:
    state = after_update(
        after_snapshot(snapshot(fence_leader_epoch=6, fence_generation=4, fence_state_epoch=8)),
        update(batches=(StateBatch(11, 14, 2, 1),), stats=WriteStats(CAUSE_INIT, n_limit=2, n_reject=3)),
    )
    assert (led(state), state.fence, state.fence_state_epoch) == ((2, 1), (6, 4), 8)
    again = after_snapshot(state.snapshot(KEY, 5_000))
    assert again == state._replace(snapshot_epoch=1, create_ms=5_000, write_ms=5_000, updates=0)
    copied = after_snapshot(state.cold_copy(KEY, 5_000, WriteStats(CAUSE_INIT)))
    assert copied == again._replace(create_ms=1_000)
    assert (again.cold_copied, copied.cold_copied) == (False, True)
