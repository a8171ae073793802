"""The records that a ShareFetch acquires: record limits, batch sizes, bytes, waits, delivery counts and limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kip932.api.v1 import delete_records_pb2 as delete_pb
from kip932.api.v1 import produce_pb2 as produce_pb
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from tests.integration.scenarios.sessions import ACCEPT, RELEASE, Acquired, Session, acquired, another, fx_rpc, offsets
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
LIMIT: dict[str, Any] = {"share_acquire_mode": 1}


async def _taken(session: Session, **fields: Any) -> Acquired:
    """Fetch with these fields until records are acquired; returns their ranges. Such records must exist."""
    async for _ in attempts():
        if found := acquired(await session.fetch(wait_ms=200, **fields)):
            return found
    raise AssertionError(f"{session.member} acquired nothing")


async def _with_batches(wire: Wire, *sizes: int, **settings: str) -> tuple[Session, str]:
    session, topic = await fx_rpc(wire, {name.replace("_", "."): value for name, value in settings.items()})
    for size in sizes:
        await wire.produce(session.topic_id, size)
    return session, topic


async def test_batch_optimised_acquires_whole_batches(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 10, 10, 10)
    assert await _taken(session, max_records=5) == [(0, 9, 1)]
    assert _joined(await _taken(session, max_records=12)) == [(10, 29, 1)]


def _joined(found: Acquired) -> Acquired:
    """Merge adjoining ranges of the same count: Kafka returns one entry where ours may return one per batch."""
    joined: Acquired = []
    for first, last, count in found:
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == count:
            joined[-1] = (joined[-1][0], last, count)
        else:
            joined.append((first, last, count))
    return joined


async def test_record_limit_acquires_so_many_and_sends_the_whole_batch(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 6)
    for most, wanted in ((1, (0, 0, 1)), (1, (1, 1, 1)), (2, (2, 3, 1))):
        async for _ in attempts():
            answer = await session.fetch(max_records=most, wait_ms=200, **LIMIT)
            if found := acquired(answer):
                break
        assert found == [wanted]
        assert offsets(answer) == list(range(6))
    assert await _taken(session, max_records=1) == [(4, 5, 1)]


async def test_a_released_record_under_record_limit(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 6)
    assert await _taken(session) == [(0, 5, 1)]
    assert await session.ack(1, 1, RELEASE) == NONE
    assert await _taken(session, max_records=5, **LIMIT) == [(1, 1, 2)]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (1, [(0, 9), (10, 19), (20, 29)]),
        (10, [(0, 9), (10, 19), (20, 29)]),
        (15, [(0, 19), (20, 29)]),
        (20, [(0, 19), (20, 29)]),
        (25, [(0, 29)]),
        (100, [(0, 29)]),
    ],
)
async def test_how_acquired_batches_are_cut(wire: Wire, size: int, wanted: list[tuple[int, int]]) -> None:
    session, _ = await _with_batches(wire, 10, 10, 10)
    assert [found[:2] for found in await _taken(session, batch_size=size)] == wanted


async def _produce_bytes(wire: Wire, topic_id: bytes, size: int) -> None:
    batch = produce_pb.ProduceRequest.Batch(
        record_batch=RecordBatch(records=[Record(value=bytes(size))]).SerializeToString(),
        record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    request = produce_pb.ProduceRequest(acks=-1, timeout_ms=10_000)
    request.topic_data.add(topic_id=topic_id).partition_data.add(index=0, batches=[batch])
    (result,) = (await wire.call("Produce", request)).responses[0].partition_responses
    assert result.error_code == NONE, result.error_message


async def test_bytes(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    for _ in range(3):
        await _produce_bytes(wire, session.topic_id, 10_000)
    assert acquired(await session.fetch(max_bytes=0, wait_ms=30_000)) == []
    assert await _taken(session, max_bytes=1) == [(0, 0, 1)]
    assert await _taken(session, max_bytes=15_000) == [(1, 1, 1)]
    assert await _taken(session, max_bytes=100_000) == [(2, 2, 1)]


async def test_waits(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    loop = asyncio.get_running_loop()
    assert acquired(await session.fetch(min_bytes=0, wait_ms=30_000)) == []
    began = loop.time()
    assert acquired(await session.fetch(min_bytes=1, wait_ms=400)) == []
    assert loop.time() - began >= 0.4
    await wire.produce(session.topic_id, 2)
    began = loop.time()
    assert acquired(await session.fetch(min_bytes=100_000, wait_ms=400)) == [(0, 1, 1)]
    assert loop.time() - began >= 0.4
    parked = asyncio.create_task(session.fetch(wait_ms=20_000))
    await asyncio.sleep(0.1)
    await wire.produce(session.topic_id, 1)
    assert acquired(await parked) == [(2, 2, 1)]


async def test_a_parked_fetch_is_woken_when_anothers_session_closes(wire: Wire) -> None:
    """Kafka responds to the parked fetch at its deadline, with the records."""
    session, topic = await _with_batches(wire, 3)
    assert await _taken(session) == [(0, 2, 1)]
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, min_bytes=0)
    parked = asyncio.create_task(other.fetch(wait_ms=15_000))
    await asyncio.sleep(0.1)
    assert (await session.fetch(epoch=-1)).error_code == NONE
    assert acquired(await parked) == [(0, 2, 2)]


async def test_the_limit_of_record_locks(wire: Wire) -> None:
    session, _ = await _with_batches(wire, *[50] * 6, share_partition_max_record_locks="100")
    held: Acquired = []
    while sum(last - first + 1 for first, last, _ in held) < 100:
        held += await _taken(session)
    assert _joined(held) == [(0, 99, 1)]
    assert acquired(await session.fetch(wait_ms=100)) == []
    await wire.set_group(session.group, {"share.partition.max.record.locks": "200"})
    more = await _taken(session)
    while sum(last - first + 1 for first, last, _ in more) < 100:
        more += await _taken(session)
    assert _joined(more) == [(100, 199, 1)]
    await wire.set_group(session.group, {"share.partition.max.record.locks": "100"})
    assert await session.ack(0, 49, ACCEPT) == NONE
    assert acquired(await session.fetch(wait_ms=100)) == []


async def test_a_batch_that_is_always_released_is_taken_apart(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 8)
    seen: Acquired = []
    async for _ in attempts():
        found = acquired(await session.fetch(wait_ms=200))
        seen += found
        for first, last, _ in found:
            assert await session.ack(first, last, RELEASE) == NONE
        if seen and seen[-1][:2] == (3, 3):
            break
    assert seen == [(0, 7, 1), (0, 7, 2), (0, 7, 3), (0, 3, 4), (0, 0, 5), (1, 1, 5), (2, 2, 5), (3, 3, 5)]


async def test_offset_tracked_batches_are_taken_whole_or_by_the_limit(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 10)
    assert await _taken(session) == [(0, 9, 1)]
    for offset in range(10):
        assert await session.ack(offset, offset, RELEASE) == NONE
    assert _joined(await _taken(session, max_records=3)) == [(0, 9, 2)]
    for offset in range(10):
        assert await session.ack(offset, offset, RELEASE) == NONE
    assert _joined(await _taken(session, max_records=3, **LIMIT)) == [(0, 2, 3)]
    assert _joined(await _taken(session, max_records=3, **LIMIT)) == [(3, 5, 3)]


async def test_latest_is_resolved_at_the_first_fetch(wire: Wire) -> None:
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic)
    await wire.set_group(group, {"share.auto.offset.reset": "latest"})
    await wire.produce(topic_id, 3)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id)
    await wire.produce(topic_id, 2)
    await session.open()
    await wire.set_group(group, {"share.auto.offset.reset": "earliest"})
    await wire.produce(topic_id, 4)
    assert await session.acquire() == [(5, 8, 1)]


async def test_two_members_take_turns_and_released_records_come_first(wire: Wire) -> None:
    session, topic = await _with_batches(wire, 3, 3, 3)
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    assert await _taken(session, max_records=3) == [(0, 2, 1)]
    assert await _taken(other, max_records=3) == [(3, 5, 1)]
    assert await session.ack(0, 2, RELEASE) == NONE
    assert await _taken(other, max_records=3) == [(0, 2, 2)]
    assert await _taken(session, max_records=3) == [(6, 8, 1)]


async def test_a_limit_that_is_lowered_counts_for_what_is_held(wire: Wire) -> None:
    session, topic = await _with_batches(wire, 1)
    for count in (1, 2, 3):
        assert await _taken(session) == [(0, 0, count)]
        if count == 3:
            await wire.set_group(session.group, {"share.delivery.count.limit": "2"})
        assert await session.ack(0, 0, RELEASE) == NONE
    assert await wire.lag(session.group, topic) == (1, 0)


async def test_records_below_a_moved_log_start_do_not_come_again(wire: Wire) -> None:
    session, _ = await _with_batches(wire, 10)
    assert await _taken(session) == [(0, 9, 1)]
    request = delete_pb.DeleteRecordsRequest(timeout_ms=5_000)
    request.topics.add(topic_id=session.topic_id).partitions.add(partition_index=0, offset=5)
    answer: Any = await wire.call("DeleteRecords", request)
    assert answer.topics[0].partitions[0].error_code == NONE
    assert await session.ack(0, 9, RELEASE) == NONE
    assert _joined(await _taken(session)) == [(5, 9, 2)]
