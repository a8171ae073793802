"""The node list is read again when a node's entry lapses, not at the next renewal."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from shard_runtime.cluster.nodes import NodeDescription, NodeRegistry
from shard_runtime.record_log.cluster_store import ClusterStore, LiveNodes, NodeRecord

ROLES = frozenset({"partition_leader"})
ME, OTHER = (NodeRecord(number, number, f"n{number}", f"h:{number}", ROLES, "", "live") for number in (1, 2))


class OneDies:
    """A node list in which the other node is overdue soon, and gone when it is asked for again."""

    def __init__(self) -> None:
        self.answers = [LiveNodes((ME, OTHER), 20), LiveNodes((ME,), 0)]
        self.renewals = 0

    async def register_node(self, *told: Any) -> NodeRecord:
        return ME

    async def renew_node(self, *told: Any) -> LiveNodes:
        self.renewals += 1
        return self.answers[min(self.renewals, len(self.answers)) - 1]

    async def remove_node(self, *told: Any) -> None:
        pass


@pytest.mark.asyncio
@pytest.mark.rule("CM-2", "CM-4")
async def test_a_node_that_is_overdue_is_missed_at_once() -> None:
    store, seen = OneDies(), asyncio.Event()
    registry = NodeRegistry(
        cast(ClusterStore, store),
        NodeDescription("n1", 1, "h:1", ROLES),
        history=lambda: "",
        changed=lambda: seen.set() if registry.nodes() == (ME,) else None,
        taken=lambda why: None,
        interval_ms=600_000,  # by which it would be seen without that
    )
    await registry.register()
    assert registry.nodes() == (ME, OTHER)
    registry.start()
    async with asyncio.timeout(30):
        await seen.wait()
    assert store.renewals == 2
    await registry.remove()
