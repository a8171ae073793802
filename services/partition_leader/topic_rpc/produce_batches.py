"""Checks a producer's batches for one partition before they may be stored (CM-42, CM-110, CM-112, CM-113).

Headers are always checked at once, bytes only up to a limit that the caller sets. `check_rest` checks the rest and may
run in a thread. Nothing here waits, and no object is created per record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from kip932.api.v1.produce_pb2 import ProduceRequest
from kip932.compression.frames import MoreBytesError
from kip932.errors import InvalidRecordError, InvalidRequestError, KafkaError, MessageTooLargeError
from kip932.ids import BATCH_PLAIN_BYTES_MAX, PARTITION_BATCHES_MAX, TopicIdPartition
from kip932.kafka_records import header_of, is_kafka_batch
from kip932.record_batches import check_batch
from partition_leader.topic_log.core.batch import NO_PRODUCER, NewBatch

_SEQUENCE_MAX: Final = 2**31 - 1
_NO_NUMBER: Final = -1
_YIELD_S: Final = 0.0001
_ALL_THREE: Final = "set all three, zeros too, as InitProducerId gave them, or none of them"


class ProducedPart:
    """The batches of one partition; if `error` is set, store none of them."""

    __slots__ = ("batches", "error", "partition", "unchecked")

    def __init__(self, partition: TopicIdPartition) -> None:
        self.partition = partition
        self.batches: list[NewBatch] = []
        self.unchecked: list[NewBatch] = []
        self.error: KafkaError | None = None

    def read(
        self,
        batches: Sequence[ProduceRequest.Batch],
        max_message_bytes: int,
        room_bytes: int,
        transactional_id: str = "",
    ) -> int:
        """Validate all headers, and check batches of up to `room_bytes` in total. Returns how many of these bytes are
        left. Batches beyond them go into `unchecked`: call `check_rest`.

        Raises InvalidRecordError, CorruptMessageError, MessageTooLargeError, InvalidRequestError,
        UnsupportedForMessageFormatError, UnsupportedCompressionTypeError.
        """
        if not batches:
            raise InvalidRecordError("no record batch was sent for this partition; expected at least one")
        if len(batches) > PARTITION_BATCHES_MAX:
            raise InvalidRequestError(
                f"{len(batches)} record batches were sent for this partition; at most {PARTITION_BATCHES_MAX} go into "
                "one request: send the others in a further one"
            )
        for message in batches:
            batch = _new_batch(message, max_message_bytes, transactional_id)
            if is_kafka_batch(batch.data):
                _compare_header(batch)
            try:
                room_bytes -= check_batch(batch.data, batch.record_count, room_bytes)
            except MoreBytesError:
                self.unchecked.append(batch)
            self.batches.append(batch)
        return room_bytes


def check_rest(parts: Iterable[ProducedPart]) -> None:
    """Check the unchecked batches; a part with a bad batch gets its `error`. The decompressed size of one request is
    bounded."""
    room_bytes = BATCH_PLAIN_BYTES_MAX
    for part in parts:
        try:
            for batch in part.unchecked:
                size = len(batch.data)
                room_bytes -= check_batch(batch.data, batch.record_count, size + room_bytes, _yield_lock) - size
        except MoreBytesError:
            part.error = InvalidRecordError(
                f"the compressed record batches of one request have more than {BATCH_PLAIN_BYTES_MAX} bytes when "
                "decompressed; send them in several requests, or fewer records in a batch"
            )
        except KafkaError as error:
            part.error = error


def _yield_lock() -> None:
    """Release the interpreter lock: a computing thread would make the event loop wait 5 ms for each of its steps."""
    time.sleep(_YIELD_S)


def _new_batch(message: ProduceRequest.Batch, max_message_bytes: int, transactional_id: str) -> NewBatch:
    data = message.record_batch
    if len(data) > max_message_bytes:
        raise MessageTooLargeError(
            f"the record batch has {len(data)} bytes; max.message.bytes of the topic is {max_message_bytes}"
        )
    if message.record_count < 1 or not data:
        raise InvalidRecordError(
            f"the record batch says {message.record_count} records in {len(data)} bytes; expected some"
        )
    if message.is_transactional is not bool(transactional_id):
        raise InvalidRecordError(
            f"is_transactional is {message.is_transactional} in a request "
            f"{'with' if transactional_id else 'without'} transactional_id; expected both, or neither"
        )
    producer_id = message.producer_id if message.HasField("producer_id") else NO_PRODUCER
    if producer_id > 0:
        batch = _numbered(message, data, producer_id)
        if transactional_id:
            return batch._replace(is_transactional=True, transactional_id=transactional_id)
        return batch
    if transactional_id:
        raise InvalidRecordError(
            "a batch of a transaction has no producer_id; call InitProducerId with the transactional id, and send what "
            "it answers"
        )
    epoch = message.producer_epoch if message.HasField("producer_epoch") else _NO_NUMBER
    sequence = message.base_sequence if message.HasField("base_sequence") else _NO_NUMBER
    if producer_id == 0 or epoch != _NO_NUMBER or sequence != _NO_NUMBER:
        raise InvalidRecordError(
            f"the batch has producer_id {producer_id}, producer_epoch {epoch} and base_sequence {sequence}, and no "
            f"producer has that id (-1: none was given); {_ALL_THREE}"
        )
    return NewBatch(data, message.record_count, message.max_timestamp_ms)


def _numbered(message: ProduceRequest.Batch, data: bytes, producer_id: int) -> NewBatch:
    """Return a batch of an idempotent producer.

    Clients from before CM-110 leave out zeros, and their epoch is 0. So an unset epoch is accepted if the sequence
    number is unset or above 0. Any other incomplete identity is refused.
    """
    has_epoch, has_sequence = message.HasField("producer_epoch"), message.HasField("base_sequence")
    epoch, sequence = message.producer_epoch, message.base_sequence
    half = has_epoch != has_sequence and (has_epoch or sequence == 0)
    if half or epoch < 0 or not 0 <= sequence <= _SEQUENCE_MAX:
        raise InvalidRecordError(
            f"producer {producer_id} sent producer_epoch {epoch if has_epoch else 'unset'} and base_sequence "
            f"{sequence if has_sequence else 'unset'}; expected both to be at least 0: {_ALL_THREE}"
        )
    return NewBatch(
        data,
        message.record_count,
        message.max_timestamp_ms,
        producer_id,
        epoch,
        sequence,
        sequence_given=has_sequence,
        after_given_up=message.after_given_up,
    )


def _compare_header(batch: NewBatch) -> None:
    """Check that a request agrees with the header of a batch of Kafka's format, which its readers see (CM-224)."""
    header = header_of(batch.data)
    sequence = batch.base_sequence if batch.sequence_given else _NO_NUMBER
    said = (batch.max_timestamp_ms, batch.producer_id, batch.producer_epoch, sequence, batch.is_transactional)
    # Without a producer, some of Kafka's clients write zeros for its epoch and sequence.
    numbers = (header.producer_epoch, header.base_sequence)
    epoch, base_sequence = (_NO_NUMBER, _NO_NUMBER) if header.producer_id == NO_PRODUCER else numbers
    found = (header.max_timestamp_ms, header.producer_id, epoch, base_sequence, header.is_transactional)
    for name, one, other in zip(_COMPARED, said, found, strict=True):
        if one != other:
            raise InvalidRecordError(
                f"the request says {name} {one}, and the header of its record batch says {other}; expected the same"
            )


_COMPARED: Final = ("max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence", "is_transactional")
