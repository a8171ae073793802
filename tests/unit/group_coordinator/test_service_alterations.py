"""AlterShareGroupOffsets (GC-100…GC-106) over real handlers and hosts; the leaders and the share coordinator are in
memory."""

from __future__ import annotations

import asyncio

import pytest

from kip932 import errors
from kip932.ids import NULL_TOPIC_ID, REQUEST_PARTITIONS_MAX, TopicIdPartition
from kip932.rpc.transport import TransportError, TransportStatus
from kip932.state_values import StateSummary
from shard_runtime.record_log.protocol import AppendRefusedError
from share_persister import PersisterError
from tests.support.group_admin import alter, altered, emptied, groups_of
from tests.support.group_cluster import Acls, GroupCluster, play
from tests.support.group_driver import topic_id

T = topic_id("t")
T0, T1 = TopicIdPartition(T, 0), TopicIdPartition(T, 1)
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
BEYOND = errors.OffsetOutOfRangeError.code
LOADING = errors.CoordinatorLoadInProgressError.code


def _starts(world: GroupCluster) -> dict[int, int]:
    return {key.partition: found.start_offset for (_, key), found in world.persister.states.items()}


async def _ready(world: GroupCluster) -> None:
    """An empty group with t-0 and t-1, whose logs end at 100."""
    await emptied(world, "t")
    world.leaders.ends = {(T, 0): 100, (T, 1): 100}


@pytest.mark.rule("GC-102", "GC-103", "GC-101", "SC-35")
@pytest.mark.scenario("S-081")
def test_offsets_are_set_and_answered_when_all_is_written() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        epoch = groups_of(world)["grp"].epoch
        answer = await alter(world, {"t": [(0, 7)], "foo": [(0, 0)]})
        assert altered(answer) == {"t": [(0, 0)], "foo": [(0, NO_TOPIC)]}
        assert [topic.topic_id for topic in answer.responses] == [T, NULL_TOPIC_ID]
        assert not answer.responses[0].partitions[0].HasField("error_message")
        assert world.persister.states["grp", T0] == StateSummary(epoch + 1, 0, 7, 0)
        assert groups_of(world)["grp"].states.initialized == {T: (0, 1)}
        assert altered(await alter(world, {"t": [(1, 3)]}, "new")) == {"t": [(1, 0)]}
        assert groups_of(world)["new"].state == "Empty"
        await world.heartbeat("m", 0, ["t"])
        live = await alter(world, {"t": [(0, 0)], "foo": [(0, 0)]})
        assert (live.error_code, list(live.responses)) == (errors.NonEmptyGroupError.code, [])

    play(body)


@pytest.mark.rule("GC-100", "GC-139", "GC-149")
def test_access_to_the_group_comes_first_and_topics_are_refused_by_partition() -> None:
    acls = Acls(
        "READ GROUP open",
        "READ TOPIC t",
        "DESCRIBE TOPIC *",
    )

    async def body(world: GroupCluster) -> None:
        for name in ("t", "u"):
            world.create(name, 2)
        closed = await alter(world, {"t": [(0, 0)]}, "closed")
        assert (closed.error_code, list(closed.responses)) == (errors.GroupAuthorizationFailedError.code, [])
        answer = await alter(world, {"u": [(0, 0), (1, 0)], "t": [(0, 0)], "x": [(0, 0)]}, "open")
        refused = errors.TopicAuthorizationFailedError.code
        assert altered(answer) == {"u": [(0, refused), (1, refused)], "t": [(0, 0)], "x": [(0, refused)]}
        assert [topic.topic_id for topic in answer.responses] == [NULL_TOPIC_ID, T, NULL_TOPIC_ID]

    play(body, GroupCluster(access=acls))


@pytest.mark.rule("GC-101", "GC-104", "GC-8")
@pytest.mark.scenario("S-084")
def test_what_of_an_alteration_is_checked_first() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        for group_id, topics, code in (
            ("", {"t": [(0, 0)]}, errors.InvalidGroupIdError.code),
            ("", None, errors.InvalidGroupIdError.code),
            ("grp", {}, 0),
            ("grp", None, 0),
        ):
            answer = await alter(world, topics, group_id)
            assert (answer.error_code, list(answer.responses)) == (code, []), (group_id, topics)
        world.enabled = False
        assert (await alter(world, {"t": [(0, 0)]}, "")).error_code == errors.UnsupportedVersionError.code

    play(body)


@pytest.mark.rule("GC-104", "GC-105", "GC-106")
def test_without_a_valid_partition_nothing_is_called_and_nothing_changes() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        before, size = groups_of(world)["grp"], len(world.log_of("grp").entries)
        world.persister.calls.clear()
        wrong = [(2, 0), (-1, 0), (0, -5), (1, 101)]
        answer = await alter(world, {"t": wrong, "x": [(0, 0)]})
        assert altered(answer) == {
            "t": [(2, NO_TOPIC), (-1, NO_TOPIC), (0, errors.InvalidRequestError.code), (1, BEYOND)],
            "x": [(0, NO_TOPIC)],
        }
        assert "beyond the log's end, which is 100" in answer.responses[0].partitions[3].error_message
        assert (groups_of(world)["grp"], len(world.log_of("grp").entries)) == (before, size)
        assert world.persister.calls == []
        assert altered(await alter(world, {"t": [(2, 0)]}, "new")) == {"t": [(2, NO_TOPIC)]}
        assert "new" not in groups_of(world)

    play(body)


