"""Share-partitions with state in quarantine: what fetches are told, and when it is read again (PL-604, SC-114).

Without this every fetch would read the state again, and one that other partitions complete sooner would say nothing.
Times are passed in, in ms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.errors import InQuarantineError
from kip932.ids import SharePartitionKey

#: The least time between two reads.
AGAIN_MS: Final = 1_000
#: For how long what a read found is told; nobody fetched meanwhile when it is that old.
TOLD_MS: Final = 10_000


class _Found(NamedTuple):
    error: InQuarantineError
    at_ms: int


class QuarantinedPartitions:
    """What the last read of each found. What is not told any more is dropped when another one is noted."""

    def __init__(self) -> None:
        self._found: dict[SharePartitionKey, _Found] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known to be in quarantine: nearly always."""
        return not self._found

    def note(self, key: SharePartitionKey, error: InQuarantineError, now_ms: int) -> None:
        """A read found the state in quarantine."""
        self._found = {other: found for other, found in self._found.items() if now_ms - found.at_ms < TOLD_MS}
        self._found[key] = _Found(error, now_ms)

    def told(self, key: SharePartitionKey, now_ms: int) -> InQuarantineError | None:
        """What a fetch is told; None: nothing."""
        found = self._found.get(key)
        return found.error if found is not None and now_ms - found.at_ms < TOLD_MS else None

    def is_due(self, key: SharePartitionKey, now_ms: int) -> bool:
        """Whether the state may be read again."""
        found = self._found.get(key)
        return found is None or now_ms - found.at_ms >= AGAIN_MS

    def over(self, key: SharePartitionKey) -> None:
        """The state could be read, or something else is in the way."""
        self._found.pop(key, None)
