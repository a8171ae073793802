"""As whom a process claims shards, and on which terms (CM-12)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerIdentity:
    """What this process claims as. `dead`: earlier incarnations known gone, by the name's lock file (CM-12)."""

    node_id: int
    incarnation: int
    address: str
    dead: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How shards are claimed; times in milliseconds. `lossless`: a single store node with `appendfsync always`.

    `whole`: histories of the store that ended with everything on disk, one start after the other; the first is the one
    that follows them, and under any other they prove nothing (CM-104).
    """

    lease_ms: int = 3_000
    lossless: bool = False
    durable: bool = True
    whole: tuple[str, ...] = ()
    retry_min_ms: int = 100
    retry_max_ms: int = 30_000
    stable_ms: int = 10_000

    def whole_before(self, history: str) -> tuple[str, ...]:
        """The histories that ended well, for a claim under `history`."""
        return self.whole[1:] if self.whole and self.whole[0] == history else ()


@dataclass(frozen=True, slots=True)
class RenewalOutcome:
    """What one renewal's answer means: `drop` is the reason to drop the shard; `paused`: the lease had lapsed."""

    drop: str = ""
    deadline_ms: int = 0
    paused: bool = False
