"""DeleteGroups and DeleteShareGroupOffsets (GC-90…GC-99) over real handlers and hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import delete_groups_pb2 as groups_pb
from kip932.ids import CHANGED_TOPICS_MAX, NULL_TOPIC_ID, REQUEST_GROUPS_MAX, TopicIdPartition, shard_index
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.state_values import StateSummary
from shard_runtime.cluster.owners import OwnerAddress
from shard_runtime.record_log.protocol import AppendRefusedError
from shard_runtime.rpc.binding import NO_CALLER
from share_persister import PersisterError
from tests.support.group_admin import delete_groups, delete_offsets, deleted, emptied, groups_of
from tests.support.group_cluster import Acls, GroupCluster, play
from tests.support.group_driver import topic_id
from tests.support.virtual_time import now_s

T, U = topic_id("t"), topic_id("u")
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
LOADING = errors.CoordinatorLoadInProgressError.code
REFUSED = PersisterError(errors.UnknownServerError("broken"), outcome_unknown=False)


def _codes(results: dict[str, Any]) -> dict[str, int]:
    return {group_id: found.error_code for group_id, found in results.items()}


@pytest.mark.rule("GC-90", "GC-91", "GC-92", "GC-93", "GC-95", "GC-7", "SC-81")
@pytest.mark.scenario("S-085")
def test_each_group_has_a_result_of_its_own() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t2", "t3", group_id="g1")
        world.persister.refuse[TopicIdPartition(topic_id("t3"), 1)] = REFUSED
        assert deleted(await delete_offsets(world, ["t3"], "g1")) == {"t3": -1}  # t3 stays in `deleting`
        world.persister.refuse.clear()
        world.persister.gate.clear()
        world.create("t1", 1)
        await world.heartbeat("m", 0, ["t1"], "g1")  # t1 stays in `initializing`
        await world.heartbeat("m", -1, None, "g1")
        await asyncio.sleep(0.01)
        world.persister.gate.set()
        await asyncio.sleep(0.01)
        await emptied(world, "t4", group_id="g3")
        await world.heartbeat("m", 0, ["t4"], "g2")
        await asyncio.sleep(0.01)
        before = groups_of(world)["g2"]
        world.persister.refuse[TopicIdPartition(topic_id("t4"), 0)] = REFUSED
        world.persister.calls.clear()
        found = await delete_groups(world, "g1", "g2", "g3", "", "unknown", "g1")
        assert _codes(found) == {
            "g1": 0,
            "g2": errors.NonEmptyGroupError.code,
            "g3": errors.UnknownServerError.code,
            "": errors.InvalidGroupIdError.code,
            "unknown": errors.GroupIdNotFoundError.code,
        }
        assert not found["g1"].HasField("error_message")
        assert "group g2 has 1 members" in found["g2"].error_message
        assert "1 partitions of group g3 still have state" in found["g3"].error_message
        assert groups_of(world).keys() == {"g2", "g3"}
        assert groups_of(world)["g2"] is before
        assert {key[0] for key in world.persister.states} == {"g2", "g3"}
        assert sorted(world.persister.calls) == [("delete", "g1"), ("delete", "g3")]

    play(body)


@pytest.mark.rule("GC-92")
def test_state_in_quarantine_keeps_the_group_and_no_retry_is_asked_for() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t", "u", group_id="g")
        away = PersisterError(errors.CoordinatorNotAvailableError("away"), outcome_unknown=True)
        damaged = PersisterError(errors.InQuarantineError("entry 7-3 is damaged"), outcome_unknown=False)
        world.persister.refuse |= {TopicIdPartition(T, 0): away, TopicIdPartition(U, 0): damaged}
        found = (await delete_groups(world, "g"))["g"]
        assert found.error_code == errors.GroupDeletionFailedError.code
        assert "2 partitions of group g still have state" in found.error_message
        assert "when that is settled" in found.error_message
        assert found.error_message.endswith("entry 7-3 is damaged")
        assert groups_of(world).keys() == {"g"}
        del world.persister.refuse[TopicIdPartition(U, 0)]
        assert _codes(await delete_groups(world, "g")) == {"g": errors.CoordinatorNotAvailableError.code}

    play(body)


@pytest.mark.rule("GC-90", "GC-139", "GC-149")
def test_who_may_not_delete_a_group_learns_nothing_of_it() -> None:
    acls = Acls(
        "DELETE GROUP open",
        "READ GROUP *",
        "DESCRIBE TOPIC *",
    )

    async def body(world: GroupCluster) -> None:
        await emptied(world, "foo", group_id="closed")
        await emptied(world, "foo", group_id="open")
        found = await delete_groups(world, "closed", "unknown", "open")
        assert _codes(found) == {"closed": 30, "unknown": 30, "open": 0}
        assert groups_of(world).keys() == {"closed"}
        for topics in (["foo"], None):
            assert (await delete_offsets(world, topics, "closed")).error_code == 30

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-96", "GC-149", "GC-139")
def test_topics_that_may_not_be_read_are_refused_by_themselves() -> None:
    acls = Acls(
        "DELETE GROUP *",
        "READ GROUP *",
        "DESCRIBE TOPIC *",
        "READ TOPIC t",
    )

    async def body(world: GroupCluster) -> None:
        await emptied(world, "t", "u")
        answer = await delete_offsets(world, ["u", "t"])
        assert deleted(answer) == {"u": errors.TopicAuthorizationFailedError.code, "t": 0}
        assert [topic.topic_id for topic in answer.responses] == [NULL_TOPIC_ID, T]
        assert groups_of(world)["grp"].states.initialized == {U: (0, 1)}
        nothing = await delete_offsets(world, ["u"])
        assert deleted(nothing) == {"u": errors.TopicAuthorizationFailedError.code}
        unknown = await delete_offsets(world, ["u"], "unknown")
        assert (unknown.error_code, list(unknown.responses)) == (errors.GroupIdNotFoundError.code, [])

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-96", "GC-8")
@pytest.mark.scenario("S-084")
def test_what_of_a_deletion_of_offsets_is_checked_first() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        for group_id, topics, code in (
            ("", ["t"], errors.InvalidGroupIdError.code),
            ("", None, errors.InvalidGroupIdError.code),
            ("unknown", ["t"], errors.GroupIdNotFoundError.code),
            ("grp", [], 0),
            ("grp", None, 0),
        ):
            answer = await delete_offsets(world, topics, group_id)
            assert (answer.error_code, list(answer.responses)) == (code, []), (group_id, topics)
        await world.heartbeat("m", 0, ["t"])
        full = await delete_offsets(world, ["t"])
        assert (full.error_code, list(full.responses)) == (errors.NonEmptyGroupError.code, [])
        world.enabled = False
        assert (await delete_offsets(world, ["t"], "")).error_code == errors.UnsupportedVersionError.code

    play(body)


@pytest.mark.rule("GC-97", "GC-98", "GC-99")
@pytest.mark.scenario("S-083")
def test_each_topic_has_a_result_of_its_own() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "topic-1", "topic-4", partitions=3)
        world.create("topic-2", 2)
        world.persister.gate.clear()
        await world.heartbeat("m", 0, ["topic-2"])
        await world.heartbeat("m", -1)
        await world.restart()  # the call for topic-2, which waits at the gate, ends with its shard
        world.persister.gate.set()
        epoch = groups_of(world)["grp"].epoch
        world.persister.refuse[TopicIdPartition(topic_id("topic-4"), 2)] = REFUSED
        answer = await delete_offsets(world, ["topic-1", "topic-2", "topic-3", "topic-4", "topic-1"])
        assert deleted(answer) == {"topic-1": 0, "topic-2": NO_TOPIC, "topic-3": NO_TOPIC, "topic-4": -1}
        ids = {topic.topic_name: topic.topic_id for topic in answer.responses}
        assert ids["topic-1"] == topic_id("topic-1")
        assert ids["topic-2"] == ids["topic-3"] == NULL_TOPIC_ID
        assert "nothing to delete" in answer.responses[1].error_message
        assert "delete them again: broken" in answer.responses[3].error_message
        group = groups_of(world)["grp"]
        assert dict(group.states.deleting) == {topic_id("topic-4"): "topic-4"}
        assert list(group.states.topics[topic_id("topic-2")].initializing) == [0, 1]
        assert group.epoch == epoch
        world.persister.refuse.clear()
        assert deleted(await delete_offsets(world, ["topic-4", "topic-1"])) == {"topic-4": 0, "topic-1": NO_TOPIC}
        assert world.persister.states == {}

    play(body)


@pytest.mark.rule("GC-98")
def test_a_call_that_fails_as_a_whole_is_an_error_of_the_whole() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.broken = OSError("gone")
        answer = await delete_offsets(world, ["t"])
        assert (answer.error_code, list(answer.responses)) == (-1, [])
        found = await delete_groups(world, "grp")
        assert _codes(found) == {"grp": -1}
        assert set(groups_of(world)["grp"].states.deleting) == {T}
        world.persister.broken = None
        assert _codes(await delete_groups(world, "grp")) == {"grp": 0}

    play(body)


@pytest.mark.rule("GC-98", "SC-29")
def test_a_newer_state_than_the_groups_is_not_deleted() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.states["grp", TopicIdPartition(T, 1)] = StateSummary(99, 0, 4, 0)
        assert deleted(await delete_offsets(world, ["t"])) == {"t": errors.FencedStateEpochError.code}
        assert list(world.persister.states) == [("grp", TopicIdPartition(T, 1))]

    play(body)


def test_a_group_whose_log_lost_its_tail_is_deleted_when_the_call_is_repeated() -> None:
    """The group's epoch has fallen below that of its state, and perhaps no member ever joins again to raise it.

    Covers of GC-92 that the deletion of each partition carries the group's epoch; not its retries, nor how the
    persister splits and sends the deletions (GC-74).
    """

    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.states["grp", TopicIdPartition(T, 1)] = StateSummary(99, 0, 4, 0)
        assert _codes(await delete_groups(world, "grp")) == {"grp": errors.FencedStateEpochError.code}
        assert groups_of(world)["grp"].epoch == 99
        assert _codes(await delete_groups(world, "grp")) == {"grp": 0}
        assert (world.persister.states, groups_of(world)) == ({}, {})
        assert (await world.heartbeat("m", 0, ["t"])).member_epoch == 100

    play(body)


@pytest.mark.rule("GC-93", "OP-16")
def test_members_wait_while_their_group_is_deleted_and_begin_again_after_it() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        epoch = groups_of(world)["grp"].epoch
        world.persister.gate.clear()
        deletion = asyncio.ensure_future(delete_groups(world, "grp"))
        await asyncio.sleep(0.01)
        refused = await world.heartbeat("m", 0, ["t"])
        assert refused.error_code == LOADING
        assert "group grp is being deleted" in refused.error_message
        world.persister.gate.set()
        assert _codes(await deletion) == {"grp": 0}
        assert (await world.heartbeat("m", 0, ["t"])).member_epoch == epoch + 1

    play(body)


@pytest.mark.rule("GC-92", "GC-98")
def test_a_partition_that_no_node_answers_for_is_not_taken_for_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(group_id: str, partitions: object) -> dict[TopicIdPartition, PersisterError | None]:
        return {TopicIdPartition(T, 0): None}

    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        monkeypatch.setattr(world.persister, "delete", silent)
        assert deleted(await delete_offsets(world, ["t"])) == {"t": -1}
        assert _codes(await delete_groups(world, "grp")) == {"grp": -1}
        assert set(groups_of(world)["grp"].states.deleting) == {T}

    play(body)


@pytest.mark.rule("GC-107")
def test_a_second_call_for_the_group_learns_which_one_is_under_way() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.gate.clear()
        first = asyncio.ensure_future(delete_groups(world, "grp"))
        await asyncio.sleep(0.01)
        second = (await delete_groups(world, "grp"))["grp"]
        assert second.error_code == LOADING
        assert "DeleteGroups of group grp is in progress" in second.error_message
        assert (await delete_offsets(world, ["t"])).error_code == LOADING
        world.persister.gate.set()
        assert _codes(await first) == {"grp": 0}

    play(body)


@pytest.mark.rule("GC-108", "OP-6", "GC-94")
def test_an_order_that_is_never_answered_ends_and_is_resumed_by_the_sweep() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.gate.clear()
        began_s = now_s()
        (found,) = (await delete_groups_slowly(world, "grp")).values()
        assert (found.error_code, now_s() - began_s) == (errors.CoordinatorNotAvailableError.code, 40)
        assert "repeat the call" in found.error_message
        assert (await world.heartbeat("m", 0, ["foo"], "other")).error_code == 0
        world.persister.gate.set()
        await asyncio.sleep(61)
        assert groups_of(world).keys() == {"other"}
        assert world.persister.states == {}

    play(body)


async def delete_groups_slowly(world: GroupCluster, group_id: str) -> dict[str, Any]:
    """Call DeleteGroups without a client's time-out."""
    handler = world.role.service.delete_groups
    answer = await handler(groups_pb.DeleteGroupsRequest(groups_names=[group_id]), NO_CALLER)
    return {found.group_id: found for found in answer.results}


