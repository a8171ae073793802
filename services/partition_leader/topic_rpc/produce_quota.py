"""Limits what a user or client id produces to this node (CM-192)."""

from __future__ import annotations

import asyncio

from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.errors import KafkaError, NotLeaderOrFollowerError
from shard_runtime.rpc.quotas import WAIT_MAX_MS, CallerQuota


async def admitted(quota: CallerQuota, request: ProduceRequest) -> KafkaError | None:
    """Charge a request to its caller's quota, and wait until it may be stored. Returns the error for its partitions if
    that would take longer than WAIT_MAX_MS, or if this node shuts down first; then nothing is charged.

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
            stays = await _waited(quota, delay_ms)
        except asyncio.CancelledError:  # else a caller that gives up and tries again would never be admitted
            quota.give_back(size)
            raise
        if not stays:
            quota.give_back(size)
            return NotLeaderOrFollowerError("this node is shutting down; nothing was stored; try the new leader")
    return None


async def _waited(quota: CallerQuota, delay_ms: int) -> bool:
    """Wait for `delay_ms`. Returns False, at once, if this node shuts down first."""
    if quota.waiting.has_ended:
        return False
    ends = asyncio.Event()
    quota.waiting.begin(ends.set)
    try:
        async with asyncio.timeout(delay_ms / 1000):
            await ends.wait()
    except TimeoutError:
        return True
    finally:
        quota.waiting.forget(ends.set)
    return False
