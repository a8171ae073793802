"""A Produce that waits for its caller's quota when the node shuts down (CM-192)."""

from __future__ import annotations

import asyncio

import pytest

from kip932.errors import NotLeaderOrFollowerError
from kip932.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from partition_leader.topic_rpc.produce import ProduceService
from shard_runtime.rpc.binding import CallContext
from shard_runtime.rpc.quotas import ClientQuotas
from tests.support.virtual_time import virtual
from tests.unit.partition_leader.topic_rpc.test_lying_batches import Waves

from .requests import only, request, wire_batch


@pytest.mark.rule("CM-192")
@virtual
async def test_a_node_that_shuts_down_refuses_what_waits_at_once_and_stores_and_charges_nothing_for_it() -> None:
    loop = asyncio.get_running_loop()
    batch = wire_batch()
    quotas, stored = ClientQuotas(lambda: int(loop.time() * 1000)), Waves()
    quotas.follow({QuotaEntity("alice"): {PRODUCER_BYTE_RATE: float(len(batch.record_batch))}})
    caller = CallContext("host", "connection", lambda: None, "User:alice", quotas=quotas)
    service, asked = ProduceService(stored), request(batch)
    asked.timeout_ms = 5_000
    for _ in range(2):
        assert only(await service.produce(asked, caller)).error_code == 0
    quota = quotas.of(PRODUCER_BYTE_RATE, "User:alice", "")
    assert quota is not None
    owed_ms = quota.delay_ms()
    waiting = [asyncio.create_task(service.produce(asked, caller)) for _ in range(5)]
    await asyncio.sleep(0.1)
    began_s, most = loop.time(), stored.most
    assert quota.delay_ms() > 4_000
    quotas.waiting.end()
    answers = [only(answer) for answer in await asyncio.gather(*waiting)]
    answers.append(only(await service.produce(asked, caller)))
    assert loop.time() == began_s
    assert {answer.error_code for answer in answers} == {NotLeaderOrFollowerError.code}
    assert {answer.error_message for answer in answers} == {
        "this node is shutting down; nothing was stored; try the new leader"
    }
    assert (stored.under_way, stored.most) == (0, most)
    assert quota.delay_ms() == pytest.approx(owed_ms - 100, abs=1)
    await asyncio.sleep(1)
    assert only(await service.produce(asked, caller)).error_code == 0, "what needs not wait is still stored"
