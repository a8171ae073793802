"""This process's entry in the node list: its renewals, expired entries of other nodes, and the loss of its name."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from shard_runtime.cluster.nodes import NodeDescription, NodeRegistry, new_incarnation
from shard_runtime.record_log.cluster_store import ClusterStore, LiveNodes, NodeRecord
from shard_runtime.record_log.protocol import LogError
from tests.support.virtual_time import virtual

ROLES = frozenset({"partition_leader"})
ME, OTHER = (NodeRecord(number, number, f"n{number}", f"h:{number}", ROLES, "", "live", "") for number in (1, 2))


class OneDies:
    """A node list in which the other node is soon overdue, and gone at the next read."""

    def __init__(self) -> None:
        self.answers = [LiveNodes((ME, OTHER), 20), LiveNodes((ME,), 0)]
        self.renewals = 0

    async def register_node(self, *reported: Any) -> NodeRecord:
        return ME

    async def renew_node(self, *reported: Any) -> LiveNodes:
        self.renewals += 1
        return self.answers[min(self.renewals, len(self.answers)) - 1]

    async def remove_node(self, *reported: Any) -> None:
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
        interval_ms=600_000,  # so long that only the overdue entry can cause the second renewal
    )
    await registry.register()
    assert registry.nodes() == (ME, OTHER)
    registry.start()
    async with asyncio.timeout(30):
        await seen.wait()
    assert store.renewals == 2
    await registry.remove()


class NameTaken(OneDies):
    """A node list in which, from the second renewal on, another incarnation holds this node's entry until the node
    registers."""

    def __init__(self) -> None:
        super().__init__()
        self.registered: list[Any] = []

    async def register_node(self, *reported: Any) -> NodeRecord:
        self.registered.append(reported)
        self.renewals = 0
        return ME

    async def renew_node(self, *reported: Any) -> LiveNodes:
        self.renewals += 1
        if self.renewals > 1 and len(self.registered) == 1:
            raise LogError("node name n1 is held by incarnation 9")
        return LiveNodes((ME,), 0)


@pytest.mark.rule("CM-1")
@pytest.mark.parametrize("failed_over", [True, False])
@virtual
async def test_a_name_that_is_taken_is_registered_again_after_a_fail_over_and_else_ends_the_process(
    failed_over: bool,
) -> None:
    """After a fail-over the entry may be outdated, so the name does not count as taken."""
    store, history, taken = NameTaken(), ["before"], list[str]()
    registry = NodeRegistry(
        cast(ClusterStore, store),
        NodeDescription("n1", 1, "h:1", ROLES, rack="r1"),
        history=lambda: history[0],
        changed=lambda: None,
        taken=taken.append,
    )
    await registry.register()
    registry.start()
    history[0] = "after" if failed_over else "before"
    await asyncio.sleep(60)
    assert taken == ([] if failed_over else ["node name n1 is held by incarnation 9"])
    assert len(store.registered) == (2 if failed_over else 1)
    (name, incarnation, _dead, record, _ttl_ms) = store.registered[-1]
    assert (name, incarnation, record.rack, record.address, record.roles) == ("n1", 1, "r1", "h:1", ROLES)
    await registry.remove()


@pytest.mark.rule("CM-2", "CM-1")
@virtual
async def test_an_entry_is_renewed_every_second_by_the_incarnation_that_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.randbits", lambda count: 2**count - 1)
    assert new_incarnation() == 2**64 - 1
    monkeypatch.setattr("secrets.randbits", lambda count: 0)
    assert new_incarnation() == 1, "0 would be no incarnation"
    store = OneDies()
    store.answers = [LiveNodes((ME,), 0)]
    registry = NodeRegistry(
        cast(ClusterStore, store),
        NodeDescription("n1", 1, "h:1", ROLES),
        history=lambda: "",
        changed=lambda: None,
        taken=lambda why: None,
    )
    await registry.register()
    registry.start()
    await asyncio.sleep(10.5)
    assert store.renewals == 1 + 10
    for _ in range(3):  # as nodes do when they leave; the list is read at once, and only once for all of them
        registry.wake()
    await asyncio.sleep(0.01)
    assert store.renewals == 1 + 10 + 1
    await asyncio.sleep(10)
    assert store.renewals == 1 + 10 + 1 + 10
    await registry.remove()


class Others(OneDies):
    """A node list whose other nodes the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.others: tuple[NodeRecord, ...] = ()

    async def renew_node(self, *reported: Any) -> LiveNodes:
        return LiveNodes((ME, *self.others), 0)


@pytest.mark.asyncio
@pytest.mark.rule("CM-61")
@pytest.mark.parametrize(("mine", "here", "there"), [(True, "on", "off"), (False, "off", "on"), (None, "", "")])
async def test_nodes_that_differ_in_access_control_are_named_once(mine: bool | None, here: str, there: str) -> None:
    store = Others()
    registry = NodeRegistry(
        cast(ClusterStore, store),
        NodeDescription("n1", 1, "h:1", ROLES, access_control=mine),
        history=lambda: "",
        changed=lambda: None,
        taken=lambda why: None,
    )
    alike, silent = (replace(OTHER, name=name, access_control=has) for name, has in (("a", mine), ("b", None)))
    differs, later = (replace(OTHER, name=name, access_control=not mine) for name in ("c", "d"))
    said: list[tuple[str, str, str]] = []
    for others in ((alike, silent), (alike, differs), (silent, differs), (differs, later), (differs,), ()):
        store.others = others
        with capture_logs() as lines:
            await registry.register()
        said += [(line["nodes"], line["here"], line["there"]) for line in lines]
    assert said == ([] if mine is None else [("c", here, there), ("c, d", here, there)])
