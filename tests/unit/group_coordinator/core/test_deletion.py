"""How groups and their offsets are deleted (GC-90…GC-99)."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.group import Group
from group_coordinator.core.lifecycle import Lifecycle
from kip932.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from tests.support.group_driver import Driver, topic_id
from tests.unit.group_coordinator.core.deletions import (
    T,
    U,
    V,
    delete,
    delete_offsets,
    emptied,
    epoch_of,
    finish,
    keys,
    order_of,
    resume,
    states_of,
)

WEEK_MS = 7 * 24 * 3_600_000


# ---- groups


@pytest.mark.rule("GC-91", "GC-92", "GC-63", "GC-63a")
def test_every_topic_of_the_group_goes_to_deleting_and_its_state_is_ordered_to_go() -> None:
    driver = emptied("t", "u", "v")
    driver.run(c.DeleteOffsets("g", ("u",), 0))
    finish(driver, order_of(driver), U)  # u stays in the `deleting` list
    driver.create("w", 1)
    driver.beat("A", 0, ["w"])  # A joins, and leaves before w is initialised
    driver.beat("A", -1)
    driver.take_effects()
    driver.create("u", 3)
    driver.image = driver.image.without("v")
    size, epoch = len(driver.log), epoch_of(driver)
    assert delete(driver).under_way
    order = order_of(driver)
    assert (order.group_id, order.state_epoch, order.call_id) == ("g", epoch, 7)
    w = topic_id("w")
    assert list(order.partitions) == [*keys(T, 0, 1), *keys(U, 0, 1, 2), *keys(V, 0, 1), *keys(w, 0)]
    names = {T: "t", U: "u", V: "<UNKNOWN>", w: "w"}
    assert driver.new_records(size) == [r.StateMetadata("g", Lifecycle({}, names, dropping=True))]


@pytest.mark.rule("GC-91")
def test_a_deleting_topic_that_is_gone_is_dropped_once_the_image_is_known_to_be_new_enough() -> None:
    driver = emptied("t", "u")
    driver.run(c.DeleteOffsets("g", ("u",), 0))
    finish(driver, order_of(driver), U)
    driver.reload()
    driver.take_effects()
    driver.delete("u")
    with pytest.raises(CoordinatorLoadInProgressError, match="group g"):
        driver.run(c.DeleteGroup("g", driver.now_ms - 1, 7))
    delete(driver)
    assert list(order_of(driver).partitions) == keys(T, 0, 1)
    assert list(states_of(driver).deleting) == [T]


@pytest.mark.rule("GC-93", "GC-63a", "GC-41", "GC-45")
def test_when_its_state_is_gone_the_group_goes_and_its_epoch_is_kept() -> None:
    driver = emptied("t")
    epoch = epoch_of(driver)
    delete(driver)
    size = len(driver.log)
    finish(driver, order_of(driver))
    tombs = [r.Tombstone(kind, "g", "", r.REASON_ADMIN) for kind in (r.TARGET_META, r.STATE, r.GROUP)]
    assert driver.new_records(size) == [*tombs, r.DeletedGroup("g", epoch, driver.wall_ms)]
    assert driver.run(c.ListAll()) == []
    with pytest.raises(GroupIdNotFoundError, match="g not found"):
        driver.run(c.Describe("g"))


@pytest.mark.rule("GC-93", "GC-63a", "X6")
def test_what_is_left_of_members_is_taken_apart_in_the_order_that_replay_asks_for() -> None:
    driver = Driver()
    for record in (r.GroupMetadata("g", 4, 0, 0), r.TargetMetadata("g", 4, 9), r.TargetMember("g", "m", {T: (0,)})):
        driver.shard.replay(record)
    assert not delete(driver).under_way
    gone = [found for found in driver.log if isinstance(found, r.Tombstone)]
    assert {found.reason for found in gone} == {r.REASON_ADMIN}
    kinds = [(found.kind, found.member_id) for found in gone]
    assert kinds == [
        (r.CURRENT, "m"), (r.TARGET, "m"), (r.TARGET_META, ""), (r.MEMBER, "m"), (r.STATE, ""), (r.GROUP, ""),
    ]  # fmt: skip
    assert dict(driver.shard.groups) == {}


@pytest.mark.rule("GC-93")
def test_a_group_without_any_state_goes_at_once() -> None:
    driver = Driver()
    driver.beat("A", 0, ["nowhere"])
    driver.beat("A", -1)
    assert not delete(driver).under_way
    assert (dict(driver.shard.groups), driver.effects) == ({}, [])
    with pytest.raises(GroupIdNotFoundError):
        delete(driver)


@pytest.mark.rule("GC-93", "SC-35")
@pytest.mark.parametrize("reload", [False, True])
def test_a_group_made_again_starts_from_its_old_epoch_for_seven_days(reload: bool) -> None:
    driver = emptied("t")
    epoch = epoch_of(driver)
    delete(driver)
    finish(driver, order_of(driver))
    if reload:
        driver.reload()
    driver.advance(WEEK_MS - 2)
    resume(driver)
    assert driver.beat("A", 0, ["t"]).member_epoch == epoch + 1
    order = driver.take_effects()[-1]
    assert isinstance(order, c.InitializeState)
    assert order.state_epoch == epoch + 1


@pytest.mark.rule("GC-93")
def test_after_seven_days_the_epoch_is_forgotten() -> None:
    driver = emptied("t")
    delete(driver)
    finish(driver, order_of(driver))
    driver.advance(WEEK_MS)
    size = len(driver.log)
    resume(driver, -1)
    assert driver.new_records(size) == [r.Tombstone(r.DELETED, "g")]
    resume(driver)
    assert len(driver.log) == size + 1
    assert driver.beat("A", 0, ["t"]).member_epoch == 2


@pytest.mark.rule("GC-93")
def test_the_epoch_does_not_count_after_its_time_even_before_it_is_forgotten() -> None:
    driver = emptied("t")
    delete(driver)
    finish(driver, order_of(driver))
    driver.advance(WEEK_MS)
    assert driver.beat("A", 0, ["t"]).member_epoch == 2


@pytest.mark.rule("GC-93", "CM-18", "GC-61")
def test_the_epoch_of_a_deleted_group_outlives_a_compaction_and_an_undo() -> None:
    driver = emptied("t")
    epoch = epoch_of(driver)
    delete(driver)
    order = order_of(driver)
    finished = c.DeletionFinished("g", order.attempt)
    decision = driver.shard.decide(finished, driver.now_ms, driver.wall_ms)
    tokens = [driver.shard.replay(record) for record in decision.records]
    for token in reversed(tokens):
        driver.shard.undo(token)
    assert epoch_of(driver) == epoch
    assert delete(driver).under_way
    finish(driver, order_of(driver))
    key = driver.shard.anchor(r.DeletedGroup("g", 1, 1))
    assert key is not None
    ((copy,),) = driver.shard.rewrite([key.key], 1)
    driver.shard = driver.new_shard()
    driver.shard.replay(copy)
    driver.shard.loaded(driver.now_ms)
    assert driver.beat("A", 0, ["t"]).member_epoch == epoch + 1


@pytest.mark.rule("GC-93", "OP-16")
def test_no_member_joins_while_the_group_is_being_deleted_and_a_delete_names_its_epoch() -> None:
    driver = emptied("t")
    delete(driver)
    order = order_of(driver)
    for member, group in (("A", "g"), ("B", "g")):
        with pytest.raises(CoordinatorLoadInProgressError, match="group g is being deleted"):
            driver.beat(member, 0, ["t"], group)
    driver.beat("A", 0, ["t"], "other")
    assert order.state_epoch == epoch_of(driver)
    finish(driver, order, T)
    assert driver.beat("A", 0, ["t"]).member_epoch == order.state_epoch + 1


@pytest.mark.rule("GC-91", "GC-45")
@pytest.mark.scenario("S-075")
def test_a_group_with_members_is_kept() -> None:
    driver = Driver()
    driver.create("t", 2)
    driver.settle("A", ["t"])
    size = len(driver.log)
    with pytest.raises(NonEmptyGroupError, match="group g has 1 members"):
        delete(driver)
    with pytest.raises(NonEmptyGroupError, match="group g has 1 members"):
        delete_offsets(driver, "t")
    assert (len(driver.log), driver.take_effects()) == (size, [])


@pytest.mark.rule("GC-92")
def test_one_partition_that_is_not_deleted_keeps_the_group_and_its_list() -> None:
    driver = emptied("t", "u")
    delete(driver)
    order, size = order_of(driver), len(driver.log)
    finish(driver, order, U)
    assert len(driver.log) == size
    assert set(states_of(driver).deleting) == {T, U}
    assert delete(driver).under_way, "the call has ended, so that it can be repeated"
    again = order_of(driver)
    assert again.partitions == order.partitions
    finish(driver, again)
    assert dict(driver.shard.groups) == {}


# ---- offsets


@pytest.mark.rule("GC-96", "GC-97", "GC-98", "GC-99", "GC-63a", "GC-29")
@pytest.mark.scenario("S-083")
def test_topics_are_deleted_by_themselves_and_the_epoch_stays() -> None:
    driver = emptied("t", "u")
    driver.create("w", 2)
    driver.beat("A", 0, ["w"])
    driver.beat("A", -1)
    driver.take_effects()
    epoch, size = epoch_of(driver), len(driver.log)
    begun = delete_offsets(driver, "t", "w", "x", "u")
    assert dict(begun.accepted) == {"t": T, "u": U}
    assert {name: str(error) for name, error in begun.refused.items()} == {
        "w": "group g has no offsets of topic w, so there is nothing to delete",
        "x": "topic x does not exist; expected a topic of the cluster",
    }
    assert all(isinstance(error, UnknownTopicOrPartitionError) for error in begun.refused.values())
    order = order_of(driver)
    assert list(order.partitions) == [*keys(T, 0, 1), *keys(U, 0, 1)]
    assert order.state_epoch == epoch
    assert dict(states_of(driver).deleting) == {T: "t", U: "u"}
    finish(driver, order, U)
    states = states_of(driver)
    assert (dict(states.deleting), list(states.topics), epoch_of(driver)) == ({U: "u"}, [topic_id("w")], epoch)
    assert [type(record) for record in driver.new_records(size)] == [r.StateMetadata, r.StateMetadata]


@pytest.mark.rule("GC-97", "GC-99")
def test_what_initialises_of_a_topic_or_is_left_in_deleting_is_deleted_with_the_rest() -> None:
    driver = emptied("t")
    driver.create("t", 3)
    driver.beat("A", 0, ["t"])  # partition 2 starts to initialise
    driver.beat("A", -1)
    (late,) = [effect for effect in driver.take_effects() if isinstance(effect, c.InitializeState)]
    delete_offsets(driver, "t")
    order = order_of(driver)
    assert list(order.partitions) == keys(T, 0, 1, 2)
    assert (dict(states_of(driver).topics), dict(states_of(driver).deleting)) == ({}, {T: "t"})
    finish(driver, order, T)  # the share coordinators did not delete it
    succeeded = tuple(partition for partition, _ in late.partitions)
    assert succeeded == tuple(keys(T, 2))
    driver.run(c.InitializationFinished("g", late.attempt, succeeded=succeeded))  # changes nothing
    assert (dict(states_of(driver).topics), dict(states_of(driver).deleting)) == ({}, {T: "t"})
    driver.create("t", 5)
    delete_offsets(driver, "t")
    order = order_of(driver)
    assert list(order.partitions) == keys(T, 0, 1, 2, 3, 4)
    finish(driver, order)
    assert not states_of(driver).deleting
    refused = delete_offsets(driver, "t").refused
    assert [type(error) for error in refused.values()] == [UnknownTopicOrPartitionError]


@pytest.mark.rule("GC-97", "GC-96")
def test_a_group_without_a_state_record_has_nothing_to_answer_and_an_unknown_one_is_an_error() -> None:
    driver = Driver()
    driver.create("t", 1)
    driver.beat("A", 0, ["nowhere"])
    driver.beat("A", -1)
    assert delete_offsets(driver, "t", "x") == c.DeletionBegun(under_way=False)
    with pytest.raises(GroupIdNotFoundError, match="group unknown does not exist"):
        driver.run(c.DeleteOffsets("unknown", ("t",), 0))


@pytest.mark.rule("GC-98", "GC-71")
def test_a_topic_that_a_member_takes_into_use_again_is_not_touched_by_a_late_end() -> None:
    driver = emptied("t")
    delete_offsets(driver, "t")
    order = order_of(driver)
    epoch = driver.beat("A", 0, ["t"]).member_epoch
    assert epoch > order.state_epoch, "the share coordinator refuses the delete that comes late (SC-29)"
    driver.initialize()
    size = len(driver.log)
    finish(driver, order)
    assert len(driver.log) == size
    assert states_of(driver).initialized == {T: (0, 1)}


@pytest.mark.rule("GC-107", "GC-76a", "GC-108")
def test_a_late_or_repeated_end_of_a_deletion_changes_nothing() -> None:
    driver = emptied("t")
    delete(driver)
    first = order_of(driver)
    finish(driver, first, T)
    delete(driver)
    order_of(driver)
    size = len(driver.log)
    with pytest.raises(CoordinatorNotAvailableError, match="group g ended too late"):
        finish(driver, first)
    assert len(driver.log) == size
    driver.advance(driver.settings.admin_call_ms)
    assert driver.beat("A", 0, ["t"]).member_epoch > 0, "a call whose end is never heard holds nothing up for ever"


@pytest.mark.rule("GC-91", "GC-97")
def test_without_a_complete_image_nothing_is_deleted() -> None:
    driver = emptied("t")
    driver.image = replace(driver.image, complete=False)
    commands: list[c.Command] = [c.DeleteGroup("g", driver.now_ms, 7), c.DeleteOffsets("g", ("t",), 7)]
    for command in commands:
        with pytest.raises(CoordinatorLoadInProgressError, match="metadata"):
            driver.run(command)


def test_nothing_of_a_deleted_group_stays_in_memory() -> None:
    def groups() -> list[Group]:
        return [kept for kept in gc.get_objects() if type(kept) is Group]

    others = groups()
    driver = emptied("t")
    delete(driver)
    finish(driver, order_of(driver))
    assert "g" not in driver.shard.groups
    assert not [kept for kept in groups() if not any(kept is other for other in others)]
