"""The owner of a shard, found through hints: always a live node that has the role."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from shard_runtime.cluster.owners import Owners
from shard_runtime.record_log.cluster_store import ClusterStore, NodeRecord
from shard_runtime.record_log.protocol import ShardId, ShardKind, StoreUnavailableError
from tests.support.clocks import HandClock

ME = NodeRecord(1, 7, "n1", "h:1", frozenset({"group_coordinator"}), "", "live", "h:2")
SHARD = ShardId(ShardKind.GROUP, "3")


class Hints:
    """A store's hints, and the number of times they were read."""

    def __init__(self) -> None:
        self.stored = {"3": (1, 44)}
        self.reads = 0
        self.away = False

    async def hints(self, kind: ShardKind) -> dict[str, tuple[int, int]]:
        self.reads += 1
        if self.away:
            raise StoreUnavailableError("away")
        return dict(self.stored) if kind is ShardKind.GROUP else {}


@pytest.mark.rule("CM-14")
@pytest.mark.asyncio
async def test_a_hint_counts_only_while_its_node_is_live_and_has_the_role() -> None:
    store, clock, nodes = Hints(), HandClock(), {1: ME}
    owners = Owners(cast(ClusterStore, store), clock, nodes.get)
    found = await owners.find(SHARD)
    assert found is not None
    assert (found.node, found.epoch) == (ME, 44)
    nodes[1] = replace(ME, roles=frozenset({"partition_leader"}))
    assert owners.peek(SHARD) is None
    nodes.clear()
    assert await owners.find(SHARD) is None, "the owner is no longer in the node list"
    assert store.reads == 1, "a fresh hint is not read again"
    nodes[1] = ME
    clock.ms += 200
    store.away = True
    assert (await owners.find(SHARD)) is not None, "while the store is away the old hints stay"
    assert store.reads == 2


@pytest.mark.rule("CM-14")
@pytest.mark.asyncio
async def test_hints_without_an_owner_are_read_again_sooner() -> None:
    """Covers (c) only."""
    store, clock = Hints(), HandClock()
    owners = Owners(cast(ClusterStore, store), clock, {1: ME}.get)
    new = ShardId(ShardKind.GROUP, "4")
    await owners.find(new)
    store.stored["4"] = (1, 45)
    for wait_ms, reads in ((399, 1), (1, 2)):
        clock.ms += wait_ms
        assert owners.lookup(new) is None
        await asyncio.sleep(0)
        assert store.reads == reads
    assert owners.lookup(new) is not None
    for wait_ms, reads in ((999, 2), (1, 3)):
        clock.ms += wait_ms
        assert owners.lookup(new) is not None
        await asyncio.sleep(0)
        assert store.reads == reads
