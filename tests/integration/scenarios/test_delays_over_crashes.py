"""S-134, S-135: delayed records stay delayed when the partition leader and the share coordinator are killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from kip932.rpc.transport import TransportError
from sharegroups import AcknowledgeType
from tests.integration.scenarios.clients import BOUND_S, EXPLICIT, World, deliveries, first
from tests.integration.scenarios.wire import Wire
from tests.support.node import QUICK, Cluster, StartedProcess

LEADER, STATE = "partition_leader", "share_coordinator"
DELAY_S = 8
BACKOFF_S = 6
LOCK_S = 1
#: Tolerance: times are rounded to ms, and the clock that both processes share may be adjusted slightly meanwhile.
CLOCK_S = 0.05


class Stage:
    """Each service runs as a separate process; the group coordinator keeps the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._running: dict[str, StartedProcess] = {}
        for role in (LEADER, STATE):
            self._start(role)

    def kill(self, *roles: str) -> None:
        """Send SIGKILL to all of them, then start each again on its own data."""
        for role in roles:
            self._running.pop(role).kill()
        for role in roles:
            self._start(role)

    def close(self) -> None:
        for process in self._running.values():
            process.stop()

    def _start(self, role: str) -> None:
        settings = {
            **QUICK,
            "node.name": role,
            "data.dir": str(self.cluster.folder / role),
            "internal.listen.port": "0",
            "store.url": self.cluster.store_url,
            "store.fsync.always": "true",
            "group.share.auto.offset.reset": "earliest",  # the default of `up`
        }
        words = ["share_node", "serve", role, *(f"{name}={value}" for name, value in settings.items())]
        process = self._running[role] = StartedProcess(words, self.cluster.folder)
        assert process.first_line().startswith("ready")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Cluster({**QUICK, "node.roles": "group_coordinator"}) as cluster:
        made = Stage(cluster)
        try:
            yield made
        finally:
            made.close()


def stored_delays(world: World, count: int) -> dict[int, int]:
    """Return the ends of delays in the store, in ms since 1970, by offset; waits until `count` records are delayed."""

    async def checked() -> dict[int, int]:
        found: dict[int, int] = {}
        deadline = time.monotonic() + BOUND_S
        async with Wire(world.cluster.bootstrap, world.cluster.internal) as wire:
            while len(found) < count and time.monotonic() < deadline:
                try:
                    found = await wire.delays(world.group, world.topic_id)
                except TransportError:  # the share coordinator is restarting
                    found = {}
                await asyncio.sleep(0.05)
        assert len(found) == count
        return found

    return asyncio.run(checked())


def arrivals(world: World, count: int) -> dict[tuple[int, int], float]:
    """Let a new member accept everything; returns when its first `count` deliveries arrived, by offset and delivery
    count."""
    seen: dict[tuple[int, int], float] = {}
    deadline = time.monotonic() + BOUND_S
    with world.consumer(EXPLICIT) as consumer:
        while len(seen) < count and time.monotonic() < deadline:
            messages = consumer.poll(0.5)
            seen |= dict.fromkeys(deliveries(messages), time.monotonic())
            for message in messages:
                consumer.acknowledge(message)
            assert set(consumer.commit_sync().values()) <= {None}
    return seen


@pytest.mark.scenario("S-134")
@pytest.mark.parametrize("victims", [(LEADER,), (STATE,), (LEADER, STATE)], ids="+".join)
def test_a_release_with_a_delay_outlives_those_that_keep_it(stage: Stage, victims: tuple[str, ...]) -> None:
    world = World(stage.cluster)
    world.produce(*map(str, range(10)))
    with world.consumer(EXPLICIT, share_acquire_mode="batch_optimized") as consumer:
        messages = list(first(consumer))
        while len(messages) < 10:
            messages += first(consumer)
        asked_s, asked_ms = time.monotonic(), time.time() * 1_000
        for message in messages:
            if message.offset() < 6:
                delay = DELAY_S if message.offset() < 4 else 0
                consumer.acknowledge(message, AcknowledgeType.RELEASE, delay=delay)
            else:
                consumer.acknowledge(message)
        assert list(consumer.commit_sync().values()) == [None]
        answered_ms = time.time() * 1_000
    ends = stored_delays(world, 4)
    assert sorted(ends) == [0, 1, 2, 3]
    clock_ms = CLOCK_S * 1_000
    assert all(asked_ms - clock_ms <= end - DELAY_S * 1_000 <= answered_ms + clock_ms for end in ends.values())
    stage.kill(*victims)
    assert stored_delays(world, 4) == ends
    seen = arrivals(world, 6)
    assert sorted(seen) == [(offset, 2) for offset in range(6)]
    assert min(at_s for (offset, _), at_s in seen.items() if offset < 4) >= asked_s + DELAY_S - CLOCK_S
    world.until_state(10, [])


@pytest.mark.scenario("S-135")
def test_the_back_off_of_a_lock_that_ran_out_outlives_those_that_keep_it(stage: Stage) -> None:
    world = World(stage.cluster)
    configs = {
        "share.record.lock.duration.ms": str(LOCK_S * 1_000),
        "sharegroups.retry.backoff.initial.ms": str(BACKOFF_S * 1_000),
        "sharegroups.retry.backoff.jitter": "0.0",
    }
    world.ask("set_group", world.group, configs)
    world.produce("job")
    with world.consumer(EXPLICIT) as consumer:
        began_s = time.monotonic()
        assert deliveries(first(consumer)) == [(0, 1)]
        ends = stored_delays(world, 1)
    stage.kill(LEADER, STATE)
    assert stored_delays(world, 1) == ends
    seen = arrivals(world, 1)
    assert list(seen) == [(0, 2)]
    assert seen[0, 2] >= began_s + LOCK_S + BACKOFF_S - CLOCK_S
    world.until_state(1, [])