@pytest.mark.rule("OP-6", "GC-80", "GC-94")
def test_the_next_owner_ends_a_deletion_as_soon_as_its_image_is_new_enough_and_not_at_the_next_sweep() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.gate.clear()
        call = asyncio.ensure_future(delete_groups(world, "grp"))
        await asyncio.sleep(0.01)
        world.complete_since_ms = world.clock.now_ms()
        await asyncio.sleep(0.01)
        await world.restart()
        await asyncio.gather(call, return_exceptions=True)
        world.persister.gate.set()
        await asyncio.sleep(10)
        assert "grp" in groups_of(world), "its image may be older than its log"
        world.complete_since_ms = None
        await asyncio.sleep(2)
        assert (groups_of(world), world.persister.states) == ({}, {})
        again = await delete_groups(world, "grp")
        assert _codes(again) == {"grp": errors.GroupIdNotFoundError.code}

    play(body)


@pytest.mark.rule("GC-94", "GC-108")
def test_a_deletion_goes_on_when_its_caller_goes_away() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.gate.clear()
        call = asyncio.ensure_future(delete_groups_slowly(world, "grp"))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        world.persister.gate.set()
        await asyncio.sleep(0.01)
        assert (groups_of(world), world.persister.states) == ({}, {})

    play(body)


