"""Reasons of failures in share state: stored, read back, dropped, refused, and within their limits (SC-117)."""

from __future__ import annotations

from itertools import islice

import pytest

from kip932 import errors
from kip932.failures import FAILURES_MAX, REASON_BYTES_MAX, REASONS_BYTES_MAX, Failure
from kip932.ids import SHARE_PARTITION_BATCHES_MAX, SharePartitionKey
from kip932.state_values import DeleteState, ReadSummary, StateSpan, StateSummary, StoredState
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.plausible import ImplausibleError
from share_coordinator.core.records import ShareSnapshot, ShareUpdate
from share_coordinator.core.shard import KEYS_PER_SLICE
from tests.support.share_state import COLD_MS, KEY, PASSING, TOPIC, Driver, initialize, read, write

BAD = (2, 5, 1, "ValueError: bad")
WORSE = (4, 4, 2, "KeyError: worse")
KEPT = (Failure(2, 3, 1, "ValueError: bad"), Failure(*WORSE), Failure(5, 5, 1, "ValueError: bad"))


def ready(updates_per_snapshot: int = 500) -> Driver:
    driver = Driver(updates_per_snapshot)
    driver.run(initialize(1, 0))
    return driver


@pytest.mark.rule("SC-117", "PL-942")
def test_reasons_are_kept_in_updates_snapshots_cold_copies_and_reads() -> None:
    driver = ready(updates_per_snapshot=1)
    (update,) = driver.written(write((2, 5, 0, 1), start=0, failures=[BAD, BAD]))
    (snapshot,) = driver.written(write((4, 4, 0, 2), start=0, failures=[WORSE]))
    assert isinstance(update, ShareUpdate)
    assert isinstance(snapshot, ShareSnapshot)
    assert update.failures == (Failure(*BAD),)
    assert snapshot.failures == driver.state().failures == KEPT
    assert driver.replayed().state(KEY) == driver.replayed(2).state(KEY) == driver.state()
    stored = driver.run(read(PASSING))
    assert isinstance(stored, StoredState)
    assert stored.failures == KEPT
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = driver.now_ms
    driver.advance(COLD_MS)
    copies = [record for record in driver.run_due() if isinstance(record, ShareSnapshot)]
    assert [copy.failures for copy in copies] == [KEPT]


@pytest.mark.rule("SC-117", "PL-825")
def test_a_summary_has_the_reasons_of_its_offsets_and_without_a_span_none() -> None:
    driver = ready()
    driver.run(write(start=0, failures=[BAD, WORSE]))

    def summary(span: StateSpan | None, key: SharePartitionKey = KEY) -> StateSummary:
        found = driver.run(ReadSummary(key, span))
        assert isinstance(found, StateSummary)
        return found

    assert summary(StateSpan(3, 4)).failures == (Failure(3, 3, 1, "ValueError: bad"), Failure(*WORSE))
    assert summary(StateSpan(0, 99)).failures == KEPT
    assert summary(StateSpan(6, 9)).failures == ()
    assert summary(None).failures == ()
    assert summary(StateSpan(0, 9), KEY._replace(group_id="other")).failures == ()


@pytest.mark.rule("SC-117", "SC-32", "SC-57")
def test_a_passed_start_offset_a_reset_and_a_deletion_remove_them() -> None:
    driver = ready()
    driver.run(write(start=0, failures=[BAD, WORSE]))
    driver.run(write(start=4))
    assert driver.state().failures == KEPT[1:]
    driver.run(write(start=3, failures=[(3, 4, 1, "late")]))
    assert driver.state().failures == KEPT[1:], "neither below the start offset, nor of a lower count"
    driver.run(write(start=9))
    assert driver.state().failures == ()
    for ended in (initialize(PASSING, 0), DeleteState(KEY, -1)):
        driver = ready()
        driver.run(write(start=0, failures=[BAD]))
        driver.run(ended)
        driver.run(initialize(PASSING, 0))
        assert driver.state().failures == ()
        assert driver.replayed().state(KEY) == driver.state()


@pytest.mark.rule("SC-117", "SC-56")
def test_an_update_without_its_snapshot_keeps_its_reasons_from_its_start_offset_on() -> None:
    driver = ready()
    driver.run(write(start=3, failures=[BAD]))
    state = driver.replayed(first=1).state(KEY)
    assert state is not None
    assert state.failures == (Failure(3, 5, 1, "ValueError: bad"),)


