"""Builds a produce request from groups of batches. Its functions neither wait nor keep state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kip932.api.v1.produce_pb2 import ProduceRequest
from sharegroups.core.produce_buffer import NO_IDENTITY, Batch, Group
from sharegroups.core.unconfirmed_batches import Meaning
from sharegroups.produced import ProducedRecord, encode


def fill_request(
    request: ProduceRequest,
    groups: Iterable[Group[ProducedRecord, Any]],
    meanings: Mapping[str, Meaning],
    compression: str,
) -> None:
    """Add the groups' batches to a request whose other fields are set (CM-41, CM-42). `meanings`: the topics' ids."""
    topics: dict[str, ProduceRequest.TopicData] = {}
    transactional = request.HasField("transactional_id")
    for group in groups:
        name, number = group.partition
        if name not in topics:
            topics[name] = request.topic_data.add(topic_id=meanings[name].topic_id)
        part = topics[name].partition_data.add(index=number)
        for batch in group.batches:
            _add_batch(part, batch, compression, transactional)


def _add_batch(
    part: ProduceRequest.PartitionData, batch: Batch[ProducedRecord, Any], compression: str, transactional: bool
) -> None:
    data, latest_ms = encode(batch.records, compression)
    identity = batch.identity or NO_IDENTITY
    part.batches.add(
        record_batch=data,
        record_count=len(batch.records),
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=batch.base_sequence,
        max_timestamp_ms=latest_ms,
        is_transactional=transactional,
    )
