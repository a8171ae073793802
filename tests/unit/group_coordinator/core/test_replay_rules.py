"""The effects of single records, in any order that a compacted log may have (GC-60…GC-69a), and anchors (CM-18)."""

from __future__ import annotations

import asyncio

import pytest

from group_coordinator.core import commands as c
from group_coordinator.core import records as r
from group_coordinator.core.group import Group
from group_coordinator.core.lifecycle import LONG_AGO, Initializing, Lifecycle, TopicState
from group_coordinator.core.rewriting import live_record
from group_coordinator.core.shard import GroupShard
from group_coordinator.role import GroupShards
from kip932.errors import CoordinatorNotAvailableError
from shard_runtime.hosting.shard import Anchor
from tests.support.group_driver import Driver, topic_id

T = topic_id("t")
MEMBER = r.MemberMetadata("g", "m", None, "client", "host", ("t",))
CURRENT = r.CurrentAssignment("g", "m", 4, 3, r.STABLE, {T: (0,)})
TARGET = r.TargetMember("g", "m", {T: (0,)})


def _shard(*found: r.Record) -> GroupShard:
    shard = Driver().new_shard()
    for record in found:
        shard.replay(record)
    return shard


def _group(*found: r.Record) -> Group:
    return _shard(*found).groups["g"]


@pytest.mark.rule("GC-61", "GC-64", "GC-41")
@pytest.mark.parametrize(
    "record", [MEMBER, CURRENT, TARGET, r.GroupMetadata("g", 9, 1, 0), r.TargetMetadata("g", 9, 1)]
)
def test_any_record_creates_its_group(record: r.Record) -> None:
    assert _group(record).group_id == "g"


@pytest.mark.rule("GC-40")
def test_a_group_is_stable_while_it_has_members_whatever_else_is_known_of_it() -> None:
    assert _group(MEMBER).state == _group(CURRENT).state == _group(MEMBER, TARGET).state == "Stable"
    assert _group(TARGET).state == _group(r.GroupMetadata("g", 9, 1, 0)).state == "Empty"


@pytest.mark.rule("GC-64", "GC-65", "GC-69")
def test_member_records_create_the_member_in_either_order() -> None:
    assert _group(MEMBER, CURRENT) == _group(CURRENT, MEMBER)
    member = _group(MEMBER).members["m"]
    assert (member.epoch, member.previous_epoch, member.assigned) == (0, -1, {})


@pytest.mark.rule("GC-61", "GC-64")
@pytest.mark.parametrize("kind", [r.MEMBER, r.GROUP, r.TARGET_META, r.TARGET, r.CURRENT, r.STATE])
def test_a_tombstone_for_what_was_never_seen_is_ignored(kind: int) -> None:
    assert _shard(r.Tombstone(kind, "g", "m")).groups == {}
    if kind != r.GROUP:
        before = _group(r.GroupMetadata("g", 9, 1, 0), r.Tombstone(r.TARGET_META, "g"))
        after = _group(r.GroupMetadata("g", 9, 1, 0), r.Tombstone(r.TARGET_META, "g"), r.Tombstone(kind, "g", "x"))
        assert before == after


@pytest.mark.rule("GC-65", "GC-66", "GC-67", "GC-68", "GC-69")
def test_each_record_sets_what_it_says() -> None:
    described = r.MemberMetadata("g", "m", "rack", "client", "host", ("t", "u"))
    found = (described, r.GroupMetadata("g", 4, 11, 1), TARGET, r.TargetMetadata("g", 3, 77), CURRENT)
    group = _group(*found)
    assert (group.epoch, group.metadata_hash, group.assignment_epoch, group.assignment_ms) == (4, 11, 3, 77)
    assert (dict(group.targets), dict(group.subscription.names)) == ({"m": {T: (0,)}}, {"t": 1, "u": 1})
    member = group.members["m"]
    assert (member.rack_id, member.client_id, member.client_host, member.subscribed) == (
        "rack", "client", "host", ("t", "u"),
    )  # fmt: skip
    assert (member.epoch, member.previous_epoch, member.state, member.assigned) == (4, 3, r.STABLE, {T: (0,)})
    left = _group(*found, r.Tombstone(r.CURRENT, "g", "m")).members["m"]
    assert (left.epoch, left.previous_epoch, left.assigned) == (-1, -1, {})