@pytest.mark.rule("GC-93", "GC-94")
def test_an_end_that_the_store_refuses_is_an_error_and_the_group_goes_later() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.persister.gate.clear()
        call = asyncio.ensure_future(delete_groups(world, "grp"))
        await asyncio.sleep(0.01)
        world.log_of("grp").failures.append(AppendRefusedError("OOM"))
        world.persister.gate.set()
        assert _codes(await call) == {"grp": errors.CoordinatorNotAvailableError.code}
        assert "grp" in groups_of(world)
        await asyncio.sleep(31)
        assert groups_of(world) == {}

    play(body)


@pytest.mark.rule("GC-7", "CM-14")
def test_a_group_of_another_node_is_answered_with_its_owner_and_hides_no_other() -> None:
    async def body(world: GroupCluster) -> None:
        near = next(f"g{number}" for number in range(100) if shard_index(f"g{number}", 3) != shard_index("grp", 3))
        await emptied(world, "t", group_id=near)
        await emptied(world, "t")
        world.owner = OwnerAddress(7, "10.0.0.9", 9092)
        world.role.hosts[shard_index("grp", 3)].lost("moved")
        found = await delete_groups(world, "grp", near)
        assert _codes(found) == {"grp": errors.NotCoordinatorError.code, near: 0}
        assert found["grp"].coordinator.node_id == 7
        offsets = await delete_offsets(world, ["t"])
        assert (offsets.error_code, offsets.coordinator.host) == (errors.NotCoordinatorError.code, "10.0.0.9")

    play(body)


