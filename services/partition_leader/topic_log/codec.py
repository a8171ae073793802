"""Translates batches, markers and snapshots to and from entries of a topic's two streams (CM-16, CM-40, CM-41).

It never decodes a batch's bytes. An entry of an unknown kind or version is read as None.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.record_batches import plausible_count
from kip932.records.v1 import topic_log_pb2 as pb
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.core.producers import NO_EPOCH, ProducerState, ProducerTable, SequencedBatch
from partition_leader.topic_log.core.transactions import AbortedTransaction, LogTransactions, OpenTransaction
from shard_runtime.record_log.protocol import Entry, StreamId

BATCH_TYPE: Final = "B"
MARKER_TYPE: Final = "M"
LOG_START_TYPE: Final = "L"
PRODUCERS_TYPE: Final = "P"
_VERSION: Final = 0
_COLD: Final = 64


class ProducersSnapshot(NamedTuple):
    """The producers and transactions as of `log_end`."""

    log_end: int
    producers: tuple[tuple[int, ProducerState], ...]
    open: tuple[OpenTransaction, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()


class Hole(NamedTuple):
    """Offsets `start`…`end` − 1 have no record (CM-47); there are none when both are equal."""

    start: int
    end: int


def batch_entry(epoch: int, batch: LogBatch) -> Entry:
    """Return the log entry for one batch; the `seq` of its id is the offset after the batch."""
    value = pb.BatchEntry(
        base_offset=batch.base_offset,
        count=batch.record_count,
        size_bytes=batch.size,
        max_timestamp_ms=batch.max_timestamp_ms,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        control_type=batch.control_type,
        transactional_id=batch.transactional_id,
    )
    record = pb.TopicLogRecord(append_time_ms=batch.append_time_ms, batch=value)
    return Entry(StreamId(epoch, batch.end_offset), BATCH_TYPE, record.SerializeToString(), batch.data)


def read_batch(entry: Entry) -> LogBatch | None:
    """Return the batch in an entry; None for claims, markers, entries of unknown kinds, and damaged entries (CM-101).

    If an entry claims more records than its bytes can hold (leaders before CM-112 accepted such batches), the batch
    gets only as many as they can hold, and the offsets after them are a hole.
    """
    if entry.kind != BATCH_TYPE or entry.damage:
        return None
    record = pb.TopicLogRecord.FromString(entry.record)
    if record.record_version != _VERSION:
        return None
    value = record.batch
    return LogBatch(
        value.base_offset,
        value.base_offset + plausible_count(value.count, value.size_bytes) - 1,
        value.size_bytes,
        entry.batch,
        record.append_time_ms,
        value.max_timestamp_ms,
        value.producer_id,
        value.producer_epoch,
        value.base_sequence,
        value.is_transactional,
        value.is_control,
        value.control_type,
        value.transactional_id,
    )


def marker_entry(epoch: int, log_end: int, append_time_ms: int, jump_from: int | None = None) -> Entry:
    """Return the marker that records `log_end`. `jump_from`: the start of the hole before `log_end` (CM-47)."""
    value = pb.Marker(log_end_offset=log_end, jump=jump_from is not None, jump_from=jump_from or 0)
    record = pb.TopicLogRecord(append_time_ms=append_time_ms, marker=value)
    return Entry(StreamId(epoch, log_end), MARKER_TYPE, record.SerializeToString())


def read_marker(entry: Entry) -> Hole | None:
    """Return the hole that a marker leaves, whose `end` is the log end that the marker records; None for any other
    entry."""
    if entry.kind != MARKER_TYPE or entry.damage:
        return None
    marker = pb.TopicLogRecord.FromString(entry.record).marker
    return Hole(marker.jump_from if marker.jump else marker.log_end_offset, marker.log_end_offset)


def log_start_entry(at: StreamId, log_start: int, append_time_ms: int, cold: bool = False) -> Entry:
    """Return a log start as an entry of the control log. `cold`: whether it is a copy made by compaction rather than a
    change (CM-18)."""
    record = pb.ControlLogRecord(
        append_time_ms=append_time_ms,
        cause=_COLD if cold else 0,
        log_start=pb.LogStart(log_start_offset=log_start),
    )
    return Entry(at, LOG_START_TYPE, record.SerializeToString())


def read_log_start(entry: Entry) -> int | None:
    """Return the log start of an intact entry of type L, None for any other entry."""
    record = pb.ControlLogRecord.FromString(entry.record)
    return record.log_start.log_start_offset if record.record_version == _VERSION else None


def producers_entry(
    at: StreamId, log_end: int, table: ProducerTable, transactions: LogTransactions, append_time_ms: int
) -> Entry:
    """Return a snapshot of all producers and transactions, covering all batches below `log_end` (CM-43, CM-44)."""
    snapshot = pb.ProducersSnapshot(log_end_offset=log_end)
    _add_transactions(snapshot, transactions)
    for producer_id, state in table.items():
        one = snapshot.producers.add(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_append_time_ms=state.last_append_ms,
            ended_epoch=None if state.ended_epoch == NO_EPOCH else state.ended_epoch,
        )
        for batch in state.batches:
            one.batches.add(
                base_sequence=batch.base_sequence,
                count=batch.record_count,
                base_offset=batch.base_offset,
                append_time_ms=batch.append_time_ms,
            )
    record = pb.ControlLogRecord(append_time_ms=append_time_ms, producers=snapshot)
    return Entry(at, PRODUCERS_TYPE, record.SerializeToString())


def _add_transactions(snapshot: pb.ProducersSnapshot, transactions: LogTransactions) -> None:
    for opened in transactions.open.values():
        snapshot.open_transactions.add(
            producer_id=opened.producer_id,
            producer_epoch=opened.producer_epoch,
            first_offset=opened.first_offset,
            transactional_id=opened.transactional_id,
            last_append_time_ms=opened.last_append_ms,
            first_append_time_ms=opened.first_append_ms,
            records=opened.records,
        )
    for aborted in transactions.aborted:
        snapshot.aborted_transactions.add(
            producer_id=aborted.producer_id,
            first_offset=aborted.first_offset,
            last_offset=aborted.last_offset,
            records=aborted.records,
        )


def read_producers(entry: Entry) -> ProducersSnapshot | None:
    """Return the snapshot of an entry of type P, None for any other entry."""
    record = pb.ControlLogRecord.FromString(entry.record)
    if record.record_version != _VERSION:
        return None
    return ProducersSnapshot(
        record.producers.log_end_offset,
        tuple(
            (
                one.producer_id,
                ProducerState(
                    one.producer_epoch,
                    tuple(
                        SequencedBatch(batch.base_sequence, batch.count, batch.base_offset, batch.append_time_ms)
                        for batch in one.batches
                    ),
                    one.last_append_time_ms,
                    one.ended_epoch if one.HasField("ended_epoch") else NO_EPOCH,
                ),
            )
            for one in record.producers.producers
        ),
        tuple(
            OpenTransaction(
                one.producer_id,
                one.producer_epoch,
                one.first_offset,
                one.transactional_id,
                one.last_append_time_ms,
                one.first_append_time_ms,
                one.records,
            )
            for one in record.producers.open_transactions
        ),
        tuple(
            AbortedTransaction(one.producer_id, one.first_offset, one.last_offset, one.records)
            for one in record.producers.aborted_transactions
        ),
    )
