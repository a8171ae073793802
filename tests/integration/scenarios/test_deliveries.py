"""S-016, S-018 … S-020, S-036 … S-038, S-040, S-118, S-119, S-133: which records are delivered, and how many times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from kip932 import errors
from kip932.api.v1 import produce_pb2 as produce_pb
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from tests.integration.scenarios.sessions import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Acquired,
    Session,
    acquired,
    all_of,
    another,
    fx_rpc,
    part,
)
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.node import unique

pytestmark = pytest.mark.asyncio

NONE = 0
INVALID = errors.InvalidRequestError.code
STATE = errors.InvalidRecordStateError.code
HOUR_MS = 3_600_000


async def _at(wire: Wire, topic_id: bytes, timestamp_ms: int) -> None:
    """Produce one record with this timestamp."""
    batch = produce_pb.ProduceRequest.Batch(
        record_batch=RecordBatch(base_timestamp_ms=timestamp_ms, records=[Record(value=b"r")]).SerializeToString(),
        record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1, max_timestamp_ms=timestamp_ms,
    )  # fmt: skip
    request = produce_pb.ProduceRequest(acks=-1, timeout_ms=10_000)
    request.topic_data.add(topic_id=topic_id).partition_data.add(index=0, batches=[batch])
    (result,) = (await wire.call("Produce", request)).responses[0].partition_responses
    assert result.error_code == NONE, result.error_message


@pytest.mark.scenario("S-016")
async def test_by_duration_starts_at_the_first_record_inside_the_window(wire: Wire) -> None:
    topic, now_ms = unique("t"), int(time.time() * 1000)
    topic_id = await wire.create_topic(topic)
    for age_ms in (2 * HOUR_MS, HOUR_MS // 2, 0):
        await _at(wire, topic_id, now_ms - age_ms)
    for duration, first in (("PT1H", 1), ("PT3H", 0)):
        group = unique("g")
        await wire.set_group(group, {"share.auto.offset.reset": f"by_duration:{duration}"})
        session = Session(wire, group, await wire.join(group, [topic]), topic_id)
        await session.fetch(epoch=0, wait_ms=0, max_records=0)
        assert await all_of(session, 3 - first) == [(first, 2, 1)]


def _wanted(offset: int) -> int:
    """Return the scenario's k: 0 rejects at once, 1 to 5 accept on that delivery, 6 always releases."""
    return (offset + offset // 7) % 7


@pytest.mark.scenario("S-018")
async def test_per_offset_delivery_patterns_up_to_the_limit(wire: Wire) -> None:
    session, topic = await fx_rpc(wire, {"share.delivery.count.limit": "5"})
    count, sizes = 98, [1, 5, 12, 30, 50]
    for size in sizes:
        await wire.produce(session.topic_id, size)
    seen = dict.fromkeys(range(count), 0)
    async for _ in attempts():
        found = acquired(await session.fetch(wait_ms=100))
        for first, last, times in found:
            kinds = []
            for offset in range(first, last + 1):
                seen[offset] += 1
                assert seen[offset] == times
                kind = REJECT if _wanted(offset) == 0 else RELEASE
                kinds.append(ACCEPT if _wanted(offset) == times else kind)
            assert part(await session.acknowledge((first, last, kinds))).error_code == NONE
        if not found and (await wire.lag(session.group, topic))[1] == 0:
            break
    assert seen == {offset: max(1, min(_wanted(offset), 5)) for offset in seen}
    assert await wire.lag(session.group, topic) == (count, 0)


@pytest.mark.scenario("S-019")
async def test_delivery_throttling_halves_the_batch_near_the_limit(wire: Wire) -> None:
    session, topic = await fx_rpc(wire, {"share.delivery.count.limit": "10"})
    await wire.produce(session.topic_id, 64)
    sizes: list[int] = []
    times = dict.fromkeys(range(64), 0)
    async for _ in attempts():
        found = acquired(await session.fetch(wait_ms=100))
        if not found and (await wire.lag(session.group, topic))[1] == 0:
            break
        if found:
            sizes.append(sum(last - first + 1 for first, last, _ in found))
        for first, last, _ in found:
            for offset in range(first, last + 1):
                times[offset] += 1
            assert await session.ack(first, last, RELEASE) == NONE
    assert sizes[:10] == [64] * 5 + [32, 16, 8, 4, 1]
    assert sizes[10:13] == [1, 1, 1], "offsets 1 to 3, one by one"
    assert times == dict.fromkeys(range(64), 10)


@pytest.mark.scenario("S-020")
async def test_a_last_attempt_is_delivered_alone(wire: Wire) -> None:
    a, topic = await fx_rpc(wire, {"share.delivery.count.limit": "5"})
    b = await another(a, topic)
    await b.fetch(epoch=0, wait_ms=0, max_records=0)
    for _ in range(2):
        await wire.produce(a.topic_id, 1)
    assert acquired(await a.fetch(max_records=1)) == [(0, 0, 1)]
    for count in range(1, 5):
        assert acquired(await b.fetch(max_records=2)) == [(1, 1, count)]
        assert await b.ack(1, 1, RELEASE) == NONE
    assert await a.ack(0, 0, RELEASE) == NONE
    for wanted in ((0, 0, 2), (1, 1, 5)):
        assert acquired(await b.fetch(max_records=2)) == [wanted]
        assert await b.ack(wanted[0], wanted[1], ACCEPT) == NONE
    assert acquired(await a.fetch(wait_ms=100)) == []


async def _two_partitions(wire: Wire) -> Session:
    """Open a session on both partitions of a topic that holds 10 records of each."""
    topic, group = unique("t"), unique("g")
    topic_id = await wire.create_topic(topic, 2)
    session = Session(wire, group, await wire.join(group, [topic]), topic_id, partitions=(0, 1))
    await session.open()
    for partition in (0, 1):
        await wire.produce(topic_id, 10, partition)
    held: Acquired = []
    while len(held) < 2:
        held += acquired(await session.fetch(wait_ms=300))
    return session


@pytest.mark.scenario("S-036")
async def test_forgotten_partitions_leave_the_session(wire: Wire) -> None:
    session = await _two_partitions(wire)
    for partition in (0, 1):
        await wire.produce(session.topic_id, 10, partition)
    answer = await session.fetch(forget=(0,))
    assert [one.partition_index for topic in answer.responses for one in topic.partitions] == [1]
    assert acquired(answer) == [(10, 19, 1)]
    assert acquired(await session.fetch(wait_ms=50)) == []
    assert await session.ack(0, 9, ACCEPT) == NONE, "its locks stay valid"


@pytest.mark.scenario("S-038")
async def test_min_bytes_and_max_wait(wire: Wire) -> None:
    session, _ = await fx_rpc(wire)
    await wire.produce(session.topic_id, 1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert acquired(await session.fetch(min_bytes=10_000, wait_ms=500)) == [(0, 0, 1)]
    assert loop.time() - began >= 0.5
    await wire.produce(session.topic_id, 1)
    parked = asyncio.create_task(session.fetch(min_bytes=2_000, wait_ms=20_000))
    await asyncio.sleep(0.2)
    assert not parked.done()
    await wire.produce(session.topic_id, 1_000)
    assert sum(last - first + 1 for first, last, _ in acquired(await parked)) == 1_001


@pytest.mark.scenario("S-040")
@pytest.mark.parametrize(
    "batches",
    [
        [(10, 4, [ACCEPT])],
        [(39, 24, [ACCEPT])],
        [(15, 24, [ACCEPT]), (10, 19, [ACCEPT])],
        [(0, 9, [ACCEPT] * 2)],
        [(0, 9, [ACCEPT] * 11)],
        [(0, 9, [])],
        [(0, 9, [5])],
        [(0, 9, [-1])],
    ],
)
async def test_validation_of_acknowledgement_batches(wire: Wire, batches: list[tuple[int, int, list[int]]]) -> None:
    session = await _two_partitions(wire)
    await wire.produce(session.topic_id, 30)
    assert await all_of(session, 30) == [(10, 39, 1)]
    answer = await session.acknowledge(*batches, more={1: [(0, 9, [ACCEPT])]})
    assert answer.error_code == NONE
    codes = {one.partition_index: one.error_code for topic in answer.responses for one in topic.partitions}
    assert codes == {0: INVALID, 1: NONE}
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [])
    assert (await wire.state(session.group, session.topic_id, 1)).start == 10


@pytest.mark.scenario("S-118")
async def test_renewal_keeps_the_lock_and_the_count(wire: Wire) -> None:
    """Times are a fifteenth of the scenario's. The lock's duration does not change meanwhile, so it is not shown that a
    renewal reads the current one."""
    session, topic = await fx_rpc(wire, {"share.record.lock.duration.ms": "2000"})
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    await asyncio.sleep(1.3)
    renewed = await session.acknowledge((0, 4, [RENEW]), (5, 9, [ACCEPT]), renew=True)
    assert (part(renewed).error_code, renewed.acquisition_lock_timeout_ms) == (NONE, 2_000)
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [(5, 9, 2, 1)])
    assert acquired(await other.fetch(wait_ms=1_000)) == [], "2.3 s after the acquisition"
    assert part(await session.acknowledge((0, 4, [RENEW]), renew=True)).error_code == NONE, "once more"
    assert acquired(await other.fetch(wait_ms=1_300)) == [], "3.6 s after the acquisition"
    assert (await wire.state(session.group, session.topic_id))[:2] == (0, [(5, 9, 2, 1)])
    assert await other.acquire() == [(0, 4, 2)]


