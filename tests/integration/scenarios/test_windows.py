"""S-041, S-043, S-044, S-046, S-048, S-050 … S-052: the in-flight window of a share-partition, through the RPCs."""

from __future__ import annotations

from typing import Any

import pytest

from kip932 import errors
from kip932.ids import STATE_ACKNOWLEDGED, STATE_ARCHIVED, STATE_AVAILABLE
from tests.integration.scenarios.keys import Key
from tests.integration.scenarios.sessions import (
    ACCEPT,
    REJECT,
    RELEASE,
    Acquired,
    Keeping,
    Session,
    acquired,
    all_of,
    another,
    fx_rpc,
    part,
)
from tests.integration.scenarios.wire import Batches, Wire, attempts
from tests.support.node import Cluster, unique

pytestmark = pytest.mark.asyncio

NONE = 0
INVALID = errors.InvalidRequestError.code
STATE = errors.InvalidRecordStateError.code
#: Above any epoch that the group reaches in a test.
STATE_EPOCH = 1_000
SHORT_LOCKS = {"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "2"}


async def loaded(wire: Wire, cluster: Cluster, sizes: list[int], start: int, batches: Batches) -> tuple[Session, Key]:
    """Set up a member whose share-partition has this stored state and a log of producer batches of these sizes."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    for size in sizes:
        await wire.produce(topic_id, size)
    member = await wire.join(group, [topic])
    key = Key(wire, cluster, group, topic_id)
    assert await key.initialize(STATE_EPOCH, start) == NONE
    assert await key.write(batches, start=start, state_epoch=STATE_EPOCH) == NONE
    session = Session(wire, group, member, topic_id)
    assert (await session.fetch(epoch=0, wait_ms=0, max_records=0)).error_code == NONE
    return session, key


async def expired(session: Session, *, again: Acquired) -> None:
    """Wait until the locks have expired, by acquiring the records again."""
    assert await all_of(session, sum(last - first + 1 for first, last, _ in again)) == again


@pytest.mark.scenario("S-041")
async def test_loading_persisted_state(wire: Wire, cluster: Cluster) -> None:
    stored = [(5, 10, STATE_AVAILABLE, 2), (11, 15, STATE_ARCHIVED, 3)]
    session, key = await loaded(wire, cluster, [20], 5, stored)
    assert await all_of(session, 10) == [(5, 10, 3), (16, 19, 1)]
    assert acquired(await session.fetch(wait_ms=100)) == []
    assert await session.ack(5, 10, ACCEPT) == NONE
    assert await session.ack(16, 19, ACCEPT) == NONE
    assert (await key.summary())[2] == 20


@pytest.mark.scenario("S-043")
async def test_a_gap_at_the_beginning_of_the_persisted_window(wire: Wire, cluster: Cluster) -> None:
    stored = [(21, 30, STATE_ACKNOWLEDGED, 2), (31, 40, STATE_ARCHIVED, 1)]
    session, _ = await loaded(wire, cluster, [11, 15, 15, 4], 11, stored)
    # Reading one byte returns one log batch.
    assert acquired(await session.fetch(max_bytes=1)) == [(11, 20, 1)]
    assert acquired(await session.fetch(max_bytes=1)) == [(41, 44, 1)]


@pytest.mark.scenario("S-044")
async def test_the_start_offset_does_not_jump_over_an_unfetched_gap(wire: Wire, cluster: Cluster) -> None:
    stored = [(11, 20, STATE_AVAILABLE, 2), (31, 40, STATE_ARCHIVED, 1)]
    session, key = await loaded(wire, cluster, [11, 10, 10, 10], 11, stored)
    assert (await session.fetch(wait_ms=300, max_records=10)).error_code == NONE
    assert await session.ack(11, 20, ACCEPT) == NONE
    assert (await key.summary())[2] == 21
    assert (await all_of(session, 10))[0][:2] == (21, 30)


@pytest.mark.scenario("S-046")
async def test_acknowledging_outside_the_in_flight_window(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    assert await session.ack(0, 15, REJECT) == STATE
    for size in (5, 6, 9, 5):
        await wire.produce(session.topic_id, size)
    assert acquired(await session.fetch(max_records=5)) == [(0, 4, 1)]
    other = Session(wire, session.group, "m2", session.topic_id)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    assert await all_of(other, 15) == [(5, 24, 1)]
    assert await session.ack(20, 25, REJECT) == INVALID
    refused = await session.acknowledge((0, 10, [ACCEPT]), (20, 24, [ACCEPT]))
    assert part(refused).error_code == STATE, "part of the range is held by another member"
    assert await session.ack(0, 4, ACCEPT) == NONE, "no part of the refused request was applied"


@pytest.mark.scenario("S-048")
@pytest.mark.parametrize("last", [(15, 19, [ACCEPT]), (16, 19, [ACCEPT])])
async def test_one_bad_batch_rolls_back_the_whole_partition(wire: Wire, last: tuple[int, int, list[int]]) -> None:
    session, topic = await fx_rpc(wire)
    for size in (5, 5, 5, 5):
        await wire.produce(session.topic_id, size)
    await all_of(session, 20)
    before = await wire.state(session.group, session.topic_id)
    answer = await session.acknowledge((5, 9, [RELEASE]), (10, 14, [ACCEPT]), (15, 19, [ACCEPT]), last)
    assert part(answer).error_code in (STATE, INVALID)
    assert await wire.state(session.group, session.topic_id) == before
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    assert acquired(await other.fetch(wait_ms=100)) == [], "all are still held"
    assert await session.ack(0, 19, ACCEPT) == NONE


@pytest.mark.scenario("S-050")
async def test_a_lock_that_runs_out_at_the_limit_archives_in_the_middle(wire: Wire) -> None:
    session, topic = await fx_rpc(wire, SHORT_LOCKS)
    await wire.produce(session.topic_id, 10)
    await wire.produce(session.topic_id, 10)
    assert await all_of(session, 20) == [(0, 19, 1)]
    renewing = Keeping(session, 0, 9)
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    assert await all_of(other, 10) == [(10, 19, 2)]
    await wire.until_state(session.group, session.topic_id, 0, [(10, 19, STATE_ARCHIVED, 2)])
    await renewing.end()
    assert await session.ack(0, 9, ACCEPT) == NONE, "the first member still holds them"
    assert await wire.lag(session.group, topic) == (20, 0)


@pytest.mark.scenario("S-051")
@pytest.mark.parametrize("again", [5, 10])
async def test_a_lock_that_runs_out_at_the_limit_archives_a_prefix(wire: Wire, again: int) -> None:
    session, topic = await fx_rpc(wire, SHORT_LOCKS)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    limits: dict[str, Any] = {"share_acquire_mode": 1, "max_records": again}
    async for _ in attempts():
        if found := acquired(await session.fetch(None, wait_ms=300, **limits)):
            break
    assert found == [(0, again - 1, 2)]
    async for _ in attempts():
        start, lag = await wire.lag(session.group, topic)
        if (start, lag) == (again, 10 - again):
            break
    assert (start, lag) == (again, 10 - again)
    if again == 5:
        assert await session.acquire() == [(5, 9, 2)]
    else:
        await wire.produce(session.topic_id, 1)
        assert await session.acquire() == [(10, 10, 1)]


@pytest.mark.scenario("S-052")
async def test_a_lock_touches_only_what_was_not_acknowledged(wire: Wire) -> None:
    session, topic = await fx_rpc(wire, {"share.record.lock.duration.ms": "1000"})
    await wire.produce(session.topic_id, 5)
    assert await session.acquire() == [(0, 4, 1)]
    assert await session.ack(0, 1, RELEASE) == NONE
    assert await session.ack(3, 4, ACCEPT) == NONE
    await wire.until_state(session.group, session.topic_id, 0, [(0, 2, STATE_AVAILABLE, 1), (3, 4, 2, 1)])
    assert await wire.lag(session.group, topic) == (0, 3)
    await expired(session, again=[(0, 2, 2)])
