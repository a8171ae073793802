"""Share sessions: epochs, members, partitions added and removed, and the fields that a successful response omits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from kip932.api.v1.share_stream_pb2 import ShareStreamRequest
from tests.integration.scenarios.sessions import ACCEPT, Session, acquired, another, fx_rpc, part
from tests.integration.scenarios.wire import METHODS, Connect, Wire, attempts
from tests.support.node import QUICK, Clusters, unique

pytestmark = pytest.mark.asyncio

NONE = 0
INVALID = errors.InvalidRequestError.code
EPOCH = errors.InvalidShareSessionEpochError.code
NO_SESSION = errors.ShareSessionNotFoundError.code
NOT_HERE = errors.UnknownTopicOrPartitionError.code


def _request(session: Session, epoch: int, **fields: Any) -> ShareFetchRequest:
    request = ShareFetchRequest(
        group_id=session.group, member_id=session.member, share_session_epoch=epoch, max_wait_ms=200, min_bytes=1,
        max_bytes=1 << 20, max_records=100, batch_size=100, **fields,
    )  # fmt: skip
    if session.session_id is not None and epoch > 0:
        request.session_id = session.session_id
    return request


async def test_epochs_that_are_not_the_next_one(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    assert (await Session(wire, session.group, "unknown", session.topic_id).fetch(epoch=1)).error_code == NO_SESSION
    for epoch in (session.epoch + 1, -2, -100):
        assert (await session.fetch(epoch=epoch, wait_ms=0)).error_code == EPOCH
    assert (await session.fetch(wait_ms=0)).error_code == NONE, "the next one was not used up"
    assert (await session.fetch(epoch=session.epoch - 1, wait_ms=0)).error_code == EPOCH
    stranger = await another(session, topic)
    other_group = Session(wire, unique("g"), session.member, session.topic_id)
    for wrong in (stranger, other_group):
        assert (await wrong.fetch(epoch=session.epoch, wait_ms=0)).error_code == NO_SESSION


async def test_the_same_member_and_epoch_over_another_connection_needs_the_sessions_id(wire: Wire) -> None:
    """Kafka accepts this without the session's id."""
    session, _ = await fx_rpc(wire)
    async with Wire(wire.bootstrap) as elsewhere:
        other = Session(elsewhere, session.group, session.member, session.topic_id)
        other.epoch, other.session_id = session.epoch, (session.session_id or 0) ^ 1
        assert (await other.fetch(wait_ms=0)).error_code == EPOCH
    assert (await session.fetch(wait_ms=0)).error_code == NONE


async def test_acknowledgements_with_epoch_0_leave_an_open_session_open(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    request = _request(session, 0)
    request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0).acknowledgement_batches.add(
        first_offset=0, last_offset=0, acknowledge_types=[ACCEPT]
    )
    assert (await wire.call("ShareFetch", request)).error_code == INVALID
    assert (await session.fetch(wait_ms=0)).error_code == NONE


@pytest.mark.parametrize("named", [True, False])
async def test_closing_without_acknowledgements_answers_no_partitions(wire: Wire, named: bool) -> None:
    session, _ = await fx_rpc(wire)
    request = _request(session, -1)
    if named:
        request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0)
    answer = await wire.call("ShareFetch", request)
    assert (answer.error_code, len(answer.responses)) == (NONE, 0)
    assert (await session.fetch(wait_ms=0)).error_code == NO_SESSION


@pytest.mark.parametrize("index", [7, -1])
async def test_a_partition_that_does_not_exist_is_reported_in_each_answer(wire: Wire, index: int) -> None:
    session, _ = await fx_rpc(wire)
    bad = Session(wire, session.group, session.member, session.topic_id, partitions=(index,))
    for epoch in (0, None, None):
        answer = await bad.fetch(epoch=epoch, wait_ms=0)
        assert (answer.error_code, part(answer).partition_index, part(answer).error_code) == (NONE, index, NOT_HERE)


