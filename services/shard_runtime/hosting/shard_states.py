"""Lists the states of a process's shards of one kind: for metrics, and for views that leave out failed shards.

A shard whose replay failed counts as failed until a replay succeeds or another node is to serve it. Without that rule
it would seem idle between two attempts, and to load as usual during an attempt.
"""

from __future__ import annotations

from shard_runtime.hosting.host_options import HostState
from shard_runtime.ownership.core import OwnershipCore
from shard_runtime.ownership.shard_claims import ClaimPhase
from shard_runtime.record_log.protocol import ShardKind

_STATES = {
    ClaimPhase.QUEUED: HostState.LOADING,
    ClaimPhase.LOADING: HostState.LOADING,
    ClaimPhase.SERVING: HostState.ACTIVE,
    ClaimPhase.RELEASING: HostState.RELEASING,
}


def shard_states(core: OwnershipCore, kind: ShardKind) -> list[HostState]:
    """The state of each shard of `kind` that this process holds or is to hold."""
    return [
        HostState.FAILED if claim.load_failed else _STATES.get(claim.phase, HostState.IDLE)
        for claim in core.shard_claims()
        if claim.shard.kind is kind
    ]
