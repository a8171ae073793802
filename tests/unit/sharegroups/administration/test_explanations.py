"""A leader's explanation of records is completed with facts about the group's members."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.ids import TopicPartition
from sharegroups.admin_values import (
    MemberDescription,
    Node,
    RecordExplanation,
    RecordsExplained,
    ShareGroupDescription,
)
from sharegroups.administration.explanations import completed

LEADER = Node(1, "far", 7)


def reported(obstacle: str, member: str | None = None, fetching: int = 0) -> RecordsExplained:
    record = RecordExplanation(4, 4, "available", obstacle, "As the leader says.", 0, member)
    return RecordsExplained("g", TopicPartition("t", 1), LEADER, True, 0, 5, 0, 9, 1, 200, 5, fetching, (record,))


def group(*assigned: tuple[int, ...]) -> ShareGroupDescription:
    """A group of members, each with the given partitions of `t`."""
    members = tuple(
        MemberDescription(f"m{number}", f"client-{number}", f"/10.0.0.{number}", None, 3, ("t",), {"t": parts})
        for number, parts in enumerate(assigned)
    )
    return ShareGroupDescription("g", "Stable" if members else "Empty", 3, 3, "simple", members, LEADER)


def only(explained: RecordsExplained) -> RecordExplanation:
    (record,) = explained.records
    return record


@pytest.mark.rule("CL-90")
@pytest.mark.parametrize(
    ("members", "obstacle", "said"),
    [
        ((), "group_empty", "As the leader says. The group has no members: start a consumer."),
        (((0,),), "not_assigned", "The group has 1 member, and none of them is assigned the partition"),
        (((0,), (0, 1)), "not_fetched", "The group has 2 members, of which 1 should fetch it"),
        (((1,),), "not_fetched", "One that was killed is counted out when it misses its next heartbeat: within the"),
    ],
)
def test_a_record_that_no_member_fetches_shows_whether_a_member_should(
    members: tuple[Any, ...], obstacle: str, said: str
) -> None:
    found = completed(reported("not_fetched"), group(*members))
    assert only(found).obstacle == obstacle
    assert said in only(found).explanation
    expected = len(members), sum(1 in parts for parts in members)
    assert (found.members, found.assigned_members) == expected
    assert found.group_state == ("Stable" if members else "Empty")


@pytest.mark.rule("CL-90")
def test_a_group_that_is_there_has_not_begun_rather_than_does_not_exist() -> None:
    found = only(completed(reported("no_state"), group((0,))))
    assert found.obstacle == "no_state"
    assert found.explanation.startswith("Group 'g' has not started on this partition. The group has 1 member, and none")
    unset = only(completed(reported("start_not_set"), group()))
    assert (unset.obstacle, unset.explanation) == (
        "start_not_set",
        "As the leader says. The group has no members: start a consumer.",
    )


@pytest.mark.rule("CL-90")
@pytest.mark.parametrize("obstacle", ["none", "held", "write_pending", "window_full", "finished", "delivery_limit"])
def test_what_the_leader_knows_better_stays_and_a_holder_gets_its_name(obstacle: str) -> None:
    found = only(completed(reported(obstacle, "m1"), group((1,), (1,))))
    assert (found.obstacle, found.explanation) == (obstacle, "As the leader says.")
    assert (found.client_id, found.client_host) == ("client-1", "/10.0.0.1")
    left = only(completed(reported(obstacle, "gone"), group((1,))))
    assert (left.member_id, left.client_id, left.client_host) == ("gone", None, None)
