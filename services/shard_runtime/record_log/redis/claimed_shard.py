"""What a process remembers of a shard it holds: enough to notice a lost tail on any later connection (CM-19)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shard_runtime.record_log.protocol import STREAM_START, Entry, ShardId, ShardLostError, StreamId
from shard_runtime.record_log.redis.connection import StoreConnection

if TYPE_CHECKING:
    from shard_runtime.record_log.redis.flush import FlushCall


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
    flush: FlushCall | None = None
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
