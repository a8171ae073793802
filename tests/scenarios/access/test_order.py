"""Which check comes first: groups before everything else, and the other rows of kafka-answers/access.md, "Order of
checks" (GC-149)."""

from __future__ import annotations

from typing import Any

import pytest

from kip932.acls import Acl, Operation, ResourceType
from tests.integration.scenarios.wire import METHODS
from tests.scenarios.access.members import Member, joined, parts, top
from tests.scenarios.access.stage import GROUP, TOPIC, Stage, acl, error_name, on_stage, reading

USER = "User:u"
UNKNOWN = "group-unknown"


def on_group(operation: Operation, name: str = GROUP) -> Acl:
    return acl(USER, operation, ResourceType.GROUP, name)


def on_topic(operation: Operation) -> Acl:
    return acl(USER, operation, ResourceType.TOPIC)


def new(name: str, **fields: Any) -> Any:
    return METHODS[name].request_type(**fields)


@pytest.mark.parametrize("epoch", [0, 5, -1])
@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": "unknown"},
        {"group_id": "", "member_id": "m"},
        {"member_id": ""},
        {"member_id": "m" * 40},
        {"member_id": "m", "subscribed_topic_names": {"values": [TOPIC]}},
        {"member_id": "m", "subscribed_topic_names": {"values": []}},
        {"member_id": "m", "rack_id": ""},
    ],
    ids=["unknown member", "empty group", "no member id", "long member id", "a topic", "no topics", "empty rack"],
)
@pytest.mark.rule("GC-149", "GC-11")
@on_stage()
async def test_a_heartbeat_without_the_group_is_refused_whatever_else_is_wrong(
    stage: Stage, fields: dict[str, Any], epoch: int
) -> None:
    answer = await stage.caller(USER).call(
        "ShareGroupHeartbeat", new("ShareGroupHeartbeat", **{"group_id": GROUP, "member_epoch": epoch} | fields)
    )
    assert top(answer) == "GAF"


@pytest.mark.rule("GC-149", "PL-422")
@on_stage()
async def test_a_fetch_or_acknowledgement_without_the_group_is_refused_whatever_else_is_wrong(stage: Stage) -> None:
    caller = stage.caller(USER)
    wrong = (
        {"member_id": "unknown", "share_session_epoch": 5},
        {"member_id": "", "share_session_epoch": 0},
        {"member_id": "m", "group_id": ""},
        {"member_id": "m", "share_session_epoch": -1},
        {"member_id": "m", "share_session_epoch": 0, "topics": [{"topic_id": stage.topic_id}]},
    )
    for fields in wrong:
        for name in ("ShareFetch", "ShareAcknowledge"):
            answer = await caller.call(name, new(name, **{"group_id": GROUP} | fields))
            assert (top(answer), parts(answer)) == ("GAF", []), (name, fields)


@pytest.mark.rule("GC-149", "GC-13")
@on_stage()
async def test_in_a_heartbeat_topics_come_before_membership(stage: Stage) -> None:
    await stage.allow(on_group(Operation.READ))
    request = new("ShareGroupHeartbeat", group_id=GROUP, member_id="unknown", member_epoch=5)
    for names, expected in (((TOPIC,), "TAF"), (("__consumer_offsets",), "TAF"), ((), "UNKNOWN_MEMBER_ID")):
        del request.subscribed_topic_names.values[:]
        request.ClearField("subscribed_topic_names")
        if names:
            request.subscribed_topic_names.values.extend(names)
        assert top(await stage.caller(USER).call("ShareGroupHeartbeat", request)) == expected


@pytest.mark.rule("GC-13")
@on_stage()
async def test_one_refused_name_refuses_the_heartbeat_and_joins_nothing(stage: Stage) -> None:
    await stage.allow(*reading(USER))
    request = new("ShareGroupHeartbeat", group_id=GROUP, member_id="m", member_epoch=0)
    request.subscribed_topic_names.values.extend([TOPIC, "topic-unknown"])
    answer = await stage.caller(USER).call("ShareGroupHeartbeat", request)
    assert (top(answer), [field.name for field, _ in answer.ListFields()]) == ("TAF", ["error_code", "error_message"])
    group = (await stage.admin.call("ShareGroupDescribe", new("ShareGroupDescribe", group_ids=[GROUP]))).groups[0]
    assert not group.members
    await stage.change([acl(USER, Operation.DESCRIBE, ResourceType.TOPIC, "topic-unknown")])
    answer = await stage.caller(USER).call("ShareGroupHeartbeat", request)
    assert top(answer) == "NONE", "a topic that the caller may describe need not exist"


@pytest.mark.rule("GC-149", "PL-422")
@on_stage()
async def test_in_a_fetch_and_an_acknowledgement_the_session_comes_before_topics(stage: Stage) -> None:
    await stage.allow(on_group(Operation.READ))
    member = Member(stage, USER, "unknown")
    assert top(await member.fetch(epoch=5, wait_ms=0)) == "SHARE_SESSION_NOT_FOUND"
    assert top(await member.acknowledge((0, 0, [1]), epoch=5)) == "SHARE_SESSION_NOT_FOUND"