@pytest.mark.scenario("S-119")
async def test_rules_of_renewal_requests(wire: Wire) -> None:
    session, topic = await fx_rpc(wire, {"share.record.lock.duration.ms": "1500"})
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    await wire.produce(session.topic_id, 5)
    zeros: dict[str, Any] = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renewing = {0: [(0, 9, [RENEW])]}
    for name in zeros:
        answer = await session.fetch(renewing, is_renew_ack=True, **{**zeros, name: 1})
        assert (answer.error_code, len(answer.responses)) == (INVALID, 0)
        assert f"{name} = 1; a renewal fetches nothing" in answer.error_message.replace("max_wait_ms", "wait_ms")
    renewed = await session.fetch(renewing, is_renew_ack=True, **zeros)
    assert (renewed.error_code, part(renewed).acknowledge_error_code, acquired(renewed)) == (NONE, NONE, [])
    unmarked = await session.acknowledge((0, 9, [RENEW]))
    assert part(unmarked).error_code == INVALID
    other = await another(session, topic)
    await other.fetch(epoch=0, wait_ms=0, max_records=0)
    assert part(await other.acknowledge((0, 9, [RENEW]), renew=True)).error_code == STATE
    assert await session.ack(0, 4, RELEASE) == NONE
    assert part(await session.acknowledge((0, 4, [RENEW]), renew=True)).error_code == STATE
    await asyncio.sleep(1.6)
    assert part(await session.acknowledge((5, 9, [RENEW]), renew=True)).error_code == STATE


