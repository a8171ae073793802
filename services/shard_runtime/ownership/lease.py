"""The right to serve one shard, as its host sees it: an epoch, and a deadline by this process's own clock (CM-3).

Ownership writes a lease; hosts and leaders read it before every answer. It never does I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import ShardId

GiveUp = Callable[[str, int], None]

EPOCH_MAX: Final = 2**31 - 1


class Lease:
    """One holding of one shard. `valid()` is the gate of CM-3, SR-24 and PL-411: ask it just before answering."""

    __slots__ = ("_clock", "_deadline_ms", "_give_up", "_pauses", "_revoked", "epoch", "incarnation", "shard")

    def __init__(
        self, shard: ShardId, incarnation: int, epoch: int, *, deadline_ms: int, clock: Clock, give_up: GiveUp
    ) -> None:
        self.shard = shard
        self.incarnation = incarnation
        self.epoch = epoch
        self._deadline_ms = deadline_ms
        self._clock = clock
        self._give_up = give_up
        self._pauses = 0
        self._revoked = False

    @property
    def deadline_ms(self) -> int:
        """Until when (`now_ms` clock) this node may answer for the shard; 0 once the lease is over for good."""
        return 0 if self._revoked else self._deadline_ms

    @property
    def pauses(self) -> int:
        """How often the lease had lapsed, or the store was away, and then came back: a host that sees this number
        change restarts its timers in full (GC-32a)."""
        return self._pauses

    def valid(self) -> bool:
        """Whether this node may answer for the shard at this moment."""
        return not self._revoked and self._clock.now_ms() < self._deadline_ms

    def give_up(self, reason: str, above_epoch: int = 0) -> None:
        """The owner found its shard lost (fenced, a lost tail, an unexpected reply): drop it and claim it again.

        `above_epoch`: the next epoch must exceed this one, which a FENCED_LEADER_EPOCH answer carried (CM-13).
        Does nothing when the lease is over already, or when the number is not an epoch.
        """
        if not self._revoked:
            self._give_up(reason, above_epoch if 0 <= above_epoch < EPOCH_MAX else 0)

    def extend(self, deadline_ms: int) -> None:
        """A renewal was confirmed: valid until `deadline_ms`; never shortens."""
        self._deadline_ms = max(self._deadline_ms, deadline_ms)

    def paused(self) -> None:
        """Count one interruption."""
        self._pauses += 1

    def revoke(self) -> None:
        """The lease is over for good; `valid()` is False from now on."""
        self._revoked = True
