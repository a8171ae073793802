"""Requests that are refused, and the order of the checks (GC-12…GC-23a)."""

from __future__ import annotations

import pytest

from group_coordinator.core.commands import Heartbeat, OffsetsQuery
from group_coordinator.core.validation import check_heartbeat, check_member_id
from group_coordinator.core.views import CoordinatorSettings
from kip932 import errors
from tests.support.group_driver import Driver


@pytest.mark.rule("GC-12")
@pytest.mark.parametrize("member_id", ["", "m" * 37])
def test_a_member_id_has_1_to_36_characters(member_id: str) -> None:
    with pytest.raises(errors.InvalidRequestError, match=r"Invalid member id in the request\."):
        check_member_id(member_id)
    check_member_id("m" * 36)


@pytest.mark.rule("GC-14", "GC-15", "GC-16", "GC-17", "GC-18", "GC-23a")
@pytest.mark.parametrize(
    ("command", "text"),
    [
        (Heartbeat(" ", " ", -2, " "), "MemberId can't be empty."),
        (Heartbeat("  ", "m", -2, " "), "GroupId can't be empty."),
        (Heartbeat("g", "m", -2, " "), "RackId can't be empty."),
        (Heartbeat("g", "m", 0, ""), "RackId can't be empty."),
        (Heartbeat("g", "m", 0), "SubscribedTopicNames must be set in first request."),
        (Heartbeat("g", "m", 0, None, ()), "SubscribedTopicNames must be set in first request."),
        (Heartbeat("g", "m", -2), "MemberEpoch is invalid."),
        (Heartbeat("g" * 256, "m", 1), "GroupId has 256 characters; at most 255 are allowed."),
        (
            Heartbeat("g", "m", 1, None, ("t",) * 1_001),
            "SubscribedTopicNames has 1001 names; at most 1000 are allowed.",
        ),
        (Heartbeat("g", "m", 1, None, ("t" * 250,)), "SubscribedTopicNames holds a name of more than 249 characters."),
    ],
)
def test_the_first_thing_wrong_is_named(command: Heartbeat, text: str) -> None:
    with pytest.raises(errors.InvalidRequestError) as caught:
        check_heartbeat(command)
    assert caught.value.message == text


@pytest.mark.rule("GC-17", "GC-23a")
@pytest.mark.parametrize(
    "command",
    [
        Heartbeat("g", "m", 1, None, ()),
        Heartbeat("g", "m", -1),
        Heartbeat("g", "m", 0, "r", (".*", ".*")),
        Heartbeat("g" * 255, "m" * 36, 0, "r", ("t" * 249,) * 1_000),
    ],
)
def test_what_is_unusual_but_legal_passes(command: Heartbeat) -> None:
    check_heartbeat(command)


@pytest.mark.rule("GC-23a")
def test_a_pattern_is_a_name_like_any_other_and_a_topic_that_does_not_exist_is_waited_for() -> None:
    driver = Driver()
    topic = driver.create("foo", 1)
    assert driver.settle("m", [".*", "foo.", "later"]).assignment is None
    assert driver.run(OffsetsQuery("g")) == {}
    later = driver.create("later", 1)
    driver.settle("m", [".*", "foo.", "later"])
    assert (topic != later, driver.shard.groups["g"].members["m"].assigned) == (True, {later: (0,)})


@pytest.mark.rule("GC-19")
@pytest.mark.parametrize(("epoch", "text"), [(1, "Share group g not found."), (-1, "Group g not found.")])
def test_an_unknown_group_is_not_made_by_anything_but_a_join(epoch: int, text: str) -> None:
    driver = Driver()
    with pytest.raises(errors.GroupIdNotFoundError) as caught:
        driver.beat("m", epoch)
    assert caught.value.message == text
    assert driver.shard.groups == {}


@pytest.mark.rule("GC-21", "GC-22", "OP-15")
def test_a_full_group_refuses_newcomers_but_asks_strangers_to_rejoin() -> None:
    driver = Driver(settings=CoordinatorSettings(max_size=1, fast_first_assignment=False))
    driver.beat("m1", 0, ["t"])
    with pytest.raises(errors.GroupMaxSizeReachedError, match="maximum capacity of 1 members"):
        driver.beat("m2", 0, ["t"])
    for epoch in (2, -1):
        with pytest.raises(errors.UnknownMemberIdError, match="Member m2 is not a member of group g"):
            driver.beat("m2", epoch)
    assert driver.beat("m1", 0, ["t"]).member_epoch == 2


@pytest.mark.rule("GC-23", "OP-20")
def test_a_stale_or_future_member_epoch_is_fenced_with_both_epochs_named() -> None:
    driver = Driver()
    driver.create("t", 1)
    epoch = driver.settle("m", ["t"]).member_epoch
    driver.beat("m", epoch, ["t", "u"])
    assert driver.shard.groups["g"].members["m"].epoch == epoch + 1
    size = len(driver.log)
    for wrong in (epoch + 2, epoch - 1):
        with pytest.raises(errors.FencedMemberEpochError) as caught:
            driver.beat("m", wrong)
        assert f"epoch {wrong}," in caught.value.message
        assert str(epoch + 1) in caught.value.message
        assert "must abandon all its partitions and rejoin" in caught.value.message
    assert len(driver.log) == size


@pytest.mark.rule("GC-23a")
def test_a_leave_does_not_check_the_epoch() -> None:
    driver = Driver()
    driver.create("t", 1)
    driver.settle("m", ["t"])
    assert driver.beat("m", -1).member_epoch == -1
