"""The service: access, feature gate, hints, descriptions and lists, over real handlers and hosts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from group_coordinator import service
from group_coordinator.service import NO_OPERATIONS
from kip932 import errors
from kip932.acls import Operation, ResourceType
from kip932.api.v1.alter_share_group_offsets_pb2 import AlterShareGroupOffsetsRequest
from kip932.api.v1.common_pb2 import StringList
from kip932.api.v1.delete_groups_pb2 import DeleteGroupsRequest
from kip932.api.v1.delete_share_group_offsets_pb2 import DeleteShareGroupOffsetsRequest
from kip932.api.v1.describe_share_group_offsets_pb2 import (
    DescribeShareGroupOffsetsRequest as OffsetsRequest,
)
from kip932.api.v1.describe_share_group_offsets_pb2 import DescribeShareGroupOffsetsResponse
from kip932.api.v1.list_groups_pb2 import ListGroupsRequest, ListGroupsResponse
from kip932.api.v1.share_group_describe_pb2 import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kip932.ids import REQUEST_GROUPS_MAX, shard_index
from kip932.rpc.transport import TransportError, TransportStatus
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.hosting.shard import DamagedEntry
from tests.support.group_cluster import CLIENT_ID, Acls, GroupCluster, assigned, play
from tests.support.group_driver import topic_id
from tests.support.virtual_time import now_s


async def _describe(world: GroupCluster, *group_ids: str, operations: bool = False) -> list[Any]:
    request = ShareGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=operations)
    return list(cast(ShareGroupDescribeResponse, await world.call("ShareGroupDescribe", request)).groups)


async def _list(
    world: GroupCluster, states: list[str] | None = None, types: list[str] | None = None
) -> ListGroupsResponse:
    request = ListGroupsRequest(
        states_filter=None if states is None else StringList(values=states),
        types_filter=None if types is None else StringList(values=types),
    )
    return cast(ListGroupsResponse, await world.call("ListGroups", request))


@pytest.mark.rule("GC-8", "GC-10", "GC-110", "OP-20")
@pytest.mark.scenario("S-064")
def test_without_the_feature_everything_is_an_unsupported_version() -> None:
    async def body(world: GroupCluster) -> None:
        world.enabled = False
        heartbeat = await world.heartbeat("", 0)
        assert heartbeat.error_code == errors.UnsupportedVersionError.code
        described = await _describe(world, "grp-1", "grp-2")
        assert [(group.group_id, group.error_code) for group in described] == [("grp-1", 35), ("grp-2", 35)]
        asked = OffsetsRequest(groups=[OffsetsRequest.Group(group_id="grp-1")])
        offsets = cast(DescribeShareGroupOffsetsResponse, await world.call("DescribeShareGroupOffsets", asked))
        assert [(group.group_id, group.error_code) for group in offsets.groups] == [("grp-1", 35)]

    play(body)


@pytest.mark.rule("GC-11", "GC-12", "GC-13", "GC-14", "GC-139", "GC-149")
def test_access_is_checked_in_order_and_one_hidden_topic_refuses_all() -> None:
    acls = Acls("READ GROUP open", "DESCRIBE TOPIC seen")

    async def body(world: GroupCluster) -> None:
        assert (await world.heartbeat("", 0, ["hidden"], "closed")).error_code == 30
        assert (await world.heartbeat("", 0, ["hidden"], "open")).error_code == 42
        assert (await world.heartbeat(" ", 0, ["seen", "hidden"], "open")).error_code == 29
        assert (await world.heartbeat(" ", 0, ["seen"], "open")).error_message == "MemberId can't be empty."
        assert (await world.heartbeat("m", 0, ["seen"], "open")).error_code == 0

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-13", "GC-23a", "CM-62")
def test_no_more_topics_are_authorised_than_a_heartbeat_may_name() -> None:
    acls = Acls("READ GROUP *", "DESCRIBE TOPIC *")

    async def body(world: GroupCluster) -> None:
        many = [str(number) for number in range(1_001)]
        assert (await world.heartbeat("m", 0, many)).error_code == errors.InvalidRequestError.code
        assert (await world.heartbeat("m", 0, ["x" * 250])).error_code == errors.InvalidRequestError.code
        assert {asked.resource for asked in acls._decisions} == {ResourceType.GROUP}
        assert (await world.heartbeat("m", 0, ["foo"], "g" * 256)).error_code == errors.InvalidRequestError.code
        unknown = await world.heartbeat("m", 0, ["nowhere", "nowhere", "a+b*"])
        assert (unknown.error_code, len(unknown.assignment.topic_partitions)) == (0, 0)
        (group,) = await _describe(world, "grp")
        assert list(group.members[0].subscribed_topic_names) == ["a+b*", "nowhere"]
        assert (await world.heartbeat("m", -1)).error_code == 0  # at any epoch

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("CM-94", "GC-122")
def test_others_get_turns_while_groups_are_left_out_for_a_caller_without_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "LISTED_SLICE", 1)
    acls = Acls("READ GROUP *", "DESCRIBE TOPIC *")

    async def body(world: GroupCluster) -> None:
        for number in range(60):
            await world.heartbeat("m", 0, ["foo"], f"grp-{number}")
        acls.take("READ GROUP *")
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(other())
        assert not (await _list(world)).groups
        task.cancel()
        assert turns > 60

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-23b", "GC-24b")
def test_a_member_belongs_to_the_principal_that_joined_it_also_after_a_load() -> None:
    async def body(world: GroupCluster) -> None:
        world.create("foo", 1)
        plain = world.transport
        mine, other = (world.network.transport("10.0.0.7", f"User:{name}") for name in "ab")
        epoch = (await world.heartbeat("m", 0, ["foo"])).member_epoch  # no principal is known yet
        world.transport = mine
        assert (await world.heartbeat("m", epoch)).error_code == 0  # from now on it belongs to a
        for _ in range(2):
            for stranger in (other, plain):
                world.transport = stranger
                for sent in (epoch, 0, -1):
                    answer = await world.heartbeat("m", sent, ["foo"] if sent == 0 else None)
                    assert answer.error_code == errors.UnknownMemberIdError.code
            world.transport = mine
            assert (await world.heartbeat("m", epoch)).error_code == 0
            await world.restart()
        world.transport = mine
        assert (await world.heartbeat("m", -1)).error_code == 0
        world.transport = other
        assert (await world.heartbeat("m", 0, ["foo"])).error_code == 0  # the id is free again

    play(body)


@pytest.mark.rule("GC-23b", "GC-11", "GC-149")
def test_who_joined_may_leave_without_the_right_to_read_the_group() -> None:
    acls = Acls("READ GROUP *", "DESCRIBE TOPIC *")

    async def body(world: GroupCluster) -> None:
        plain = world.transport
        mine, other = (world.network.transport("10.0.0.7", f"User:{name}") for name in "ab")
        await world.heartbeat("nameless", 0, ["foo"])
        world.transport = mine
        epoch = (await world.heartbeat("m", 0, ["foo"])).member_epoch
        acls.take("READ GROUP *")
        refused = errors.GroupAuthorizationFailedError.code
        assert (await world.heartbeat("m", epoch)).error_code == refused
        for member, group_id in (("m", "unknown"), ("x", "grp")):
            assert (await world.heartbeat(member, -1, group_id=group_id)).error_code == refused
        for member in ("", " ", "m" * 37):  # a malformed leave is refused like any other
            assert (await world.heartbeat(member, -1)).error_code == refused
        world.transport = other
        assert (await world.heartbeat("m", -1)).error_code == refused
        acls.take("DESCRIBE TOPIC *")
        assert (await world.heartbeat("m", -1, ["hidden"])).error_code == refused  # not the topic's
        world.transport = plain
        assert (await world.heartbeat("nameless", -1)).error_code == refused  # its principal is not known
        world.transport = mine
        assert (await world.heartbeat("m", -1)).error_code == 0

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-6", "CM-14")
def test_a_shard_that_is_elsewhere_answers_with_its_owner() -> None:
    async def body(world: GroupCluster) -> None:
        world.owner = OwnerAddress(7, "10.0.0.9", 9092)
        world.role.hosts[shard_index("grp", 3)].lost("moved")
        response = await world.heartbeat("m", 0, ["foo"])
        assert (response.error_code, response.coordinator.node_id, response.coordinator.port) == (16, 7, 9092)
        (described,) = await _describe(world, "grp")
        assert (described.error_code, described.coordinator.host) == (16, "10.0.0.9")
        world.owner = None
        assert not (await world.heartbeat("m", 0, ["foo"])).HasField("coordinator")

    play(body)


@pytest.mark.rule("GC-4", "GC-5")
def test_a_write_that_is_not_confirmed_in_time_is_no_success_and_may_still_land() -> None:
    async def body(world: GroupCluster) -> None:
        log = world.log_of("grp")
        log.gate.clear()
        began_s = now_s()
        response = await world.heartbeat("m", 0, ["foo"])
        assert (response.error_code, now_s() - began_s) == (errors.CoordinatorNotAvailableError.code, 5)
        log.gate.set()
        again = await world.heartbeat("m", 0, ["foo"])
        assert (again.error_code, again.member_epoch) == (0, 2)

    play(body)


@pytest.mark.rule("GC-25", "GC-24b")
def test_the_assignment_is_absent_when_unchanged_and_the_host_is_the_callers() -> None:
    async def body(world: GroupCluster) -> None:
        world.create("foo", 2)
        joined = await world.heartbeat("m", 0, ["foo"], rack="r1")
        full = await world.until_assigned("m", joined.member_epoch)
        assert assigned(full) == {topic_id("foo"): [0, 1]}
        assert not (await world.heartbeat("m", full.member_epoch)).HasField("assignment")
        (group,) = await _describe(world, "grp")
        (member,) = group.members
        assert (member.client_host, member.rack_id, member.member_epoch) == ("/10.0.0.7", "r1", full.member_epoch)

    play(body)


@pytest.mark.scenario("S-075")
@pytest.mark.rule("GC-125", "GC-126", "GC-129")
@pytest.mark.scenario("S-077")
def test_groups_are_described_and_unknown_and_empty_ids_have_their_errors() -> None:
    async def body(world: GroupCluster) -> None:
        world.create("foo", 2)
        joined = await world.heartbeat("m", 0, ["foo"])
        full = await world.until_assigned("m", joined.member_epoch)
        live, fake, empty = await _describe(world, "grp", "fake", "")
        assert (live.error_code, live.group_state, live.assignor_name) == (0, "Stable", "simple")
        assert (live.group_epoch, live.assignment_epoch) == (full.member_epoch, full.member_epoch)
        (member,) = live.members
        assert (member.client_id, list(member.subscribed_topic_names)) == (CLIENT_ID, ["foo"])
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, list(topic.partitions)) == (topic_id("foo"), "foo", [0, 1])
        assert (fake.error_code, fake.error_message) == (69, "Group fake not found.")
        assert empty.error_code == errors.InvalidGroupIdError.code
        world.delete("foo")
        (after,) = await _describe(world, "grp")
        assert list(after.members[0].assignment.topic_partitions) == []

    play(body)


@pytest.mark.rule("GC-129")
def test_a_description_waits_for_what_it_shows_to_be_durable() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("m", 0, ["foo"])
        log = world.log_of("grp")
        log.gate.clear()
        joining = asyncio.ensure_future(world.heartbeat("n", 0, ["foo"]))
        await asyncio.sleep(0)
        described = asyncio.ensure_future(_describe(world, "grp"))
        await asyncio.sleep(1)
        assert not described.done()
        log.gate.set()
        assert (await joining).error_code == 0
        (group,) = await described
        assert [member.member_id for member in group.members] == ["m", "n"]

    play(body)


@pytest.mark.rule("GC-127", "GC-128")
def test_a_hidden_assigned_topic_hides_the_group_and_operations_are_a_bit_field() -> None:
    acls = Acls(
        "READ GROUP *",
        "DESCRIBE GROUP *",
        "DELETE GROUP grp",
        "DESCRIBE TOPIC foo",
    )

    async def body(world: GroupCluster) -> None:
        world.create("foo", 1)
        joined = await world.heartbeat("m", 0, ["foo"])
        await world.until_assigned("m", joined.member_epoch)
        (group,) = await _describe(world, "grp", operations=True)
        assert group.authorized_operations == sum(
            1 << each for each in (Operation.READ, Operation.DELETE, Operation.DESCRIBE)
        )
        assert (await _describe(world, "grp"))[0].authorized_operations == NO_OPERATIONS
        acls.take("DESCRIBE TOPIC foo")
        (hidden,) = await _describe(world, "grp", operations=True)
        assert (hidden.error_code, list(hidden.members)) == (29, [])
        assert hidden.authorized_operations == NO_OPERATIONS
        assert "not authorized to describe" in hidden.error_message
        acls.take("DESCRIBE GROUP *", "READ GROUP *", "DELETE GROUP grp")  # each of them includes DESCRIBE
        assert (await _describe(world, "grp"))[0].error_code == 30

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-158")
def test_whatever_names_a_damaged_group_says_that_it_waits_for_an_operator() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("m", 0, ["foo"])
        shard = world.role.hosts[shard_index("grp", 3)].shard
        assert shard is not None
        shard.quarantine(DamagedEntry("{gc:3}:log", "7-3", "is damaged", "grp"))
        topics = AlterShareGroupOffsetsRequest.TopicList()
        world.create("foo", 1)
        topics.values.add(topic_name="foo").partitions.add(partition_index=0, start_offset=0)
        removed = DeleteShareGroupOffsetsRequest.TopicList()
        removed.values.add(topic_name="foo")
        asked = OffsetsRequest(groups=[OffsetsRequest.Group(group_id="grp")])
        answers: list[Any] = [
            *await _describe(world, "grp"),
            *cast(Any, await world.call("DescribeShareGroupOffsets", asked)).groups,
            *cast(Any, await world.call("DeleteGroups", DeleteGroupsRequest(groups_names=["grp"]))).results,
            await world.call("AlterShareGroupOffsets", AlterShareGroupOffsetsRequest(group_id="grp", topics=topics)),
            await world.call("DeleteShareGroupOffsets", DeleteShareGroupOffsetsRequest(group_id="grp", topics=removed)),
        ]
        assert len(answers) == 5
        for answer in answers:
            assert (answer.error_code, answer.in_quarantine) == (errors.CoordinatorNotAvailableError.code, True)
            assert "what is stored of group grp is in quarantine: entry 7-3 of {gc:3}:log" in answer.error_message
            assert "`sharegroups state repair`" in answer.error_message
        (other,) = await _describe(world, "other")
        assert not other.in_quarantine

    play(body)


@pytest.mark.rule("GC-128")
def test_without_an_authorizer_all_operations_are_3400() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("m", 0, ["foo"])
        (group,) = await _describe(world, "grp", operations=True)
        assert group.authorized_operations == 3400

    play(body)


@pytest.mark.rule("CM-91")
def test_a_describe_of_too_many_groups_is_refused_whole() -> None:
    async def body(world: GroupCluster) -> None:
        names = [f"g{number}" for number in range(REQUEST_GROUPS_MAX)]
        assert {group.error_code for group in await _describe(world, *names)} == {69}
        with pytest.raises(TransportError, match="at most 1000 go into one request") as refused:
            await _describe(world, *names, "one more")
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT

    play(body)


@pytest.mark.rule("CM-91")
def test_a_group_named_often_is_described_once_and_a_long_id_is_refused() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("m", 0, ["foo"])
        assert len(await _describe(world, *["grp"] * 500)) == 1
        with pytest.raises(TransportError, match="256 characters"):
            await _describe(world, "g" * 256)

    play(body)


@pytest.mark.rule("CM-91")
def test_descriptions_of_several_groups_that_are_too_large_together_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "DESCRIPTIONS_BYTES_MAX", 300)

    async def body(world: GroupCluster) -> None:
        for name in ("g", "h"):
            await world.heartbeat("m", 0, ["t" * 200], name)
        assert len(await _describe(world, "g")) == 1
        with pytest.raises(TransportError, match="describe fewer groups by one request"):
            await _describe(world, "g", "h")

    play(body)


@pytest.mark.scenario("S-077")
@pytest.mark.rule("GC-120", "GC-121", "GC-123")
@pytest.mark.scenario("S-075")
def test_groups_of_all_shards_are_listed_and_filtered() -> None:
    async def body(world: GroupCluster) -> None:
        for number in range(5):
            await world.heartbeat("m", 0, ["foo"], f"g{number}")
        await world.heartbeat("m", -1, None, "g3")
        everything = await _list(world)
        assert [(group.group_id, group.group_state) for group in everything.groups] == [
            ("g0", "Stable"),
            ("g1", "Stable"),
            ("g2", "Stable"),
            ("g3", "Empty"),
            ("g4", "Stable"),
        ]
        assert {(group.protocol_type, group.group_type) for group in everything.groups} == {("share", "share")}
        for states, types, count in (
            ([" empty "], None, 1),
            (["stable", "EMPTY"], ["SHARE"], 5),
            ([], [], 5),
            (["dead"], None, 0),
            (None, ["consumer"], 0),
        ):
            assert len((await _list(world, states, types)).groups) == count

    play(body)


def _unserved(answer: ListGroupsResponse) -> dict[int, int]:
    return {each.shard: each.error_code for each in answer.unserved_shards}


@pytest.mark.rule("GC-123")
def test_a_shard_that_is_elsewhere_is_named_and_another_failure_fails_the_list_but_for_the_other_shards() -> None:
    away = errors.NotCoordinatorError.code

    async def body(world: GroupCluster) -> None:
        for number in range(6):
            await world.heartbeat("m", 0, ["foo"], f"g{number}")
        at = {f"g{number}": shard_index(f"g{number}", 3) for number in range(6)}
        assert set(at.values()) == {0, 1, 2}
        assert not (await _list(world)).unserved_shards
        world.role.hosts[0].lost("moved")
        found = await _list(world)
        assert [group.group_id for group in found.groups] == [name for name, shard in at.items() if shard]
        assert (found.error_code, _unserved(found)) == (0, {0: away})
        log = world.logs[1]
        log.gate.clear()
        await world.heartbeat("m", 0, ["bar"], next(name for name, shard in at.items() if shard == 1))
        failed = await _list(world)
        log.gate.set()
        assert [group.group_id for group in failed.groups] == [name for name, shard in at.items() if shard == 2]
        assert failed.error_code == errors.CoordinatorNotAvailableError.code
        assert _unserved(failed) == {0: away, 1: failed.error_code}
        assert failed.unserved_shards[1].error_message == failed.error_message

    play(body)


@pytest.mark.rule("GC-122")
def test_only_groups_that_may_be_described_are_listed() -> None:
    acls = Acls(
        "READ GROUP *",
        "DESCRIBE TOPIC *",
        "DESCRIBE GROUP b",
    )

    async def body(world: GroupCluster) -> None:
        for group_id in ("a", "b"):
            await world.heartbeat("m", 0, ["foo"], group_id)
        acls.take("READ GROUP *")
        assert [group.group_id for group in (await _list(world)).groups] == ["b"]
        acls.give("DESCRIBE CLUSTER kafka-cluster")
        assert [group.group_id for group in (await _list(world)).groups] == ["a", "b"]

    play(body, GroupCluster(access=acls))


def test_counters_with_a_reason_begin_at_0() -> None:
    """A rate over a series that begins at 1 misses the first event."""

    async def body(world: GroupCluster) -> None:
        for reason in ("lost_connection", "session_timeout"):
            value = world.registry.get_sample_value(
                "sharegroups_group_coordinator_expired_members_total", {"reason": reason}
            )
            assert value == 0

    play(body)


@pytest.mark.rule("GC-150", "GC-151", "GC-152", "GC-157", "OP-9", "GC-40", "GC-156")
def test_groups_and_rebalances_are_counted_by_protocol_and_state() -> None:
    async def body(world: GroupCluster) -> None:
        await world.heartbeat("m", 0, ["foo"])
        value, share = world.registry.get_sample_value, {"protocol": "share"}
        assert value("sharegroups_group_coordinator_groups", {**share, "state": "Stable"}) == 1
        await world.heartbeat("m", 2)
        await world.heartbeat("m", 0, ["foo"], "other")
        await world.heartbeat("m", -1, None, "other")
        assert value("sharegroups_group_coordinator_rebalances_total", share) == 2
        states = ("Empty", "Stable", "Dead")
        counts = [value("sharegroups_group_coordinator_groups", {**share, "state": state}) for state in states]
        assert counts == [1, 1, 0]

    play(body)
