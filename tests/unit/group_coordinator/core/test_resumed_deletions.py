"""How an interrupted deletion is resumed, and when it is not (GC-94, GC-107, OP-6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from group_coordinator.core import commands as c
from kip932.errors import CoordinatorLoadInProgressError
from tests.support.group_driver import Driver
from tests.unit.group_coordinator.core.deletions import (
    T,
    U,
    delete,
    delete_offsets,
    emptied,
    finish,
    keys,
    order_of,
    resume,
    states_of,
)


@pytest.mark.rule("OP-6", "GC-94")
def test_the_next_owner_goes_on_with_a_deletion_as_soon_as_its_image_is_new_enough() -> None:
    driver = emptied("t")
    delete(driver)
    first = order_of(driver)
    driver.reload()
    assert [type(effect) for effect in driver.take_effects() if not isinstance(effect, c.CheckSummaries)] == [
        c.SweepSoon
    ]
    assert resume(driver, driver.now_ms - 1) == c.ResumeReply(more=False, waiting=True)
    assert driver.take_effects() == []
    assert resume(driver) == c.ResumeReply(more=False, waiting=False)
    order = order_of(driver)
    assert (order.partitions, order.state_epoch, order.call_id) == (first.partitions, first.state_epoch, 0)
    resume(driver)
    assert driver.take_effects() == [], "it is under way"
    with pytest.raises(CoordinatorLoadInProgressError, match="being deleted"):
        driver.beat("A", 0, ["t"])
    finish(driver, order)
    assert dict(driver.shard.groups) == {}


@pytest.mark.rule("GC-94")
def test_a_repeated_command_picks_the_topics_up_again() -> None:
    driver = emptied("t")
    delete(driver)
    first = order_of(driver)
    driver.reload()
    driver.take_effects()
    assert delete(driver).under_way
    assert order_of(driver).partitions == first.partitions


@pytest.mark.rule("OP-6", "GC-107")
def test_a_deletion_of_offsets_is_resumed_and_the_group_stays() -> None:
    driver = emptied("t", "u")
    delete_offsets(driver, "t")
    driver.reload()
    driver.take_effects()
    driver.create("t", 3)
    resume(driver)
    order = order_of(driver)
    assert list(order.partitions) == keys(T, 0, 1, 2)
    finish(driver, order)
    states = states_of(driver)
    assert (states.initialized, states.deleting) == ({U: (0, 1)}, {})
    resume(driver)
    assert driver.take_effects() == []


@pytest.mark.rule("OP-6")
def test_nothing_is_resumed_while_a_topic_is_initialising_or_a_member_is_there() -> None:
    driver = emptied("t", "u")
    delete_offsets(driver, "t")
    finish(driver, order_of(driver), T)
    driver.create("w", 1)
    driver.beat("A", 0, ["w"])
    resume(driver)
    assert not [effect for effect in driver.take_effects() if isinstance(effect, c.DeleteState)], "a member"
    driver.beat("A", -1)
    driver.take_effects()
    resume(driver)
    assert driver.take_effects() == [], "w is initialising"


@pytest.mark.rule("OP-6", "GC-80")
def test_a_topic_that_the_image_merely_lacks_holds_the_resume_back() -> None:
    driver = emptied("t")
    delete(driver)
    driver.reload()
    driver.take_effects()
    whole = driver.image
    driver.image = replace(whole, topics=())
    resume(driver)
    assert driver.take_effects() == []
    driver.image = replace(whole, complete=False)
    assert resume(driver).waiting
    driver.image = whole
    resume(driver)
    assert list(order_of(driver).partitions) == keys(T, 0, 1)


@pytest.mark.rule("OP-6", "GC-79")
def test_when_all_its_topics_were_deleted_meanwhile_an_interrupted_deletion_ends_at_once() -> None:
    driver = emptied("t")
    delete(driver)
    driver.reload()
    driver.take_effects()
    driver.delete("t")
    driver.run(c.Sweep(driver.now_ms))
    resume(driver)
    assert dict(driver.shard.groups) == {}


@pytest.mark.rule("OP-6")
def test_a_sweep_resumes_a_bounded_number_of_groups_and_says_that_there_are_more() -> None:
    driver = Driver()
    driver.create("t", 1)
    for number in range(3):
        group = f"g{number}"
        joined = driver.beat("A", 0, ["t"], group)
        driver.initialize()
        driver.beat("A", joined.member_epoch, None, group)
        driver.beat("A", -1, None, group)
        driver.run(c.DeleteGroup(group, driver.now_ms, 0))
    driver.reload()
    driver.take_effects()
    reply = driver.run(c.ResumeDeletions(driver.now_ms, limit=2))
    assert (reply, len(driver.take_effects())) == (c.ResumeReply(more=True, waiting=False), 2)
    reply = driver.run(c.ResumeDeletions(driver.now_ms, limit=2))
    assert (reply, len(driver.take_effects())) == (c.ResumeReply(more=False, waiting=False), 1)


@pytest.mark.rule("GC-107", "GC-71")
@pytest.mark.parametrize("topics", [["t"], ["nowhere"]])
def test_a_join_takes_back_that_the_group_is_to_go(topics: list[str]) -> None:
    driver = emptied("t")
    delete(driver)
    finish(driver, order_of(driver), T)
    assert states_of(driver).dropping
    driver.beat("A", 0, topics)
    states = states_of(driver)
    assert not states.dropping
    assert list(states.deleting) == ([] if topics == ["t"] else [T])
    driver.beat("A", -1)
    driver.take_effects()
    driver.reload()
    resume(driver)
    for order in driver.take_effects():
        if isinstance(order, c.DeleteState):
            finish(driver, order)
    assert "g" in driver.shard.groups


@pytest.mark.rule("GC-102", "GC-107")
@pytest.mark.parametrize("whole", [True, False])
def test_what_an_alteration_leaves_of_an_interrupted_deletion_is_deleted(whole: bool) -> None:
    driver = emptied("t", partitions=3)
    begun = delete(driver) if whole else delete_offsets(driver, "t")
    assert begun.under_way
    driver.reload()
    driver.take_effects()
    (altered,) = keys(T, 1)
    driver.run(c.AlterOffsets("g", {altered: 5}, 0))
    assert list(states_of(driver).deleting) == [T], "the other partitions' state is still there"
    resume(driver)
    assert [type(order) for order in driver.effects] == [c.InitializeState], "one is initialising (OP-6)"
    driver.initialize()
    resume(driver)
    order = order_of(driver)
    assert list(order.partitions) == keys(T, 0, 2)
    finish(driver, order)
    assert (states_of(driver).initialized, states_of(driver).deleting) == ({T: (1,)}, {})
