"""Record batches in Kafka's format, made by aiokafka: what a client of Kafka's would send, by other code than ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kip932.api.v1 import produce_pb2
from kip932.compression.kinds import Compression
from kip932.kafka_batches import header_of

#: Key, value, headers, and milliseconds since 1970.
Made = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]


def kafka_batch(
    records: Sequence[Made],
    kind: Compression = Compression.NONE,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Return one batch with these records. aiokafka writes base offset 0, leader epoch 0 and a right checksum."""
    builder = DefaultRecordBatchBuilder(
        2,
        kind,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=1 << 30,
    )
    for place, (key, value, headers, timestamp_ms) in enumerate(records):
        assert builder.append(place, timestamp_ms, key, value, list(headers)) is not None
    return bytes(builder.build())


def values(*contents: bytes, timestamp_ms: int = 1_000) -> list[Made]:
    """Return records that have only a value, each a millisecond after the one before."""
    return [(None, content, (), timestamp_ms + number) for number, content in enumerate(contents)]


def wire_batch(data: bytes, **fields: Any) -> produce_pb2.ProduceRequest.Batch:
    """Return the Batch of a Produce whose fields agree with the header of `data`, but for those in `fields`."""
    header = header_of(data)
    found: dict[str, Any] = {
        "record_batch": data,
        "record_count": header.count,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "max_timestamp_ms": header.max_timestamp_ms,
        "is_transactional": header.is_transactional,
    }
    return produce_pb2.ProduceRequest.Batch(**{**found, **fields})
