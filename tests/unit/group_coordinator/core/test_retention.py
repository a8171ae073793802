"""Groups that stay empty and unused for long enough are deleted, and no others (GC-46)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.retention import ServedTime
from kip932.errors import CoordinatorLoadInProgressError
from kip932.ids import TopicIdPartition
from tests.support.group_driver import KAFKA, Driver, bare, topic_id

HOUR_MS: Final = 3_600_000
RETENTION_MS: Final = 24 * HOUR_MS
SWEEP_MS: Final = 30_000
#: The longest stretch of counted time that may be lost when the owner is lost.
LOST_MS: Final = 600_000 + SWEEP_MS
T: Final = topic_id("t")


def sweep(driver: Driver, ms: int = SWEEP_MS) -> tuple[tuple[str, int], ...]:
    """Run the next sweep after `ms`; return what it starts to delete."""
    driver.advance(ms)
    return cast("tuple[tuple[str, int], ...]", driver.run(c.ExpireEmpty(driver.now_ms)))


def swept_for(driver: Driver, ms: int) -> list[tuple[str, int]]:
    """Return what the sweeps within `ms` start to delete."""
    return [found for _ in range(ms // SWEEP_MS) for found in sweep(driver)]


def emptied(retention_ms: int = RETENTION_MS) -> Driver:
    """A group whose member has left."""
    driver = Driver(settings=replace(KAFKA, empty_retention_ms=retention_ms))
    driver.create("t", 2)
    driver.settle("A", ["t"])
    driver.beat("A", -1)
    driver.take_effects()
    return driver


def finish(driver: Driver) -> c.DeleteState:
    """Let the share coordinator delete what was ordered; return the order."""
    (order,) = [effect for effect in driver.take_effects() if isinstance(effect, c.DeleteState)]
    driver.run(c.DeletionFinished(order.group_id, order.attempt))
    return order


@pytest.mark.rule("GC-46", "GC-42")
def test_by_default_a_group_stays_for_ever_and_nothing_is_written_about_its_age() -> None:
    driver = emptied(0)
    written = len(driver.log)
    assert swept_for(driver, 3 * RETENTION_MS) == []
    assert driver.log[written:] == []
    assert driver.shard.groups["g"].used_ms is None


@pytest.mark.rule("GC-46", "GC-91", "GC-92", "GC-93")
def test_a_group_that_was_empty_for_long_enough_is_deleted_in_the_steps_of_an_administrators_call() -> None:
    driver = emptied()
    epoch = driver.shard.groups["g"].epoch
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []
    assert sweep(driver) == (("g", RETENTION_MS),)
    states = driver.shard.groups["g"].states
    assert (states.dropping, dict(states.deleting), dict(states.topics)) == (True, {T: "t"}, {})
    with pytest.raises(CoordinatorLoadInProgressError):
        driver.beat("B", 0, ["t"])
    order = finish(driver)
    assert (order.state_epoch, order.call_id) == (epoch, 0)
    assert order.partitions == (TopicIdPartition(T, 0), TopicIdPartition(T, 1))
    assert not driver.shard.groups
    assert driver.log[-1] == r.DeletedGroup("g", epoch, driver.wall_ms)
    driver.beat("B", 0, ["t"])
    assert driver.shard.groups["g"].epoch == epoch + 1


@pytest.mark.rule("GC-46")
def test_a_group_without_state_goes_at_once() -> None:
    driver = emptied()
    driver.delete("t")
    driver.run(c.Sweep(driver.now_ms))
    driver.take_effects()
    assert swept_for(driver, RETENTION_MS) == [("g", RETENTION_MS)]
    assert not driver.shard.groups
    assert driver.take_effects() == []


@pytest.mark.rule("GC-46")
@pytest.mark.parametrize("gap_ms", [60_001, 30 * RETENTION_MS])
def test_time_in_which_no_node_swept_does_not_count(gap_ms: int) -> None:
    driver = emptied()
    sweep(driver)
    assert sweep(driver, gap_ms) == ()
    assert sweep(driver, -gap_ms) == (), "a clock that goes back"
    assert swept_for(driver, RETENTION_MS - 60_000 - 2 * SWEEP_MS) == []
    assert swept_for(driver, 2 * SWEEP_MS) != []


@pytest.mark.rule("GC-46", "GC-32a")
def test_time_in_which_the_shard_could_not_append_does_not_count() -> None:
    driver = emptied()
    for _ in range(2 * RETENTION_MS // SWEEP_MS):
        driver.advance(SWEEP_MS)
        driver.shard.paused(driver.now_ms)
        assert sweep(driver, 0) == ()


@pytest.mark.rule("GC-46")
def test_time_between_two_owners_does_not_count_and_what_the_first_one_counted_does() -> None:
    driver = emptied()
    assert swept_for(driver, RETENTION_MS // 2) == []
    driver.advance(30 * RETENTION_MS)
    driver.reload()
    assert swept_for(driver, RETENTION_MS // 2 - SWEEP_MS) == []
    assert swept_for(driver, LOST_MS + SWEEP_MS) != []


@pytest.mark.rule("GC-46")
def test_an_owner_keeps_its_count_often_enough_that_short_reigns_add_up() -> None:
    driver = emptied()
    for _ in range(3 * RETENTION_MS // (2 * LOST_MS) + 1):
        if swept_for(driver, 2 * LOST_MS):
            return
        driver.reload()
    raise AssertionError("the group never goes where owners change each twenty minutes")


@pytest.mark.rule("GC-46")
def test_a_count_is_kept_at_most_every_ten_minutes_and_only_where_there_are_empty_groups() -> None:
    driver = Driver(settings=replace(KAFKA, empty_retention_ms=RETENTION_MS))
    swept_for(driver, RETENTION_MS // 4)
    assert driver.log == []
    driver.create("t", 2)
    driver.settle("A", ["t"])
    driver.beat("A", -1)
    written = len(driver.log)
    swept_for(driver, RETENTION_MS // 4)
    kept = driver.log[written:]
    assert {type(record) for record in kept} == {r.ServedTime}
    assert len(kept) <= RETENTION_MS // 4 // 600_000 + 1


def _joined(driver: Driver) -> None:
    driver.settle("B", ["t"])
    driver.beat("B", -1)


def _altered(driver: Driver) -> None:
    driver.run(c.AlterOffsets("g", {TopicIdPartition(T, 0): 5}, 3))
    driver.initialize()


def _fetched(driver: Driver) -> None:
    """Let a client that is not a member finish records, as shown by the summaries, which are read every ten minutes."""
    epoch = driver.shard.groups["g"].epoch
    for start in (0, 3):
        driver.run(c.ProgressSeen("g", epoch, ((TopicIdPartition(T, 0), start, 0), (TopicIdPartition(T, 1), 0, 0))))


@pytest.mark.rule("GC-46")
@pytest.mark.parametrize("use", [_joined, _altered, _fetched])
def test_a_use_begins_the_time_again(use: object) -> None:
    driver = emptied()
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []
    use(driver)  # type: ignore[operator]
    driver.take_effects()
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []
    assert swept_for(driver, 2 * SWEEP_MS) != []


@pytest.mark.rule("GC-46")
def test_what_is_seen_for_the_first_time_or_unchanged_is_no_use() -> None:
    driver = emptied()
    epoch = driver.shard.groups["g"].epoch
    written = len(driver.log)
    for _ in range(3):
        driver.run(c.ProgressSeen("g", epoch, ((TopicIdPartition(T, 0), 3, 1),)))
    driver.run(c.ProgressSeen("g", epoch - 1, ((TopicIdPartition(T, 0), 4, 1),)))
    driver.run(c.ProgressSeen("other", epoch, ()))
    assert driver.log[written:] == []


@pytest.mark.rule("GC-46")
def test_a_use_that_the_store_refused_to_note_is_noted_when_it_is_seen_again() -> None:
    driver = emptied()
    epoch = driver.shard.groups["g"].epoch
    before, after = (c.ProgressSeen("g", epoch, ((TopicIdPartition(T, 0), start, 0),)) for start in (0, 3))
    driver.run(before)
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []
    refused = driver.shard.decide(after, driver.now_ms, driver.wall_ms).records
    for token in [driver.shard.replay(record) for record in refused]:
        driver.shard.undo(token)
    driver.run(after)
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []


@pytest.mark.rule("GC-46")
def test_summaries_of_empty_groups_are_watched_only_while_ages_count() -> None:
    for retention_ms in (0, RETENTION_MS):
        driver = emptied(retention_ms)
        driver.advance(600_000)
        driver.run(c.RepairCheck())
        (check,) = driver.take_effects()
        assert isinstance(check, c.CheckSummaries)
        assert check.watched == bool(retention_ms)


@pytest.mark.rule("GC-46")
def test_a_group_with_members_or_with_a_change_under_way_is_not_deleted() -> None:
    driver = emptied()
    driver.settle("A", ["t"])
    for _ in range(2 * RETENTION_MS // SWEEP_MS):
        driver.beat("A", driver.shard.groups["g"].members["A"].epoch)
        assert sweep(driver) == ()
    driver.beat("A", -1)
    driver.take_effects()
    assert swept_for(driver, RETENTION_MS - SWEEP_MS) == []
    driver.run(c.DeleteOffsets("g", ("t",), 7))
    assert sweep(driver) == (), "one change at a time"
    driver.run(c.CallEnded("g", driver.shard._last_attempt))
    assert sweep(driver) == (), "one that was interrupted is resumed first"


@pytest.mark.rule("GC-46")
def test_the_age_of_a_group_that_an_older_build_left_begins_when_it_is_first_seen() -> None:
    driver = emptied()
    swept_for(driver, RETENTION_MS // 2)
    driver.log.append(r.GroupMetadata("old", 4, 0, 0))
    driver.reload()
    swept_for(driver, RETENTION_MS // 4)
    found = driver.shard.groups["old"].used_ms
    assert found is not None
    assert found >= RETENTION_MS // 2 - LOST_MS
    driver.reload()
    assert driver.shard.groups["old"].used_ms == found


@pytest.mark.rule("GC-46")
def test_a_group_used_ahead_of_a_count_that_was_lost_ages_from_when_it_is_seen() -> None:
    driver = emptied()
    driver.log.append(r.GroupMetadata("g", 9, 0, 0, 50 * RETENTION_MS))
    driver.reload()
    assert swept_for(driver, RETENTION_MS) == []
    assert swept_for(driver, SWEEP_MS) == [("g", RETENTION_MS)]


@pytest.mark.rule("GC-46", "GC-80")
def test_nothing_is_deleted_while_the_image_may_be_old() -> None:
    driver = emptied()
    swept_for(driver, RETENTION_MS - SWEEP_MS)
    driver.advance(SWEEP_MS)
    assert driver.run(c.ExpireEmpty(-1)) == ()
    assert sweep(driver) != ()


@pytest.mark.rule("GC-46")
def test_each_sweep_checks_few_groups_and_begins_fewer_deletions() -> None:
    driver = Driver(settings=replace(KAFKA, empty_retention_ms=HOUR_MS))
    for number in range(500):
        driver.log.append(r.GroupMetadata(f"g{number}", 2, 0, 0))
    driver.reload()
    written = len(driver.log)
    sweep(driver)
    assert len(driver.log) - written == 200
    gone, begun = set[str](), 0
    for _ in range(HOUR_MS // SWEEP_MS + 100):
        found = sweep(driver)
        assert len(found) <= 20
        begun += len(found)
        gone.update(group_id for group_id, _ in found)
    assert (begun, len(gone), dict(driver.shard.groups)) == (500, 500, {})


@pytest.mark.rule("GC-46", "CM-18")
def test_what_is_kept_of_ages_survives_compaction() -> None:
    driver = emptied()
    swept_for(driver, RETENTION_MS // 2)
    keys = dict.fromkeys(driver.shard.anchor(record).key for record in driver.log)
    copies = [record for batch in driver.shard.rewrite(keys, driver.wall_ms) for record in batch]
    other = Driver(settings=driver.settings, image=driver.image, log=copies)
    other.reload()
    assert bare(dict(other.shard.groups)) == bare(dict(driver.shard.groups))
    assert other.shard._served.kept_ms == driver.shard._served.kept_ms > 0


@pytest.mark.rule("GC-46")
def test_a_count_that_the_store_refused_is_kept_again() -> None:
    driver = emptied()
    kept_ms = driver.shard._served.kept_ms
    tokens = [driver.shard.replay(r.ServedTime(700_000))]
    assert driver.shard._served.kept_ms == 700_000
    driver.shard.undo(tokens.pop())
    assert driver.shard._served.kept_ms == kept_ms
    assert driver.shard._served.to_keep(RETENTION_MS) == r.ServedTime(700_000)


def test_before_it_is_served_a_shard_counts_nothing() -> None:
    served = ServedTime()
    served.keep(5_000)
    assert (served.at(10**9), served.to_keep(RETENTION_MS)) == (5_000, None)
