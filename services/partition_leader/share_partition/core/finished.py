"""Counts the records of a share-partition that were finished: once per request and write, never per record (PL-952)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from partition_leader.share_partition.core.effects import Counters


class Finished(NamedTuple):
    """How many records were accepted, rejected, or given up at the delivery limit. `last_ms`: when the last of them
    was; −1 if there is none."""

    accepted: int = 0
    rejected: int = 0
    limited: int = 0
    last_ms: int = -1

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
        )

    def counted(self, parts: Iterable[Counters], now_ms: int) -> Finished:
        """Return the sum with what the parts of one durable write have finished."""
        accepted = rejected = limited = 0
        for counters in parts:
            accepted += counters.n_accept
            rejected += counters.n_reject
            limited += counters.n_limit
        if not (accepted or rejected or limited):
            return self
        return Finished(self.accepted + accepted, self.rejected + rejected, self.limited + limited, now_ms)


NONE_FINISHED: Final = Finished()
