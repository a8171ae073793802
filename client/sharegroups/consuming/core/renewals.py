"""Decides when a lock is renewed, and with which requests (CL-94). Pure: times are passed in, in ms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kip932.ids import ACK_RENEW
from sharegroups.consuming.core.acknowledgements import AckBatch

#: A renewal is sent after this fraction of the lock, so that two renewals may be lost or late.
_PART: Final = 3
#: The interval at which a lock of unknown length is renewed, in ms.
_UNKNOWN_MS: Final = 1_000
#: A time later than any clock reading, in ms.
NEVER_MS: Final = 1 << 62


class Lock(NamedTuple):
    """A lock taken at `since_ms` that lasts at least `lock_ms`; 0 if its duration is unknown."""

    since_ms: int
    lock_ms: int

    @property
    def due_ms(self) -> int:
        """When to renew the lock."""
        return self.since_ms + (self.lock_ms // _PART if self.lock_ms else _UNKNOWN_MS)

    @property
    def ends_ms(self) -> int:
        """When the lock ends; NEVER_MS while its length is unknown."""
        return self.since_ms + self.lock_ms if self.lock_ms else NEVER_MS


def renewal_batches(offsets: Sequence[int]) -> list[AckBatch]:
    """Return the renewal of these ascending offsets, with neighbours joined."""
    batches: list[AckBatch] = []
    for offset in offsets:
        if batches and batches[-1].last + 1 == offset:
            batches[-1] = AckBatch(batches[-1].first, offset, (ACK_RENEW,))
        else:
            batches.append(AckBatch(offset, offset, (ACK_RENEW,)))
    return batches


def halves(offsets: list[int]) -> tuple[list[int], list[int]]:
    """Split a refused renewal in two, to find the offset that caused the refusal."""
    middle = len(offsets) // 2
    return offsets[:middle], offsets[middle:]
