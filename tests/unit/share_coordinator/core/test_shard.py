"""The effects of each request on the state and on the log (sections 2.4, 3 and 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kip932.errors import FencedStateEpochError
from kip932.ids import SharePartitionKey
from kip932.state_batches import CAUSE_ADMIN, CAUSE_COLD, CAUSE_INIT, StateBatch, WriteStats
from kip932.state_values import DeleteState, ReadSummary, StateSummary, StoredState
from shard_runtime.hosting.shard import Anchor
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.commands import DeleteTopics, Removed
from share_coordinator.core.records import ShareSnapshot, ShareTombstone, ShareUpdate
from share_coordinator.core.shard import KEYS_PER_SLICE
from tests.support.share_state import (
    COLD_MS,
    KEY,
    OTHER_TOPIC,
    TOPIC,
    Driver,
    initialize,
    read,
    write,
)


@pytest.mark.scenario("S-087")
@pytest.mark.rule("SC-32", "SC-37", "X2")
def test_initialize_writes_one_snapshot_and_read_returns_it() -> None:
    driver = Driver()
    (record,) = driver.written(initialize(5, 10))
    assert isinstance(record, ShareSnapshot)
    assert (record.snapshot_epoch, record.state_epoch, record.leader_epoch, record.start_offset) == (0, 5, 0, 10)
    assert (record.batches, record.delivery_complete_count) == ((), 0)
    assert record.create_ms == record.write_ms == driver.wall_ms
    assert record.stats == WriteStats(CAUSE_INIT)
    assert driver.run(read(0)) == StoredState(5, 10, (), recorded=False)


@pytest.mark.scenario("S-088")
def test_a_write_appends_an_update_with_only_its_own_batches() -> None:
    driver = Driver()
    driver.run(initialize(0, 0))
    (first,) = driver.written(write((0, 10, 0, 1), start=0, state=0, leader=0))
    (second,) = driver.written(write((11, 20, 0, 1), start=0, state=0, leader=0))
    assert isinstance(first, ShareUpdate)
    assert isinstance(second, ShareUpdate)
    assert (first.snapshot_epoch, first.batches) == (0, (StateBatch(0, 10, 0, 1),))
    assert (second.snapshot_epoch, second.batches) == (0, (StateBatch(11, 20, 0, 1),))
    assert driver.run(read(0)) == StoredState(0, 0, (StateBatch(0, 20, 0, 1),), recorded=False)


@pytest.mark.scenario("S-090")
@pytest.mark.rule("SC-38", "SC-39", "PL-602")
def test_reading_raises_the_leader_epoch_and_generation_durably() -> None:
    driver = Driver()
    driver.run(initialize(0, -1))
    (record,) = driver.written(read(2, 4))
    assert isinstance(record, ShareUpdate)
    assert (record.leader_epoch, record.generation, record.start_offset, record.batches) == (2, 4, -1, ())
    assert (record.delivery_complete_count, driver.state().updates) == (-1, 1)
    assert driver.written(read(2, 4)) == []
    assert driver.written(read(2, 5)) != []
    driver.run(write((7, 9, 2, 1), start=5, dcc=3))
    (record,) = driver.written(read(3))
    assert isinstance(record, ShareUpdate)
    assert (record.start_offset, record.delivery_complete_count, record.batches) == (5, 3, ())
    assert driver.state().batches == (StateBatch(7, 9, 2, 1),)
    assert driver.replayed().state(KEY) == driver.state()
    assert driver.state().fence == (3, 0)


@pytest.mark.scenario("S-091")
@pytest.mark.rule("SC-50")
def test_summary_reads_do_not_touch_anything() -> None:
    driver = Driver()
    assert driver.run(ReadSummary(KEY)) == StateSummary()
    driver.run(initialize(0, 0))
    driver.run(write(start=0, dcc=4))
    before = list(driver.log)
    assert driver.run(ReadSummary(KEY)) == StateSummary(0, 0, 0, 4, 0, 0)
    assert driver.log == before


@pytest.mark.rule("PL-811")
@pytest.mark.parametrize("limit", [0, 1, 3, 500])
def test_archived_records_add_up_over_snapshots_replays_and_new_leaders(limit: int) -> None:
    driver = Driver(limit)
    driver.run(initialize(5, 0))
    for number in range(1, 8):
        driver.run(write((number, number, 4, 1), start=0, stats=WriteStats(1, n_limit=2, n_reject=number)))
        summary = driver.run(ReadSummary(KEY))
        assert isinstance(summary, StateSummary)
        assert summary[4:6] == (2 * number, number * (number + 1) // 2)
    driver.run(read(3, 1))
    assert driver.replayed().state(KEY) == driver.state()
    assert (driver.state().archived_by_limit, driver.state().archived_by_reject) == (14, 28)
    for record in driver.log:
        kind, data = ShareStateCodec().encode(record, 7)
        assert ShareStateCodec().decode(kind, data) == record
    driver.run(initialize(6, 0))
    assert driver.run(ReadSummary(KEY)) == StateSummary(6, 0, 0, 0, 0, 0)


@pytest.mark.rule("SC-33", "SC-35", "SC-32", "X2")
def test_a_delayed_duplicate_of_initialize_does_not_wipe_progress() -> None:
    driver = Driver()
    driver.run(initialize(5, 0))
    driver.run(write((3, 4, 2, 1), start=2))
    assert driver.written(initialize(5, 0)) == []
    assert driver.state().start_offset == 2
    (reset,) = driver.written(initialize(6, 0))
    assert isinstance(reset, ShareSnapshot)
    assert (reset.snapshot_epoch, reset.start_offset, reset.batches) == (1, 0, ())
    assert reset.stats.cause == CAUSE_ADMIN


@pytest.mark.rule("SC-36")
def test_a_state_without_a_state_epoch_that_an_older_build_stored_is_kept_and_fences_by_the_largest() -> None:
    driver = Driver()
    (first,) = driver.written(initialize(5, 0))
    assert isinstance(first, ShareSnapshot)
    driver.log.append(replace(first, snapshot_epoch=1, state_epoch=-1, fence_state_epoch=5))
    driver.shard = driver.replayed()
    assert (driver.state().state_epoch, driver.state().fence_state_epoch) == (-1, 5)
    assert driver.run(read(0)) == StoredState(-1, 0, (), recorded=False)
    with pytest.raises(FencedStateEpochError):
        driver.run(write(state=4))
    (record,) = driver.written(initialize(5, 7))
    assert isinstance(record, ShareSnapshot)
    assert (record.state_epoch, record.start_offset) == (5, 7)


@pytest.mark.rule("SC-34")
def test_fences_survive_initialize_and_trimming_though_the_leader_epoch_is_zero() -> None:
    driver = Driver()
    driver.run(initialize(5, 0))
    driver.run(read(7, 3))
    position = len(driver.log)
    driver.run(initialize(6, 0))
    assert (driver.state().leader_epoch, driver.state().fence) == (0, (7, 3))
    trimmed = driver.replayed(position).state(KEY)
    assert trimmed == driver.state()
    assert driver.written(read(7, 3)) == []
    assert driver.written(read(7, 4)) != []


@pytest.mark.rule("SC-41", "SC-42", "PL-706")
@pytest.mark.parametrize(
    ("start", "dcc", "expected"),
    [
        (-1, 9, (100, 3)),
        (50, 9, (100, 3)),
        (100, 9, (100, 9)),
        (100, 2, (100, 3)),
        (110, 1, (110, 1)),
        (110, -1, (110, -1)),
    ],
)
def test_the_start_offset_never_falls_and_a_count_belongs_to_its_start(
    start: int, dcc: int, expected: tuple[int, int]
) -> None:
    driver = Driver()
    driver.run(initialize(1, 100))
    driver.run(write(start=100, dcc=3))
    driver.run(write((90, 120, 2, 1), start=start, dcc=dcc))
    state = driver.state()
    assert (state.start_offset, state.delivery_complete_count) == expected
    assert state.batches == (StateBatch(expected[0], 120, 2, 1),)
    assert driver.shard.counts.start_offset_decreases == (1 if start == 50 else 0)


@pytest.mark.rule("SC-46", "SC-47", "SC-54", "SC-57", "SC-49")
def test_delete_writes_one_tombstone_and_forgets_everything() -> None:
    driver = Driver()
    driver.run(initialize(5, 0))
    driver.run(read(7))
    assert driver.written(DeleteState(KEY)) == [ShareTombstone(KEY)]
    assert driver.written(DeleteState(KEY)) == []
    (record,) = driver.written(initialize(1, 0))
    assert isinstance(record, ShareSnapshot)
    assert (record.snapshot_epoch, record.fence_leader_epoch) == (0, 0)


@pytest.mark.rule("SC-40", "SC-44", "PL-702", "SC-32")
def test_the_story_of_section_7_record_by_record() -> None:
    driver = Driver()
    stats = WriteStats(cause=1, n_accept=10, hwm=120, speo=120)
    driver.run(initialize(1, -1))
    assert driver.state().delivery_complete_count == -1
    driver.run(read(3))
    driver.run(write(start=100))
    (record,) = driver.written(write(start=110, state=1, leader=3, stats=stats))
    assert isinstance(record, ShareUpdate)
    assert (record.leader_epoch, record.stats) == (3, stats)
    steps = [
        (write((110, 110, 0, 1), start=110), "110-110:0:1"),
        (write((111, 118, 0, 0), (119, 119, 2, 1), start=110, dcc=1), "110-110:0:1 111-118:0:0 119-119:2:1"),
        (write((111, 112, 0, 1), start=110, dcc=1), "110-112:0:1 113-118:0:0 119-119:2:1"),
        (write((113, 118, 2, 1), start=110, dcc=7), "110-112:0:1 113-119:2:1"),
        (write(start=111, dcc=7), "111-112:0:1 113-119:2:1"),
        (write(start=120), ""),
    ]
    for command, expected in steps:
        assert len(driver.written(command)) == 1
        assert " ".join(str(batch) for batch in driver.state().batches) == expected
    assert (driver.state().start_offset, driver.state().delivery_complete_count) == (120, 0)
    assert driver.replayed().state(KEY) == driver.state()


@pytest.mark.scenario("S-092")
def test_batches_acknowledged_out_of_order_survive_a_start_offset_move() -> None:
    driver = Driver(updates_per_snapshot=0)
    driver.run(initialize(1, 100))
    driver.run(write((100, 109, 0, 1), (110, 119, 0, 2), (120, 129, 0, 0)))
    epoch = driver.state().snapshot_epoch
    driver.run(write((100, 109, 2, 1)))
    (record,) = driver.written(write((120, 129, 2, 1), start=110))
    assert isinstance(record, ShareSnapshot)
    assert record.snapshot_epoch == epoch + 2
    assert (record.start_offset, record.batches) == (110, (StateBatch(110, 119, 0, 2), StateBatch(120, 129, 2, 1)))


@pytest.mark.scenario("S-093")
@pytest.mark.rule("SC-52", "SC-53", "SC-54")
@pytest.mark.parametrize(("limit", "kinds"), [(3, "UUUSUUUS"), (1, "USUSUSUS"), (0, "SSSSSSSS"), (500, "UUUUUUUU")])
def test_a_snapshot_comes_after_the_configured_number_of_updates(limit: int, kinds: str) -> None:
    driver = Driver(updates_per_snapshot=limit)
    driver.run(initialize(1, 0))
    for index in range(8):
        driver.run(write((index * 10, index * 10 + 5, 2, 1), start=0))
    assert "".join("S" if isinstance(record, ShareSnapshot) else "U" for record in driver.log[1:]) == kinds
    epoch = 0
    for record in driver.log[1:]:
        assert not isinstance(record, ShareTombstone)
        epoch += isinstance(record, ShareSnapshot)
        assert record.snapshot_epoch == epoch
    assert driver.replayed().state(KEY) == driver.state()
    assert driver.state().create_ms == driver.state().write_ms


@pytest.mark.rule("SC-56", "SC-58")
def test_an_orphan_update_stands_for_itself_and_is_counted() -> None:
    shard = Driver().shard
    shard.replay(ShareUpdate(KEY, 4, 2, 1, 10, 0, (StateBatch(5, 12, 2, 1),)))
    assert (state := shard.state(KEY)) is not None
    assert (state.state_epoch, state.fence, state.start_offset) == (0, (2, 1), 10)
    assert state.batches == (StateBatch(10, 12, 2, 1),)
    shard.replay(ShareUpdate(KEY, 5, -1, 0, 12, -1, (StateBatch(14, 15, 2, 1),)))
    assert (shard.counts.orphan_updates, shard.counts.epoch_mismatches) == (1, 1)
    assert (after := shard.state(KEY)) is not None
    assert (after.leader_epoch, after.generation, after.snapshot_epoch, after.start_offset) == (2, 1, 4, 12)
    assert after.batches == (StateBatch(12, 12, 2, 1), StateBatch(14, 15, 2, 1)), "applied all the same"


@pytest.mark.rule("SC-59", "SR-23")
def test_undo_in_reverse_order_restores_every_former_state() -> None:
    driver = Driver(updates_per_snapshot=1)
    driver.run(initialize(1, 0))
    before = driver.state()
    tokens = []
    for command in (write((0, 1, 2, 1)), write((2, 3, 2, 1)), DeleteState(KEY), initialize(9, 9)):
        for record in driver.shard.decide(command, 0, 5).records:
            tokens.append(driver.shard.replay(record))
    other = SharePartitionKey("G2", TOPIC, 1)
    tokens += [driver.shard.replay(record) for record in driver.shard.decide(initialize(key=other), 0, 5).records]
    for token in reversed(tokens):
        driver.shard.undo(token)
    assert driver.state() == before
    assert driver.shard.state(other) is None


@pytest.mark.scenario("S-094")
@pytest.mark.rule("SC-60", "SC-73", "SC-74", "SC-75", "SC-54", "X2")
def test_a_cold_key_is_copied_once_until_it_changes_again() -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    driver.run(write((0, 10, 0, 1), start=0))
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = driver.now_ms
    driver.advance(COLD_MS - 1)
    assert driver.run_due() == []
    created = driver.wall_ms - COLD_MS + 1
    driver.advance(1)
    (copy,) = driver.run_due()
    assert isinstance(copy, ShareSnapshot)
    assert (copy.snapshot_epoch, copy.create_ms, copy.write_ms) == (1, created, driver.wall_ms)
    assert (copy.batches, copy.stats.cause) == ((StateBatch(0, 10, 0, 1),), CAUSE_COLD)
    driver.advance(COLD_MS)
    assert driver.run_due() == []
    driver.run(write((11, 11, 0, 1), start=0))
    driver.advance(COLD_MS)
    assert len(driver.run_due()) == 1
    driver.advance(COLD_MS - 1)
    driver.run(initialize(key=SharePartitionKey("fresh", TOPIC, 0)))
    driver.advance(1)
    assert driver.run_due() == [], "it was made just now"


@pytest.mark.rule("SR-17", "SC-73")
def test_cold_copies_come_in_slices() -> None:
    driver = Driver()
    keys = [SharePartitionKey(f"g{index}", TOPIC, 0) for index in range(KEYS_PER_SLICE + 10)]
    for key in keys:
        driver.run(initialize(key=key))
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = driver.now_ms
    driver.advance(COLD_MS)
    slices = list(driver.shard.due(driver.now_ms))
    assert len(slices) == 1
    assert driver.shard.next_deadline() == driver.now_ms
    first = driver.written(slices[0])
    assert len(first) == KEYS_PER_SLICE
    assert len(driver.run_due()) == 10
    assert driver.shard.next_deadline() == driver.now_ms + COLD_MS


@pytest.mark.rule("SC-73")
def test_after_a_pause_cold_copies_wait_their_interval_again() -> None:
    driver = Driver()
    driver.run(initialize())
    driver.shard.loaded(0)
    driver.metadata.settled_ms = 0
    driver.advance(COLD_MS)
    driver.shard.paused(driver.now_ms)
    assert driver.run_due() == []
    assert driver.shard.next_deadline() == 2 * COLD_MS


@pytest.mark.rule("SC-80")
def test_deleted_topics_lose_their_keys_a_bounded_number_at_a_time() -> None:
    driver = Driver()
    for index in range(KEYS_PER_SLICE + 3):
        driver.run(initialize(key=SharePartitionKey(f"g{index}", TOPIC, 0)))
    driver.run(initialize(key=KEY._replace(topic_id=OTHER_TOPIC)))
    gone = DeleteTopics(frozenset({TOPIC}))
    assert driver.run(gone) == Removed(KEYS_PER_SLICE, 3)
    assert driver.run(gone) == Removed(3, 0)
    assert driver.run(gone) == Removed(0, 0)
    assert driver.shard.keys == 1


@pytest.mark.rule("SC-80")
def test_orphans_are_swept_only_once_metadata_is_complete() -> None:
    driver = Driver()
    driver.run(initialize())
    driver.run(initialize(key=KEY._replace(topic_id=OTHER_TOPIC)))
    del driver.metadata.topics[TOPIC]
    driver.now_ms = 100
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = 99
    assert driver.run_due() == []
    driver.advance(1_000)
    driver.metadata.settled_ms = 500
    assert driver.run_due() == [ShareTombstone(KEY)]
    driver.advance(1_000)
    assert driver.run_due() == []
    assert driver.shard.next_deadline() == 100 + COLD_MS
    assert driver.shard.keys == 1


@pytest.mark.rule("SC-80")
def test_metadata_that_learns_of_a_topic_in_between_saves_its_keys() -> None:
    driver = Driver()
    driver.run(initialize())
    topics = dict(driver.metadata.topics)
    driver.metadata.topics.clear()
    driver.shard.loaded(0)
    driver.metadata.settled_ms = 0
    (command,) = driver.shard.due(0)
    driver.metadata.topics.update(topics)
    assert driver.written(command) == []


@pytest.mark.rule("SC-70", "CM-18")
def test_snapshots_anchor_updates_do_not_and_a_tombstone_ends_its_key() -> None:
    driver = Driver()
    driver.run(initialize())
    driver.run(read(1))
    driver.run(DeleteState(KEY))
    assert [driver.shard.anchor(record) for record in driver.log] == [Anchor(KEY, True), None, Anchor(KEY, False)]


@pytest.mark.rule("SC-60", "SC-73", "CM-18")
def test_rewrite_copies_the_present_state_of_living_keys() -> None:
    driver = Driver()
    driver.run(initialize(5, 3))
    made_ms = driver.wall_ms
    driver.advance(5)
    driver.run(read(4, 2))
    driver.run(write((3, 9, 2, 1), start=3, dcc=7))
    before = driver.state()
    assert before.create_ms == before.write_ms == made_ms
    driver.advance(10)
    ((copy,),) = driver.shard.rewrite([KEY, KEY._replace(partition=5)], driver.wall_ms)
    driver.shard.replay(copy)
    after = driver.state()
    assert after.cold_copied
    assert (after.batches, after.fence, after.delivery_complete_count) == (before.batches, before.fence, 7)
    assert (after.create_ms, after.write_ms) == (before.create_ms, driver.wall_ms)
