"""Why a process that cannot start yet waits, and when it does not wait."""

from __future__ import annotations

import pytest

from shard_runtime.record_log.protocol import NameTakenError, StoreUnavailableError
from shard_runtime.record_log.redis.startup_checks import Finding, StoreCheckError
from share_node.node.process_store import NoClusterError, StartError, awaited


def found(*names: str) -> StoreCheckError:
    return StoreCheckError([Finding(name, "why") for name in names])


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (NoClusterError("none"), "a cluster in the store"),
        (NameTakenError("taken"), "node name"),
        (StoreUnavailableError("no answer"), "store"),
        (found("eviction", "aof"), "store: aof, eviction"),
        (found("aof", "credentials"), ""),
        (found("other-cluster"), ""),
        (StartError("a wrong port"), ""),
    ],
)
def test_a_process_waits_for_what_others_provide_and_for_nothing_else(error: Exception, what: str) -> None:
    assert awaited(error) == what
