"""S-065…S-074, S-076, and S-078, run with real handlers, hosts and messages."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from kip932 import errors
from shard_runtime.config.group_config import GroupConfig
from tests.support.group_cluster import KAFKA, GroupCluster, assigned
from tests.support.group_driver import topic_id
from tests.support.virtual_time import virtual

FOO, BAR = topic_id("foo"), topic_id("bar")


def _outcome(response: object) -> tuple[int, int]:
    return (response.error_code, response.member_epoch)  # type: ignore[attr-defined]


@pytest.mark.scenario("S-065")
@virtual
async def test_join_get_partitions_when_the_topic_appears_leave() -> None:
    async with GroupCluster() as world:
        first = await world.heartbeat("m", 0, ["foo"])
        assert _outcome(first) == (0, 2)
        assert first.HasField("assignment")
        assert assigned(first) == {}
        world.create("foo", 3)
        later = await world.until_assigned("m", first.member_epoch)
        assert (later.member_epoch, assigned(later)) == (4, {FOO: [0, 1, 2]})
        left = await world.heartbeat("m", -1)
        assert (*_outcome(left), left.heartbeat_interval_ms) == (0, -1, 0)


@pytest.mark.scenario("S-066")
@virtual
async def test_two_members() -> None:
    async with GroupCluster() as world:
        assert _outcome(await world.heartbeat("A", 0, ["foo"])) == (0, 2)
        assert _outcome(await world.heartbeat("B", 0, ["foo"])) == (0, 3)
        world.create("foo", 3)
        a = await world.until_assigned("A", 2)
        b = await world.heartbeat("B", 3)
        assert (a.member_epoch, b.member_epoch) == (5, 5)
        assert sorted(assigned(a)[FOO] + assigned(b)[FOO]) == [0, 1, 2]
        again = await world.heartbeat("A", 4)
        assert (*_outcome(again), again.HasField("assignment")) == (0, 5, False)


@pytest.mark.scenario("S-067")
@virtual
async def test_leave_and_rejoin_with_the_same_member_id() -> None:
    async with GroupCluster() as world:
        await world.heartbeat("A", 0, ["foo"])
        world.create("foo", 2)
        assert (await world.until_assigned("A", 2)).member_epoch == 4
        assert _outcome(await world.heartbeat("A", -1)) == (0, -1)
        back = await world.heartbeat("A", 0, ["foo"])
        assert (back.member_id, *_outcome(back), assigned(back)) == ("A", 0, 6, {FOO: [0, 1]})


@pytest.mark.scenario("S-068")
@virtual
async def test_group_size_limit() -> None:
    async with GroupCluster(replace(KAFKA, max_size=2)) as world:
        codes = [(await world.heartbeat(member, 0, ["foo"])).error_code for member in ("1", "2", "3")]
        assert codes == [0, 0, errors.GroupMaxSizeReachedError.code]
        assert _outcome(await world.heartbeat("1", 2)) == (0, 3)
        assert _outcome(await world.heartbeat("2", 3)) == (0, 3)


@pytest.mark.scenario("S-069")
@virtual
async def test_session_expiry_and_rejoin() -> None:
    async with GroupCluster() as world:
        world.configs = GroupConfig(session_timeout_ms=501, heartbeat_interval_ms=500, assignment_interval_ms=0)
        world.create("foo", 2)
        first = await world.heartbeat("m", 0, ["foo"])
        foo = await world.until_assigned("m", first.member_epoch)
        world.create("bar", 1)
        changed = await world.heartbeat("m", foo.member_epoch, ["foo", "bar"])
        both = await world.until_assigned("m", changed.member_epoch)
        assert assigned(both) == {FOO: [0, 1], BAR: [0]}
        assert first.member_epoch < foo.member_epoch < changed.member_epoch < both.member_epoch
        assert _outcome(await world.heartbeat("m", both.member_epoch)) == (0, both.member_epoch)
        await asyncio.sleep(1)
        gone = await world.heartbeat("m", both.member_epoch)
        assert gone.error_code == errors.UnknownMemberIdError.code
        back = await world.heartbeat("m", 0, ["foo", "bar"])
        assert (back.error_code, assigned(back)) == (0, {FOO: [0, 1], BAR: [0]})
        assert back.member_epoch > both.member_epoch


@pytest.mark.scenario("S-070")
@pytest.mark.rule("GC-69b", "GC-69e", "OP-1", "GC-29", "GC-69c")
@virtual
async def test_membership_survives_a_group_coordinator_restart() -> None:
    async with GroupCluster() as world:
        await world.heartbeat("A", 0, ["foo"])
        world.create("foo", 2)
        assert (await world.until_assigned("A", 2)).member_epoch == 4
        entries = len(world.log_of("grp").entries)
        await asyncio.sleep(40)
        await world.restart()
        await asyncio.sleep(40)
        after = await world.heartbeat("A", 3)
        assert (*_outcome(after), after.HasField("assignment")) == (0, 4, False)
        assert len(world.log_of("grp").entries) == entries + 1  # only the new owner's claim


@pytest.mark.rule("GC-29", "GC-30")
@pytest.mark.scenario("S-071")
@virtual
async def test_what_a_session_expiry_writes() -> None:
    async with GroupCluster() as world:
        assert _outcome(await world.heartbeat("m", 0, ["foo"])) == (0, 2)
        log, host = world.log_of("grp"), world.role.hosts[_shard(world)]
        before = len(log.entries)
        await asyncio.sleep(44.999)
        assert len(log.entries) == before
        await asyncio.sleep(0.002)
        codec = GroupLogCodec()
        assert [codec.decode(entry.kind, entry.record) for entry in log.entries[before:]] == [
            r.Tombstone(r.CURRENT, "grp", "m", "expired"),
            r.Tombstone(r.TARGET, "grp", "m", "expired"),
            r.Tombstone(r.MEMBER, "grp", "m", "expired"),
            r.GroupMetadata("grp", 3, 0, 0),
            r.TargetMetadata("grp", 3, 0),
        ]
        assert host.shard is not None
        assert host.shard.next_deadline() is None


def _shard(world: GroupCluster) -> int:
    return world.logs.index(world.log_of("grp"))


def _timer_ms(world: GroupCluster) -> int:
    """Return the remaining time of the group's only timer."""
    host = world.role.hosts[_shard(world)]
    assert host.shard is not None
    deadline = host.shard.next_deadline()
    assert deadline is not None
    return int(deadline - world.clock.now_ms())


