"""Share-partitions whose state is in quarantine: the error that fetches get, and when the state is read again (PL-604,
SC-114).

Without this every fetch would read the state again, and a fetch that completes earlier, with other partitions, would
not report the error. Times are passed in, in ms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kip932.errors import InQuarantineError
from kip932.ids import SharePartitionKey

#: The minimum time between two reads.
AGAIN_MS: Final = 1_000
#: How long an error is reported; if it is older, no member has fetched since.
REPORTED_MS: Final = 10_000


class _Found(NamedTuple):
    error: InQuarantineError
    at_ms: int


class QuarantinedPartitions:
    """The error from the last read of each share-partition. Entries older than `REPORTED_MS` are removed on the next
    `note`."""

    def __init__(self) -> None:
        self._found: dict[SharePartitionKey, _Found] = {}

    @property
    def is_empty(self) -> bool:
        """True if no state is known to be in quarantine, which is nearly always the case."""
        return not self._found

    def note(self, key: SharePartitionKey, error: InQuarantineError, now_ms: int) -> None:
        """Note that a read found the state in quarantine."""
        self._found = {other: found for other, found in self._found.items() if now_ms - found.at_ms < REPORTED_MS}
        self._found[key] = _Found(error, now_ms)

    def error_of(self, key: SharePartitionKey, now_ms: int) -> InQuarantineError | None:
        """Return the error to report to a fetch; None if there is none."""
        found = self._found.get(key)
        return found.error if found is not None and now_ms - found.at_ms < REPORTED_MS else None

    def is_due(self, key: SharePartitionKey, now_ms: int) -> bool:
        """Return whether the state may be read again."""
        found = self._found.get(key)
        return found is None or now_ms - found.at_ms >= AGAIN_MS

    def over(self, key: SharePartitionKey) -> None:
        """Forget the error, because the state could be read, or because the read failed for another reason."""
        self._found.pop(key, None)
