"""Limits what a user or client id produces to this node (CM-192)."""

from __future__ import annotations

import asyncio

from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.errors import ThrottlingQuotaExceededError
from shard_runtime.rpc.quotas import WAIT_MAX_MS, CallerQuota


async def admitted(quota: CallerQuota, request: ProduceRequest) -> ThrottlingQuotaExceededError | None:
    """Charge a request to its caller's quota, and wait until it may be stored. Returns the error for its partitions if
    that would take longer than WAIT_MAX_MS; then nothing is charged.

    A caller that waits as it was asked to does not wait here. A stream reads no further request meanwhile, so its
    client is stopped by flow control; the bytes of the one that waits count in the byte budget (CM-92).
    """
    delay_ms = quota.delay_ms()
    if delay_ms > WAIT_MAX_MS:
        return quota.refusal("nothing was stored")
    size = sum(
        len(batch.record_batch)
        for topic in request.topic_data
        for data in topic.partition_data
        for batch in data.batches
    )
    quota.charge(size)
    if delay_ms:
        quota.waits(delay_ms)
        try:
            await asyncio.sleep(delay_ms / 1000)
        except asyncio.CancelledError:  # else a caller that gives up and tries again would never be admitted
            quota.give_back(size)
            raise
    return None
