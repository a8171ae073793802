"""A real server, and logs that are written to it with the services' own codecs and entry layout."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis

from group_coordinator.codec import GroupLogCodec
from group_coordinator.core import records as r
from partition_leader.topic_log.codec import batch_entry
from partition_leader.topic_log.core.batch import LogBatch
from shard_runtime.cluster.metadata import Change, TopicCreated
from shard_runtime.cluster.metadata_codec import encode_changes
from shard_runtime.record_log.protocol import Entry, StreamId
from shard_runtime.record_log.redis.codec import claim_record, xadd
from share_coordinator.codec import ShareStateCodec
from share_coordinator.core.records import ShareRecord
from share_metrics.ingest.writing import Running
from share_metrics.reader import Store
from tests.support.stores import Server

#: The installed command, for tests that run it as a process.
SHAREGROUPS: Final = str(Path(sys.executable).with_name("sharegroups"))

BOUND_S: Final = 240

Encode = Callable[[int], tuple[str, bytes]]


class World:
    """One server, and a client that writes to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"unix://{server.folder}/s"
        self.redis: Any = redis.Redis(unix_socket_path=f"{server.folder}/s")

    def store(self) -> Store:
        return Store(self.url)

    def make_cluster(self, state_shards: int, group_shards: int = 1) -> None:
        self.redis.set("sgs:config", state_shards)
        self.redis.set("gc:config", group_shards)

    def make_topic(self, name: str, topic_id: bytes, partitions: int, version: int) -> None:
        change: Change = TopicCreated(name, topic_id, partitions, {}, 0, "")
        self.redis.xadd("{meta}:log", {"t": "M", "r": encode_changes([change], b"c" * 16, 0)}, id=f"1-{version}")

    def clear(self) -> None:
        self.redis.flushall()


class Log:
    """The owner of one stream: claims the stream and appends with consecutive ids (SR-4, SR-7)."""

    def __init__(self, world: World, stream: str, epoch: int = 1) -> None:
        self._redis = world.redis
        self.stream = stream
        self.epoch = epoch
        self.seq = 0
        self.wall_ms = 1_000_000
        claim = claim_record(1, 1, "h:1", "n", self.wall_ms)
        self._redis.xadd(stream, {"t": "C", "r": claim}, id=f"{epoch}-0")

    def claim(self) -> Log:
        """Claim the stream as the next owner; returns that owner's log."""
        world = object.__new__(World)
        world.redis = self._redis
        return Log(world, self.stream, self.epoch + 1)

    def state(self, *records: ShareRecord) -> None:
        """Append share-state records, a millisecond apart."""
        for record in records:
            self.raw(*ShareStateCodec().encode(record, self.wall_ms))

    def group(self, *records: r.Record) -> None:
        """Append group records, a millisecond apart."""
        for record in records:
            self.raw(*GroupLogCodec().encode(record, self.wall_ms))

    def raw(self, letter: str, data: bytes) -> None:
        """Append arbitrary bytes."""
        self.seq += 1
        self.wall_ms += 1
        self._redis.execute_command(*xadd(self.stream, Entry(StreamId(self.epoch, self.seq), letter, data)))

    def batch(self, base: int, count: int, payload: bytes = b"x") -> None:
        """Append a batch to a topic log; its id is the end of the log (CM-40)."""
        batch = LogBatch(base, base + count - 1, len(payload), payload, self.wall_ms, 0, -1, -1, -1, False, False, 0)
        self._redis.execute_command(*xadd(self.stream, batch_entry(self.epoch, batch)))


def finish(job: Running) -> None:
    """Wait, for a bounded time, for a job that ends by itself."""
    try:
        for _ in range(BOUND_S):
            if job.wait(1):
                return
        raise AssertionError(f"the job did not end within {BOUND_S} s")
    finally:
        job.stop()


@contextmanager
def running() -> Iterator[World]:
    """Run a server for a while."""
    server = Server()
    try:
        asyncio.run(server.start())
        world = World(server)
        yield world
        world.redis.close()
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
