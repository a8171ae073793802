"""A process's record of a shard it claimed: enough to notice a lost tail on any later connection (CM-19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shard_runtime.record_log.protocol import STREAM_START, Entry, ShardId, ShardLostError, StreamId
from shard_runtime.record_log.redis.connection import Command, Reply, StoreConnection


class OutstandingFlush(Protocol):
    """A shard's flush that is not committed yet, as `ClaimedShard` and `connection_check` see it."""

    @property
    def unresolved(self) -> bool:
        """True while its outcome is unknown or too few replicas have it: no new work meanwhile (CM-15, SR-21)."""
        ...

    @property
    def needs_read_back(self) -> bool:
        """True while its ids must be read back before anything more is sent for it."""
        ...

    def read_back(self) -> Sequence[Command]:
        """The range reads that show whether it is in the log (SR-9); pass their replies to `resolve`."""
        ...

    def resolve(self, replies: Sequence[Reply]) -> ShardLostError | None:
        """Decide from the ranges what to send next. Returns an error when the shard is lost."""
        ...

    def fail(self, error: Exception) -> None:
        """Answer its caller with an error."""
        ...


@dataclass(slots=True, eq=False)
class ClaimedShard:
    """A claimed shard. `last`: per stream, the newest entry confirmed to this owner (the claim, then flushes)."""

    shard: ShardId
    incarnation: int
    epoch: int
    last: dict[str, Entry]
    lossy: bool
    """Whether the reply to the claim said that a tail may be lost. Until the host has repaired it, `tail_checked`
    returns "" (CM-12, CM-47)."""
    whole_under: str
    """The history under which this owner's tail was last found whole."""
    checked_on: StoreConnection | None
    """The connection on which the tail was checked; on any other it must be checked before a write."""
    trimmed: dict[str, StreamId] = field(default_factory=dict)
    flush: OutstandingFlush | None = None
    lost: ShardLostError | None = None
    owner_key: str = field(init=False)
    streams: tuple[str, ...] = field(init=False)
    """The shard's keys, made once: every flush needs them."""

    def __post_init__(self) -> None:
        self.owner_key, self.streams = self.shard.owner_key, self.shard.streams

    def trimmed_below(self, stream: str) -> StreamId:
        """The id below which this owner has trimmed a stream; an entry missing there is not lost."""
        return self.trimmed.get(stream, STREAM_START)

    def lose(self, error: ShardLostError) -> None:
        """Mark the shard as lost: the outstanding flush and every later call fail with `error`."""
        if self.lost is None:
            self.lost = error
        if self.flush is not None:
            self.flush.fail(error)

    def tail_checked(self) -> str:
        """The history for `tail_ok`, or "" (CM-12)."""
        if self.lost is not None or self.lossy or (self.flush is not None and self.flush.unresolved):
            return ""
        return self.whole_under
