"""Who a process is when it claims shards, and on which terms it claims (CM-12)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """Who this process claims as. `dead`: earlier incarnations that have ended, as the name's lock file proves
    (CM-12)."""

    node_id: int
    incarnation: int
    address: str
    dead: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How shards are claimed; times in milliseconds. `lossless`: a single store node with `appendfsync always`.

    `whole`: the store's history in force, then earlier histories that ended, one start after the other, with everything
    on disk. They prove nothing under any other history than the first (CM-104).
    """

    lease_ms: int = 3_000
    lossless: bool = False
    durable: bool = True
    whole: tuple[str, ...] = ()
    retry_min_ms: int = 100
    retry_max_ms: int = 30_000
    stable_ms: int = 10_000

    def whole_before(self, history: str) -> tuple[str, ...]:
        """The earlier histories that ended with everything on disk, for a claim under `history`."""
        return self.whole[1:] if self.whole and self.whole[0] == history else ()


@dataclass(frozen=True, slots=True)
class RenewalOutcome:
    """What one renewal's answer means. `drop`: why to drop the shard, "" to keep it; `paused`: the lease had lapsed."""

    drop: str = ""
    deadline_ms: int = 0
    paused: bool = False
