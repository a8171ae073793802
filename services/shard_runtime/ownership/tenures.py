"""A process's dealings with each of its shards, and which of them are in a phase: with tens of thousands of shards,
nothing that happens to a few may look at all of them (CM-88). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shard_runtime.record_log.protocol import ClaimRequest, ShardId


class Phase(StrEnum):
    """Where this process stands with one shard."""

    FREE = "free"
    CLAIMING = "claiming"
    QUEUED = "queued"
    LOADING = "loading"
    SERVING = "serving"
    RELEASING = "releasing"


HELD_PHASES: Final = frozenset({Phase.QUEUED, Phase.LOADING, Phase.SERVING, Phase.RELEASING})
#: Claimed, or being claimed, and not served yet.
UNSERVED_PHASES: Final = (Phase.CLAIMING, Phase.QUEUED, Phase.LOADING)


@dataclass(slots=True)
class Tenure:
    """This process's dealings with one shard. `mine`: it targets this node, as of the last look."""

    shard: ShardId
    phase: Phase = Phase.FREE
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
    ill: bool = False
    served_ms: int | None = None


class Tenures:
    """All of them, by shard and by phase. Only `enter` changes a phase."""

    def __init__(self) -> None:
        self._all: dict[ShardId, Tenure] = {}
        self._in: dict[Phase, dict[ShardId, Tenure]] = {phase: {} for phase in Phase}
        #: Free ones that target this node, those that have waited longest first.
        self.open: dict[ShardId, Tenure] = {}

    def get(self, shard: ShardId) -> Tenure | None:
        """One shard's, if there are any dealings with it."""
        return self._all.get(shard)

    def __getitem__(self, shard: ShardId) -> Tenure:
        return self._all[shard]

    def all(self) -> Collection[Tenure]:
        """Every one."""
        return self._all.values()

    def within(self, phase: Phase) -> Collection[Tenure]:
        """Those in a phase."""
        return self._in[phase].values()

    def unserved(self) -> int:
        """How many are claimed, or being claimed, and not served yet."""
        return sum(len(self._in[phase]) for phase in UNSERVED_PHASES)

    def waiting(self) -> Iterator[Tenure]:
        """Those that target this node and are not served yet."""
        yield from self.open.values()
        for phase in UNSERVED_PHASES:
            yield from self._in[phase].values()

    def held(self) -> list[Tenure]:
        """Those whose owner record was last known to be ours."""
        return [tenure for phase in Phase if phase in HELD_PHASES for tenure in self._in[phase].values()]

    def targets_here(self, shard: ShardId) -> Tenure:
        """The shard targets this node: its tenure, a new one if there is none."""
        tenure = self._all.get(shard)
        if tenure is None:
            tenure = self._all[shard] = self._in[Phase.FREE][shard] = Tenure(shard)
        tenure.mine = True
        if tenure.phase is Phase.FREE:
            self.open.setdefault(shard, tenure)
        return tenure

    def targets_elsewhere(self, tenure: Tenure) -> None:
        """The shard targets another node, or nobody wants it any more."""
        tenure.mine = False
        self.open.pop(tenure.shard, None)

    def enter(self, tenure: Tenure, phase: Phase) -> None:
        """Begin another phase."""
        shard = tenure.shard
        del self._in[tenure.phase][shard]
        tenure.phase = phase
        self._in[phase][shard] = tenure
        if phase is Phase.FREE and tenure.mine:
            self.open[shard] = tenure
        else:
            self.open.pop(shard, None)

    def forget(self, tenure: Tenure) -> None:
        """No more dealings with the shard."""
        del self._all[tenure.shard], self._in[tenure.phase][tenure.shard]
        self.open.pop(tenure.shard, None)
