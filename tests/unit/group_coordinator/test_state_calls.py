"""Calls that change share-partition state: their outcomes come back, and none is lost (GC-72…GC-76, GC-80, GC-82,
OP-5)."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from group_coordinator.core import commands as c
from group_coordinator.core.group import Group
from group_coordinator.core.shard import GroupShard
from group_coordinator.state_calls import ADMIN_ORDER_S
from kip932 import errors
from kip932.ids import TopicIdPartition, shard_index
from kip932.rpc.transport import TransportError
from kip932.state_values import StateSummary
from shard_runtime.record_log.protocol import AppendRefusedError
from share_persister import PersisterError
from tests.support.group_admin import delete_groups, delete_offsets, deleted
from tests.support.group_cluster import GroupCluster, assigned, play
from tests.support.group_driver import topic_id
from tests.support.virtual_time import now_s

T = topic_id("t")
T0, T1 = TopicIdPartition(T, 0), TopicIdPartition(T, 1)


def _groups(world: GroupCluster) -> dict[str, Group]:
    shard = world.role.hosts[shard_index("grp", 3)].shard
    assert isinstance(shard, GroupShard)
    return dict(shard.groups)


def _states(world: GroupCluster) -> dict[bytes, tuple[int, ...]]:
    return dict(_groups(world)["grp"].states.initialized)


async def _joined(world: GroupCluster) -> int:
    world.create("t", 2)
    return (await world.heartbeat("m", 0, ["t"])).member_epoch


@pytest.mark.rule("GC-75", "GC-76", "OP-17")
def test_a_definite_refusal_is_asked_for_again_by_the_next_heartbeat() -> None:
    async def body(world: GroupCluster) -> None:
        world.persister.refuse[T1] = PersisterError(errors.InvalidRequestError(), outcome_unknown=False)
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        assert _states(world) == {T: (0,)}
        world.persister.refuse.clear()
        await world.heartbeat("m", epoch)
        await asyncio.sleep(0.01)
        assert _states(world) == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-75")
def test_an_outcome_that_the_store_refuses_leaves_the_partitions_to_their_retry() -> None:
    async def body(world: GroupCluster) -> None:
        world.persister.gate.clear()
        epoch = await _joined(world)
        world.log_of("grp").failures.append(AppendRefusedError("OOM"))
        world.persister.gate.set()
        await asyncio.sleep(0.01)
        assert len(world.persister.states) == 2
        assert _states(world) == {}
        await asyncio.sleep(30)
        await world.heartbeat("m", epoch)
        await asyncio.sleep(0.01)
        assert _states(world) == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-72", "GC-76a")
@pytest.mark.parametrize("how", ["unknown", "exception", "kafka"])
def test_an_unknown_outcome_waits_for_the_retry_interval(how: str) -> None:
    async def body(world: GroupCluster) -> None:
        failures = {"exception": OSError("gone"), "kafka": errors.RequestTimedOutError()}
        if how == "unknown":
            unknown = PersisterError(errors.RequestTimedOutError(), outcome_unknown=True)
            world.persister.refuse = {T0: unknown, T1: unknown}
        else:
            world.persister.broken = failures[how]
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        world.persister.refuse, world.persister.broken = {}, None
        await world.heartbeat("m", epoch)
        assert world.persister.calls.count(("initialize", "grp")) == 1
        await asyncio.sleep(30)
        await world.heartbeat("m", epoch)
        await asyncio.sleep(0.01)
        assert world.persister.calls.count(("initialize", "grp")) == 2
        assert _states(world) == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-76")
def test_a_fenced_initialisation_is_repeated_above_the_stored_epoch() -> None:
    async def body(world: GroupCluster) -> None:
        world.persister.states["grp", T0] = StateSummary(41, 0, 7, 0)
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        assert world.persister.states["grp", T0].state_epoch == 42
        assert world.persister.states["grp", T1].state_epoch == 2
        response = await world.heartbeat("m", epoch)
        assert (response.member_epoch, assigned(response)) == (42, {T: [0, 1]})

    play(body)


@pytest.mark.rule("GC-69d", "GC-76a", "CM-12", "GC-24i")
def test_a_call_under_way_ends_with_its_shard_and_the_next_owner_repeats_it() -> None:
    async def body(world: GroupCluster) -> None:
        world.persister.gate.clear()
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        await world.restart()
        world.persister.gate.set()
        await asyncio.sleep(0.01)
        assert world.persister.states == {}
        await world.heartbeat("m", epoch)
        await asyncio.sleep(0.01)
        assert _states(world) == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-99", "GC-93", "GC-74")
@pytest.mark.parametrize("of_group", [True, False])
def test_state_is_deleted_after_the_calls_that_initialise_it_have_ended(of_group: bool) -> None:
    """Of GC-74 it shows only that a call is under way as long as the persister repeats it; not how the persister splits
    it, finds its coordinators, or when it repeats it: the persister is a test's own here."""

    async def body(world: GroupCluster) -> None:
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        world.persister.gates["initialize"] = asyncio.Event()  # as if its share coordinator were moving
        world.create("t", 3)
        epoch = (await world.heartbeat("m", epoch)).member_epoch
        await world.heartbeat("m", -1)
        world.persister.calls.clear()
        call = delete_groups(world, "grp") if of_group else delete_offsets(world, ["t"])
        deletion = asyncio.ensure_future(call)
        await asyncio.sleep(5)
        assert world.persister.calls == []
        world.persister.gates["initialize"].set()
        await deletion
        assert world.persister.calls == [("delete", "grp")]
        assert world.persister.states == {}
        assert _groups(world).keys() == (set() if of_group else {"grp"})

    play(body)