@pytest.mark.rule("GC-94", "CM-12")
def test_a_shard_that_moves_ends_the_call_with_where_to_go() -> None:
    async def body(world: GroupCluster) -> None:
        await emptied(world, "t")
        world.owner = OwnerAddress(7, "10.0.0.9", 9092)
        world.persister.gate.clear()
        call = asyncio.ensure_future(delete_groups(world, "grp"))
        await asyncio.sleep(0.01)
        world.role.hosts[shard_index("grp", 3)].lost("moved")
        found = (await call)["grp"]
        assert (found.error_code, found.coordinator.node_id) == (errors.NotCoordinatorError.code, 7)
        assert "repeat the call" in found.error_message

    play(body)


@pytest.mark.rule("CM-62")
def test_too_many_groups_or_topics_are_refused_as_a_whole() -> None:
    async def body(world: GroupCluster) -> None:
        too_many = [f"g{number}" for number in range(REQUEST_GROUPS_MAX + 1)]
        with pytest.raises(TransportError, match="at most 1000 go into one request") as refused:
            await delete_groups(world, *too_many)
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT
        with pytest.raises(TransportError, match="at most 1000 go into one request"):
            await delete_offsets(world, [str(number) for number in range(CHANGED_TOPICS_MAX + 1)])
        with pytest.raises(TransportError, match="256 characters"):
            await delete_offsets(world, ["t"], "g" * 256)

    play(body)