@pytest.mark.rule("SC-117")
def test_they_change_nothing_else_and_without_them_nothing_is_made_of_them() -> None:
    driver, plain = ready(), ready()
    driver.run(write((2, 5, 0, 1), start=0, dcc=3, failures=[BAD]))
    plain.run(write((2, 5, 0, 1), start=0, dcc=3))
    assert driver.state()._replace(failures=()) == plain.state()
    before = driver.state().failures
    driver.run(write((4, 4, 2, 2), start=1))
    assert driver.state().failures is before, "not even copied"


@pytest.mark.rule("SC-117", "SC-43")
@pytest.mark.parametrize(
    "failure",
    [(5, 4, 1, "x"), (-1, 4, 1, "x"), (3, 4, -1, "x"), (3, 4, 1, ""), (3, 4, 1, "x" * 1_025), (3, 4, 1, "€" * 342)],
)
def test_what_no_member_can_have_given_is_refused_and_changes_nothing(failure: tuple[int, int, int, str]) -> None:
    driver = ready()
    before = driver.state()
    with pytest.raises(errors.InvalidRequestError, match="a reason of 1 to 1024 bytes"):
        driver.run(write(start=0, failures=[BAD, failure]))
    assert driver.state() == before
    driver.run(write(start=0, failures=[(3, 4, 0, "x" * REASON_BYTES_MAX), (7, 7, 1, "€" * 341)]))
    assert len(driver.state().failures) == 2


@pytest.mark.rule("SC-117", "CM-82")
@pytest.mark.parametrize("failure", [(3, 4, 2**15, "x"), (3, 2**31, 1, "x")])
def test_a_count_or_an_offset_that_cannot_have_been_reached_is_refused(failure: tuple[int, int, int, str]) -> None:
    driver = ready()
    with pytest.raises(ImplausibleError, match=r"the failure of 3-\d+ \(delivery count \d+\) cannot be in flight"):
        driver.run(write(start=0, failures=[failure]))
    assert driver.state().failures == ()
    driver.run(write(start=0, failures=[(3, 2**31 - 1, 2**15 - 1, "x")]))


@pytest.mark.rule("SC-117", "PL-942")
def test_beyond_the_limit_a_replay_gives_what_is_in_memory_and_a_snapshot_fits_into_an_entry() -> None:
    driver = ready(updates_per_snapshot=3)
    numbers = iter(range(SHARE_PARTITION_BATCHES_MAX))
    batches = [(2 * at, 2 * at, 0, 1) for at in range(SHARE_PARTITION_BATCHES_MAX)]
    for size in (800, 300, 300, 1_000, 100):
        some = [(2 * at, 2 * at, 1, f"{at:05}" + "x" * 1_019) for at in islice(numbers, size)]
        driver.run(write(*batches, start=0, failures=some))
    kept = driver.state().failures
    assert len(kept) == REASONS_BYTES_MAX // 200
    assert [one.first_offset for one in kept] == [2 * at for at in range(len(kept))]
    assert driver.replayed().state(KEY) == driver.replayed(4).state(KEY) == driver.state()
    short = [(2 * at, 2 * at, 2, f"{at:051}") for at in range(FAILURES_MAX)]
    driver.run(write(start=0, failures=short))
    assert len(driver.state().failures) == FAILURES_MAX
    snapshot = driver.state().snapshot(KEY, 1)
    kind, data = ShareStateCodec().encode(snapshot, 1)
    assert len(data) < 1_000_000
    assert ShareStateCodec().decode(kind, data) == snapshot


@pytest.mark.rule("SR-17", "SC-117")
def test_slices_of_cold_copies_are_smaller_where_states_have_many_reasons() -> None:
    driver = Driver()
    many = [(2 * at, 2 * at, 1, f"reason {at}") for at in range(KEYS_PER_SLICE // 2)]
    keys = [SharePartitionKey(f"g{index}", TOPIC, 0) for index in range(9)]
    for key in keys:
        driver.run(initialize(key=key))
        driver.run(write(start=0, key=key, failures=many))
    driver.shard.loaded(driver.now_ms)
    driver.metadata.settled_ms = driver.now_ms
    driver.advance(COLD_MS)
    sizes = []
    while (driver.shard.next_deadline() or 0) <= driver.now_ms:
        sizes += [len(driver.written(command)) for command in driver.shard.due(driver.now_ms)]
    assert sizes == [2, 2, 2, 2, 1]
    assert driver.replayed().state(keys[0]) == driver.state(keys[0])
