"""Decides which batches a member can read, and returns the error for one that it cannot (PL-257, CM-116, CM-222).

The leader reads a batch's compression type from its outer fields, and needs no library for that. The first byte says
whether it is in Kafka's format.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from kip932.compression.kinds import Compression, install_command
from kip932.errors import UnsupportedCompressionTypeError
from kip932.ids import BATCH_FORMAT_KAFKA
from kip932.kafka_records import is_kafka_batch
from kip932.record_batches import compression_of
from partition_leader.topic_log.core.batch import LogBatch
from partition_leader.topic_log.formats import format_refusal

#: Every member reads these; older clients cannot name others.
_BASE: Final = frozenset({Compression.NONE, Compression.GZIP})
_ALL: Final = frozenset[int](Compression)
#: The maximum number of compression types, and of batch formats, in a request that are considered.
KINDS_MAX: Final = 16


class Readable(NamedTuple):
    """What a member can read: compressions, by number, and whether also batches of Kafka's format."""

    compressions: frozenset[int]
    kafka_batches: bool

    def reads(self, data: bytes) -> bool:
        """Return whether the member can read a stored batch."""
        return compression_of(data) in self.compressions and (self.kafka_batches or not is_kafka_batch(data))


BY_ALL: Final = Readable(_ALL, kafka_batches=True)


@lru_cache(maxsize=64)
def readable_kinds(named: tuple[int, ...], formats: tuple[int, ...] = ()) -> Readable:
    """Return what a member can read. `named`, `formats`: the numbers in its ShareFetch, at most KINDS_MAX of each."""
    return Readable(_BASE | frozenset(named), BATCH_FORMAT_KAFKA in formats)


def readable_part(batches: tuple[LogBatch, ...], readable: Readable) -> tuple[LogBatch, ...]:
    """Return the batches before the first one that a member cannot read."""
    if readable.kafka_batches and readable.compressions >= _ALL:
        return batches
    for number, batch in enumerate(batches):
        if not readable.reads(batch.data):
            return batches[:number]
    return batches


def refusal(batch: LogBatch, offset: int, readable: Readable) -> UnsupportedCompressionTypeError:
    """Return the error for a member that cannot read `batch`, which has the first record that it could acquire."""
    if is_kafka_batch(batch.data) and not readable.kafka_batches:
        return format_refusal(batch, offset)
    number = compression_of(batch.data)
    known = ", ".join(kind.label for kind in Compression if kind in readable.compressions)
    try:
        kind = Compression(number)
    except ValueError:
        how, what = f"by compression {number}, which this node does not know", "a client of the producer's version"
    else:
        how = f"with {kind.label}"
        what = f"{install_command(kind)} where it runs, with a version that has that extra"
    return UnsupportedCompressionTypeError(
        f"the record at offset {max(offset, batch.base_offset)} is in a batch that is compressed {how}, but this "
        f"member reads {known}. Try: {what}; or leave the record to another member"
    )