async def test_forgetting(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 4)
    assert await session.acquire() == [(0, 3, 1)]
    forgetting = _request(session, session.epoch)
    forgetting.forgotten_topics_data.add(topic_id=session.topic_id, partitions=[0, 5])
    assert (await wire.call("ShareFetch", forgetting)).error_code == NONE
    session.epoch += 1
    await wire.produce(session.topic_id, 2)
    assert acquired(await session.fetch(wait_ms=100)) == []
    assert await session.ack(0, 3, ACCEPT) == NONE, "forgetting releases nothing"
    both = _request(session, session.epoch)
    both.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0)
    both.forgotten_topics_data.add(topic_id=session.topic_id, partitions=[0])
    assert acquired(await wire.call("ShareFetch", both)) == []
    session.epoch += 1
    assert acquired(await session.fetch(wait_ms=100)) == []


async def test_acknowledgements_on_a_partition_outside_the_session_bring_it_in(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    empty = Session(wire, session.group, session.member, session.topic_id, partitions=())
    assert (await empty.fetch(epoch=0, wait_ms=0)).error_code == NONE
    await wire.produce(session.topic_id, 3)
    answer = await empty.fetch({0: [(50, 50, [ACCEPT])]})
    assert part(answer).acknowledge_error_code != NONE
    held = acquired(answer)
    async for _ in attempts():
        held = held or acquired(await empty.fetch(wait_ms=100))
        if held:
            break
    assert held == [(0, 2, 1)]


@pytest.mark.rule("PL-506")
async def test_a_session_too_many_is_refused_after_the_wait_and_pushes_no_other_out(
    clusters: Clusters, wire_to: Connect
) -> None:
    cluster = clusters.of({**QUICK, "group.share.max.size": "2", "group.share.max.share.sessions": "2"})
    async with wire_to(cluster) as wire:
        session, topic = await fx_rpc(wire)
        second = await another(session, topic)
        await second.fetch(epoch=0, wait_ms=0)
        third = Session(wire, session.group, "a-third-member", session.topic_id)
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await third.fetch(epoch=0, wait_ms=300)
        assert loop.time() - began >= 0.3
        assert answer.error_code == errors.ShareSessionLimitReachedError.code
        assert (len(answer.responses), answer.acquisition_lock_timeout_ms) == (0, 0)
        assert [(await each.fetch(wait_ms=0)).error_code for each in (session, second)] == [NONE, NONE]


async def test_when_the_connection_ends_the_records_go_to_others(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, min_bytes=0)
    await wire.produce(session.topic_id, 3)
    holder = await another(session, topic)
    stream = await wire.transport.open_stream(wire.bootstrap, METHODS["ShareStream"])
    epoch, held, session_id = 0, list[Any](), 0
    async for number in attempts():
        request = _request(holder, epoch)
        if epoch == 0:
            request.topics.add(topic_id=holder.topic_id).partitions.add(partition_index=0)
        else:
            request.session_id = session_id
        await stream.write(ShareStreamRequest(correlation_id=number, fetch=request))
        read = await stream.read()
        assert read is not None
        answer = read.fetch
        epoch, session_id = epoch + 1, answer.session_id or session_id
        held += acquired(answer)
        if held:
            break
    assert held == [(0, 2, 1)]
    await stream.close()
    assert await other.acquire() == [(0, 2, 2)]
    holder.epoch, holder.session_id = epoch, session_id
    assert (await holder.fetch(wait_ms=0)).error_code == NO_SESSION


async def test_what_a_good_answer_says_of_leader_and_lock(wire: Wire) -> None:
    session, _ = await fx_rpc(wire, {"share.record.lock.duration.ms": "12000"})
    nothing = await session.fetch(wait_ms=0)
    assert (nothing.acquisition_lock_timeout_ms, len(nothing.node_endpoints)) == (12_000, 0)
    await wire.produce(session.topic_id, 1)
    answer = await session.fetch()
    assert not part(answer).HasField("current_leader")
    assert (part(answer).error_message, len(answer.node_endpoints)) == ("", 0)
    never_seen = Session(wire, session.group, "never-seen-by-the-coordinator", session.topic_id)
    assert (await never_seen.fetch(epoch=0, wait_ms=0)).error_code == NONE
