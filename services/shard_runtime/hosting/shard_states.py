"""In which state a process's shards are, by kind: for metrics, and for whoever leaves out what is ill.

A shard whose replay failed counts as failed until one has succeeded, or until another node is to serve it: between two
attempts it is not held, and while one is under way it would look like any shard that loads.
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
    """The state of each shard of a kind that this process holds, or failed to load."""
    return [
        HostState.FAILED if claim.load_failed else _STATES.get(claim.phase, HostState.IDLE)
        for claim in core.shard_claims()
        if claim.shard.kind is kind
    ]
