"""The identity and the terms with which a process claims shards (CM-12)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """The identity in a process's claims. `dead`: earlier incarnations that have ended, as the name's lock file proves
    (CM-12)."""

    node_id: int
    incarnation: int
    address: str
    dead: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """The terms of claims; times in milliseconds. `lossless`: a single store node with `appendfsync always`.

    `whole`: the store's present history, then the earlier ones, of successive starts, that ended with everything on
    disk. They prove nothing under any other history than the first (CM-104).
    """

    lease_ms: int = 3_000
    lossless: bool = False
    durable: bool = True
    whole: tuple[str, ...] = ()
    retry_min_ms: int = 100
    retry_max_ms: int = 30_000
    stable_ms: int = 10_000

    def whole_before(self, history: str) -> tuple[str, ...]:
        """Return the earlier histories that ended with everything on disk, for a claim under `history`."""
        return self.whole[1:] if self.whole and self.whole[0] == history else ()


@dataclass(frozen=True, slots=True)
class RenewalOutcome:
    """The outcome of one renewal. `drop`: why to drop the shard, "" to keep it; `paused`: the lease had lapsed."""

    drop: str = ""
    deadline_ms: int = 0
    paused: bool = False
