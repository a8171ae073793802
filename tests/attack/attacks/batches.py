"""Attacks with record batches: false record counts, truncated frames, and frames that decompress to far too much."""

from __future__ import annotations

import asyncio
import functools
import random
from pathlib import Path
from typing import Any, Final

from kip932.api.v1 import partition_leader_service_pb2
from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.api.v1.record_batch_pb2 import Record, RecordBatch
from kip932.compression.kinds import Compression, frames_of
from kip932.rpc.grpc_transport import GrpcTransport
from kip932.rpc.transport import service_methods
from tests.attack.attacks.crowd import crowd, summary
from tests.attack.definition import Attack, Target

PRODUCE: Final = service_methods(partition_leader_service_pb2.DESCRIPTOR.services_by_name["PartitionLeaderService"])[
    "Produce"
]
_AT_ONCE: Final = 8
_CALL_S: Final = 30.0
_KINDS: Final = tuple(kind for kind in Compression if kind is not Compression.NONE)


@functools.cache
def _bomb(kind: Compression) -> bytes:
    """Compress 20 MiB of zeros: 20 KiB of gzip, 700 bytes of zstd."""
    return frames_of(kind).compress(bytes(20 << 20), None)


def honest(rng: random.Random) -> ProduceRequest.Batch:
    """Return a valid batch."""
    count, size = rng.randrange(1, 50), rng.choice((0, 10, 1_000))
    batch = RecordBatch(records=[Record(value=rng.randbytes(size)) for _ in range(count)])
    return ProduceRequest.Batch(record_batch=batch.SerializeToString(), record_count=len(batch.records))


def forged_batch(rng: random.Random) -> ProduceRequest.Batch:
    """Return a batch with a false header or false data."""
    batch, kind = honest(rng), rng.choice(_KINDS)
    match rng.randrange(6):
        case 0:
            batch.record_count = rng.choice((batch.record_count + 1, 2**31 - 1, 2**24, -1, 0))
        case 1:
            batch.record_batch = batch.record_batch[: rng.randrange(len(batch.record_batch) - 1)] + b"\xff"
        case 2:
            packed = frames_of(kind).compress(batch.record_batch, None)
            count = rng.choice((1_000 + batch.record_count, 2**31 - 1))
            forged = RecordBatch(compression=kind, compressed_records=packed)
            batch = ProduceRequest.Batch(record_batch=forged.SerializeToString(), record_count=count)
        case 3:
            bomb = RecordBatch(compression=kind, compressed_records=_bomb(kind))
            batch = ProduceRequest.Batch(record_batch=bomb.SerializeToString(), record_count=rng.choice((1, 500)))
        case 4:
            cut = frames_of(kind).compress(batch.record_batch, None)[:-9]
            half = RecordBatch(compression=kind, compressed_records=cut)
            batch = ProduceRequest.Batch(record_batch=half.SerializeToString(), record_count=batch.record_count)
        case _:
            unknown = RecordBatch(compression=rng.choice((2, 7, -1)), compressed_records=b"x")
            batch = ProduceRequest.Batch(record_batch=unknown.SerializeToString(), record_count=1)
    return batch


def _forged_batches(target: Target, rng: random.Random, seconds: float, folder: Path) -> str:
    async def produce(transport: GrpcTransport) -> str:
        is_forged = rng.random() < 0.8
        request = ProduceRequest(acks=-1, timeout_ms=10_000)
        data = request.topic_data.add(topic_id=target.topic_id).partition_data.add(index=rng.randrange(4))
        data.batches.append(forged_batch(rng) if is_forged else honest(rng))
        answer: Any = await transport.call(target.leader(), PRODUCE, request, _CALL_S)
        result = answer.responses[0].partition_responses[0]
        assert not (is_forged and result.error_code == 0), f"a lie was stored: {str(request)[:300]}"
        return f"error {result.error_code}"

    counts = asyncio.run(crowd(produce, seconds, target.dial, _AT_ONCE))
    assert counts["error 0"], f"no honest batch was stored beside the lies: {counts}"
    return summary(counts)


BATCH_ATTACKS: Final = (
    Attack("forged-batches", "Record batches that are not what they say, beside honest ones", _forged_batches),
)
