"""Measures how much store memory a topic takes while a group consumes it: `python -m benchmarks.backlog_memory`.

A million small records go through one topic, and one consumer accepts them as they arrive, first with Kafka's
retention, then with `sharegroups.retention=consumed` (CM-160), each time in a new cluster. From time to time the run
prints, as one JSON document, how much memory the store uses and where the log starts. Memory is the store's own figure
minus its figure just after the topic was created; the embedded store syncs every write.

    python -m benchmarks.backlog_memory                      # two and a half minutes
    python -m benchmarks.backlog_memory --records 100000 --policies consumed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from redis.asyncio import Redis

from benchmarks.processes import Crew, Process
from kip932.ids import OFFSET_EARLIEST, TopicPartition
from sharegroups import NewTopic
from sharegroups.aio import Admin, Producer, ShareConsumer

POLICIES: Final = ("time_and_size", "consumed")
_TOPIC: Final = TopicPartition("jobs", 0)
_READY_S: Final = 60.0
_MIB: Final = 1 << 20


def main(arguments: list[str] | None = None) -> int:
    """Run the requested policies in turn. Returns the exit status."""
    options = _parser().parse_args(arguments)
    for policy in options.policies:
        asyncio.run(_one(policy, options))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.backlog_memory", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a record's value (default 100)")
    parser.add_argument("--backlog", type=int, default=20_000, help="records that may be unfinished (default 20000)")
    parser.add_argument("--rate", type=int, default=20_000, help="records a second at most (default 20000)")
    parser.add_argument("--rows", type=int, default=10, help="how often to measure (default 10)")
    parser.add_argument("--policies", nargs="*", default=POLICIES, choices=POLICIES)
    return parser


@asynccontextmanager
async def _cluster() -> AsyncIterator[tuple[str, Redis]]:
    """Run `sharegroups up` on its own directory. Yields its bootstrap address and a client of its store."""
    with tempfile.TemporaryDirectory(prefix="bm-", ignore_cleanup_errors=True) as folder:
        words = ["share_node", "up", "--data", str(Path(folder, "data")), "--port", "0", "--output", "json"]
        node = Process("node", [sys.executable, "-m", *words, "--log-level", "warning"], Crew(), is_server=True)
        try:
            ready = node.expect("bootstrap", _READY_S)
            store = Redis(unix_socket_path=ready["store"].removeprefix("unix://"))
            try:
                yield ready["bootstrap"], store
            finally:
                await store.aclose()
        finally:
            node.stop(terminate=True)


async def _one(policy: str, options: argparse.Namespace) -> None:
    async with _cluster() as (bootstrap, store), Admin(bootstrap_servers=bootstrap) as admin:
        topic = NewTopic(_TOPIC.topic, 1, {"sharegroups.retention": policy})
        errors = await admin.create_topics([topic])
        assert not any(errors.values()), errors
        begun, before = time.monotonic(), await _used(store)
        done = _Done()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_consume(bootstrap, options.records, done))
            tasks.create_task(_produce(bootstrap, options, done))
            for row in range(1, options.rows + 1):
                await done.until(options.records * row // options.rows)
                _print(policy, done.records, await _used(store) - before, await _begins(admin), begun)
        await asyncio.sleep(12)  # two rounds of retention later
        _print(policy, done.records, await _used(store) - before, await _begins(admin), begun)


class _Done:
    """Counts the records whose acceptance is confirmed."""

    def __init__(self) -> None:
        self.records = 0
        self._more = asyncio.Condition()

    async def add(self, records: int) -> None:
        async with self._more:
            self.records += records
            self._more.notify_all()

    async def until(self, records: int) -> None:
        async with self._more:
            await self._more.wait_for(lambda: self.records >= records)


async def _produce(bootstrap: str, options: argparse.Namespace, done: _Done) -> None:
    value, begun = b"v" * options.size, time.monotonic()
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(options.records):
            if number % 1_000 == 0:
                await done.until(number - options.backlog)
                await asyncio.sleep(max(0.0, begun + number / options.rate - time.monotonic()))
            await producer.produce(_TOPIC.topic, value)
        await producer.flush()


async def _consume(bootstrap: str, records: int, done: _Done) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "workers"}
    async with ShareConsumer(settings) as consumer:
        consumer.subscribe([_TOPIC.topic])
        while done.records < records:
            messages = await consumer.poll(1.0)
            errors = [error for error in (await consumer.commit_sync()).values() if error is not None]
            assert not errors, errors
            await done.add(len(messages))


async def _used(store: Redis) -> int:
    return int((await store.info("memory"))["used_memory"])


async def _begins(admin: Admin) -> Any:
    return (await admin.list_offsets({_TOPIC: OFFSET_EARLIEST}))[_TOPIC]


def _print(policy: str, accepted: int, used: int, begins: object, begun: float) -> None:
    row = {
        "policy": policy,
        "accepted": accepted,
        "store_mib": round(used / _MIB, 1),
        "log_start": begins,
        "s": round(time.monotonic() - begun, 1),
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
