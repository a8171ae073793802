"""A share-partition read back from its log, compared with the share coordinator's state from the same records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kip932.ids import topic_id_text
from kip932.state_batches import StateBatch
from share_coordinator.core.records import ShareRecord, ShareSnapshot, ShareTombstone
from share_coordinator.core.share_state import ShareState, after_snapshot, after_update
from share_metrics.reader import EntryId, Kind
from share_metrics.reader.decoding import decode_page
from share_metrics.replay.time_travel import State, history
from tests.support.pipeline_entries import KEY, TOPIC, UNHURRIED, snapshot, state_entry, update

_BATCHES = st.lists(
    st.tuples(
        st.integers(90, 120), st.integers(0, 9), st.sampled_from([0, 2, 4]), st.integers(0, 5), st.integers(0, 3)
    ).map(lambda made: StateBatch(made[0], made[0] + made[1], made[2], made[3], 0 if made[2] else 1_001 * made[4])),
    max_size=3,
)
_OFFSETS, _COUNTS = st.just(-1) | st.integers(90, 110), st.integers(-1, 6)
_RECORDS: st.SearchStrategy[ShareRecord] = st.one_of(
    st.builds(snapshot, _OFFSETS, _COUNTS, batches=st.just(()), state_epoch=st.integers(1, 3)),
    *[st.builds(update, _OFFSETS, _COUNTS, batches=_BATCHES)] * 3,
    st.just(ShareTombstone(KEY)),
)


def rows_of(records: list[ShareRecord]) -> list[dict[str, Any]]:
    entries = [state_entry(EntryId(1, seq), record, 1_000 + seq) for seq, record in enumerate(records, start=1)]
    rows: list[dict[str, Any]] = decode_page(Kind.SHARE_STATE, entries).to_pylist()
    return rows


def replayed(records: list[ShareRecord]) -> list[State]:
    return list(history(rows_of(records), KEY, topic_id_text(TOPIC)))


def of_coordinator(state: ShareState | None, record: ShareRecord) -> ShareState | None:
    if isinstance(record, ShareTombstone):
        return None
    return after_snapshot(record) if isinstance(record, ShareSnapshot) else after_update(state, record)


@pytest.mark.rule("PM-39", "SC-42", "SC-56")
@UNHURRIED
@given(st.lists(_RECORDS, max_size=8))
@example([snapshot(100, 5), update(-1, 0)])
@example([snapshot(100, 5), update(90, 2)])
@example([snapshot(100, 5), update(100, 3)])
@example([snapshot(100, 5), update(110, -1)])
def test_a_replayed_log_is_what_the_coordinator_has(records: list[ShareRecord]) -> None:
    expected: ShareState | None = None
    for record, found in zip(records, replayed(records), strict=True):
        expected = of_coordinator(expected, record)
        if expected is None:
            assert (found.start_offset, found.batches) == (None, ())
            continue
        start, count = expected.start_offset, expected.delivery_complete_count
        assert found.start_offset == (None if start < 0 else start)
        assert found.delivery_complete_count == (None if count < 0 else count)
        assert found.batches == expected.batches
        assert found.leader_epoch == expected.leader_epoch


@pytest.mark.rule("PM-39", "SR-28")
def test_a_log_that_was_trimmed_is_not_complete_until_a_snapshot_says_all() -> None:
    records: list[ShareRecord] = [update(5), snapshot(6), update(7), ShareTombstone(KEY), update(8)]
    found = replayed(records)
    assert [one.complete for one in found] == [False, True, True, True, False]
    assert [one.state_epoch for one in found] == [None, 1, 1, None, None]


@pytest.mark.rule("PM-16", "PM-39", "SC-115")
def test_records_that_wait_are_reported_with_the_instant_and_neighbours_stay_apart() -> None:
    soon, late = 1_764_000_000_250, 1_764_000_060_000
    records: list[ShareRecord] = [
        snapshot(5, batches=[StateBatch(5, 6, 0, 1, soon), StateBatch(7, 9, 0, 1)]),
        update(-1, batches=[StateBatch(7, 7, 0, 1, late), StateBatch(6, 6, 0, 2)]),
    ]
    first, second = (
        [(one["first_offset"], one["last_offset"], one["delivery_count"], one["not_before"]) for one in reported]
        for reported in (state.as_dict()["state_batches"] for state in replayed(records))
    )
    assert first == [(5, 6, 1, "2025-11-24T16:00:00.250000+00:00"), (7, 9, 1, None)]
    assert second == [
        (5, 5, 1, "2025-11-24T16:00:00.250000+00:00"),
        (6, 6, 2, None),
        (7, 7, 1, "2025-11-24T16:01:00+00:00"),
        (8, 9, 1, None),
    ]
