"""The interface between ownership and the object that serves a shard; and ownership's bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shard_runtime.ownership.lease import Lease
from shard_runtime.record_log.protocol import Claimed


class ShardOwner(Protocol):
    """Serves one shard while this process owns it: a `ShardHost` or a partition leader.

    Ownership calls `gained` once per claim; then `lost`, or `releasing` and after it `lost`. Before each answer the
    owner checks its lease.
    """

    @property
    def demand(self) -> int:
        """How many requests were refused because the shard is not served here; shards with the most are replayed first
        (CM-12)."""
        ...

    async def gained(self, claimed: Claimed, lease: Lease) -> None:
        """After a durable claim: replay, repair a lost tail (CM-47), then serve; answer only while `lease` is valid.

        The call is cancelled when the shard is lost in the meantime. When it raises, the shard is dropped and claimed
        again later.
        """
        ...

    def lost(self, reason: str) -> None:
        """Stop serving the lost shard: from now on answer only NOT_COORDINATOR or NOT_LEADER_OR_FOLLOWER for it."""
        ...

    async def releasing(self) -> None:
        """Refuse new work, finish the last flush and outgoing calls, forget the shard; return when done (CM-4)."""
        ...


@dataclass(frozen=True, slots=True)
class OwnershipOptions:
    """Bounds of ownership; times in milliseconds."""

    tick_ms: int = 1_000
    claims_max: int = 512
    """How many shards may be claimed, or being claimed, and not served yet; each needs its lease renewed (CM-88)."""
    checks_max: int = 2_000
    """How many leases are checked before other tasks get a turn."""
    renewals_max: int = 2_000
    """How many leases one call renews: a call with forty thousand would block everything else for half a second."""
    long_tick_ms: int = 5
    """A tick that takes longer than this is followed by a pause of the same length (CM-87): with very many shards each
    tick takes long, and each answer triggers another tick."""
    loads_max: int = 4
    release_timeout_ms: int = 10_000
