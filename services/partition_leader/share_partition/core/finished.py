"""Counts the records of a share-partition that were finished: once per request and write, never per record (PL-952)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from partition_leader.share_partition.core.effects import DLQ_CLIENT_REJECT, Counters
from partition_leader.share_partition.core.spans import Span

#: Records that go to the dead-letter queue, and the cause.
Letter = tuple[Span, str]


class Finished(NamedTuple):
    """How many records were accepted, rejected, or given up at the delivery limit. `last_ms`: when the last of them
    was; −1 if there is none. The last two: how many of the rejected ones, and of those given up, were given to the
    dead-letter queue."""

    accepted: int = 0
    rejected: int = 0
    limited: int = 0
    last_ms: int = -1
    rejected_letters: int = 0
    limited_letters: int = 0

    @property
    def records(self) -> int:
        """The number of all of them."""
        return self.accepted + self.rejected + self.limited

    def plus(self, other: Finished) -> Finished:
        """Return the sum, with the later of both instants."""
        return Finished(
            self.accepted + other.accepted,
            self.rejected + other.rejected,
            self.limited + other.limited,
            max(self.last_ms, other.last_ms),
            self.rejected_letters + other.rejected_letters,
            self.limited_letters + other.limited_letters,
        )

    def counted(self, parts: Iterable[Counters], letters: Iterable[Letter], now_ms: int) -> Finished:
        """Return the sum with what the parts of one durable write have finished; `letters` of them go to the
        dead-letter queue."""
        accepted = rejected = limited = rejected_letters = limited_letters = 0
        for counters in parts:
            accepted += counters.n_accept
            rejected += counters.n_reject
            limited += counters.n_limit
        if not (accepted or rejected or limited):
            return self
        for (first, last), cause in letters:
            if cause == DLQ_CLIENT_REJECT:
                rejected_letters += last - first + 1
            else:
                limited_letters += last - first + 1
        written = Finished(accepted, rejected, limited, now_ms, rejected_letters, limited_letters)
        return self.plus(written)


NONE_FINISHED: Final = Finished()
