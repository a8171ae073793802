"""Members whose loss a leader reports, and those whose loss it does not report (PL-527)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from unittest.mock import patch

import pytest

from partition_leader.sessions.core.session import SessionKey
from partition_leader.sessions.member_watch import MemberWatch
from shard_runtime.config.group_config import GroupConfig
from tests.unit.partition_leader.share_partition.test_stream import Stream
from tests.unit.partition_leader.share_partition.worlds import GROUP, World, run, settle

MEMBER = SessionKey(GROUP, "m")


class Heard(MemberWatch):
    """Records the members that are reported as lost or as back."""

    def __init__(self, world: World) -> None:
        self.said: list[str] = []
        world.leader.requests._members = self

    def lost(self, keys: Iterable[SessionKey]) -> None:
        self.said += [f"lost {key.member_id}" for key in keys]

    def back(self, key: SessionKey) -> None:
        self.said.append(f"back {key.member_id}")


def _served(world: World, stream: Stream) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(world.leader.service.share_stream(stream))


async def _ended(served: asyncio.Task[None]) -> None:
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)


@pytest.mark.rule("PL-527")
def test_a_session_that_ends_with_its_stream_is_reported_and_so_is_a_new_one() -> None:
    async def scenario(world: World) -> None:
        heard, stream = Heard(world), Stream()
        served = _served(world, stream)
        stream.fetch(1, 0)
        await settle()
        await _ended(served)
        assert heard.said == ["back m", "lost m"]
        again = Stream()
        served = _served(world, again)
        again.fetch(1, 0)
        await settle()
        assert heard.said[2:] == ["back m"]
        again.incoming.put_nowait(None)
        await settle()
        assert heard.said[3:] == ["lost m"], "a client that only ends its stream has not closed its session"
        await _ended(served)

    run(scenario)


@pytest.mark.rule("PL-527")
def test_a_session_that_was_closed_first_is_not_reported() -> None:
    async def scenario(world: World) -> None:
        heard, stream = Heard(world), Stream()
        await world.produce(3)
        served = _served(world, stream)
        stream.fetch(1, 0)
        await settle()
        stream.fetch(2, -1, session_id=stream.answers[1].fetch.session_id)
        await settle()
        await _ended(served)
        assert heard.said == ["back m"]

    run(scenario)


@pytest.mark.rule("PL-527")
def test_a_member_without_a_stream_is_never_notified_nor_anyone_while_the_process_ends() -> None:
    async def scenario(world: World) -> None:
        heard, stream = Heard(world), Stream()
        await world.produce(3)
        assert await world.member("unary").fetch(0).ranges() == [(0, 2, 1)]
        with patch.object(GroupConfig, "idle_ms", 0):
            world.leader.requests.expire_idle()
        assert heard.said == []
        served = _served(world, stream)
        stream.fetch(1, 0)
        await settle()
        world.leader.drain()
        await _ended(served)
        assert heard.said == ["back m"]

    run(scenario)
