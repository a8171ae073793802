"""S-065 … S-070, S-072, S-073 over gRPC and a real store (S-071 needs a virtual clock: tests/scenarios)."""

from __future__ import annotations

import os
import signal

import pytest

from kip932 import errors
from kip932.api.v1 import list_groups_pb2 as list_pb
from kip932.api.v1 import share_group_describe_pb2 as describe_pb
from kip932.api.v1.share_group_heartbeat_pb2 import ShareGroupHeartbeatRequest
from tests.integration.scenarios.wire import Wire, assigned, attempts
from tests.support.node import KAFKA, Cluster, unique

pytestmark = pytest.mark.asyncio


def _outcome(answer: object) -> tuple[int, int]:
    return (answer.error_code, answer.member_epoch)  # type: ignore[attr-defined]


async def _members(wire: Wire, group: str) -> dict[str, int]:
    """Return the member epochs that ShareGroupDescribe reports."""
    request = describe_pb.ShareGroupDescribeRequest(group_ids=[group])
    (found,) = (await wire.call("ShareGroupDescribe", request, await wire.coordinator(group))).groups
    assert found.error_code == 0, found.error_message
    return {member.member_id: member.member_epoch for member in found.members}


async def _groups(wire: Wire) -> set[str]:
    answer = await wire.call("ListGroups", list_pb.ListGroupsRequest())
    return {group.group_id for group in answer.groups}


@pytest.mark.scenario("S-065")
async def test_join_get_partitions_when_the_topic_appears_leave(kafka: Wire) -> None:
    foo, group, member = unique("foo"), unique("grp"), unique("m")
    first = await kafka.heartbeat(group, member, 0, [foo])
    assert _outcome(first) == (0, 2)
    assert first.HasField("assignment")
    assert assigned(first) == {}
    topic_id = await kafka.create_topic(foo, 3)
    later = await kafka.until_assigned(group, member, first.member_epoch)
    assert (later.member_epoch, assigned(later)) == (4, {topic_id: [0, 1, 2]})
    left = await kafka.heartbeat(group, member, -1)
    assert (*_outcome(left), left.heartbeat_interval_ms) == (0, -1, 0)
    assert await _members(kafka, group) == {}


@pytest.mark.scenario("S-066")
async def test_two_members(kafka: Wire) -> None:
    foo, group = unique("foo"), unique("grp")
    assert _outcome(await kafka.heartbeat(group, "A", 0, [foo])) == (0, 2)
    assert _outcome(await kafka.heartbeat(group, "B", 0, [foo])) == (0, 3)
    topic_id = await kafka.create_topic(foo, 3)
    a = await kafka.until_assigned(group, "A", 2)
    b = await kafka.heartbeat(group, "B", 3)
    assert (a.member_epoch, b.member_epoch) == (5, 5)
    assert sorted(assigned(a)[topic_id] + assigned(b)[topic_id]) == [0, 1, 2]
    again = await kafka.heartbeat(group, "A", 4)
    assert (*_outcome(again), again.HasField("assignment")) == (0, 5, False)


@pytest.mark.scenario("S-067")
async def test_leave_and_rejoin_with_the_same_member_id(kafka: Wire) -> None:
    foo, group = unique("foo"), unique("grp")
    await kafka.heartbeat(group, "A", 0, [foo])
    topic_id = await kafka.create_topic(foo, 2)
    assert (await kafka.until_assigned(group, "A", 2)).member_epoch == 4
    assert _outcome(await kafka.heartbeat(group, "A", -1)) == (0, -1)
    back = await kafka.heartbeat(group, "A", 0, [foo])
    assert (back.member_id, *_outcome(back), assigned(back)) == ("A", 0, 6, {topic_id: [0, 1]})


@pytest.mark.scenario("S-069")
async def test_session_expiry_and_rejoin(kafka: Wire) -> None:
    """The times are more than twice the scenario's, so that on a busy machine no member expires while it heartbeats."""
    foo, bar, group = unique("foo"), unique("bar"), unique("grp")
    await kafka.set_group(group, {"share.heartbeat.interval.ms": "500", "share.session.timeout.ms": "1500"})
    foo_id = await kafka.create_topic(foo, 2)
    first = await kafka.heartbeat(group, "m", 0, [foo])
    assert first.heartbeat_interval_ms == 500
    has_foo = await kafka.until_assigned(group, "m", first.member_epoch)
    assert assigned(has_foo) == {foo_id: [0, 1]}
    bar_id = await kafka.create_topic(bar, 1)
    changed = await kafka.heartbeat(group, "m", has_foo.member_epoch, [foo, bar])
    both = await kafka.until_assigned(group, "m", changed.member_epoch, {foo_id: [0, 1], bar_id: [0]})
    assert first.member_epoch < has_foo.member_epoch < changed.member_epoch <= both.member_epoch
    assert _outcome(await kafka.heartbeat(group, "m", both.member_epoch)) == (0, both.member_epoch)
    async for _ in attempts():
        if not await _members(kafka, group):
            break
    gone = await kafka.heartbeat(group, "m", both.member_epoch)
    assert gone.error_code == errors.UnknownMemberIdError.code
    assert gone.error_message == f"Member m is not a member of group {group}."
    back = await kafka.heartbeat(group, "m", 0, [foo, bar])
    assert (back.error_code, assigned(back)) == (0, {foo_id: [0, 1], bar_id: [0]})
    assert back.member_epoch > both.member_epoch


