"""S-081, S-082, S-084, S-086, and what happens to deleted groups and offsets, on real roles and a real store."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.internal.v1.write_share_group_state_pb2 import WriteShareGroupStateRequest
from tests.integration.scenarios.group_changes import (
    alter,
    altered,
    delete_groups,
    delete_offsets,
    deleted,
    described,
    emptied,
    leave,
    starts,
)
from tests.integration.scenarios.sessions import ACCEPT, REJECT, RELEASE, Session, fx_rpc
from tests.integration.scenarios.wire import Wire
from tests.support.node import Cluster, unique

pytestmark = pytest.mark.asyncio

NONE = 0
NO_TOPIC = errors.UnknownTopicOrPartitionError.code
BEYOND = errors.OffsetOutOfRangeError.code
FENCED_STATE = errors.FencedStateEpochError.code


async def _stale_write(wire: Wire, session: Session, topic: str, state_epoch: int) -> int:
    """Write as a leader with an outdated state would; returns the partition's error."""
    group, topic_id = session.group, session.topic_id
    leader_epoch = (await wire.leaders(topic))[0].epoch + 1  # higher than any leader's so far
    request = WriteShareGroupStateRequest(group_id=group)
    request.topics.add(topic_id=topic_id).partitions.add(
        partition=0, state_epoch=state_epoch, leader_epoch=leader_epoch, start_offset=9
    )
    answer: Any = await wire.state_call("WriteShareGroupState", request, group, topic_id)
    return int(answer.results[0].partitions[0].error_code)


async def _joined(wire: Wire, group: str, topic: str, topic_id: bytes) -> Session:
    return Session(wire, group, await wire.join(group, [topic]), topic_id)


async def _ended(session: Session) -> None:
    """Close the member's session and leave the group."""
    assert (await session.fetch(epoch=-1)).error_code == NONE
    await leave(session.wire, session.group, session.member)


@pytest.mark.rule("GC-101", "GC-102")
@pytest.mark.scenario("S-081")
async def test_offsets_of_live_unknown_and_empty_groups(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 5)
    assert await session.acquire() == [(0, 4, 1)]
    assert await session.ack(0, 4, ACCEPT) == NONE
    asked = {topic: [(0, 0)], "foo": [(0, 0)]}
    live = await alter(wire, session.group, asked)
    assert (live.error_code, list(live.responses)) == (errors.NonEmptyGroupError.code, [])
    assert altered(await alter(wire, unique("new"), asked)) == {topic: [(0, NONE)], "foo": [(0, NO_TOPIC)]}
    await _ended(session)
    epoch = (await described(wire, session.group)).group_epoch
    assert altered(await alter(wire, session.group, asked)) == {topic: [(0, NONE)], "foo": [(0, NO_TOPIC)]}
    assert await starts(wire, session.group) == {topic: {0: 0}}
    assert (await described(wire, session.group)).group_epoch == epoch + 1


@pytest.mark.rule("GC-102", "GC-106", "SC-35", "INV-12", "PL-634")
@pytest.mark.scenario("S-082")
async def test_an_altered_offset_takes_effect_with_a_fresh_state(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 20)
    assert await session.acquire() == [(0, 19, 1)]
    for first, last, kind in ((0, 9, ACCEPT), (10, 14, REJECT), (15, 19, RELEASE)):
        assert await session.ack(first, last, kind) == NONE
    await _ended(session)
    before = (await wire.summary(session.group, session.topic_id)).state_epoch
    assert altered(await alter(wire, session.group, {topic: [(0, 5)]})) == {topic: [(0, NONE)]}
    stored = await wire.summary(session.group, session.topic_id)
    assert (stored.start_offset, stored.delivery_complete_count) == (5, 0)
    assert stored.state_epoch > before
    assert await _stale_write(wire, session, topic, before) == FENCED_STATE
    again = await _joined(wire, session.group, topic, session.topic_id)
    await again.open_with_records()
    assert await wire.lag(session.group, topic) == (5, 15)
    assert await again.ack(5, 19, ACCEPT) == NONE
    await _ended(again)
    epoch = (await described(wire, session.group)).group_epoch
    assert altered(await alter(wire, session.group, {topic: [(0, 21)]})) == {topic: [(0, BEYOND)]}
    assert (await wire.summary(session.group, session.topic_id)).start_offset == 20
    assert (await described(wire, session.group)).group_epoch == epoch
    assert altered(await alter(wire, session.group, {topic: [(0, 20)]})) == {topic: [(0, NONE)]}


