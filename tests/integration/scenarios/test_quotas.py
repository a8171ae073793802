"""Quotas on real sockets: a client id's requests over one port are limited, and those of others are not."""

from __future__ import annotations

import time

import pytest

from kip932.api.v1.alter_client_quotas_pb2 import AlterClientQuotasRequest
from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import CLIENT_ID_KEY
from tests.integration.scenarios.wire import Wire
from tests.support.node import Cluster, unique

RATE, COUNT = 100_000, 8


@pytest.mark.asyncio
@pytest.mark.rule("CM-192")
async def test_the_requests_of_a_client_id_are_stored_at_its_rate(cluster: Cluster) -> None:
    name = unique("loader")
    data = RecordBatch(records=[Record(value=b"v" * 50_000)]).SerializeToString()
    async with Wire(cluster.bootstrap, cluster.internal) as wire, Wire(cluster.bootstrap) as limited:
        await limited.transport.close()
        limited.transport = GrpcTransport(metadata=lambda: ((CLIENT_ID_KEY, name),))
        topic_id = await wire.create_topic(unique("t"))
        request = AlterClientQuotasRequest()
        entry = request.entries.add()
        entry.entity.add(entity_type="client-id", entity_name=name)
        entry.ops.add(key="producer_byte_rate", value=RATE)
        assert [each.error_code for each in (await wire.call("AlterClientQuotas", request)).entries] == [0]
        produce = ProduceRequest(acks=-1, timeout_ms=10_000)
        produce.topic_data.add(topic_id=topic_id).partition_data.add(index=0).batches.add(
            record_batch=data, record_count=1, producer_id=-1, producer_epoch=-1, base_sequence=-1, max_timestamp_ms=5
        )
        began_s, asked_ms = time.monotonic(), []
        for _ in range(COUNT):
            answer = await limited.call("Produce", produce)
            assert answer.responses[0].partition_responses[0].error_code == 0
            asked_ms.append(answer.throttle_time_ms)
        passed_s = time.monotonic() - began_s
        other = await wire.call("Produce", produce)
    # A slow machine only makes it slower: the bound is on the bytes, given the time.
    assert COUNT * len(data) <= RATE * (passed_s + 1) + len(data)
    assert asked_ms[0] == 0
    assert max(asked_ms) > 0
    assert other.throttle_time_ms == 0
