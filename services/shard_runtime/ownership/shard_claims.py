"""The state of each shard's claim in this process, indexed by shard and by phase: with tens of thousands of shards, an
event that concerns a few must not scan them all (CM-88). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shard_runtime.record_log.protocol import ClaimRequest, ShardId


class ClaimPhase(StrEnum):
    """The phase of one shard in this process."""

    FREE = "free"
    CLAIMING = "claiming"
    QUEUED = "queued"
    LOADING = "loading"
    SERVING = "serving"
    RELEASING = "releasing"


HELD_PHASES: Final = frozenset({ClaimPhase.QUEUED, ClaimPhase.LOADING, ClaimPhase.SERVING, ClaimPhase.RELEASING})
#: The phases of shards that are claimed, or being claimed, and not served yet.
UNSERVED_PHASES: Final = (ClaimPhase.CLAIMING, ClaimPhase.QUEUED, ClaimPhase.LOADING)


@dataclass(slots=True)
class ShardClaim:
    """One shard's claim in this process. `mine`: the shard targets this node, as last computed."""

    shard: ShardId
    phase: ClaimPhase = ClaimPhase.FREE
    mine: bool = False
    epoch: int = 0
    deadline_ms: int = 0
    claim_history: str = ""
    lease_history: str = ""
    tail_confirmed: str = ""
    repaired: str = ""
    lossy: bool = False
    floor: int = 0
    unanswered: ClaimRequest | None = None
    next_try_ms: int = 0
    waits_for_owner: bool = False
    woken: bool = False
    cont_epoch: int = 0
    cont_until_ms: int = 0
    failures: int = 0
    load_failed: bool = False
    faulty: bool = False
    served_ms: int | None = None


class ShardClaims:
    """All claims, by shard and by phase. Only `enter` changes a phase."""

    def __init__(self) -> None:
        self._all: dict[ShardId, ShardClaim] = {}
        self._in: dict[ClaimPhase, dict[ShardId, ShardClaim]] = {phase: {} for phase in ClaimPhase}
        #: Free claims whose shard targets this node; those that have waited longest come first.
        self.open: dict[ShardId, ShardClaim] = {}

    def get(self, shard: ShardId) -> ShardClaim | None:
        """Return a shard's claim; None when it has none."""
        return self._all.get(shard)

    def __getitem__(self, shard: ShardId) -> ShardClaim:
        return self._all[shard]

    def all(self) -> Collection[ShardClaim]:
        """Return all claims."""
        return self._all.values()

    def within(self, phase: ClaimPhase) -> Collection[ShardClaim]:
        """Return the claims in a phase."""
        return self._in[phase].values()

    def unserved(self) -> int:
        """Return how many shards are claimed, or being claimed, and not served yet."""
        return sum(len(self._in[phase]) for phase in UNSERVED_PHASES)

    def waiting(self) -> Iterator[ShardClaim]:
        """Yield the claims whose shard is being claimed or loaded, or is free and targets this node."""
        yield from self.open.values()
        for phase in UNSERVED_PHASES:
            yield from self._in[phase].values()

    def held(self) -> list[ShardClaim]:
        """Return the claims whose owner record named this process when last seen."""
        return [claim for phase in ClaimPhase if phase in HELD_PHASES for claim in self._in[phase].values()]

    def targets_here(self, shard: ShardId) -> ShardClaim:
        """Note that the shard targets this node. Returns its claim, a new one if it had none."""
        claim = self._all.get(shard)
        if claim is None:
            claim = self._all[shard] = self._in[ClaimPhase.FREE][shard] = ShardClaim(shard)
        claim.mine = True
        if claim.phase is ClaimPhase.FREE:
            self.open.setdefault(shard, claim)
        return claim

    def targets_elsewhere(self, claim: ShardClaim) -> None:
        """Note that the shard targets another node, or is no longer wanted."""
        claim.mine = False
        self.open.pop(claim.shard, None)

    def enter(self, claim: ShardClaim, phase: ClaimPhase) -> None:
        """Move a claim to another phase."""
        shard = claim.shard
        del self._in[claim.phase][shard]
        claim.phase = phase
        self._in[phase][shard] = claim
        if phase is ClaimPhase.FREE and claim.mine:
            self.open[shard] = claim
        else:
            self.open.pop(shard, None)

    def forget(self, claim: ShardClaim) -> None:
        """Remove the shard's claim."""
        del self._all[claim.shard], self._in[claim.phase][claim.shard]
        self.open.pop(claim.shard, None)
