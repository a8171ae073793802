"""When a process reads its store's memory, and when it checks all of it: on virtual time.

What it finds there is shown by tests/contracts/test_store_watch.py. Of CM-215 these tests show (b), with one node;
what a leader counts between two readings, and the part that falls to it (a), are shown by test_store_room.py beside
this folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shard_runtime.clock import StoreTime
from shard_runtime.record_log.redis.startup_checks import StoreNeeds
from shard_runtime.record_log.redis.store_watch import StoreWatch
from shard_runtime.record_log.store_room import StoreFullError
from shard_runtime.record_log.store_usage import StoreUsage
from tests.support.clocks import LoopClock
from tests.support.virtual_time import now_s, virtual

NODE = "store:1"
LIMIT = 1_000_000
INTERVAL_S = 10


class OneNode:
    """A store of one node, and the connection to it. `read` has the time of each reading of its memory."""

    nodes = (NODE,)

    def __init__(self, used_bytes: int) -> None:
        self.used_bytes = used_bytes
        self.read: list[float] = []

    def node_of(self, _: str) -> str:
        return NODE

    async def connect(self, _: str) -> OneNode:
        return self

    async def run(self, *_: object) -> list[bytes]:
        self.read.append(round(now_s(), 3))
        return [f"used_memory:{self.used_bytes}\r\nmaxmemory:{LIMIT}".encode()]

    async def close(self) -> None:
        """Nothing is open."""


class Watch(StoreWatch):
    """`checked` has the time of each check of the whole store; `woken`: how often it woke up for a reading."""

    def __init__(self, store: Any) -> None:
        self.checked: list[float] = []
        self.woken = 0
        super().__init__(store, object(), StoreTime(LoopClock(), 10_000), StoreNeeds())  # type: ignore[arg-type]  # no log is asked

    async def check(self) -> None:
        self.checked.append(round(now_s(), 3))

    async def read_memory(self) -> None:
        self.woken += 1
        await super().read_memory()


async def watched(used_bytes: int, meanwhile: Callable[[Watch], Awaitable[None]]) -> tuple[OneNode, Watch]:
    """Watch a store that uses this much of its limit, with one reading at the start."""
    store = OneNode(used_bytes)
    watch = Watch(store)
    watch.limit_records(lambda: 1, lambda *_: None)
    watch.room.read(NODE, StoreUsage(used_bytes, LIMIT))
    watch.start(INTERVAL_S * 1_000)
    await meanwhile(watch)
    await watch.stop()
    return store, watch


@pytest.mark.rule("CM-215")
@virtual
async def test_far_from_the_limit_the_memory_is_read_once_for_each_request() -> None:
    # An eighth of what is left up to 95 % of the limit is 106,250 bytes; a batch counts as a quarter and 256 more.
    async def meanwhile(watch: Watch) -> None:
        await asyncio.sleep(2)
        watch.room.take("key", 84_000, 1)
        await asyncio.sleep(1)
        watch.room.take("key", 800, 1)
        await asyncio.sleep(3)
        watch.room.take("key", LIMIT // 4, 1)
        await asyncio.sleep(6)

    store, watch = await watched(LIMIT // 10, meanwhile)
    assert store.read == [3.0, 6.0], "not at 2: that is less than an eighth"
    assert watch.woken == 2, "nothing is left to do in between"
    assert watch.checked == [10.0], "readings do not delay the checks"


@pytest.mark.rule("CM-215")
@virtual
async def test_from_80_percent_of_the_limit_on_the_memory_is_read_four_times_a_second() -> None:
    async def meanwhile(watch: Watch) -> None:
        await asyncio.sleep(2.1)

    for percent in (80, 90):
        began = now_s()
        store, _ = await watched(LIMIT * percent // 100, meanwhile)
        assert store.read == [round(began + 0.25 * number, 3) for number in range(1, 9)]
    store, _ = await watched(LIMIT * 80 // 100 - 1, meanwhile)
    assert store.read == []


@pytest.mark.rule("CM-215")
@virtual
async def test_refusals_in_a_row_have_it_read_at_most_every_50_ms() -> None:
    async def meanwhile(watch: Watch) -> None:
        for _ in range(100):
            with pytest.raises(StoreFullError):
                watch.room.take("key", LIMIT, 1)
            await asyncio.sleep(0.01)

    store, _ = await watched(LIMIT // 10, meanwhile)
    gaps = [after - before for before, after in zip(store.read, store.read[1:], strict=False)]
    assert len(store.read) >= 15
    assert min(gaps) >= 0.049, store.read


@pytest.mark.rule("CM-215")
@virtual
async def test_requests_in_a_row_have_it_read_at_most_every_50_ms() -> None:
    async def meanwhile(watch: Watch) -> None:
        for _ in range(7):  # each takes an eighth; there is no room for more
            watch.room.take("key", 90_000, 1)
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    store, _ = await watched(LIMIT // 10, meanwhile)
    gaps = [after - before for before, after in zip(store.read, store.read[1:], strict=False)]
    assert len(gaps) >= 1
    assert min(gaps) >= 0.049, store.read
