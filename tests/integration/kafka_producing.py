"""Batches of Kafka's format for a running node: what one of its clients would send, in requests of our own protocol."""

from __future__ import annotations

import asyncio

from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.kafka_batches import stored
from sharegroups import Admin
from tests.integration.scenarios.wire import Wire, attempts
from tests.support.kafka_made import wire_batch

NOT_LEADER = 6


def produce_to(bootstrap: str, topic: str, *batches: bytes, partition: int = 0) -> list[int]:
    """Produce batches to a topic of a node that leads everything; return the base offset of each."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        topic_id = admin.list_topics([topic])[topic].topic_id
    request = ProduceRequest(acks=-1, timeout_ms=10_000)
    data = request.topic_data.add(topic_id=topic_id).partition_data.add(index=partition)
    data.batches.extend(wire_batch(stored(batch)) for batch in batches)

    async def produced() -> list[int]:
        async with Wire(bootstrap) as wire:
            async for _ in attempts():  # a new topic's leader may still be loading
                (answer,) = (await wire.call("Produce", request)).responses[0].partition_responses
                if answer.error_code != NOT_LEADER:
                    assert answer.error_code == 0, answer.error_message
                    return list(answer.base_offsets)
        raise AssertionError("the node does not lead the partition")

    return asyncio.run(produced())
