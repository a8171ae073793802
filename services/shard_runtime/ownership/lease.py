"""The right to serve one shard, as its host sees it: an epoch, and a deadline by this process's own clock (CM-3).

Ownership writes a lease; hosts and leaders read it before every response. A lease does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shard_runtime.clock import Clock
from shard_runtime.record_log.protocol import ShardId

GiveUp = Callable[[str, int], None]

EPOCH_MAX: Final = 2**31 - 1


class Lease:
    """One process's lease of one shard. Check `valid()` just before every response; when it is False, do not respond
    (CM-3, SR-24, PL-411)."""

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
        """Until when (`now_ms` clock) this node may answer for the shard; 0 after `revoke`."""
        return 0 if self._revoked else self._deadline_ms

    @property
    def pauses(self) -> int:
        """How many times an interruption (a lapsed lease, an unreachable store) has started or ended. When this number
        changes, the host restarts its timers in full (GC-32a)."""
        return self._pauses

    def valid(self) -> bool:
        """Return whether this node may answer for the shard at this moment."""
        return not self._revoked and self._clock.now_ms() < self._deadline_ms

    def give_up(self, reason: str, above_epoch: int = 0) -> None:
        """Report to ownership that the shard is lost (fenced, a lost tail, an unexpected reply): it drops the shard and
        claims it again.

        `above_epoch`: the epoch in a FENCED_LEADER_EPOCH reply; the next claim's epoch must exceed it (CM-13). Does
        nothing when the lease has ended, or when the number is not an epoch.
        """
        if not self._revoked:
            self._give_up(reason, above_epoch if 0 <= above_epoch < EPOCH_MAX else 0)

    def extend(self, deadline_ms: int) -> None:
        """Extend the lease to `deadline_ms` after a confirmed renewal, if that is later than before."""
        self._deadline_ms = max(self._deadline_ms, deadline_ms)

    def paused(self) -> None:
        """Count one interruption."""
        self._pauses += 1

    def revoke(self) -> None:
        """End the lease: `valid()` is False from now on."""
        self._revoked = True
