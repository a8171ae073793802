"""Builds produce requests from groups of batches. Nothing here waits or keeps state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kip932.api.v1.init_producer_id_pb2 import InitProducerIdRequest
from kip932.api.v1.produce_pb2 import ProduceRequest, ProduceStreamRequest
from kip932.errors import KafkaError, NetworkError
from kip932.ids import TopicIdPartition
from sharegroups.config import Config
from sharegroups.core.open_transaction import Transaction
from sharegroups.core.produce_lane import NO_IDENTITY, Batch, Group, ProducerIdentity
from sharegroups.core.unconfirmed_batches import Meaning
from sharegroups.errors import NotSentError
from sharegroups.packing import Packing, packing_of
from sharegroups.produced import ProducedRecord, encode


def stream_message(
    groups: Iterable[Group[ProducedRecord, Any]],
    meanings: Mapping[str, Meaning],
    config: Config,
    acks: int,
    transaction: Transaction | None,
) -> ProduceStreamRequest:
    """Return the groups' batches as a stream message without its correlation number (CM-41, CM-42).

    The request is built inside the message, because protobuf copies a message that is put into another one. `meanings`:
    the topics' ids; `config`: the producer's settings.
    """
    message = ProduceStreamRequest()
    request = message.request
    request.acks, request.timeout_ms = acks, config["request.timeout.ms"]
    if transaction is not None:
        request.transactional_id = transaction.transactional_id
    packing = packing_of(config)
    topics: dict[str, ProduceRequest.TopicData] = {}
    for group in groups:
        name, number = group.partition
        if name not in topics:
            topics[name] = request.topic_data.add(topic_id=meanings[name].topic_id)
        part = topics[name].partition_data.add(index=number)
        for batch in group.batches:
            _add_batch(part, batch, packing, transaction is not None)
    return message


def identity_request(transaction: Transaction | None, former: ProducerIdentity | None) -> InitProducerIdRequest:
    """Return the request for an identity (CM-43). `former`: the identity that a transactional producer continues
    (CM-152)."""
    producer_id, epoch = former or NO_IDENTITY
    request = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
    if transaction is not None:
        request.transactional_id, request.transaction_timeout_ms = transaction
    return request


def _add_batch(
    part: ProduceRequest.PartitionData, batch: Batch[ProducedRecord, Any], packing: Packing, transactional: bool
) -> None:
    data, latest_ms = encode(batch.records, packing)
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


def place_of(group: Group[ProducedRecord, Any], meanings: Mapping[str, Meaning]) -> TopicIdPartition:
    """Return the topic id and partition of the group."""
    return TopicIdPartition(meanings[group.partition.topic].topic_id, group.partition.partition)


def closed_before(group: Group[ProducedRecord, Any], *, is_sent: bool = False) -> KafkaError:
    """Return the error of records that fail when the producer closes. A batch that was never sent is certainly not
    stored."""
    if is_sent or group.batches[0].unconfirmed is not None:
        return NetworkError("the producer was closed before the leader answered; the record may be stored")
    return NotSentError("the producer was closed before the record was sent")