@pytest.mark.scenario("S-068")
@pytest.mark.scenario("S-070")
@pytest.mark.rule("GC-69e", "OP-1")
async def test_size_limit_and_a_killed_group_coordinator() -> None:
    """Both need their own cluster: the roles are processes, and the group coordinator is killed."""
    with Cluster({**KAFKA, "group.share.max.size": "2"}, "--processes") as cluster:
        async with Wire(cluster.bootstrap, cluster.internal) as wire:
            foo, group = "foo", "grp"
            topic_id = await wire.create_topic(foo, 2)
            small = [(await wire.heartbeat("small", member, 0, [foo])).error_code for member in ("1", "2", "3")]
            assert small == [0, 0, errors.GroupMaxSizeReachedError.code]
            before = await _members(wire, "small")
            assert before.keys() == {"1", "2"}
            kept = await wire.heartbeat("small", "1", before["1"])
            assert kept.error_code == 0

            first = await wire.heartbeat(group, "A", 0, [foo])
            holding = await wire.until_assigned(group, "A", first.member_epoch)
            assert assigned(holding) == {topic_id: [0, 1]}
            leader = next(iter((await wire.leaders(foo, 2)).values())).address
            # The group coordinator is also the bootstrap address; clients must find it there again.
            os.kill(cluster.ready["pids"]["group_coordinator"], signal.SIGKILL)
            wire.bootstrap = leader
            after = await wire.heartbeat(group, "A", holding.member_epoch - 1)
            assert (*_outcome(after), after.HasField("assignment")) == (0, holding.member_epoch, False)
            assert await _members(wire, group) == {"A": holding.member_epoch}
            assert await wire.coordinator(group) == cluster.bootstrap


@pytest.mark.scenario("S-072")
async def test_the_member_id_is_the_clients(kafka: Wire) -> None:
    foo, bar, group, member = unique("foo"), unique("bar"), unique("grp"), unique("M")
    for name in (foo, bar):
        await kafka.create_topic(name)
    joined = await kafka.heartbeat(group, member, 0, [foo, bar])
    assert (joined.member_id, *_outcome(joined), joined.heartbeat_interval_ms) == (member, 0, 2, 5_000)
    request = ShareGroupHeartbeatRequest(group_id=group, member_epoch=0)
    request.subscribed_topic_names.values.append(foo)
    nameless = await kafka.call("ShareGroupHeartbeat", request, await kafka.coordinator(group))
    assert nameless.error_code == errors.InvalidRequestError.code
    assert nameless.error_message == "Invalid member id in the request."
    assert not nameless.HasField("member_id")
    assert (await _members(kafka, group)).keys() == {member}


@pytest.mark.scenario("S-073")
async def test_unknown_group_and_unknown_member(kafka: Wire) -> None:
    group, nope = unique("g1"), unique("nope")
    joined = await kafka.heartbeat(group, "m", 0, [unique("foo")])
    unknown_group = await kafka.heartbeat(nope, "m", 100)
    assert unknown_group.error_code == errors.GroupIdNotFoundError.code
    assert nope in unknown_group.error_message
    unknown_member = await kafka.heartbeat(group, "new", 1)
    assert unknown_member.error_code == errors.UnknownMemberIdError.code
    assert "new" in unknown_member.error_message
    assert nope not in await _groups(kafka)
    assert await _members(kafka, group) == {"m": joined.member_epoch}


@pytest.mark.rule("GC-23")
async def test_a_stale_member_epoch_is_fenced_and_the_member_stays(kafka: Wire) -> None:
    foo, group = unique("foo"), unique("grp")
    await kafka.create_topic(foo)
    first = await kafka.heartbeat(group, "m", 0, [foo])
    now = (await kafka.until_assigned(group, "m", first.member_epoch)).member_epoch
    for stale in (1, now + 1):
        fenced = await kafka.heartbeat(group, "m", stale)
        assert fenced.error_code == errors.FencedMemberEpochError.code
        assert str(stale) in fenced.error_message
        assert str(now) in fenced.error_message
    assert _outcome(await kafka.heartbeat(group, "m", now)) == (0, now)
