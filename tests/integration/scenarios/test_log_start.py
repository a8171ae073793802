"""S-014, S-059 … S-061: DeleteRecords moves the log start past records that are available, held or acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.api.v1 import delete_records_pb2 as delete_pb
from tests.integration.scenarios.sessions import ACCEPT, RELEASE, Session, acquired, all_of, another, fx_rpc, part
from tests.integration.scenarios.wire import Wire

pytestmark = pytest.mark.asyncio

NONE = 0


async def _cut(session: Session, before: int) -> None:
    """Send DeleteRecords before an offset."""
    request = delete_pb.DeleteRecordsRequest(timeout_ms=5_000)
    request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0, offset=before)
    answer: Any = await session.wire.call("DeleteRecords", request)
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.low_watermark) == (NONE, before)


async def _holding(wire: Wire, *sizes: int, **settings: str) -> tuple[Session, str]:
    """Set up a member that holds producer batches of these sizes."""
    session, topic = await fx_rpc(wire, {name.replace("_", "."): value for name, value in settings.items()})
    for size in sizes:
        await wire.produce(session.topic_id, size)
    assert await all_of(session, sum(sizes)) == [(0, sum(sizes) - 1, 1)]
    return session, topic


@pytest.mark.scenario("S-014")
async def test_delete_records_moves_the_start_offset_under_the_group(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    await _cut(session, 5)
    assert await session.acquire() == [(5, 9, 1)]
    assert await session.ack(5, 9, ACCEPT) == NONE
    await wire.produce(session.topic_id, 5)
    await _cut(session, 14)
    assert await session.acquire() == [(14, 14, 1)]
    await _cut(session, 15)
    assert [acquired(await session.fetch(wait_ms=50)) for _ in range(5)] == [[]] * 5


@pytest.mark.scenario("S-059")
@pytest.mark.parametrize(
    ("released", "before", "produced", "later"),
    [
        pytest.param([(5, 6)], 9, 2, [(10, 11, 1)], id="a"),
        pytest.param([(5, 6), (9, 9)], 9, 0, [(9, 9, 2)], id="b"),
        pytest.param([], 12, 4, [(12, 13, 1)], id="c"),
    ],
)
async def test_the_log_start_at_or_beyond_the_end_of_the_window(
    wire: Wire,
    released: list[tuple[int, int]],
    before: int,
    produced: int,
    later: list[tuple[int, int, int]],
) -> None:
    """The offsets are the scenario's minus two; 9 is the last one held."""
    session, _ = await _holding(wire, 5, 5)
    for first, last in released:
        assert await session.ack(first, last, RELEASE) == NONE
    for _ in range(produced // 2):
        await wire.produce(session.topic_id, 2)
    await _cut(session, before)
    assert await session.acquire() == later
    assert acquired(await session.fetch(wait_ms=50)) == []
    assert await session.ack(0, later[-1][1], ACCEPT) == NONE, "offsets still held, and some below the log start"


@pytest.mark.scenario("S-060")
async def test_acknowledging_records_after_the_log_start_moved_past_some(wire: Wire) -> None:
    released, topic = await _holding(wire, 5, 5, 5)
    await _cut(released, 7)
    answer = await released.acknowledge((0, 4, [RELEASE]), (5, 9, [RELEASE]))
    assert part(answer).error_code == NONE
    assert await released.acquire() == [(7, 9, 2)]
    assert (await wire.lag(released.group, topic))[0] == 7

    accepted, topic = await _holding(wire, 5, 5, 5)
    await _cut(accepted, 9)
    assert await accepted.ack(0, 9, ACCEPT) == NONE
    assert await wire.lag(accepted.group, topic) == (10, 5)
    assert await accepted.ack(10, 14, ACCEPT) == NONE


@pytest.mark.scenario("S-061")
@pytest.mark.parametrize("closes", [True, False])
async def test_giving_back_after_the_log_start_moved_into_a_batch(wire: Wire, closes: bool) -> None:
    locks = {} if closes else {"share_record_lock_duration_ms": "1000"}
    session, topic = await _holding(wire, 5, 5, **locks)
    await _cut(session, 6)
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    if closes:
        assert (await session.fetch(epoch=-1)).error_code == NONE
    else:
        await asyncio.sleep(1)
    assert await all_of(other, 4) == [(6, 9, 2)]
    assert await other.ack(6, 9, ACCEPT) == NONE
    assert await wire.lag(session.group, topic) == (10, 0)
