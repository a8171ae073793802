"""S-026, S-028 … S-034: fetching, acknowledging and share sessions, with generated messages over gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1.share_fetch_pb2 import ShareFetchRequest
from tests.integration.scenarios.sessions import (
    ACCEPT,
    REJECT,
    RELEASE,
    Session,
    acquired,
    another,
    fx_rpc,
    offsets,
    part,
)
from tests.integration.scenarios.wire import Wire
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

FIRST_TEN = [(0, 9, 1)]


async def _with_ten_acquired(wire: Wire, settings: dict[str, str] | None = None) -> tuple[Session, str]:
    session, topic = await fx_rpc(wire, settings)
    await wire.produce(session.topic_id, 10)
    assert acquired(await session.fetch()) == FIRST_TEN
    assert session.epoch == 2
    return session, topic


async def _produce(session: Session, count: int = 10) -> None:
    await session.wire.produce(session.topic_id, count)


@pytest.mark.scenario("S-026")
async def test_first_successful_fetch(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await _produce(session)
    answer = await session.fetch()
    assert (answer.error_code, answer.acquisition_lock_timeout_ms, answer.throttle_time_ms) == (0, 30_000, 0)
    one = part(answer)
    assert (one.partition_index, one.error_code, one.acknowledge_error_code) == (0, 0, 0)
    assert acquired(answer) == FIRST_TEN
    assert offsets(answer) == list(range(10))


@pytest.mark.scenario("S-028")
async def test_an_accept_by_acknowledge_advances(wire: Wire) -> None:
    session, topic = await _with_ten_acquired(wire)
    answer = await session.acknowledge((0, 9, [ACCEPT]))
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (0, 30_000)
    assert (part(answer).partition_index, part(answer).error_code) == (0, 0)
    await _produce(session)
    assert acquired(await session.fetch()) == [(10, 19, 1)]
    assert (await wire.state(session.group, session.topic_id))[:2] == (10, [])
    assert await wire.lag(session.group, topic) == (10, 10)


@pytest.mark.scenario("S-029")
async def test_an_accept_rides_on_a_fetch(wire: Wire) -> None:
    session, _ = await _with_ten_acquired(wire, {"share.record.lock.duration.ms": "15000"})
    await _produce(session)
    second = await session.fetch({0: [(0, 9, [ACCEPT])]})
    assert (second.acquisition_lock_timeout_ms, part(second).acknowledge_error_code) == (15_000, 0)
    assert acquired(second) == [(10, 19, 1)]
    await _produce(session)
    third = await session.fetch()
    assert third.acquisition_lock_timeout_ms == 15_000
    assert acquired(third) == [(20, 29, 1)]
    assert (await wire.state(session.group, session.topic_id)).start == 10


@pytest.mark.scenario("S-030")
@pytest.mark.parametrize("piggybacked", [False, True])
async def test_a_reject_archives(wire: Wire, piggybacked: bool) -> None:
    session, topic = await _with_ten_acquired(wire)
    if piggybacked:
        await _produce(session)
        answer = await session.fetch({0: [(0, 9, [REJECT])]})
        assert part(answer).acknowledge_error_code == 0
    else:
        assert await session.ack(0, 9, REJECT) == 0
        await _produce(session)
        answer = await session.fetch()
    assert acquired(answer) == [(10, 19, 1)]
    assert (await wire.state(session.group, session.topic_id))[:2] == (10, [])
    other = await another(session, topic)
    await other.open()
    await _produce(session, 1)
    assert acquired(await other.fetch()) == [(20, 20, 1)]


@pytest.mark.scenario("S-031")
async def test_releases_reach_the_delivery_limit(wire: Wire) -> None:
    session, _ = await _with_ten_acquired(wire, {"share.delivery.count.limit": "2"})
    assert await session.ack(0, 9, RELEASE) == 0
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [(0, 9, 0, 1)])
    assert await session.acquire() == [(0, 9, 2)]
    assert await session.ack(0, 9, RELEASE) == 0
    await _produce(session)
    assert acquired(await session.fetch()) == [(10, 19, 1)]
    assert (await wire.state(session.group, session.topic_id))[:2] == (10, [])


@pytest.mark.scenario("S-032")
@pytest.mark.rule("PL-520", "PL-523", "PL-254")
@pytest.mark.parametrize("topics_present", [False, True])
async def test_the_final_fetch_closes_the_session_and_gives_back(wire: Wire, topics_present: bool) -> None:
    session, topic = await _with_ten_acquired(wire)
    await _produce(session)
    assert acquired(await session.fetch({0: [(0, 9, [ACCEPT])]})) == [(10, 19, 1)]
    last = await session.fetch({0: []} if topics_present else None, epoch=-1)
    assert (last.error_code, last.acquisition_lock_timeout_ms, list(last.responses)) == (0, 30_000, [])
    late = await session.fetch()
    assert late.error_code == errors.ShareSessionNotFoundError.code
    assert "open one with epoch 0" in late.error_message
    await wire.until_state(session.group, session.topic_id, 10, [(10, 19, 0, 1)])
    other = await another(session, topic)
    assert acquired(await other.fetch()) or await other.acquire()
    assert await other.ack(10, 19, ACCEPT) == 0
    assert (await wire.state(session.group, session.topic_id))[:2] == (20, [])


@pytest.mark.scenario("S-032")
async def test_what_a_closed_session_gave_back_goes_to_the_other_member_with_its_attempt(wire: Wire) -> None:
    session, topic = await _with_ten_acquired(wire)
    other = await another(session, topic)
    await other.open()
    assert (await session.fetch(epoch=-1)).error_code == 0
    assert await other.acquire() == [(0, 9, 2)]


@pytest.mark.scenario("S-033")
async def test_acknowledgements_in_an_opening_request_are_refused(wire: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    await wire.produce(topic_id, 10)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id)
    fetched = await session.fetch({0: [(0, 9, [ACCEPT])]}, epoch=0)
    assert (fetched.error_code, fetched.acquisition_lock_timeout_ms, list(fetched.responses)) == (
        errors.InvalidRequestError.code,
        0,
        [],
    )
    assert "epoch 0" in fetched.error_message
    acknowledged = await session.acknowledge((0, 9, [ACCEPT]), epoch=0)
    assert acknowledged.error_code == errors.InvalidShareSessionEpochError.code
    assert list(acknowledged.responses) == []
    # Neither request opened a session or acquired anything.
    assert (await session.fetch(epoch=1)).error_code == errors.ShareSessionNotFoundError.code
    assert await session_of_its_own(session).acquire() == FIRST_TEN


def session_of_its_own(session: Session) -> Session:
    return Session(session.wire, session.group, session.member, session.topic_id)


@pytest.mark.scenario("S-034")
async def test_an_unknown_member_has_no_session_and_touches_nothing(wire: Wire) -> None:
    session, _ = await _with_ten_acquired(wire)
    stranger = Session(wire, session.group, "stranger", session.topic_id)
    answers: list[Any] = [
        await stranger.fetch(epoch=2),
        await stranger.acknowledge((0, 9, [ACCEPT]), epoch=2),
        await stranger.fetch(epoch=-1),
    ]
    assert [answer.error_code for answer in answers] == [errors.ShareSessionNotFoundError.code] * 3
    assert all("stranger" in answer.error_message for answer in answers)
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [])
    assert await session.ack(0, 9, ACCEPT) == 0


@pytest.mark.rule("PL-212")
async def test_a_fetch_that_needs_no_bytes_is_answered_as_soon_as_its_partition_is_ready(wire: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id)
    # Far above the timeout of the call, which starts while the share-partition is not initialised.
    assert acquired(await session.fetch(epoch=0, min_bytes=0, wait_ms=300_000)) == []


@pytest.mark.rule("PL-502", "PL-504", "PL-421", "PL-254")
async def test_a_stale_session_epoch_is_refused_and_changes_nothing(wire: Wire) -> None:
    session, _ = await _with_ten_acquired(wire)
    for epoch in (1, 3):
        answer = await session.acknowledge((0, 9, [REJECT]), epoch=epoch)
        assert answer.error_code == errors.InvalidShareSessionEpochError.code
        assert f"epoch {epoch}" in answer.error_message
        assert "expected 2" in answer.error_message
        assert (list(answer.responses), answer.acquisition_lock_timeout_ms) == ([], 0)
    done = await session.acknowledge((0, 9, [ACCEPT]))
    assert (part(done).error_code, done.acquisition_lock_timeout_ms) == (0, 30_000)


@pytest.mark.rule("PL-502a")
async def test_a_request_of_an_earlier_session_of_the_member_is_refused(wire: Wire) -> None:
    session, _ = await _with_ten_acquired(wire)
    late = Session(wire, session.group, session.member, session.topic_id)
    late.epoch, late.session_id = session.epoch, (session.session_id or 0) + 1
    answer = await late.acknowledge((0, 9, [REJECT]))
    assert answer.error_code == errors.InvalidShareSessionEpochError.code
    assert "another share session" in answer.error_message
    assert await session.ack(0, 9, ACCEPT) == 0


@pytest.mark.rule("PL-509", "PL-256")
async def test_an_unknown_topic_id_is_reported_in_its_partition(wire: Wire) -> None:
    request = ShareFetchRequest(
        group_id=unique("g"), member_id="m", share_session_epoch=0, max_bytes=1_000, max_records=1, batch_size=1
    )
    request.topics.add(topic_id=bytes(range(16))).partitions.add(partition_index=0)
    answer = await wire.call("ShareFetch", request)
    assert (answer.error_code, part(answer).error_code) == (0, errors.UnknownTopicIdError.code)
    assert part(answer).error_message