@pytest.mark.rule("GC-99", "GC-108")
def test_a_deletion_waits_no_longer_than_its_own_bound() -> None:
    """Of GC-108 it shows the bound of an order that waits for other calls, and that the group can be deleted after it;
    not the bounds of other waits, nor that the bound is 40 s."""

    async def body(world: GroupCluster) -> None:
        world.persister.gates["initialize"] = asyncio.Event()
        await _joined(world)
        await world.heartbeat("m", -1)
        with pytest.raises(TransportError):
            await delete_groups(world, "grp")  # the caller's own time-out is shorter
        in_progress = (await delete_groups(world, "grp"))["grp"]
        assert in_progress.error_code == errors.CoordinatorLoadInProgressError.code
        await asyncio.sleep(ADMIN_ORDER_S + 1 - now_s())
        world.persister.gates["initialize"].set()
        await asyncio.sleep(1)
        assert world.persister.calls == [("initialize", "grp")]
        assert (await delete_groups(world, "grp"))["grp"].error_code == 0
        assert world.persister.states == {}

    play(body)


@pytest.mark.rule("GC-99")
def test_a_deletion_waits_for_no_other_initialisation() -> None:
    async def body(world: GroupCluster) -> None:
        epoch = await _joined(world)
        await asyncio.sleep(0.01)
        world.persister.gates["initialize"] = asyncio.Event()
        other = world.create("u", 1)
        await world.heartbeat("m", epoch, ["t", "u"])
        await world.heartbeat("m", -1)
        assert deleted(await delete_offsets(world, ["t"])) == {"t": 0}
        assert world.persister.states == {}
        world.persister.gates["initialize"].set()
        await asyncio.sleep(0.01)
        assert _states(world) == {other: (0,)}

    play(body)


@pytest.mark.rule("GC-2", "GC-24i")
def test_nothing_is_ordered_before_the_batch_is_durable() -> None:
    async def body(world: GroupCluster) -> None:
        world.create("t", 2)
        log = world.log_of("grp")
        log.gate.clear()
        beat = asyncio.ensure_future(world.heartbeat("m", 0, ["t"]))
        await asyncio.sleep(1)
        assert world.persister.calls == []
        flushes = len(log.flushes)
        log.gate.set()
        assert (await beat).error_code == 0
        assert log.flushes[flushes:] == [6]  # all records of the join are in one append
        await asyncio.sleep(0.01)
        assert world.persister.calls == [("initialize", "grp")]

    play(body)


