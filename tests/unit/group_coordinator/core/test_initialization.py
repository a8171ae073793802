"""The life cycle of share-partition state as the group coordinator sees it (GC-70…GC-82)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.lifecycle import Lifecycle, TopicState
from kip932.ids import TopicIdPartition
from tests.support.group_driver import Driver, topic_id

T, U = topic_id("t"), topic_id("u")


def _started(partitions: int = 2) -> tuple[Driver, c.InitializeState]:
    """A group that has just requested its first initialisation."""
    driver = Driver()
    driver.create("t", partitions)
    driver.beat("A", 0, ["t"])
    return driver, _order(driver)


def _ready() -> tuple[Driver, int]:
    """A group whose two partitions are initialised and assigned, and its member's epoch."""
    driver = Driver()
    driver.create("t", 2)
    epoch = driver.settle("A", ["t"]).member_epoch
    assert driver.take_effects() == []
    return driver, epoch


def _order(driver: Driver) -> c.InitializeState:
    (order,) = driver.take_effects()
    assert isinstance(order, c.InitializeState)
    return order


def _initialized(driver: Driver) -> object:
    return driver.run(c.OffsetsQuery("g"))


def _keys(*indexes: int) -> tuple[TopicIdPartition, ...]:
    return tuple(TopicIdPartition(T, index) for index in indexes)


@pytest.mark.rule("GC-70", "GC-71", "GC-73")
def test_a_join_orders_the_initialisation_of_all_partitions_at_its_group_epoch() -> None:
    _, order = _started()
    assert (order.group_id, order.state_epoch) == ("g", 2)
    assert order.partitions == tuple((key, -1) for key in _keys(0, 1))


@pytest.mark.rule("GC-70", "GC-72", "OP-2", "OP-3")
@pytest.mark.scenario("S-079")
def test_a_call_is_repeated_with_the_stored_offset_only_after_the_retry_interval() -> None:
    driver, first = _started()
    driver.advance(29_999)
    driver.beat("A", 2)
    assert driver.take_effects() == []
    driver.create("t", 3)
    driver.beat("A", 2)
    assert [start for _, start in _order(driver).partitions] == [0]
    driver.advance(1)
    driver.beat("A", 3)
    second = _order(driver)
    assert second.partitions == first.partitions
    assert second.attempt > first.attempt


@pytest.mark.rule("GC-75", "GC-76", "GC-76a", "OP-17")
@pytest.mark.scenario("S-079")
def test_successes_are_kept_failures_start_over_and_a_repeated_outcome_writes_nothing() -> None:
    driver, order = _started()
    outcome = c.InitializationFinished("g", order.attempt, succeeded=_keys(0), failed=_keys(1))
    driver.run(outcome)
    assert _initialized(driver) == {T: (0,)}
    size = len(driver.log)
    driver.run(outcome)
    assert len(driver.log) == size
    driver.beat("A", 2)
    assert _order(driver).partitions == ((TopicIdPartition(T, 1), -1),)


@pytest.mark.rule("GC-73", "GC-76", "GC-69a")
def test_a_call_is_repeated_at_its_own_state_epoch_however_far_the_group_went_on() -> None:
    """With another epoch the repeated call would undo a first call that succeeded but whose response was lost (SC-32,
    SC-33)."""
    driver, first = _started()
    driver.create("u", 1)
    driver.beat("A", 2, ["t", "u"])
    (later,) = driver.take_effects()
    assert isinstance(later, c.InitializeState)
    assert later.state_epoch > first.state_epoch
    driver.run(c.InitializationFinished("g", first.attempt, failed=_keys(0)))
    driver.beat("A", 2)
    assert (_order(driver).state_epoch, driver.take_effects()) == (first.state_epoch, [])
    driver.reload()
    driver.take_effects()
    driver.beat("A", 2)
    repeated = [order for order in driver.take_effects() if isinstance(order, c.InitializeState)]
    assert [(order.state_epoch, order.partitions) for order in repeated] == [
        (first.state_epoch, first.partitions),
        (later.state_epoch, later.partitions),
    ]


@pytest.mark.rule("GC-75", "GC-76a")
def test_a_late_outcome_touches_only_entries_of_its_own_attempt() -> None:
    driver, first = _started()
    driver.advance(30_000)
    driver.beat("A", 2)
    second = _order(driver)
    size = len(driver.log)
    driver.run(c.InitializationFinished("g", first.attempt, succeeded=_keys(0, 1)))
    driver.run(c.InitializationFinished("unknown", first.attempt, succeeded=_keys(0, 1)))
    assert len(driver.log) == size
    driver.run(c.InitializationFinished("g", second.attempt, succeeded=_keys(0, 1)))
    assert _initialized(driver) == {T: (0, 1)}


