"""Instants before which Available records are not delivered: combined, stored and read back (SC-115)."""

from __future__ import annotations

import pytest

from kip932 import errors
from kip932.ids import SharePartitionKey
from kip932.state_batches import StateBatch
from kip932.state_values import ReadSummary, StateSpan, StateSummary
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from tests.support.share_state import COLD_MS, KEY, OTHER_TOPIC, Driver, initialize, read, write

WAITING = StateBatch(0, 5, 0, 1, 9_000)


@pytest.mark.rule("SC-115")
def test_a_delay_is_kept_in_updates_snapshots_cold_copies_reads_and_summaries() -> None:
    driver = Driver(updates_per_snapshot=1)
    driver.run(initialize(1, 0))
    (update,) = driver.written(write((0, 5, 0, 1, 9_000), start=0))
    (snapshot,) = driver.written(write((9, 9, 2, 1), start=0))
    assert isinstance(update, ShareUpdate)
    assert isinstance(snapshot, ShareSnapshot)
    assert update.batches == (WAITING,)
    assert snapshot.batches == (WAITING, StateBatch(9, 9, 2, 1))
    assert driver.replayed().state(KEY) == driver.state()
    assert driver.run(read(60_000)).batches[0] == WAITING  # type: ignore[attr-defined]
    summary = driver.run(ReadSummary(KEY, StateSpan(2, 3)))
    assert summary.batches == (StateBatch(2, 3, 0, 1, 9_000),)  # type: ignore[attr-defined]
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = driver.now_ms
    driver.advance(COLD_MS)
    copies = [record for record in driver.run_due() if isinstance(record, ShareSnapshot)]
    assert [copy.batches[0] for copy in copies] == [WAITING]


@pytest.mark.rule("SC-115", "SC-105")
def test_batches_touch_only_where_their_delays_end_together_and_the_later_end_wins() -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    driver.run(write((0, 1, 0, 1, 9_000), (2, 3, 0, 1, 9_000), (4, 5, 0, 1, 8_000), (6, 7, 0, 1), start=0))
    assert driver.state().batches == (
        StateBatch(0, 3, 0, 1, 9_000), StateBatch(4, 5, 0, 1, 8_000), StateBatch(6, 7, 0, 1),
    )  # fmt: skip
    driver.run(write((4, 6, 0, 1, 9_000), (0, 0, 0, 1, 1), start=0))
    assert driver.state().batches == (StateBatch(0, 6, 0, 1, 9_000), StateBatch(7, 7, 0, 1))


@pytest.mark.rule("SC-115", "SC-104")
@pytest.mark.parametrize("later", [(0, 5, 0, 2), (0, 5, 2, 1), (0, 5, 4, 1)])
def test_a_later_delivery_or_a_final_state_ends_the_delay(later: tuple[int, ...]) -> None:
    for order in ((tuple(WAITING), later), (later, tuple(WAITING))):
        driver = Driver()
        driver.run(initialize(1, 0))
        for batch in order:
            driver.run(write(batch, start=0))
        assert driver.state().batches == (StateBatch(*later),)


@pytest.mark.rule("SC-115", "SC-43")
@pytest.mark.parametrize("batch", [(0, 1, 0, 1, -1), (0, 1, 2, 1, 5), (0, 1, 4, 1, 5), (0, 1, 3, 1, 5)])
def test_an_instant_that_cannot_be_is_refused_and_changes_nothing(batch: tuple[int, ...]) -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    before = driver.state()
    with pytest.raises(errors.InvalidRequestError, match="not_before_ms >= 0, and 0 unless the state is 0"):
        driver.run(write(batch, start=0))
    assert driver.state() == before


@pytest.mark.rule("PL-937", "SC-32")
def test_a_reset_of_the_state_forgets_its_delays() -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    driver.run(write((0, 5, 0, 1, 9_000), start=0))
    other = SharePartitionKey("G1", OTHER_TOPIC, 1)
    driver.run(initialize(1, 0, other))
    driver.run(write((0, 5, 0, 1, 9_000), start=0, key=other))
    driver.run(initialize(2, 0))
    assert driver.state().batches == ()
    assert driver.state(other).batches == (WAITING,)


@pytest.mark.rule("SC-115")
def test_a_summary_counts_what_waits_at_the_instant_of_the_asker_and_only_when_asked() -> None:
    driver = Driver()
    driver.run(initialize(1, 0))
    driver.run(write((0, 1, 0, 1, 9_000), (2, 2, 2, 1), (3, 6, 0, 2, 8_000), (7, 7, 0, 1), start=0))

    def delayed(at_ms: int | None, key: SharePartitionKey = KEY) -> int:
        summary = driver.run(ReadSummary(key, None, at_ms))
        assert isinstance(summary, StateSummary)
        assert summary.batches == ()
        return summary.delayed

    assert [delayed(at_ms) for at_ms in (0, 7_999, 8_000, 8_999, 9_000)] == [6, 6, 2, 2, 0]
    assert delayed(None) == -1
    assert delayed(0, KEY._replace(group_id="other")) == 0, "without state nothing waits"
    driver.run(write((0, 1, 0, 1, 9_000), start=1))
    assert delayed(8_000) == 1
