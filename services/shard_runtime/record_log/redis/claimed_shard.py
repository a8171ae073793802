"""What a process remembers of a shard it holds: enough to notice a lost tail on any later connection (CM-19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shard_runtime.record_log.protocol import STREAM_START, Entry, ShardId, ShardLostError, StreamId
from shard_runtime.record_log.redis.connection import Command, Reply, StoreConnection


class OutstandingFlush(Protocol):
    """A shard's flush that is not committed yet, as the shard and the check of a connection see it."""

    @property
    def unresolved(self) -> bool:
        """Its outcome is unknown, or it stands on too few replicas: no new work meanwhile (CM-15, SR-21)."""
        ...

    @property
    def needs_read_back(self) -> bool:
        """Nothing may be sent for it before its ids were looked at."""
        ...

    def read_back(self) -> Sequence[Command]:
        """Ranges that show whether it is in the log (SR-9)."""
        ...

    def resolve(self, replies: Sequence[Reply]) -> ShardLostError | None:
        """Decide from the ranges what is to be sent next; an error when the shard is lost."""
        ...

    def fail(self, error: Exception) -> None:
        """Answer its caller with an error."""
        ...


@dataclass(slots=True, eq=False)
class ClaimedShard:
    """A claimed shard. `last` holds, per stream, the newest entry seen confirmed: the claim, then flushes."""

    shard: ShardId
    incarnation: int
    epoch: int
    last: dict[str, Entry]
    lossy: bool
    """The claim said that a tail may be gone; until the host has repaired it, no `tail_ok` (CM-12, CM-47)."""
    whole_under: str
    """The history under which the own tail was last found whole."""
    checked_on: StoreConnection | None
    """The connection the tail was looked at on; on any other it must be looked at before a write."""
    trimmed: dict[str, StreamId] = field(default_factory=dict)
    flush: OutstandingFlush | None = None
    lost: ShardLostError | None = None

    def trimmed_below(self, stream: str) -> StreamId:
        """The id below which this owner has trimmed a stream: entries missing there are not lost."""
        return self.trimmed.get(stream, STREAM_START)

    def lose(self, error: ShardLostError) -> None:
        """The shard may not be used any more; the flush in hand, and every later call, hear why."""
        if self.lost is None:
            self.lost = error
        if self.flush is not None:
            self.flush.fail(error)

    def tail_checked(self) -> str:
        """The history for `tail_ok`, or "" (CM-12)."""
        if self.lost is not None or self.lossy or (self.flush is not None and self.flush.unresolved):
            return ""
        return self.whole_under
