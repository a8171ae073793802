"""Translates records of transactional ids to and from their stored bytes (CM-151)."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from kip932.ids import TopicIdPartition
from kip932.records.v1 import transaction_pb2 as pb
from transaction_coordinator.core.transaction import Cause, Ended, Identity, State, Transaction

_VERSION: Final = 0


class UnknownRecordError(Exception):
    """The bytes are a record of a version that this build does not know, or not a record at all."""


def record_bytes(transactional_id: str, value: Transaction, change_id: int) -> bytes:
    """Encode a record; `change_id` is random, so that no two changes have the same bytes."""
    record = pb.TransactionRecord(
        change_id=change_id,
        transactional_id=transactional_id,
        producer_id=value.identity.producer_id,
        producer_epoch=value.identity.epoch,
        state=value.state,
        cause=value.cause,
        timeout_ms=value.timeout_ms,
        started_ms=value.started_ms,
        restored=value.restored,
    )
    topics: dict[bytes, pb.TransactionRecord.Partitions] = {}
    for topic_id, partition in value.partitions:
        if topic_id not in topics:
            topics[topic_id] = record.partitions.add(topic_id=topic_id)
        topics[topic_id].indexes.append(partition)
    for past in value.ended:
        record.ended.add(
            producer_id=past.identity.producer_id,
            producer_epoch=past.identity.epoch,
            committed=past.committed,
            cause=past.cause,
        )
    return record.SerializeToString()


def read_record(data: bytes) -> Transaction:
    """Decode a record. Raises UnknownRecordError."""
    try:
        record = pb.TransactionRecord.FromString(data)
        if record.record_version != _VERSION:
            raise UnknownRecordError(f"record version {record.record_version}; this build knows {_VERSION}")
        return _transaction(record)
    except (DecodeError, ValueError) as error:
        raise UnknownRecordError(str(error)) from error


def _transaction(record: pb.TransactionRecord) -> Transaction:
    return Transaction(
        Identity(record.producer_id, record.producer_epoch),
        record.timeout_ms,
        State(record.state),
        Cause(record.cause),
        record.started_ms,
        tuple(TopicIdPartition(each.topic_id, index) for each in record.partitions for index in each.indexes),
        tuple(
            Ended(Identity(one.producer_id, one.producer_epoch), one.committed, Cause(one.cause))
            for one in record.ended
        ),
        record.restored,
    )
