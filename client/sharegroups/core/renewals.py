"""When a lock is renewed, and in which requests (CL-94). Pure: times are passed in, in ms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kip932.ids import ACK_RENEW
from sharegroups.core.acknowledgements import AckBatch

#: A renewal goes out after this part of the lock, so that two of them may be lost or late.
_PART: Final = 3


def renewal_due_ms(locked_ms: int, lock_ms: int) -> int:
    """When to renew a lock of `lock_ms` that surely holds since `locked_ms`."""
    return locked_ms + lock_ms // _PART


def is_over(locked_ms: int, lock_ms: int, now_ms: int) -> bool:
    """Whether the lock has ended; not while its length, `lock_ms`, is unknown (0)."""
    return bool(lock_ms) and now_ms - locked_ms >= lock_ms


def renewal_batches(offsets: Sequence[int]) -> list[AckBatch]:
    """The renewal of these ascending offsets, neighbours joined."""
    batches: list[AckBatch] = []
    for offset in offsets:
        if batches and batches[-1].last + 1 == offset:
            batches[-1] = AckBatch(batches[-1].first, offset, (ACK_RENEW,))
        else:
            batches.append(AckBatch(offset, offset, (ACK_RENEW,)))
    return batches


def halves(offsets: list[int]) -> tuple[list[int], list[int]]:
    """Two parts of a refused renewal, to find the offset for which it was refused."""
    middle = len(offsets) // 2
    return offsets[:middle], offsets[middle:]
