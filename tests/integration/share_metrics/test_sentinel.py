"""A store behind a Sentinel: pages come from a replica while one responds (PM-5)."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from share_metrics.reader import Kind, Reader, ReadOptions, Store, StoreUnreachableError
from share_metrics.reader import store as reader_store
from tests.support.cluster_nodes import ran, until_true
from tests.support.pipeline_entries import snapshot, update
from tests.support.stores import Server, Valkey

from .world import Log, World

S0 = "{sgs:0}:log"


class Watched:
    """A master, a replica in step with it, and a Sentinel that knows both."""

    def __init__(self) -> None:
        self.master, self.replica, self.sentinel = Server(), Server(), Server()

    async def start(self) -> None:
        await self.master.start()
        await self.replica.start()
        await Valkey.follow(self.replica, self.master)
        config = Path(self.sentinel.folder) / "sentinel.conf"
        port = self.master.port
        config.write_text(f"port {self.sentinel.port}\nsentinel monitor main 127.0.0.1 {port} 1\n")
        await self.sentinel.start_with(str(config), "--sentinel")
        await self.sentinel.run(("SENTINEL", "DEBUG", "INFO-PERIOD", 100))  # it would otherwise ask every ten seconds
        await until_true(self._known, "the Sentinel knows the replica")

    async def _known(self) -> bool:
        """Return whether the Sentinel has queried the replica once: until then it reports the replica's link as
        down."""
        (found,) = await ran(self.sentinel, ("SENTINEL", "REPLICAS", "main"))
        return any(replica.get(b"master-link-status") == b"ok" for replica in found)

    def close(self) -> None:
        for server in (self.sentinel, self.replica, self.master):
            server.stop()
            shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    try:
        asyncio.run(made.start())
        yield made
    finally:
        made.close()


def pages_served(server: Server) -> int:
    (info,) = asyncio.run(server.run(("INFO", "commandstats")))
    counted = re.search(rb"cmdstat_xrange:calls=(\d+)", info)
    return int(counted[1]) if counted else 0


@pytest.mark.rule("PM-5")
def test_pages_come_from_the_replica_that_a_sentinel_names(watched: Watched) -> None:
    world = World(watched.master)
    world.make_cluster(state_shards=1)
    Log(world, S0).state(snapshot(0), *(update(number) for number in range(1, 20)))
    asyncio.run(until_true(partial(watched.master.feeds, watched.replica), "the replica is in step"))
    world.redis.config_resetstat()
    url = f"redis+sentinel://127.0.0.1:{watched.sentinel.port}/main"

    def read() -> list[str]:
        with Store(url, replicas=True) as store:
            reader = Reader(store, Kind.SHARE_STATE, ReadOptions(page_count=3))
            plan = reader.plan({}, reader.tips(reader.streams()))[S0]
            return [
                one for batch in reader.read(plan.ranges, plan.gaps) for one in batch.column("entry_id").to_pylist()
            ]

    expected = [f"1-{seq}" for seq in range(21)]
    assert read() == expected
    assert pages_served(watched.replica) == 7
    assert pages_served(watched.master) == 1  # a plan reads the first entry of the epoch
    watched.replica.stop()
    assert read() == expected
    world.redis.close()


@pytest.mark.rule("PM-121", "PM-122")
@pytest.mark.parametrize("how", ["gone", "hangs"])
def test_a_master_that_a_sentinel_names_and_that_does_not_answer(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(reader_store, "_ANSWER_S", 0.1)
    process = watched.master.process
    assert process is not None
    process.send_signal(signal.SIGKILL if how == "gone" else signal.SIGSTOP)
    sentinel, master = f"127.0.0.1:{watched.sentinel.port}", f"127.0.0.1:{watched.master.port}"
    try:
        with Store(f"redis+sentinel://{sentinel}/main") as store, pytest.raises(StoreUnreachableError) as failed:
            store.call("key", "GET", "key")
    finally:
        process.send_signal(signal.SIGCONT)
    words = str(failed.value)
    assert words.startswith(f"the store at {master}, which Sentinel {sentinel} names for main, does not answer: ")
    assert ("refused" if how == "gone" else "imeout") in words
    assert "check that it runs, and that this machine reaches it by that address" in words