@pytest.mark.rule("GC-72", "GC-76a")
def test_an_unknown_outcome_leaves_the_entry_to_its_retry() -> None:
    driver, order = _started()
    driver.run(c.InitializationFinished("g", order.attempt, succeeded=_keys(0)))
    driver.beat("A", 2)
    assert driver.take_effects() == []
    driver.advance(30_000)
    driver.beat("A", 3)
    assert _order(driver).partitions == ((TopicIdPartition(T, 1), -1),)


@pytest.mark.rule("GC-73", "GC-76")
def test_a_partition_that_starts_at_0_keeps_that_when_its_call_fails() -> None:
    driver, _ = _started(1)
    driver.beat("A", -1)
    driver.settle("A", ["t"])
    driver.advance(30_000)
    epoch = driver.settle("A", ["t"]).member_epoch
    driver.create("t", 2)
    epoch = driver.beat("A", epoch).member_epoch
    order = _order(driver)
    assert order.partitions == ((TopicIdPartition(T, 1), 0),)
    driver.run(c.InitializationFinished("g", order.attempt, failed=_keys(1)))
    driver.beat("A", epoch)
    again = _order(driver)
    assert again.partitions == order.partitions
    assert again.attempt != order.attempt


@pytest.mark.rule("GC-76")
def test_a_fenced_state_epoch_raises_the_group_epoch_above_the_stored_one() -> None:
    driver, order = _started()
    size = len(driver.log)
    driver.run(c.InitializationFinished("g", order.attempt, _keys(0), (), _keys(1), stored_epoch=41))
    again = _order(driver)
    assert (again.state_epoch, again.partitions, again.fenced_rounds) == (42, ((TopicIdPartition(T, 1), -1),), 1)
    assert [type(record) for record in driver.new_records(size)] == [r.GroupMetadata, r.StateMetadata]
    driver.run(c.InitializationFinished("g", again.attempt, _keys(1)))
    assert driver.beat("A", 2)[1:4] == (42, 5_000, {T: (0, 1)})


@pytest.mark.rule("GC-76")
def test_being_fenced_again_and_again_ends_and_the_next_heartbeat_starts_over() -> None:
    driver, order = _started(1)
    for stored_epoch in (10, 20, 30):
        command = c.InitializationFinished(
            "g", order.attempt, fenced=_keys(0), stored_epoch=stored_epoch, fenced_rounds=order.fenced_rounds
        )
        driver.run(command)
        order = _order(driver)
    last = c.InitializationFinished("g", order.attempt, (), (), _keys(0), 40, order.fenced_rounds)
    driver.run(last)
    assert driver.take_effects() == []
    driver.beat("A", 2)
    assert _order(driver).fenced_rounds == 0


@pytest.mark.rule("GC-77")
def test_only_initialised_partitions_are_assigned() -> None:
    driver, order = _started(4)
    driver.run(c.InitializationFinished("g", order.attempt, succeeded=_keys(1, 3)))
    assert driver.beat("A", 2).assignment == {T: (1, 3)}


@pytest.mark.rule("GC-69a", "GC-69d", "GC-72")
def test_after_a_fail_over_the_first_heartbeat_repeats_a_call_under_way() -> None:
    driver, first = _started()
    driver.reload()
    driver.take_effects()
    driver.beat("A", 2)
    second = _order(driver)
    assert second.partitions == first.partitions
    assert second.attempt != first.attempt


@pytest.mark.rule("GC-81")
def test_an_unsubscribed_topic_keeps_its_state_and_needs_no_new_initialisation() -> None:
    driver, _ = _ready()
    driver.create("u", 1)
    epoch = driver.settle("A", ["u"]).member_epoch
    assert _initialized(driver) == {T: (0, 1), U: (0,)}
    driver.take_effects()
    assert driver.beat("A", epoch, ["t"]).assignment == {T: (0, 1)}
    assert driver.take_effects() == []


@pytest.mark.rule("GC-71")
def test_a_topic_in_deleting_is_taken_out_of_it_when_it_is_initialised_again() -> None:
    driver, _ = _started()
    driver.shard.replay(r.StateMetadata("g", Lifecycle({}, {T: "t", U: "u"})))
    driver.beat("A", 2)
    states = driver.shard.groups["g"].states
    assert (list(states.topics), states.deleting) == ([T], {U: "u"})


@pytest.mark.rule("GC-79", "GC-80", "OP-5")
def test_the_sweep_drops_what_is_gone_and_orders_its_state_deleted() -> None:
    driver, _ = _ready()
    driver.delete("t")
    epoch = driver.shard.groups["g"].epoch
    size = len(driver.log)
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(1, more=False, lagging=False)
    assert driver.new_records(size) == [r.StateMetadata("g", Lifecycle())]
    assert driver.take_effects() == [c.DeleteState("g", epoch, _keys(0, 1))]
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(0, more=False, lagging=False)


@pytest.mark.rule("CM-20", "GC-80")
def test_an_image_that_replaces_one_of_the_same_version_is_swept() -> None:
    """The store lost its tail, and another change got the lost change's version. Covers only this part of CM-20."""
    driver, _ = _ready()
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(0, more=False, lagging=False)
    driver.image = replace(driver.image.without("t"), version=driver.image.version)
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(1, more=False, lagging=False)


