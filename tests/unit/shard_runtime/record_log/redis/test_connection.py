"""The number of replicas that must have a write before it counts."""

from __future__ import annotations

import pytest

from shard_runtime.record_log.redis.connection import StoreSettings


@pytest.mark.rule("CM-12")
@pytest.mark.parametrize(
    ("replicas", "in_sync", "claims", "flushes"),
    [(0, 1, 0, 0), (1, 1, 1, 0), (1, 2, 1, 1), (2, 1, 1, 0), (2, 2, 1, 1), (2, 3, 2, 2), (3, 1, 2, 0), (4, 2, 2, 1)],
)
def test_a_claim_counts_at_a_majority_of_all_copies_and_never_below_a_flush(
    replicas: int, in_sync: int, claims: int, flushes: int
) -> None:
    settings = StoreSettings(replicas=replicas, min_insync_replicas=in_sync)
    assert (settings.claim_replicas, settings.append_replicas) == (claims, flushes)
    assert 2 * (claims + 1) > replicas + 1 or claims == (replicas + 1) // 2