@pytest.mark.rule("OP-21")
@pytest.mark.scenario("S-072")
@virtual
async def test_the_member_id_is_the_clients() -> None:
    async with GroupCluster() as world:
        world.create("foo", 1)
        world.create("bar", 1)
        joined = await world.heartbeat("M", 0, ["foo", "bar"])
        assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("M", 2, 5_000)
        nameless = await world.heartbeat("", 0, ["foo", "bar"])
        assert nameless.error_code == errors.InvalidRequestError.code
        assert not nameless.HasField("member_id")


@pytest.mark.scenario("S-073")
@virtual
async def test_unknown_group_and_unknown_member() -> None:
    async with GroupCluster() as world:
        await world.heartbeat("m", 0, ["foo"], "g1")
        sizes = [len(log.entries) for log in world.logs]
        assert (await world.heartbeat("m", 100, None, "nope")).error_code == errors.GroupIdNotFoundError.code
        assert (await world.heartbeat("new", 1, None, "g1")).error_code == errors.UnknownMemberIdError.code
        assert [len(log.entries) for log in world.logs] == sizes


@pytest.mark.scenario("S-074")
@virtual
async def test_a_member_epoch_that_is_neither_the_last_nor_the_one_before_is_fenced() -> None:
    async with GroupCluster() as world:
        await world.heartbeat("m", 0, ["foo"])
        world.create("foo", 1)
        assert (await world.until_assigned("m", 2)).member_epoch == 4
        assert _outcome(await world.heartbeat("m", 4, ["foo", "bar"])) == (0, 5)
        entries = len(world.log_of("grp").entries)
        answers = {epoch: await world.heartbeat("m", epoch) for epoch in (5, 4, 6, 3)}
        assert {epoch: answer.error_code for epoch, answer in answers.items()} == {
            5: 0,
            4: 0,
            6: errors.FencedMemberEpochError.code,
            3: errors.FencedMemberEpochError.code,
        }
        assert len(world.log_of("grp").entries) == entries
        assert "rejoin" in answers[6].error_message
        assert assigned(await world.heartbeat("m", 0, ["foo", "bar"])) == {FOO: [0]}


@pytest.mark.scenario("S-076")
@virtual
async def test_a_heartbeat_that_makes_no_sense_is_refused_with_the_reason() -> None:
    refused: tuple[tuple[tuple[str, int, list[str] | None, str, str | None], str], ...] = (
        (("", 0, None, "", None), "Invalid member id in the request."),
        (("m", 0, ["foo"], "", None), "GroupId can't be empty."),
        (("m", 0, ["foo"], "   ", None), "GroupId can't be empty."),
        (("m", 0, None, "grp", None), "SubscribedTopicNames must be set in first request."),
        (("", 1, ["foo"], "grp", None), "Invalid member id in the request."),
        (("m", 1, ["foo"], "grp", ""), "RackId can't be empty."),
        (("m", -10, ["foo"], "grp", None), "MemberEpoch is invalid."),
    )
    async with GroupCluster() as world:
        for request, says in refused:
            answer = await world.heartbeat(*request)
            assert (answer.error_code, answer.error_message) == (errors.InvalidRequestError.code, says), request


@pytest.mark.scenario("S-078")
@virtual
async def test_session_timeout_and_heartbeat_interval_are_dynamic_per_group() -> None:
    async with GroupCluster() as world:
        assert (await world.heartbeat("m", 0, ["foo"])).heartbeat_interval_ms == 5_000
        assert _timer_ms(world) == 45_000
        world.configs = GroupConfig(session_timeout_ms=50_000, heartbeat_interval_ms=10_000, assignment_interval_ms=0)
        changed = await world.heartbeat("m", 2)
        assert (changed.heartbeat_interval_ms, changed.member_epoch) == (10_000, 2)
        assert _timer_ms(world) == 50_000
        await asyncio.sleep(49.9)
        assert _outcome(await world.heartbeat("m", 2)) == (0, 2)
        assert _outcome(await world.heartbeat("m", -1)) == (0, -1)
        host = world.role.hosts[_shard(world)]
        assert host.shard is not None
        assert host.shard.next_deadline() is None
