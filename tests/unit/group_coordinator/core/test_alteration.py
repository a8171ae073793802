"""How start offsets of an empty group are altered (GC-101…GC-105, OP-11, OP-12)."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.alteration import refusal
from group_coordinator.core.lifecycle import Initializing, Lifecycle
from group_coordinator.core.views import Topic
from kip932.errors import (
    CoordinatorLoadInProgressError,
    InvalidRequestError,
    KafkaError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from kip932.ids import TopicIdPartition
from tests.support.group_driver import Driver, topic_id

T, U = topic_id("t"), topic_id("u")
T0, T1, T2, U0 = (TopicIdPartition(T, 0), TopicIdPartition(T, 1), TopicIdPartition(T, 2), TopicIdPartition(U, 0))


def _emptied(partitions: int = 2) -> Driver:
    """A group whose member has left; t is initialised."""
    driver = Driver()
    driver.create("t", partitions)
    driver.settle("A", ["t"])
    driver.beat("A", -1)
    driver.take_effects()
    return driver


def _states(driver: Driver) -> Lifecycle:
    return driver.shard.groups["g"].states


def _epoch(driver: Driver) -> int:
    return driver.shard.groups["g"].epoch


def _alter(driver: Driver, offsets: dict[TopicIdPartition, int]) -> c.AlterationBegun:
    return cast(c.AlterationBegun, driver.run(c.AlterOffsets("g", offsets, 7)))


def _order(driver: Driver) -> c.InitializeState:
    (order,) = driver.take_effects()
    assert isinstance(order, c.InitializeState)
    return order


def _finish(
    driver: Driver,
    order: c.InitializeState,
    *,
    succeeded: tuple[TopicIdPartition, ...] = (),
    failed: tuple[TopicIdPartition, ...] = (),
    fenced: tuple[TopicIdPartition, ...] = (),
    stored_epoch: int = -1,
) -> object:
    rounds, call_id = order.fenced_rounds, order.call_id
    return driver.run(
        c.InitializationFinished("g", order.attempt, succeeded, failed, fenced, stored_epoch, rounds, call_id)
    )


@pytest.mark.rule("GC-102", "GC-63a", "OP-11", "GC-29")
def test_an_alteration_bumps_the_epoch_and_moves_its_partitions_to_initialising() -> None:
    driver = _emptied()
    before, size = _epoch(driver), len(driver.log)
    assert _alter(driver, {T1: 40}) == c.AlterationBegun(under_way=True, refused={})
    group, states = driver.new_records(size)
    assert isinstance(group, r.GroupMetadata)
    assert isinstance(states, r.StateMetadata)
    assert (group.epoch, group.metadata_hash) == (before + 1, driver.shard.groups["g"].metadata_hash)
    topic = states.lifecycle.topics[T]
    assert topic.initialized == (0,)
    entry = topic.initializing[1]
    assert (entry.start_offset, entry.state_epoch) == (40, before + 1)
    order = _order(driver)
    assert (order.state_epoch, order.partitions, order.call_id) == (before + 1, ((T1, 40),), 7)
    assert driver.run(c.OffsetsQuery("g")) == {T: (0,)}, "not assignable meanwhile"


@pytest.mark.rule("GC-103")
def test_successes_are_initialised_before_the_answer() -> None:
    driver = _emptied()
    _alter(driver, {T0: 1, T1: 2})
    size = len(driver.log)
    assert _finish(driver, _order(driver), succeeded=(T0, T1)) is False
    assert [type(record) for record in driver.new_records(size)] == [r.StateMetadata]
    assert driver.run(c.OffsetsQuery("g")) == {T: (0, 1)}
    assert _alter(driver, {T0: 1}).under_way, "the call has ended"


@pytest.mark.rule("GC-103", "OP-12")
def test_what_is_refused_returns_to_where_it_was() -> None:
    driver = _emptied()
    driver.create("t", 3)
    driver.create("u", 1)
    driver.run(c.DeleteOffsets("g", ("t",), 0))
    driver.take_effects()
    driver.reload()
    driver.take_effects()
    was = _states(driver)
    assert list(was.deleting) == [T]
    everything = {T0: 5, T1: 6, T2: 7, U0: 6}
    _alter(driver, everything)
    assert list(_states(driver).deleting) == [], "its topic leaves deleting (GC-71)"
    _finish(driver, _order(driver), failed=tuple(everything))
    assert _states(driver) == was

    driver = _emptied()
    driver.create("t", 3)
    driver.beat("A", 0, ["t"])  # t-2 starts to initialise
    driver.beat("A", -1)
    driver.take_effects()
    was = _states(driver)
    _alter(driver, {T0: 5, T1: 6, T2: 7})
    _finish(driver, _order(driver), succeeded=(T1,), failed=(T0, T2))
    topic = _states(driver).topics[T]
    assert (topic.initialized, topic.initializing) == ((0, 1), {2: was.topics[T].initializing[2]})


@pytest.mark.rule("GC-103", "GC-107", "OP-12")
def test_a_refused_partition_returns_to_deleting_beside_one_of_unknown_outcome() -> None:
    """Shows the place in `deleting` of OP-12; the neighbouring tests show those in the other lists."""
    driver = _emptied()
    driver.run(c.DeleteGroup("g", 0, 0))
    driver.take_effects()
    driver.advance(60_000)  # the deletion ended without an outcome
    _alter(driver, {T0: 5, T1: 6})
    assert list(_states(driver).deleting) == []
    _finish(driver, _order(driver), failed=(T0,))
    states = _states(driver)
    assert list(states.deleting) == [T], "the state of t-0 is still to be deleted"
    entry = states.topics[T].initializing[1]
    assert (list(states.topics[T].initializing), states.topics[T].initialized) == ([1], ())
    assert (entry.start_offset, entry.state_epoch) == (6, _epoch(driver)), "the request's offset, at the new epoch"
    _finish(driver, c.InitializeState("g", entry.attempt, _epoch(driver), ((T1, 6),), call_id=7), succeeded=(T1,))
    driver.take_effects()
    driver.run(c.ResumeDeletions(complete_since_ms=driver.now_ms, limit=10))
    (order,) = [effect for effect in driver.take_effects() if isinstance(effect, c.DeleteState)]
    assert T0 in order.partitions, "the deletion of the old state must continue"
    assert T1 not in order.partitions, "the state of the partition in use must not be deleted"


@pytest.mark.rule("GC-103", "GC-72", "OP-12")
@pytest.mark.parametrize("reload", [False, True])
def test_what_is_unknown_stays_and_the_next_member_completes_it(reload: bool) -> None:
    driver = _emptied()
    _alter(driver, {T0: 5, T1: 6})
    order = _order(driver)
    _finish(driver, order, succeeded=(T1,))
    if reload:
        driver.reload()
        driver.take_effects()
    else:
        driver.advance(30_000)
    reply = driver.beat("B", 0, ["t"])
    assert T not in (reply.assignment or {}) or 0 not in (reply.assignment or {})[T], "before it can be assigned again"
    again = _order(driver)
    assert (again.partitions, again.state_epoch) == (((T0, 5),), order.state_epoch)
    driver.run(c.InitializationFinished("g", again.attempt, succeeded=(T0,)))
    assert driver.run(c.OffsetsQuery("g")) == {T: (0, 1)}


@pytest.mark.rule("GC-103", "GC-76")
def test_a_larger_state_epoch_is_gone_above_and_the_call_goes_on() -> None:
    driver = _emptied()
    _alter(driver, {T0: 5, T1: 6})
    first = _order(driver)
    assert _finish(driver, first, succeeded=(T1,), fenced=(T0,), stored_epoch=40) is True
    second = _order(driver)
    assert (second.state_epoch, second.partitions, second.call_id) == (41, ((T0, 5),), 7)
    with pytest.raises(CoordinatorLoadInProgressError):
        _alter(driver, {T0: 1})
    assert _finish(driver, second, succeeded=(T0,)) is False
    assert (driver.run(c.OffsetsQuery("g")), _epoch(driver)) == ({T: (0, 1)}, 41)


@pytest.mark.rule("GC-103", "GC-76")
def test_after_some_rounds_a_fenced_partition_is_refused_and_returns() -> None:
    driver = _emptied()
    _alter(driver, {T0: 5})
    for stored in (40, 50, 60):
        assert _finish(driver, _order(driver), fenced=(T0,), stored_epoch=stored) is True
    assert _finish(driver, _order(driver), fenced=(T0,), stored_epoch=70) is False
    assert driver.run(c.OffsetsQuery("g")) == {T: (0, 1)}


@pytest.mark.rule("GC-101", "GC-73", "GC-41", "GC-45")
def test_an_unknown_group_is_made_empty_and_its_partitions_are_counted_as_they_are_now() -> None:
    driver = Driver()
    driver.create("t", 2)
    _alter(driver, {T1: 9})
    _finish(driver, _order(driver), succeeded=(T1,))
    assert driver.run(c.ListAll()) == [c.ListedGroup("g", "Empty", 0)]
    assert _epoch(driver) == 2
    driver.create("t", 3)
    driver.beat("A", 0, ["t"])
    assert dict(_order(driver).partitions) == {T0: -1, T2: 0}


@pytest.mark.rule("GC-101")
def test_a_group_with_members_is_left_as_it_is() -> None:
    driver = Driver()
    driver.create("t", 2)
    driver.settle("A", ["t"])
    size, epoch = len(driver.log), _epoch(driver)
    for command in (c.AlterOffsets("g", {T0: 1}, 7), c.RequireEmpty("g")):
        with pytest.raises(NonEmptyGroupError, match="group g has 1 members"):
            driver.run(command)
    assert (len(driver.log), _epoch(driver)) == (size, epoch)
    driver.run(c.RequireEmpty("unknown"))


@pytest.mark.rule("GC-105", "GC-102", "GC-104")
def test_what_the_image_has_lost_is_refused_and_without_a_valid_partition_nothing_is_written() -> None:
    driver = _emptied()
    size = len(driver.log)
    found = _alter(driver, {TopicIdPartition(T, 2): 1, U0: 1, TopicIdPartition(T, -1): 1, T0: -1})
    assert not found.under_way
    assert {key: type(error) for key, error in found.refused.items()} == {
        TopicIdPartition(T, 2): UnknownTopicOrPartitionError,
        U0: UnknownTopicOrPartitionError,
        TopicIdPartition(T, -1): UnknownTopicOrPartitionError,
        T0: InvalidRequestError,
    }
    assert (len(driver.log), driver.take_effects()) == (size, [])
    mixed = _alter(driver, {T0: 3, U0: 1})
    assert (mixed.under_way, list(mixed.refused)) == (True, [U0])
    assert _order(driver).partitions == ((T0, 3),)


@pytest.mark.rule("GC-105", "GC-100", "GC-102")
@pytest.mark.parametrize(
    ("topic", "index", "start", "error", "text"),
    [
        (None, 0, 0, UnknownTopicOrPartitionError, "topic t does not exist"),
        (Topic(T, "t", 2), 2, 0, UnknownTopicOrPartitionError, "no partition 2; expected one from 0 to 1"),
        (Topic(T, "t", 2), -1, 0, UnknownTopicOrPartitionError, "no partition -1"),
        (Topic(T, "t", 2), 1, -5, InvalidRequestError, "start offset -5 of t-1 is negative"),
    ],
)
def test_a_refusal_names_what_was_found_and_what_was_expected(
    topic: Topic | None, index: int, start: int, error: type[KafkaError], text: str
) -> None:
    found = refusal(topic, "t", index, start)
    assert isinstance(found, error)
    assert text in str(found)
    assert refusal(Topic(T, "t", 2), "t", 0, 0) is None


@pytest.mark.rule("GC-107")
@pytest.mark.parametrize("second", ["alter", "offsets", "group"])
@pytest.mark.parametrize("first", ["alter", "offsets", "group"])
def test_a_group_is_changed_by_one_call_at_a_time(first: str, second: str) -> None:
    driver = _emptied()
    calls: dict[str, c.Command] = {
        "alter": c.AlterOffsets("g", {T0: 1}, 7),
        "offsets": c.DeleteOffsets("g", ("t",), 8),
        "group": c.DeleteGroup("g", driver.now_ms, 9),
    }
    names = {"alter": "AlterShareGroupOffsets", "offsets": "DeleteShareGroupOffsets", "group": "DeleteGroups"}
    driver.run(calls[first])
    size = len(driver.log)
    with pytest.raises(CoordinatorLoadInProgressError, match=f"{names[first]} of group g is in progress"):
        driver.run(calls[second])
    with pytest.raises(CoordinatorLoadInProgressError, match=names[first]):
        driver.run(c.RequireEmpty("g"))
    assert len(driver.log) == size
    order = driver.effects[-1]
    assert isinstance(order, c.InitializeState | c.DeleteState)
    driver.run(c.CallEnded("g", order.attempt))
    driver.run(calls[second])


@pytest.mark.rule("GC-107")
def test_a_member_may_join_while_offsets_are_altered_and_is_given_them_afterwards() -> None:
    driver = _emptied()
    _alter(driver, {T0: 5})
    order = _order(driver)
    epoch = driver.beat("B", 0, ["t"]).member_epoch
    assert driver.take_effects() == [], "the call is not repeated while it is under way"
    _finish(driver, order, succeeded=(T0,))
    for _ in range(3):
        reply = driver.beat("B", epoch)
        epoch = reply.member_epoch
    assert driver.shard.groups["g"].members["B"].assigned == {T: (0, 1)}


@pytest.mark.rule("GC-107", "CM-13")
def test_a_call_whose_records_the_store_refused_is_not_under_way() -> None:
    driver = _emptied()
    decision = driver.shard.decide(c.AlterOffsets("g", {T0: 1}, 7), driver.now_ms, driver.wall_ms)
    tokens = [driver.shard.replay(record) for record in decision.records]
    for token in reversed(tokens):
        driver.shard.undo(token)
    assert _alter(driver, {T0: 1}).under_way


@pytest.mark.rule("GC-102")
def test_a_second_alteration_has_a_higher_epoch_than_one_that_is_still_unknown() -> None:
    driver = _emptied()
    _alter(driver, {T0: 5})
    first = _order(driver)
    _finish(driver, first)
    _alter(driver, {T0: 6})
    second = _order(driver)
    assert second.state_epoch == first.state_epoch + 1
    assert _states(driver).topics[T].initializing[0] == Initializing(
        6, second.state_epoch, driver.now_ms, second.attempt
    )


def test_without_a_complete_image_nothing_is_altered() -> None:
    driver = _emptied()
    driver.image = replace(driver.image, complete=False)
    with pytest.raises(CoordinatorLoadInProgressError, match="metadata"):
        _alter(driver, {T0: 1})
