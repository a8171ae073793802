"""A process leaves in good order: what others see of it first, what it owns next, its place in the node list last."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shard_runtime.config.process_settings import load_settings
from share_node.process import STREAMS_WAIT_S, NodeProcess
from tests.support.clocks import HandClock
from tests.support.virtual_time import virtual


def noting(done: list[str], name: str) -> Any:
    """A method that takes a turn of the loop and notes that it was called, with its arguments."""

    async def note(*told: object) -> None:
        await asyncio.sleep(0)
        done.append(" ".join([name, *map(str, told)]))

    return note


@pytest.mark.rule("CM-4")
@virtual
async def test_it_is_no_target_any_more_before_it_gives_anything_up_and_calls_have_their_grace_at_the_end() -> None:
    done: list[str] = []
    settings = load_settings({"store.url": "redis://h", "drain.grace.ms": "25000"})
    identity: Any = SimpleNamespace(name="n", release=lambda: done.append("name free"))
    store: Any = SimpleNamespace(close=noting(done, "store closed"))
    process = NodeProcess(settings, identity, store, HandClock())
    parts: Any = process
    parts._node = SimpleNamespace(leave=noting(done, "leaving"), stop=noting(done, "shards released, entry removed"))
    parts._roles = SimpleNamespace(
        drain=lambda: done.append("parked requests answered"), stop=noting(done, "roles end")
    )
    for server, name in ((parts.server, "clients"), (parts.internal, "nodes")):
        server.ready = noting(done, f"{name}: ready")
        server.drain = noting(done, f"{name}: drain")
    await process.stop()
    grace = f"25.0 {STREAMS_WAIT_S}"
    assert done == [
        "leaving",
        "clients: ready False",
        "nodes: ready False",
        "parked requests answered",
        "shards released, entry removed",
        f"clients: drain {grace}",
        f"nodes: drain {grace}",
        "roles end",
        "store closed",
        "name free",
    ]