@pytest.mark.rule("GC-79", "GC-80", "OP-5")
def test_a_deleted_topic_is_swept_at_once_and_its_state_deleted() -> None:
    async def body(world: GroupCluster) -> None:
        await _joined(world)
        await asyncio.sleep(0.01)
        assert len(world.persister.states) == 2
        world.delete("t")
        await asyncio.sleep(0.01)
        assert _states(world) == {}
        assert world.persister.states == {}

    play(body)


@pytest.mark.rule("GC-80")
def test_nothing_is_swept_while_the_image_may_be_older_than_the_log() -> None:
    async def body(world: GroupCluster) -> None:
        await _joined(world)
        await asyncio.sleep(0.01)
        world.complete_since_ms = world.clock.now_ms()
        await asyncio.sleep(1)
        await world.restart()
        world.delete("t")
        await asyncio.sleep(100)
        assert _states(world) == {T: (0, 1)}
        assert len(world.persister.states) == 2
        world.complete_since_ms = None
        await asyncio.sleep(31)
        assert _states(world) == {}

    play(body)


@pytest.mark.rule("GC-80")
def test_the_timer_finds_a_deletion_that_was_not_reported() -> None:
    async def body(world: GroupCluster) -> None:
        await _joined(world)
        await asyncio.sleep(0.01)
        world.image = world.image.without("t")
        await asyncio.sleep(31)
        assert _states(world) == {}

    play(body)


@pytest.mark.rule("GC-82")
def test_state_that_the_share_coordinator_lost_is_found_at_load_and_initialised_from_0() -> None:
    async def body(world: GroupCluster) -> None:
        epoch = await _joined(world)
        response = await world.until_assigned("m", epoch)
        del world.persister.states["grp", T1]
        with capture_logs() as lines:
            await world.restart()
            await asyncio.sleep(0.01)
        (reported,) = [line for line in lines if line["event"] == "share_state_lost"]
        assert (reported["log_level"], reported["group"], reported["count"]) == ("error", "grp", 1)
        assert world.persister.states["grp", T1].start_offset == 0
        assert world.persister.states["grp", T0].start_offset == -1
        assert world.registry.get_sample_value("sharegroups_group_coordinator_repaired_partitions_total") == 1
        assert (await world.heartbeat("m", response.member_epoch)).error_code == 0

    play(body)


@pytest.mark.rule("GC-82")
def test_a_summary_that_cannot_be_read_repairs_nothing() -> None:
    async def body(world: GroupCluster) -> None:
        await _joined(world)
        await asyncio.sleep(0.01)
        world.persister.refuse[T0] = PersisterError(errors.CoordinatorNotAvailableError(), outcome_unknown=True)
        before = dict(world.persister.states)
        await world.restart()
        await asyncio.sleep(700)
        assert world.persister.states == before

    play(body)


@pytest.mark.rule("GC-76a")
def test_an_outcome_for_a_group_that_is_elsewhere_is_dropped() -> None:
    async def body(world: GroupCluster) -> None:
        await _joined(world)
        await asyncio.sleep(0.01)
        shard = world.role.shards
        world.role.hosts[shard_index("grp", 3)].lost("moved")
        with pytest.raises(errors.NotCoordinatorError):
            await shard.submit(shard_index("grp", 3), c.InitializationFinished("grp", 1, (T0,)))

    play(body)


@pytest.mark.rule("CM-13", "GC-2")
def test_a_refused_append_fails_the_join_and_leaves_no_member_behind() -> None:
    async def body(world: GroupCluster) -> None:
        world.create("t", 2)
        world.log_of("grp").failures.append(AppendRefusedError("OOM"))
        refused = await world.heartbeat("m", 0, ["t"])
        assert refused.error_code == errors.CoordinatorNotAvailableError.code
        assert _groups(world) == {}
        assert world.persister.calls == []
        await asyncio.sleep(60)
        assert (await world.heartbeat("m", 0, ["t"])).member_epoch == 2

    play(body)
