"""The reasons why a process may wait, and how often it logs them. No port is opened, and time is virtual."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from shard_runtime.config.process_settings import SettingsError, load_settings
from shard_runtime.record_log.protocol import LogError, NameTakenError, StoreUnavailableError
from shard_runtime.record_log.redis.startup_checks import Finding, StoreCheckError
from shard_runtime.rpc.server import ListenError
from share_node.node.process_store import NoClusterError, awaited
from share_node.node.waiting import LOG_AGAIN_S, Waiting
from tests.support.virtual_time import virtual


def found(*names: str) -> StoreCheckError:
    return StoreCheckError([Finding(name, "it is so") for name in names])


@pytest.mark.rule("CM-130")
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (StoreUnavailableError("away"), "store"),
        (NoClusterError("none"), "a cluster in the store"),
        (NameTakenError("held"), "node name"),
        (found("replicas"), "store: replicas"),
        (found("loading", "appendonly"), "store: appendonly, loading"),
        (found("cluster-id"), "store: cluster-id"),
        (found("credentials"), ""),
        (found("other-cluster", "replicas"), ""),
        (ValueError("a URL"), ""),
        (ListenError("a port"), ""),
        (SettingsError("a setting"), ""),
        (LogError("offsets.topic.num.partitions is 9 here, but this cluster was made with 50"), ""),
    ],
    ids=str,
)
def test_what_others_bring_is_waited_for_and_what_its_own_settings_mend_is_not(error: Exception, cause: str) -> None:
    assert awaited(error) == cause


@pytest.mark.rule("CM-130")
@virtual
async def test_each_cause_is_said_once_and_again_after_ten_minutes_and_that_it_goes_on() -> None:
    now = 0.0
    waiting = Waiting(load_settings({"listen.port": "0"}), asyncio.Event(), lambda: now)
    said: list[tuple[float, str]] = []
    away, none = StoreUnavailableError("away"), NoClusterError("none")
    for now, error in ((0.0, away), (1.0, none), (2.0, away), (LOG_AGAIN_S - 1, away), (LOG_AGAIN_S, away)):
        with capture_logs() as lines:
            await waiting.after(error)
        said += [(now, line["waits_for"]) for line in lines]
    assert LOG_AGAIN_S == 600
    assert said == [(0.0, "store"), (1.0, "a cluster in the store"), (600.0, "store")]
    with capture_logs() as lines:
        waiting.over()
        waiting.over()
    assert [line["event"] for line in lines] == ["dependency_available"]
    with pytest.raises(ListenError):
        await waiting.after(ListenError("a port"))


@pytest.mark.rule("CM-130", "CM-1")
@virtual
async def test_a_name_is_waited_for_as_long_as_a_dead_holders_entry_may_last() -> None:
    seconds = iter((0.0, 0.0, 3.0, 6.0, 6.1))
    waiting = Waiting(load_settings({"listen.port": "0", "lease.ms": "3000"}), asyncio.Event(), lambda: next(seconds))
    taken = NameTakenError("node name n1 is held by incarnation 9")
    for _ in range(3):
        await waiting.after(taken)
    with pytest.raises(NameTakenError):
        await waiting.after(taken)