@pytest.mark.scenario("S-082")
async def test_all_records_from_the_altered_offset_on_count_from_one(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 20)
    assert await session.acquire() == [(0, 19, 1)]
    assert await session.ack(0, 19, RELEASE) == NONE
    assert await session.acquire() == [(0, 19, 2)]
    assert await session.ack(0, 19, RELEASE) == NONE
    await _ended(session)
    await alter(wire, session.group, {topic: [(0, 5)]})
    again = await _joined(wire, session.group, topic, session.topic_id)
    assert await again.acquire() == [(5, 19, 1)]


@pytest.mark.scenario("S-084")
async def test_what_is_checked_before_the_group(wire: Wire) -> None:
    topic, group = unique("t"), unique("g")
    await wire.create_topic(topic)
    await emptied(wire, group, topic)
    bad = errors.InvalidGroupIdError.code
    assert (await alter(wire, "", {topic: [(0, 0)]})).error_code == bad
    assert (await delete_offsets(wire, "", [topic])).error_code == bad
    for answer in (await alter(wire, group, {}), await delete_offsets(wire, group, [])):
        assert (answer.error_code, list(answer.responses)) == (NONE, [])


@pytest.mark.scenario("S-086")
async def test_the_lag_after_an_alteration_counts_from_the_new_start(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    assert await session.ack(3, 9, ACCEPT) == NONE
    assert await wire.lag(session.group, topic) == (0, 3)
    assert await session.ack(0, 2, ACCEPT) == NONE
    assert await wire.lag(session.group, topic) == (10, 0)
    await _ended(session)
    assert altered(await alter(wire, session.group, {topic: [(0, 4)]})) == {topic: [(0, NONE)]}
    assert await wire.lag(session.group, topic) == (4, 6)


@pytest.mark.rule("GC-93", "INV-12", "GC-136", "SC-81", "PL-634")
async def test_a_deleted_group_leaves_nothing_but_its_configs_and_begins_again_under_a_higher_epoch(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.set_group(session.group, {"share.heartbeat.interval.ms": "400"})
    await wire.produce(session.topic_id, 5)
    assert await session.acquire() == [(0, 4, 1)]
    assert await session.ack(0, 4, ACCEPT) == NONE
    await _ended(session)
    epoch = (await described(wire, session.group)).group_epoch
    assert await delete_groups(wire, session.group) == {session.group: NONE}
    assert (await described(wire, session.group)).error_code == errors.GroupIdNotFoundError.code
    assert await starts(wire, session.group) == {}
    assert (await wire.summary(session.group, session.topic_id)).state_epoch == 0
    late = await _stale_write(wire, session, topic, epoch)
    assert late == errors.InvalidRequestError.code, "nothing is stored, so there is nothing to add to"
    again = await wire.heartbeat(session.group, "m", 0, [topic])
    assert again.member_epoch > epoch
    assert again.heartbeat_interval_ms <= 400
    await wire.until_assigned(session.group, "m", again.member_epoch)
    assert await _stale_write(wire, session, topic, epoch) == FENCED_STATE
    reader = Session(wire, session.group, "m", session.topic_id)
    await reader.open_with_records()
    assert await wire.lag(session.group, topic) == (0, 5)


@pytest.mark.scenario("S-075")
async def test_a_group_is_deleted_only_when_it_is_empty(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    assert await delete_groups(wire, session.group) == {session.group: errors.NonEmptyGroupError.code}
    await _ended(session)
    assert await delete_groups(wire, session.group) == {session.group: NONE}
    assert await delete_groups(wire, session.group) == {session.group: errors.GroupIdNotFoundError.code}


@pytest.mark.rule("GC-97", "GC-98")
async def test_deleted_offsets_leave_other_topics_and_the_group(wire: Wire, cluster: Cluster) -> None:
    kept, gone, group = unique("t"), unique("u"), unique("g")
    await wire.create_topic(kept, 2)
    await wire.create_topic(gone, 2)
    await emptied(wire, group, kept, gone)
    assert deleted(await delete_offsets(wire, group, [gone, "nowhere"])) == {gone: NONE, "nowhere": NO_TOPIC}
    assert list(await starts(wire, group)) == [kept]
    assert deleted(await delete_offsets(wire, group, [gone])) == {gone: NO_TOPIC}
    assert (await described(wire, group)).group_state == "Empty"
    assert "Traceback" not in cluster.node.errors