@pytest.mark.rule("GC-80")
def test_a_lagging_or_incomplete_image_deletes_nothing() -> None:
    driver, _ = _ready()
    driver.reload()
    driver.delete("t")
    size = len(driver.log)
    lagging = c.SweepReply(0, more=False, lagging=True)
    assert driver.run(c.Sweep(driver.now_ms - 1)) == lagging
    driver.image = replace(driver.image, complete=False)
    assert driver.run(c.Sweep(driver.now_ms)) == lagging
    assert len(driver.log) == size


@pytest.mark.rule("CM-20", "GC-80")
def test_a_topic_that_is_only_absent_is_not_swept() -> None:
    driver, _ = _ready()
    driver.image = replace(driver.image.without("t"), deleted=frozenset())
    size = len(driver.log)
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(0, more=False, lagging=False)
    assert len(driver.log) == size
    driver.create("t", 3)  # heartbeats, not sweeps, initialise new partitions
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(0, more=False, lagging=False)
    assert (len(driver.log), driver.take_effects()) == (size, [])


@pytest.mark.rule("GC-80")
def test_one_sweep_is_bounded_and_says_that_there_is_more() -> None:
    driver = Driver()
    driver.create("t", 1)
    for number in range(3):
        driver.beat("A", 0, ["t"], group_id=f"g{number}")
    driver.delete("t")
    assert driver.run(c.Sweep(driver.now_ms, limit=2)) == c.SweepReply(2, more=True, lagging=False)
    assert driver.run(c.Sweep(driver.now_ms, limit=2)) == c.SweepReply(1, more=False, lagging=False)


@pytest.mark.rule("GC-80")
def test_a_sweep_changes_a_hundred_groups_unless_it_is_given_another_number() -> None:
    driver = Driver()
    driver.create("t", 1)
    for number in range(101):
        driver.beat("A", 0, ["t"], group_id=f"g{number}")
    driver.delete("t")
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(100, more=True, lagging=False)
    assert driver.run(c.Sweep(driver.now_ms)) == c.SweepReply(1, more=False, lagging=False)


@pytest.mark.rule("GC-82")
def test_lost_state_goes_back_to_initialising_from_offset_0() -> None:
    driver, epoch = _ready()
    driver.run(c.RepairCheck())
    (order,) = driver.take_effects()
    assert order == c.CheckSummaries("g", epoch, _keys(0, 1))
    assert driver.run(c.Repair("g", epoch, _keys(1))) == 1
    assert _order(driver).partitions == ((TopicIdPartition(T, 1), 0),)
    assert driver.beat("A", epoch).assignment == {T: (0,)}


@pytest.mark.rule("GC-82")
def test_repair_is_void_when_the_epoch_moved_or_the_topic_is_gone() -> None:
    driver, epoch = _ready()
    size = len(driver.log)
    assert driver.run(c.Repair("g", epoch - 1, _keys(1))) == 0
    driver.delete("t")
    assert driver.run(c.Repair("g", epoch, _keys(1))) == 0
    assert driver.run(c.Repair("unknown", epoch, _keys(1))) is None
    assert len(driver.log) == size


@pytest.mark.rule("GC-82")
def test_a_group_is_checked_when_loaded_and_then_every_ten_minutes() -> None:
    driver, _ = _ready()
    driver.beat("A", -1)
    driver.take_effects()
    driver.reload()
    assert len(driver.take_effects()) == 1
    driver.advance(599_999)
    driver.run(c.RepairCheck())
    assert driver.take_effects() == []
    driver.advance(1)
    driver.run(c.RepairCheck())
    assert len(driver.take_effects()) == 1


@pytest.mark.rule("GC-82")
def test_every_group_has_its_turn_when_there_are_more_than_the_checks_of_one_interval() -> None:
    driver, _ = _ready()
    group_ids = {f"g{number}" for number in range(9)}
    for group_id in sorted(group_ids):
        driver.beat("A", 0, ["t"], group_id)
        driver.initialize()
    checked: list[str] = []
    for _ in range(10):  # each check covers one group, and by the next check the groups checked before are due again
        driver.advance(600_000)
        driver.run(c.RepairCheck(limit=1))
        checked += [effect.group_id for effect in driver.take_effects() if isinstance(effect, c.CheckSummaries)]
    assert set(checked) >= group_ids


def test_a_partition_is_in_at_most_one_list() -> None:
    states = Lifecycle({T: TopicState(T, "t", 3, {}, (0, 1, 2))})
    back = states.sent_back(_keys(1), 2, 5, 9)
    assert back.topics[T].initialized == (0, 2)
    assert list(back.topics[T].initializing) == [1]
    assert back.finished(_keys(1), 9) == states
    assert back.finished(_keys(1), 8) is back
    assert states.without([U]) is states