@pytest.mark.rule("GC-106")
def test_the_log_end_itself_is_allowed_and_an_unknown_end_is_not() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        assert altered(await alter(world, {"t": [(0, 100), (1, 0)]})) == {"t": [(0, 0), (1, 0)]}
        assert _starts(world) == {0: 100, 1: 0}
        world.leader = None
        epoch = groups_of(world)["grp"].epoch
        answer = await alter(world, {"t": [(0, 1)]})
        assert altered(answer) == {"t": [(0, errors.LeaderNotAvailableError.code)]}
        assert "the end of t-0 is not known" in answer.responses[0].partitions[0].error_message
        assert groups_of(world)["grp"].epoch == epoch

    play(body)


@pytest.mark.rule("GC-100")
def test_of_two_offsets_for_one_partition_the_last_counts_and_both_are_answered() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        assert altered(await alter(world, {"t": [(0, 3), (0, 4)]})) == {"t": [(0, 0), (0, 0)]}
        assert _starts(world)[0] == 4

    play(body)


@pytest.mark.rule("GC-103", "OP-12", "GC-72")
def test_a_refused_partition_returns_an_unknown_one_is_completed_and_each_is_answered() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        refused = PersisterError(errors.InvalidRequestError("no"), outcome_unknown=False)
        unknown = PersisterError(errors.CoordinatorNotAvailableError("away"), outcome_unknown=True)
        world.persister.refuse = {T0: refused, T1: unknown}
        answer = await alter(world, {"t": [(0, 7), (1, 8)]})
        assert altered(answer) == {
            "t": [(0, errors.InvalidRequestError.code), (1, errors.CoordinatorNotAvailableError.code)]
        }
        states = groups_of(world)["grp"].states
        assert states.initialized == {T: (0,)}
        assert states.topics[T].initializing[1].start_offset == 8
        world.persister.refuse.clear()
        await asyncio.sleep(30)
        joined = await world.heartbeat("m", 0, ["t"])
        await world.until_assigned("m", joined.member_epoch)
        await asyncio.sleep(0.01)
        assert groups_of(world)["grp"].states.initialized == {T: (0, 1)}
        assert _starts(world) == {0: -1, 1: 8}

    play(body)


@pytest.mark.rule("GC-103", "GC-76")
def test_state_of_a_higher_epoch_is_altered_too() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.states["grp", T0] = StateSummary(41, 0, 60, 0)
        assert altered(await alter(world, {"t": [(0, 7), (1, 8)]})) == {"t": [(0, 0), (1, 0)]}
        assert world.persister.states["grp", T0].state_epoch == 42
        assert _starts(world) == {0: 7, 1: 8}

    play(body)


@pytest.mark.rule("GC-103", "GC-76")
def test_a_higher_epoch_that_cannot_be_read_is_a_refusal() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.refuse[T0] = PersisterError(errors.FencedStateEpochError("newer"), outcome_unknown=False)
        assert altered(await alter(world, {"t": [(0, 7)]})) == {"t": [(0, errors.FencedStateEpochError.code)]}
        assert groups_of(world)["grp"].states.initialized == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-103")
@pytest.mark.parametrize("how", ["call", "write"])
def test_when_the_call_or_its_last_write_fails_all_fails_and_may_be_repeated(how: str) -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.gate.clear()
        call = asyncio.ensure_future(alter(world, {"t": [(0, 7)]}))
        await asyncio.sleep(0.01)
        if how == "call":
            world.persister.broken = OSError("gone")
        else:
            world.log_of("grp").failures.append(AppendRefusedError("OOM"))
        world.persister.gate.set()
        answer = await call
        assert answer.error_code in (-1, errors.CoordinatorNotAvailableError.code)
        assert list(answer.responses) == []
        world.persister.broken = None
        await asyncio.sleep(0.01)
        assert altered(await alter(world, {"t": [(0, 7)]})) == {"t": [(0, 0)]}
        assert _starts(world)[0] == 7
        assert groups_of(world)["grp"].states.initialized == {T: (0, 1)}

    play(body)


@pytest.mark.rule("GC-107")
def test_two_alterations_at_once_are_one_after_the_other() -> None:
    async def body(world: GroupCluster) -> None:
        await _ready(world)
        world.persister.gate.clear()
        first = asyncio.ensure_future(alter(world, {"t": [(0, 7)]}))
        await asyncio.sleep(0.01)
        second = await alter(world, {"t": [(0, 8)]})
        assert second.error_code == LOADING
        assert "AlterShareGroupOffsets of group grp is in progress" in second.error_message
        world.persister.gate.set()
        assert altered(await first) == {"t": [(0, 0)]}
        assert altered(await alter(world, {"t": [(0, 8)]})) == {"t": [(0, 0)]}
        assert _starts(world)[0] == 8

    play(body)


@pytest.mark.rule("CM-62")
def test_too_many_partitions_are_refused_as_a_whole() -> None:
    async def body(world: GroupCluster) -> None:
        many = [(number, 0) for number in range(REQUEST_PARTITIONS_MAX + 1)]
        with pytest.raises(TransportError, match="at most 10000 go into one request") as refused:
            await alter(world, {"t": many})
        assert refused.value.status is TransportStatus.INVALID_ARGUMENT

    play(body)
