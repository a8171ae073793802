"""How the group-coordinator role shuts down."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from tests.support.group_cluster import GroupCluster, play


def test_a_role_that_stopped_has_no_call_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node closes the persister after the role: a call still in flight would find its connections closed."""

    async def body(world: GroupCluster) -> None:
        under_way: list[str] = []

        async def initialize(group_id: str, *_: Any) -> dict[Any, Any]:
            under_way.append(group_id)
            try:
                await asyncio.sleep(3_600)
            finally:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)  # a call may have to clean up
                under_way.remove(group_id)
            return {}

        monkeypatch.setattr(world.persister, "initialize", initialize)
        world.create("t", 2)
        await world.heartbeat("m", 0, ["t"])
        await asyncio.sleep(0.01)
        assert under_way == ["grp"]
        await world.stop()
        assert under_way == []

    play(body)


def test_a_role_that_stopped_has_no_background_work_left() -> None:
    async def body(world: GroupCluster) -> None:
        def running() -> list[str]:
            names = sorted(str(task.get_coro()) for task in asyncio.all_tasks())
            return [name for name in names if "Sweeper." in name or "PeerNotices." in name]

        assert len(running()) == 2, "the sweep, and the orders about removed members"
        await world.stop()
        assert running() == []

    play(body)
