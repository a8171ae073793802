"""How a process watches its store: the store's clock, and settings that risk losing data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from shard_runtime.clock import StoreTime, SystemClock
from shard_runtime.record_log.redis.startup_checks import StoreNeeds
from shard_runtime.record_log.redis.store_watch import StoreWatch
from shard_runtime.record_log.store_room import StoreFullError

from .world import GROUP, Process, World

pytestmark = pytest.mark.asyncio

_DAY_MS = 86_400_000


class WrongClock(SystemClock):
    """A host's clock that is ahead."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms


@pytest_asyncio.fixture
async def process(world: World) -> Process:
    return await world.process()


@pytest_asyncio.fixture
async def watches(world: World, process: Process) -> AsyncIterator[Any]:
    made: list[StoreWatch] = []

    async def watch(clock: SystemClock | None = None, needs: StoreNeeds | None = None, **options: Any) -> StoreWatch:
        store = await world.store.client("a")
        await store.refresh()
        time = StoreTime(clock or SystemClock(), 10_000)
        made.append(StoreWatch(store, process.log, time, needs or StoreNeeds(), **options))
        return made[-1]

    yield watch
    for each in made:
        await each.stop()


async def config(world: World, *words: str) -> None:
    assert await world.store.raw(("CONFIG", "SET", *words)) == [b"OK"]


@pytest.mark.rule("CM-170")
async def test_a_process_goes_by_the_stores_clock_and_says_when_its_own_is_wrong(watches: Any) -> None:
    clock = WrongClock()
    clock.ahead_ms = 8 * _DAY_MS
    watch = await watches(clock)
    with capture_logs() as said:
        await watch.check()
        assert abs(watch.time.wall_ms() - SystemClock().wall_ms()) < 5_000
        assert round(watch.time.store_ahead_ms / _DAY_MS) == -8
        clock.ahead_ms = 0
        await watch.check()
        await watch.check()
        assert watch.time.doubt() == ""
    assert [(line["log_level"], line["event"]) for line in said] == [
        ("warning", "retention_by_age_paused"),
        ("info", "retention_by_age_resumed"),
    ]
    assert "ahead of the store's" in said[0]["cause"]


@pytest.mark.rule("CM-171")
@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("appendonly", "no", "yes"),
        ("appendfsync", "no", "always"),
        ("appendfsync", "everysec", "always"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ],
)
async def test_durability_switched_off_under_way_is_an_error_in_the_log_once_and_its_end_is_logged(
    world: World, watches: Any, name: str, value: str, right: str
) -> None:
    watch = await watches(needs=StoreNeeds(0, fsync_always=True))
    await config(world, name, right)
    await watch.check()
    assert watch.unsafe == set()
    with capture_logs() as said:
        await config(world, name, value)
        await watch.check()
        assert watch.unsafe == {name}
        await watch.check()
        await config(world, name, right)
        await watch.check()
        assert watch.unsafe == set()
    assert [line["log_level"] for line in said] == ["error", "warning"]
    assert f"{name} is {value}, expected" in said[0]["cause"]
    assert "CONFIG SET" in said[0]["cause"]
    assert "store.unsafe.stop.writes=true" in said[0]["effect"]
    assert said[1]["setting"] == name


@pytest.mark.rule("CM-171")
async def test_by_setting_no_new_work_is_taken_while_the_store_is_unsafe(
    world: World, process: Process, watches: Any
) -> None:
    watch = await watches(stop_writes=True)
    store = await world.store.client("a")
    await store.refresh()
    # Each node of a cluster has its own settings: use a shard on the node that `config` reaches.
    shards = (GROUP._replace(name=str(number)) for number in range(1_000))
    shard = next(each for each in shards if store.node_of(each.owner_key) == store.node_of("SET"))
    await process.history(shard)
    await process.claim(shard)
    await watch.check()
    assert process.log.available_for(shard)
    await config(world, "appendonly", "no")
    await watch.check()
    assert not process.log.available_for(shard)
    assert not process.log.available
    await config(world, "appendonly", "yes")
    await watch.check()
    assert process.log.available_for(shard)
    going_on = await watches()
    await config(world, "appendonly", "no")
    await going_on.check()
    assert process.log.available_for(shard), "by default writes go on"
    await config(world, "appendonly", "yes")


@pytest.mark.rule("CM-171")
async def test_what_was_allowed_at_the_start_is_no_news(world: World, watches: Any) -> None:
    watch = await watches(accepted=["appendonly"], stop_writes=True)
    await config(world, "appendonly", "no")
    with capture_logs() as said:
        await watch.check()
    assert (watch.unsafe, said) == (set(), [])
    await config(world, "appendonly", "yes")


@pytest.mark.rule("CM-208", "CM-211")
async def test_each_nodes_memory_and_limit_are_known_and_crossings_are_reported_once(
    world: World, watches: Any
) -> None:
    watch = await watches()
    crossed: list[tuple[str, int]] = []
    watch.on_level(lambda node, usage: crossed.append((node, usage.percent)))
    store = await world.store.client("a")
    await store.refresh()
    node = store.node_of("SET")  # each node of a cluster has its own settings: the one that `config` reaches
    await config(world, "maxmemory", "0")
    await watch.check()
    assert set(watch.usage) == set(store.nodes)
    assert (watch.usage[node].limit_bytes, watch.usage[node].left_bytes) == (0, None)
    assert watch.node_of("SET") == node
    used = watch.usage[node].used_bytes
    assert used > 100_000
    try:
        await config(world, "maxmemory", str(used * 10 // 9))
        await watch.check()
        await watch.check()
        assert watch.usage[node].limit_bytes == used * 10 // 9
    finally:
        await config(world, "maxmemory", "0")
    await watch.check()
    ((reported, percent),) = crossed
    assert reported == node
    assert 80 <= percent <= 95


@pytest.mark.rule("CM-214", "CM-215")
async def test_records_are_taken_by_the_stores_memory_which_is_read_again_soon_when_it_matters(
    world: World, watches: Any
) -> None:
    """The interval of the checks is an hour: all that is read meanwhile is read because it is needed."""
    watch = await watches()
    store = await world.store.client("a")
    await store.refresh()
    node, said = store.node_of("SET"), list[tuple[str, bool]]()
    await config(world, "maxmemory", "0")
    await watch.check()
    assert watch.room.take("SET", 1 << 40, 1) is None
    try:
        await config(world, "maxmemory", str(watch.usage[node].used_bytes * 4))
        await watch.check()
        watch.limit_records(lambda: 1, lambda name, _, full: said.append((name, full)))
        watch.start(3_600_000)
        with pytest.raises(StoreFullError):
            watch.room.take("SET", watch.usage[node].used_bytes * 4, 1)
        await _until(lambda: watch.room.near() == ())
        charge = watch.room.take("SET", 1, 1)
        assert charge is not None, "a reading has come: there is room for less"
        charge(None)
        assert said == []
        await config(world, "maxmemory", str(watch.usage[node].used_bytes * 100 // 97))
        watch.room.take("SET", watch.usage[node].left_bytes * 6 // 10, 1)
        await _until(lambda: said == [(node, True)])
        await config(world, "maxmemory", "0")
        await _until(lambda: said == [(node, True), (node, False)])
    finally:
        await config(world, "maxmemory", "0")


async def _until(condition: Any) -> None:
    for _ in range(3_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition never came true")
