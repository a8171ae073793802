"""Locks by key: granted in order, and removed when they are unused."""

from __future__ import annotations

import asyncio

import pytest

from share_persister.client import KeyLocks
from tests.support.coordinator_nodes import key
from tests.support.virtual_time import now_s, virtual


@pytest.mark.rule("SC-99")
@virtual
async def test_holders_follow_each_other_in_order_and_one_that_gives_up_lets_the_next_wait_on() -> None:
    locks, seen = KeyLocks(), []

    async def hold(name: str, seconds: float) -> None:
        async with locks.hold(key()):
            seen.append((name, now_s()))
            await asyncio.sleep(seconds)

    first, second, third = (asyncio.create_task(hold(name, 1)) for name in "abc")
    await asyncio.sleep(0.5)
    second.cancel()
    async with locks.hold(key(1)):
        assert now_s() == pytest.approx(0.5), "another key does not wait"
    await asyncio.gather(first, third)
    assert [name for name, _ in seen] == ["a", "c"]
    assert [at for _, at in seen] == pytest.approx([0, 1])
    assert not locks.busy


@pytest.mark.rule("SC-99")
@virtual
async def test_a_lock_that_comes_to_one_who_just_gave_up_goes_on_to_the_next() -> None:
    locks, seen = KeyLocks(), []

    async def hold(name: str) -> None:
        async with locks.hold(key()):
            seen.append(name)

    assert locks.take(key())
    assert not locks.take(key())
    first, second = asyncio.create_task(hold("a")), asyncio.create_task(hold("b"))
    await asyncio.sleep(0)
    locks.give_back(key())  # from now on `a` holds it
    first.cancel()  # before `a` has run
    await asyncio.gather(first, second, return_exceptions=True)
    assert (first.cancelled(), seen, locks.busy) == (True, ["b"], 0)
