"""Decides which batches a member can decompress, and returns the error for one that it cannot (PL-257, CM-116).

The leader reads a batch's compression type from its outer fields, and needs no library for that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kip932.compression.kinds import Compression, install_command
from kip932.errors import UnsupportedCompressionTypeError
from kip932.record_batches import compression_of
from partition_leader.topic_log.core.batch import LogBatch

#: Every member reads these; older clients cannot name others.
_BASE: Final = frozenset({Compression.NONE, Compression.GZIP})
BY_ALL: Final = frozenset[int](Compression)
#: The maximum number of compression types in a request that are considered.
KINDS_MAX: Final = 16


@lru_cache(maxsize=64)
def readable_kinds(named: tuple[int, ...]) -> frozenset[int]:
    """Return the kinds that a member can read. `named`: the numbers in its ShareFetch, at most KINDS_MAX of them."""
    return _BASE | frozenset(named)


def readable_part(batches: tuple[LogBatch, ...], kinds: frozenset[int]) -> tuple[LogBatch, ...]:
    """Return the batches before the first one that a member with these kinds cannot read."""
    if kinds >= BY_ALL:
        return batches
    for number, batch in enumerate(batches):
        if compression_of(batch.data) not in kinds:
            return batches[:number]
    return batches


def refusal(batch: LogBatch, offset: int, kinds: frozenset[int]) -> UnsupportedCompressionTypeError:
    """Return the error for a member that cannot read `batch`, which has the first record that it could acquire."""
    number = compression_of(batch.data)
    known = ", ".join(kind.label for kind in Compression if kind in kinds)
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
