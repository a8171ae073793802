"""Processes on a store under test, with helpers named in the tests' vocabulary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from shard_runtime.clock import SystemClock
from shard_runtime.record_log.protocol import (
    STREAM_START,
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    Entry,
    HistoryChanged,
    Renewal,
    ShardId,
    ShardKind,
    StoreUnavailableError,
    StreamAppend,
    StreamId,
)
from shard_runtime.record_log.redis.cluster_store import StoreClusterStore
from shard_runtime.record_log.redis.connection import StoreSettings
from shard_runtime.record_log.redis.log import StoreRecordLog
from tests.support.stores import Deployment

GROUP = ShardId(ShardKind.GROUP, "7")
OTHER = ShardId(ShardKind.SHARE_STATE, "3")
TOPIC = ShardId(ShardKind.TOPIC, "AAAAAAAAAAAAAAAAAAAAAQ:0")
LEASE_MS = 60_000
CLUSTER = "cluster-1"
AnswerT = TypeVar("AnswerT")


class Process:
    """One process with a log; its incarnation is its node id times 1000, plus the number of times it was started."""

    def __init__(self, log: StoreRecordLog, node_id: int, incarnation: int) -> None:
        self.log, self.node_id, self.incarnation = log, node_id, incarnation
        self._claims = 0

    def request(self, shard: ShardId = GROUP, **changes: Any) -> ClaimRequest:
        self._claims += 1
        made = ClaimRequest(
            shard=shard,
            node_id=self.node_id,
            incarnation=self.incarnation,
            address=f"node-{self.node_id}:9000",
            nonce=f"{self.incarnation}/{self._claims}",
            lease_ms=LEASE_MS,
            floor=0,
            seen_history=self.log.history_of(shard),
            waited=True,
        )
        return replace(made, **changes)

    async def history(self, shard: ShardId = GROUP) -> str:
        """Return the history of a shard's store node. A process that does not know it makes a claim, which fails but
        returns it."""
        if not self.log.history_of(shard):
            await self.log.claim(self.request(shard, seen_history=""))
        return self.log.history_of(shard)

    async def try_claim(self, shard: ShardId = GROUP, **changes: Any) -> ClaimAnswer:
        answer = await self.log.claim(self.request(shard, **changes))
        if isinstance(answer, HistoryChanged) and "seen_history" not in changes:
            answer = await self.log.claim(self.request(shard, seen_history=answer.history, **changes))
        return answer

    async def claim(self, shard: ShardId = GROUP, **changes: Any) -> Claimed:
        answer = await self.try_claim(shard, **changes)
        assert isinstance(answer, Claimed), answer
        return answer

    def renewal(self, epoch: int, shard: ShardId = GROUP, tail_ok: str = "") -> Renewal:
        return Renewal(shard, self.incarnation, epoch, LEASE_MS, tail_ok)


class World:
    """A store and the processes on it."""

    def __init__(self, store: Deployment, replicas: int = 0, min_insync_replicas: int = 1) -> None:
        self.store = store
        self.settings = StoreSettings(
            cluster_id=CLUSTER,
            replicas=replicas,
            min_insync_replicas=min_insync_replicas,
            wait_ms=200,
            call_ms=10_000,
            backoff_ms=5,
            backoff_max_ms=50,
        )
        self._made: list[StoreRecordLog | StoreClusterStore] = []

    async def process(self, name: str = "a", incarnation: int = 1, **settings: Any) -> Process:
        await self.store.raw(("SET", "{meta}:cluster", CLUSTER, "NX"))
        store = await self.store.client(name)
        log = StoreRecordLog(store, replace(self.settings, **settings), SystemClock())
        self._made.append(log)
        await log.open()
        node_id = ord(name[0]) - ord("a") + 1
        return Process(log, node_id, node_id * 1000 + incarnation)

    async def cluster_store(self, name: str = "a") -> StoreClusterStore:
        made = StoreClusterStore(await self.store.client(name), self.settings)
        self._made.append(made)
        return made

    async def lapse(self, shard: ShardId = GROUP) -> None:
        """Make the lease expire."""
        await self.store.raw(("HSET", shard.owner_key, "expires", 1))

    async def owner(self, shard: ShardId = GROUP) -> dict[str, str]:
        names = ("incarnation", "epoch", "expires", "released", "lease_history", "tail_history", "replay_from")
        (values,) = await self.store.raw(("HMGET", shard.owner_key, *names))
        return {name: value.decode() for name, value in zip(names, values, strict=True) if value is not None}

    async def close(self) -> None:
        for made in self._made:
            await made.close()
        await self.store.close()


async def in_time(call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Return the result of a call that gives up early; on a busy machine it is retried, up to 20 times."""
    for _ in range(20):
        with suppress(StoreUnavailableError):
            return await call()
    raise AssertionError("the store gave no answer in twenty calls")


def flush(shard: ShardId, epoch: int, first: int, *records: bytes, stream: int = 0) -> list[StreamAppend]:
    """Return one flush of consecutive entries of type S."""
    entries = [Entry(StreamId(epoch, first + i), "S", record) for i, record in enumerate(records)]
    return [StreamAppend(shard.streams[stream], entries)]


async def kinds(process: Process, stream: str) -> str:
    """Return the types of a stream's entries, in order, as one word."""
    return "".join(entry.kind for entry in await process.log.read(stream, STREAM_START, None, 1000))


async def records(process: Process, stream: str) -> list[bytes]:
    """Return the records of a stream's S entries."""
    return [e.record for e in await process.log.read(stream, STREAM_START, None, 1000) if e.kind == "S"]
