"""Who serves a shard while it is owned here, as ownership sees it, and ownership's bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import Claimed


class ShardOwner(Protocol):
    """Who serves one shard while it is owned here: a `ShardHost`, or a partition leader."""

    @property
    def demand(self) -> int:
        """Requests that were turned away for want of this shard; those with most are replayed first (CM-12)."""
        ...

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """The claim is durable: replay, make a lost tail good (CM-47), then serve behind `lease`.

        May be cancelled, when the shard is lost meanwhile; may raise, then the shard is dropped and claimed anew later.
        """
        ...

    def lost(self, reason: str) -> None:
        """The shard is gone: answer nothing more for it but NOT_COORDINATOR or NOT_LEADER_OR_FOLLOWER."""
        ...

    async def releasing(self) -> None:
        """Stop taking work, finish the last flush and outgoing calls, forget the shard; returns when done (CM-4)."""
        ...


@dataclass(frozen=True, slots=True)
class OwnershipOptions:
    """Bounds of ownership; times in milliseconds."""

    tick_ms: int = 1_000
    claims_max: int = 512
    """Shards that are claimed, or being claimed, and not served yet (CM-88): each needs its lease renewed."""
    looks_max: int = 2_000
    """Leases that are looked at in one go."""
    renewals_max: int = 2_000
    """Renewals of one call: of forty thousand in one go nobody else would be served for half a second."""
    long_tick_ms: int = 5
    """A tick that takes longer is followed by a pause as long (CM-87): with very many shards each takes long, and each
    answer asks for one."""
    loads_max: int = 4
    release_timeout_ms: int = 10_000
