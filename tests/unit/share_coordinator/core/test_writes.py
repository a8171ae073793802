"""Writes that are repeated, empty or overlap themselves, and when the next snapshot is due (SC-44 to SC-55)."""

from __future__ import annotations

import pytest

from kip932.state_batches import StateBatch
from kip932.state_values import DeleteState, StoredState
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from tests.support.share_state import COLD_MS, KEY, Driver, initialize, read, write


@pytest.mark.rule("SC-44")
def test_a_write_that_says_nothing_writes_a_record_all_the_same() -> None:
    driver = Driver()
    driver.run(initialize(1, 7))
    driver.run(write((8, 9, 2, 1), start=7, dcc=2))
    before = driver.state()
    (record,) = driver.written(write())
    assert isinstance(record, ShareUpdate)
    assert (record.start_offset, record.batches) == (-1, ())
    assert driver.state()._replace(updates=before.updates) == before


@pytest.mark.rule("SC-45")
@pytest.mark.parametrize("limit", [0, 1, 500])
@pytest.mark.parametrize("start", [-1, 90, 100, 110])
def test_a_write_that_arrives_twice_leaves_what_it_left_the_first_time(limit: int, start: int) -> None:
    driver = Driver(limit)
    driver.run(initialize(1, 100))
    driver.run(write((100, 104, 0, 1), start=100, dcc=3))
    again = write((103, 120, 2, 1), (118, 125, 0, 2), start=start, dcc=9)
    driver.run(again)
    once = driver.state()
    driver.run(again)
    twice = driver.state()
    same = ("start_offset", "delivery_complete_count", "batches", "fence", "state_epoch", "leader_epoch")
    assert [getattr(twice, name) for name in same] == [getattr(once, name) for name in same]
    assert driver.replayed().state(KEY) == twice


@pytest.mark.rule("SC-52")
def test_an_update_holds_its_own_batches_combined_and_cut_at_its_own_start() -> None:
    driver = Driver()
    driver.run(initialize(1, 100))
    driver.run(write((100, 129, 0, 3), start=100))
    (cut,) = driver.written(write((100, 115, 2, 4), (112, 118, 2, 4), (118, 120, 0, 4), start=110, dcc=6))
    assert isinstance(cut, ShareUpdate)
    assert (cut.start_offset, cut.delivery_complete_count) == (110, 6)
    assert cut.batches == (StateBatch(110, 118, 2, 4), StateBatch(119, 120, 0, 4))
    (uncut,) = driver.written(write((90, 111, 2, 5), dcc=8))
    assert isinstance(uncut, ShareUpdate)
    assert (uncut.start_offset, uncut.delivery_complete_count, uncut.batches) == (-1, 8, (StateBatch(90, 111, 2, 5),))
    assert driver.state().batches[0] == StateBatch(110, 111, 2, 5)


@pytest.mark.rule("SC-55")
@pytest.mark.parametrize("cause", ["initialize", "cold", "tombstone", "limit"])
def test_a_snapshot_of_any_cause_restarts_the_count_of_updates(cause: str) -> None:
    driver = Driver(updates_per_snapshot=3)
    driver.run(initialize(1, 0))
    for _ in range(2):
        driver.run(write(start=0))
    match cause:
        case "initialize":
            driver.run(initialize(2, 0))
        case "cold":
            driver.shard.loaded(driver.now_ms)
            driver.metadata.settled_ms = driver.now_ms
            driver.advance(COLD_MS)
            assert len(driver.run_due()) == 1
        case "tombstone":
            driver.run(DeleteState(KEY))
            driver.run(initialize(1, 0))
        case _:
            driver.run(write(start=0))
            driver.run(write(start=0))
    assert isinstance(driver.log[-1], ShareSnapshot)
    size = len(driver.log)
    for _ in range(4):
        driver.run(write(start=0))
    assert [type(record) for record in driver.log[size:]] == [ShareUpdate] * 3 + [ShareSnapshot]


@pytest.mark.rule("SC-53")
def test_with_kafkas_limit_the_501st_write_is_a_snapshot() -> None:
    driver = Driver(updates_per_snapshot=500)
    driver.run(initialize(1, 0))
    for index in range(501):
        driver.run(write((index, index, 2, 1), start=0))
    assert all(isinstance(record, ShareUpdate) for record in driver.log[1:501])
    last = driver.log[501]
    assert isinstance(last, ShareSnapshot)
    assert last.batches == (StateBatch(0, 500, 2, 1),)


@pytest.mark.rule("12.5")
def test_records_that_wait_for_a_dead_letter_queue_are_stored_as_such() -> None:
    """A later version of Kafka's leader writes them this way; this build's leader archives such records when it reads
    them (PL-611)."""
    driver = Driver()
    driver.run(initialize(5, 0))
    driver.run(write((0, 9, 3, 2), start=0))
    assert driver.run(read(0)) == StoredState(5, 0, (StateBatch(0, 9, 3, 2),), recorded=False)
    assert driver.replayed().state(KEY) == driver.state()