@pytest.mark.rule("GC-149", "PL-531")
@on_stage()
async def test_a_wrong_epoch_without_the_group_is_refused_as_the_group_and_the_epoch_does_not_advance(
    stage: Stage,
) -> None:
    await stage.allow(*reading(USER))
    member = Member(stage, USER, "m")
    await member.open()
    await stage.allow()
    assert top(await member.fetch(epoch=99, wait_ms=0)) == "GAF"
    assert top(await member.fetch(wait_ms=0)) == "GAF"
    await stage.allow(*reading(USER))
    assert top(await member.fetch(epoch=99, wait_ms=0)) == "INVALID_SHARE_SESSION_EPOCH"
    assert top(await member.fetch(wait_ms=0)) == "NONE"


@pytest.mark.rule("PL-531", "PL-509")
@on_stage()
async def test_a_fetch_of_refused_topics_only_opens_the_session_and_advances_it(stage: Stage) -> None:
    await stage.allow(on_group(Operation.READ))
    member = Member(stage, USER, "m")
    for epoch in (0, 1, 2):
        answer = await member.fetch(epoch=epoch, wait_ms=0)
        assert (top(answer), parts(answer)) == ("NONE", ["TAF"])
    await stage.change([on_topic(Operation.READ)])
    await stage.admin.produce(stage.topic_id, 1)
    assert await member.acquire() == [(0, 0, 1)], "the partition is in the session"


@pytest.mark.rule("GC-125", "GC-149")
@on_stage()
async def test_an_unknown_group_is_refused_before_it_is_not_found(stage: Stage) -> None:
    await stage.allow(on_group(Operation.DESCRIBE, "group-v"), on_group(Operation.DELETE, "group-v"))
    caller = stage.caller(USER)
    for name, field, listed in (
        ("ShareGroupDescribe", "group_ids", "groups"),
        ("DeleteGroups", "groups_names", "results"),
    ):
        answer = await caller.call(name, new(name, **{field: [UNKNOWN, "group-v", "", GROUP]}))
        found = [(each.group_id, error_name(each.error_code)) for each in getattr(answer, listed)]
        assert found == [(UNKNOWN, "GAF"), ("group-v", "GROUP_ID_NOT_FOUND"), ("", "GAF"), (GROUP, "GAF")]


def altering(group: str) -> Any:
    request = new("AlterShareGroupOffsets", group_id=group)
    request.topics.values.add(topic_name=TOPIC).partitions.add(partition_index=0, start_offset=0)
    return request


def deleting(group: str) -> Any:
    request = new("DeleteShareGroupOffsets", group_id=group)
    request.topics.values.add(topic_name=TOPIC)
    return request


@pytest.mark.rule("GC-149", "GC-100")
@on_stage()
async def test_offsets_are_altered_only_if_the_group_allows_it_which_is_checked_before_topics(stage: Stage) -> None:
    await stage.allow(on_group(Operation.READ), on_group(Operation.READ, UNKNOWN))
    caller = stage.caller(USER)
    for group in (GROUP, UNKNOWN):
        answer = await caller.call("AlterShareGroupOffsets", altering(group))
        assert (top(answer), parts(answer)) == ("NONE", ["TAF"]), group
    listed = await stage.admin.call("ListGroups", new("ListGroups"))
    assert [each.group_id for each in listed.groups] == [GROUP], "a refused alteration creates no group"
    await joined(stage, "User:admin", "m")
    answer = await caller.call("AlterShareGroupOffsets", altering(GROUP))
    assert (top(answer), parts(answer)) == ("NON_EMPTY_GROUP", [])


@pytest.mark.rule("GC-149", "GC-96")
@on_stage()
async def test_offsets_are_deleted_only_if_the_group_allows_it_which_is_checked_before_topics(stage: Stage) -> None:
    await stage.allow(on_group(Operation.DELETE), on_group(Operation.DELETE, UNKNOWN))
    caller = stage.caller(USER)
    answer = await caller.call("DeleteShareGroupOffsets", deleting(UNKNOWN))
    assert (top(answer), len(answer.responses)) == ("GROUP_ID_NOT_FOUND", 0)
    answer = await caller.call("DeleteShareGroupOffsets", deleting(GROUP))
    assert (top(answer), [error_name(each.error_code) for each in answer.responses]) == ("NONE", ["TAF"])
    await joined(stage, "User:admin", "m")
    answer = await caller.call("DeleteShareGroupOffsets", deleting(GROUP))
    assert (top(answer), len(answer.responses)) == ("NON_EMPTY_GROUP", 0)


@pytest.mark.rule("GC-149")
@on_stage()
async def test_a_request_for_a_group_and_a_topic_is_refused_as_the_group(stage: Stage) -> None:
    caller = stage.caller(USER)
    for name in ("AlterShareGroupOffsets", "DeleteShareGroupOffsets"):
        answer = await caller.call(name, (altering if name.startswith("Alter") else deleting)(GROUP))
        assert (top(answer), len(answer.responses)) == ("GAF", 0)
    explaining = new("ExplainRecord", group_id=GROUP, topic_id=stage.topic_id)
    assert top(await caller.call("ExplainRecord", explaining)) == "GAF"
