"""A record batch in the leader: the fields of its log entry, and its bytes, which are not decoded here (CM-41)."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_PRODUCER: Final = -1
NO_SEQUENCE: Final = -1
CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1
#: A marker has no record, so no search by timestamp finds it.
NO_TIMESTAMP: Final = -1


class LogBatch(NamedTuple):
    """A stored batch (PL-006). `data` is the serialised RecordBatch, empty when only the index entry was read."""

    base_offset: int
    last_offset: int
    size: int
    data: bytes
    append_time_ms: int
    max_timestamp_ms: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    is_control: bool = False
    control_type: int = 0
    transactional_id: str = ""

    @property
    def record_count(self) -> int:
        """The number of offsets."""
        return self.last_offset - self.base_offset + 1

    @property
    def end_offset(self) -> int:
        """The offset after the batch: the `seq` of its entry id (CM-40)."""
        return self.last_offset + 1

    @property
    def is_abort(self) -> bool:
        """Return whether it is the ABORT marker of a transaction."""
        return self.is_control and self.control_type == CONTROL_ABORT


class NewBatch(NamedTuple):
    """A validated batch that will be appended; it has no offset yet."""

    data: bytes
    record_count: int
    max_timestamp_ms: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    sequence_given: bool = True
    """False if `base_sequence` is 0 only because the producer sent none, so that the batch is not treated as a
    duplicate (CM-110)."""
    transactional_id: str = ""
    after_given_up: bool = False
    """Whether the producer has given up the batches whose sequences are missing before this one (CM-43)."""

    @property
    def idempotent(self) -> bool:
        """Return whether the batch has a producer id, and therefore a sequence number (CM-43)."""
        return self.producer_id != NO_PRODUCER

    def at(self, base_offset: int, append_time_ms: int) -> LogBatch:
        """Return the batch with its offset and append time."""
        return LogBatch(
            base_offset,
            base_offset + self.record_count - 1,
            len(self.data),
            self.data,
            append_time_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.is_transactional,
            transactional_id=self.transactional_id,
        )


def marker_batch(base_offset: int, producer: tuple[int, int], control_type: int, append_time_ms: int) -> LogBatch:
    """Return the control batch that ends the transaction of `producer` (id, epoch): one offset, no records (CM-44)."""
    return LogBatch(
        base_offset,
        base_offset,
        0,
        b"",
        append_time_ms,
        NO_TIMESTAMP,
        producer[0],
        producer[1],
        NO_SEQUENCE,
        is_transactional=True,
        is_control=True,
        control_type=control_type,
    )
