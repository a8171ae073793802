"""Locks by key: in order, and gone when nobody uses them."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.persister.key_locks import KeyLocks
from tests.unit.persister.nodes import key
from tests.unit.virtual_time import run


@pytest.mark.rule("SC-99")
def test_holders_follow_each_other_in_order_and_one_that_gives_up_lets_the_next_wait_on() -> None:
    async def main() -> None:
        locks, seen = KeyLocks(), []

        async def hold(name: str, seconds: float) -> None:
            async with locks.hold(key()):
                seen.append((name, asyncio.get_running_loop().time()))
                await asyncio.sleep(seconds)

        first, second, third = (asyncio.create_task(hold(name, 1)) for name in "abc")
        await asyncio.sleep(0.5)
        second.cancel()
        async with locks.hold(key(1)):
            assert asyncio.get_running_loop().time() == pytest.approx(0.5), "another key does not wait"
        await asyncio.gather(first, third)
        assert [name for name, _ in seen] == ["a", "c"]
        assert [at for _, at in seen] == pytest.approx([0, 1])
        assert not locks.busy

    run(main())
