"""Which batches a client can be sent by their format: this suite's own, or Kafka's too (CM-220, CM-222)."""

from __future__ import annotations

from collections.abc import Container

from kip932.errors import UnsupportedCompressionTypeError
from kip932.ids import BATCH_FORMAT_KAFKA
from kip932.kafka_records import is_kafka_batch
from partition_leader.topic_log.core.batch import LogBatch


def part_in(formats: Container[int], batches: tuple[LogBatch, ...]) -> tuple[LogBatch, ...]:
    """Return the batches before the first one in a format that a caller did not name in `formats`."""
    if BATCH_FORMAT_KAFKA in formats:
        return batches
    for number, batch in enumerate(batches):
        if is_kafka_batch(batch.data):
            return batches[:number]
    return batches


def format_refusal(batch: LogBatch, offset: int) -> UnsupportedCompressionTypeError:
    """Return the error for a client that does not read the format of `batch`, which has the record at `offset`."""
    return UnsupportedCompressionTypeError(
        f"the record at offset {max(offset, batch.base_offset)} is in a batch of Kafka's format, which a client of "
        "Kafka's produced; this client does not read that format. Try: a newer version of this client, where it runs"
    )