@pytest.mark.rule("PL-321", "PL-322", "PL-502")
async def test_a_fetch_with_renewals_that_are_not_marked_or_that_opens_its_session_renews_nothing(wire: Wire) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    await wire.produce(session.topic_id, 5)
    unmarked = await session.fetch({0: [(0, 9, [RENEW])]})
    assert (unmarked.error_code, part(unmarked).acknowledge_error_code) == (NONE, INVALID)
    assert "is_renew_ack" in part(unmarked).acknowledge_error_message
    assert acquired(unmarked) == [(10, 14, 1)], "only the acknowledgements of the partition are refused"
    zeros: dict[str, Any] = {"wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    opening = await session.fetch({0: [(0, 9, [RENEW])]}, epoch=0, is_renew_ack=True, **zeros)
    assert (opening.error_code, len(opening.responses)) == (INVALID, 0)
    renewed = await session.fetch({0: [(0, 14, [RENEW])]}, is_renew_ack=True, **zeros)
    assert (renewed.error_code, part(renewed).acknowledge_error_code) == (NONE, NONE), "the session is as it was"
    assert await wire.lag(session.group, topic) == (0, 15)


@pytest.mark.rule("PL-510")
@pytest.mark.parametrize("max_bytes", [0, -1])
async def test_a_fetch_that_asks_for_no_bytes_of_a_partition_is_refused_and_acquires_nothing(
    wire: Wire, max_bytes: int
) -> None:
    session, topic = await fx_rpc(wire)
    await wire.produce(session.topic_id, 10)
    assert await session.acquire() == [(0, 9, 1)]
    await wire.produce(session.topic_id, 5)

    def bounded(by: int) -> Callable[[Any], None]:
        return lambda request: setattr(request.topics[0].partitions[0], "partition_max_bytes", by)

    refused = await session.fetch({0: [(0, 9, [ACCEPT])]}, change=bounded(max_bytes))
    assert (refused.error_code, len(refused.responses)) == (INVALID, 0)
    assert f"partition_max_bytes = {max_bytes}" in refused.error_message
    assert "send ShareAcknowledge" in refused.error_message
    assert await wire.lag(session.group, topic) == (0, 15), "nothing was acknowledged"
    served = await session.fetch({0: [(0, 9, [ACCEPT])]}, change=bounded(1))
    assert (part(served).acknowledge_error_code, acquired(served)) == (NONE, [(10, 14, 1)]), "it is the same session"


@pytest.mark.scenario("S-133")
async def test_the_limit_of_record_locks_changes_while_the_group_works(wire: Wire) -> None:
    """The numbers are a fifth of the scenario's."""
    session, _ = await fx_rpc(wire, {"share.partition.max.record.locks": "100"})
    for _ in range(300):
        await wire.produce(session.topic_id, 1)
    for limit in (100, 200):
        await wire.set_group(session.group, {"share.partition.max.record.locks": str(limit)})
        held: Acquired = []
        while found := acquired(await session.fetch(wait_ms=200)):
            held += found
        assert sum(last - first + 1 for first, last, _ in held) == 100
        assert max(last for _, last, _ in held) == limit - 1
