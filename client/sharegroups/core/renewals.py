"""When a lock is renewed, and in which requests (CL-94). Pure: times are passed in, in ms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kip932.ids import ACK_RENEW
from sharegroups.core.acknowledgements import AckBatch

#: A renewal goes out after this part of the lock, so that two of them may be lost or late.
_PART: Final = 3
#: How often a lock of unknown length is renewed, ms.
_UNKNOWN_MS: Final = 1_000
#: Later than any time of the clock, ms.
NEVER_MS: Final = 1 << 62


class Lock(NamedTuple):
    """A lock that surely holds since `since_ms` and for `lock_ms`; 0: for how long is unknown."""

    since_ms: int
    lock_ms: int

    @property
    def due_ms(self) -> int:
        """When to renew it."""
        return self.since_ms + (self.lock_ms // _PART if self.lock_ms else _UNKNOWN_MS)

    @property
    def ends_ms(self) -> int:
        """From when on it is over; never, as far as anyone here knows, while its length is unknown."""
        return self.since_ms + self.lock_ms if self.lock_ms else NEVER_MS


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
