"""A Produce of very many batches goes to the store in waves, all within the request's time-out (CM-113)."""

from __future__ import annotations

import asyncio

import pytest

from partition_leader.topic_log.core.batch import NewBatch
from partition_leader.topic_log.state import AppendOutcome
from partition_leader.topic_rpc.produce import ProduceService
from tests.support.virtual_time import now_s, virtual
from tests.unit.partition_leader.topic_rpc.requests import request, wire_batch
from tests.unit.partition_leader.topic_rpc.test_lying_batches import Waves


class SlowWaves(Waves):
    """Each wave takes a second. `sent` has the time at which each partition's batches were sent, and their time-out."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, int]] = []

    def submit(self, batches: list[NewBatch], timeout_ms: int) -> asyncio.Future[AppendOutcome]:
        self.sent.append((round(now_s(), 3), timeout_ms))
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(1.0, future.set_result, AppendOutcome((0,) * len(batches), 1, 0))
        return future


@pytest.mark.rule("CM-113")
@virtual
async def test_a_later_wave_has_what_is_left_of_the_requests_time() -> None:
    many = request(wire_batch())
    for index in range(1, 3_000):
        many.topic_data[0].partition_data.add(index=index).batches.extend([wire_batch()] * 3)
    many.timeout_ms = 5_000
    directory = SlowWaves()
    response = await ProduceService(directory).produce(many)
    assert not any(part.error_code for part in response.responses[0].partition_responses)
    waves = sorted(set(directory.sent))
    assert waves == [(float(second), max(5_000 - 1_000 * second, 1)) for second in range(9)]
