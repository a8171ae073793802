"""Claims shards by hand, for tests of what happens after a claim."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from shard_runtime.record_log.protocol import (
    Claimed,
    ClaimRequest,
    HistoryChanged,
    OwnedElsewhere,
    RecordLog,
    ShardId,
)

#: Far longer than any test: the lease ends only when the test ends it.
LEASE_MS: Final = 1_000_000_000
_TRIES_MAX: Final = 5
_nonces = count(1)


async def claim(log: RecordLog, shard: ShardId, number: int = 1, **changes: Any) -> Claimed:
    """Own a shard as process `number`; its former owners are treated as dead, and the wait for their leases as over.

    `changes`: other values of the request's fields. Raises AssertionError when the store refuses nevertheless.
    """
    request = {
        "shard": shard,
        "node_id": number,
        "incarnation": number,
        "address": f"node{number}:9092",
        "nonce": f"by-hand-{number}-{next(_nonces)}",
        "lease_ms": LEASE_MS,
        "floor": 1,
        "seen_history": "",
        "waited": True,
        **changes,
    }
    for _ in range(_TRIES_MAX):
        answer = await log.claim(ClaimRequest(**request))
        if isinstance(answer, Claimed):
            return answer
        if isinstance(answer, OwnedElsewhere):
            request["dead"] = frozenset({answer.owner.incarnation})
        else:
            assert isinstance(answer, HistoryChanged), answer
            request["seen_history"] = answer.history
    raise AssertionError(f"{shard.tag} could not be claimed: {answer}")
