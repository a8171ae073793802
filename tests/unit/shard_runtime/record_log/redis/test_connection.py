"""The number of replicas that must have a write before it counts."""

from __future__ import annotations

import pytest

from shard_runtime.record_log.redis.connection import ErrorReply, StoreSettings


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


@pytest.mark.rule("CM-212")
def test_a_write_that_is_refused_at_the_memory_limit_says_so_and_what_to_do_first() -> None:
    said = str(ErrorReply("OOM", "command not allowed when used memory > 'maxmemory'."))
    assert said.startswith("OOM command not allowed")
    assert "reached its memory limit (maxmemory; `sharegroups topics describe` shows it)" in said
    first, then = said.index("CONFIG SET maxmemory"), said.index("topics delete-records")
    assert first < said.index("--store-memory") < then, "a full store takes no deletion either"
    assert "memory limit" not in str(ErrorReply("ERR", "no such key"))