@pytest.mark.rule("GC-65", "GC-66", "GC-67", "GC-68", "GC-69")
def test_a_group_is_taken_apart_in_order() -> None:
    shard = _shard(
        MEMBER,
        r.GroupMetadata("g", 4, 1, 1),
        TARGET,
        r.TargetMetadata("g", 4, 77),
        CURRENT,
        r.Tombstone(r.CURRENT, "g", "m"),
        r.Tombstone(r.TARGET, "g", "m"),
        r.Tombstone(r.TARGET_META, "g"),
        r.Tombstone(r.MEMBER, "g", "m"),
    )
    group = shard.groups["g"]
    assert (group.members, group.targets, group.subscription.names) == ({}, {}, {})
    assert (group.assignment_epoch, group.assignment_ms) == (-1, 0)
    shard.replay(r.Tombstone(r.GROUP, "g"))
    assert shard.groups == {}


@pytest.mark.rule("GC-65", "GC-66", "GC-67")
@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([MEMBER, CURRENT, r.Tombstone(r.MEMBER, "g", "m")], "found at epoch 4"),
        ([MEMBER, TARGET, r.Tombstone(r.CURRENT, "g", "m"), r.Tombstone(r.MEMBER, "g", "m")], "with a target"),
        ([MEMBER, r.Tombstone(r.GROUP, "g")], "1 members, 0 targets, assignment epoch 1"),
        ([r.GroupMetadata("g", 4, 1, 0), r.Tombstone(r.GROUP, "g")], "0 members, 0 targets, assignment epoch 1"),
        ([TARGET, r.Tombstone(r.GROUP, "g")], "0 members, 1 targets"),
        ([TARGET, r.Tombstone(r.TARGET_META, "g")], "found 1 targets"),
    ],
)
def test_a_log_that_no_coordinator_writes_is_not_served_from(found: list[r.Record], text: str) -> None:
    with pytest.raises(r.InconsistentLogError, match=text):
        _shard(*found)


@pytest.mark.rule("GC-69a")
def test_an_initialising_entry_from_the_log_is_due_at_once() -> None:
    assert Initializing(-1, 2).since_ms == LONG_AGO
    state = TopicState(T, "t", 1, {0: Initializing(-1, 2)})
    group = _group(r.StateMetadata("g", Lifecycle({T: state})), r.Tombstone(r.STATE, "g"))
    assert group.lifecycle is None


@pytest.mark.rule("CM-18")
def test_every_record_anchors_its_own_key_and_tombstones_have_no_copy() -> None:
    shard = _shard(MEMBER, r.GroupMetadata("g", 4, 1, 1), CURRENT)
    assert shard.anchor(MEMBER) == Anchor((r.MEMBER, "g", "m"), alive=True)
    assert shard.anchor(r.ColdCopy(CURRENT)) == Anchor((r.CURRENT, "g", "m"), alive=True)
    assert shard.anchor(r.Tombstone(r.TARGET, "g", "m")) == Anchor((r.TARGET, "g", "m"), alive=False)
    keys = [(r.MEMBER, "g", "m"), (r.CURRENT, "g", "m"), (r.TARGET, "g", "m"), (r.GROUP, "gone", "")]
    assert shard.rewrite(keys, 1) == [[r.ColdCopy(MEMBER), r.ColdCopy(CURRENT)]]


@pytest.mark.rule("GC-6")
def test_a_coordinator_that_has_not_started_is_not_available() -> None:
    with pytest.raises(CoordinatorNotAvailableError, match="not started"):
        asyncio.run(GroupShards(3).submit(0, c.ListAll()))


def test_each_live_key_has_a_copy_with_its_newest_value_and_others_have_none() -> None:
    target = r.TargetMetadata("g", 9, 1)
    whole = _group(MEMBER, CURRENT, TARGET, r.GroupMetadata("g", 9, 1, 1), target)
    assert live_record(whole, r.TARGET_META) == target
    assert [live_record(whole, kind, "m") for kind in (r.MEMBER, r.CURRENT, r.TARGET)] == [MEMBER, CURRENT, TARGET]
    bare = _group(r.GroupMetadata("g", 9, 1, 0), r.Tombstone(r.TARGET_META, "g"))
    kinds = (r.MEMBER, r.CURRENT, r.TARGET, r.TARGET_META, r.STATE)
    assert [live_record(bare, kind, "m") for kind in kinds] == [None] * len(kinds)
